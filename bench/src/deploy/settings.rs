//! What is to be measured, as the ConfigMap holds it: flags of `kvwire run` by their variables.

use std::collections::BTreeMap;

use clap::{CommandFactory as _, Parser as _};

use super::Problem;
use crate::cli::{Cli, RenderArgs};

/// What the manifests decide, or what must not stand in a ConfigMap.
const NOT_HERE: [&str; 5] =
    ["KVWIRE_RENDEZVOUS", "KVWIRE_INDEX", "KVWIRE_RUN_ID", "KVWIRE_TERMINATION_LOG", "KVWIRE_JSON"];

/// The variables that the flags ask for.
///
/// # Errors
/// One that `kvwire run` does not know, or a value that it would refuse.
pub(super) fn settings(args: &RenderArgs) -> Result<BTreeMap<String, String>, Problem> {
    let mut settings = BTreeMap::new();
    if let Some(model) = &args.model {
        if model.contains(['/', '.']) && model.ends_with(".json") {
            return Err(Problem::usage(
                "--model: a file of this machine is not in the pods\n  fix: choose a name of `kvwire plan --list-models`",
            ));
        }
        settings.insert("KVWIRE_MODEL".to_owned(), model.clone());
    }
    settings.extend(args.workload.iter().map(|kind| ("KVWIRE_WORKLOAD".to_owned(), kind.clone())));
    settings.extend(args.plan.iter().cloned());
    check(&settings)?;
    Ok(settings)
}

/// Refuses here what the pods would refuse after they were scheduled and had pulled their image.
fn check(settings: &BTreeMap<String, String>) -> Result<(), Problem> {
    let command = Cli::command();
    let flags = command.find_subcommand("run").into_iter().flat_map(clap::Command::get_arguments);
    let by_variable: BTreeMap<String, &clap::Arg> =
        flags.filter_map(|flag| Some((flag.get_env()?.to_str()?.to_owned(), flag))).collect();
    let mut words = vec!["kvwire".to_owned(), "run".to_owned(), "--rendezvous=tcp://checked:1".to_owned()];
    for (name, value) in settings {
        let Some(flag) = by_variable.get(name).filter(|_| !NOT_HERE.contains(&name.as_str())) else {
            return Err(Problem::usage(format!(
                "--plan: `{name}` is no setting of the plan\n  fix: take a variable of `kvwire run --help`"
            )));
        };
        let long = flag.get_long().unwrap_or_default();
        if flag.get_action().takes_values() {
            words.push(format!("--{long}={value}"));
        }
    }
    match Cli::try_parse_from(words) {
        Ok(_) => Ok(()),
        Err(e) => {
            let text = e.render().to_string();
            let told = text
                .lines()
                .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
                .collect::<Vec<_>>()
                .join("\n");
            Err(Problem::usage(format!("--plan: {}", told.trim().trim_start_matches("error: "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(name: &str, value: &str) -> String {
        let settings = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        check(&settings).map_or_else(|problem| problem.message, |()| String::new())
    }

    #[test]
    fn what_the_pods_would_refuse_is_refused_before_they_start() {
        assert_eq!(told("KVWIRE_SIZES", "4KiB,64MiB"), "");
        assert_eq!(told("KVWIRE_RECREATE", "true"), "");
        assert!(told("KVWIRE_SIZES", "4 bananas").contains("--sizes"));
        assert!(told("KVWIRE_SISES", "4KiB").contains("no setting"));
        assert!(told("KVWIRE_RENDEZVOUS", "tcp://a:1").contains("no setting"));
    }
}
