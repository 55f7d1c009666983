//! `kvwire check nixl`: loads NIXL in an engine, here or in a pod, and says how far it gets and what UCX offers there.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use checks::node::{NodeReport, gather, judge};
use checks::{Finding, Status};
use coordinator::Role;

use super::Problem;
use super::contract::{Check, Report};
use super::kubectl::{Output, Pod};
use super::offer;
use crate::cli::CheckNixlArgs;
use crate::engine::protocol::{Attempt, Command, Event, Trial};
use crate::engine::{Engine, EngineFailure, Phase};
use crate::preflight;
use crate::terminal::Terminal;

/// Loading NIXL, creating two backends and moving a megabyte, at most.
const DEADLINE: Duration = Duration::from_secs(60);

/// Port of the rendezvous in the commands that are proposed.
const PORT: u16 = 18516;

/// What the pod is asked when it has no kvwire: the places that the read-only check looks at.
const SEARCH: &str = "if command -v kvwire >/dev/null 2>&1; then exec kvwire check nixl --json; fi\n\
    for f in nixlbench nixl_test; do p=$(command -v $f 2>/dev/null) && echo \"found $p\"; done\n\
    for f in /usr/local/nixl /opt/nvidia/nvda_nixl; do [ -d $f ] && echo \"found $f\"; done\n\
    for f in /usr/lib/python3*/*-packages /usr/local/lib/python3*/*-packages /opt/*/lib/python3*/site-packages \
    \"${VIRTUAL_ENV:-/nonexistent}\"/lib/python3*/site-packages; do \
    for g in \"$f\"/.nixl_cu*.mesonpy.libs/libnixl_capi.so; do [ -e \"$g\" ] && echo \"found $g\"; done; done\nexit 0\n";

/// Runs the command.
pub(super) async fn check(args: &CheckNixlArgs, terminal: &Terminal) -> Result<Option<Report>, Problem> {
    let pods = Pod::all(&args.pods).map_err(Problem::usage)?;
    if pods.is_empty() {
        refuse_wrong_library(args.nixl_lib.as_ref())?;
        let node = judge(&gather(env!("CARGO_PKG_VERSION")), "local host");
        let findings = here(args.nixl_lib.as_ref(), Some(&node), terminal).await;
        return Ok(Some(Report::new(vec![("local host".to_owned(), findings)], &[])));
    }
    let mut places = Vec::new();
    for pod in &pods {
        terminal.detail(&format!("pod {}: trying NIXL", pod.name));
        places.push((format!("pod {}", pod.name), in_pod(pod, &pods).await));
    }
    Ok(Some(Report::new(places, &[])))
}

/// A `--nixl-lib` that names no NIXL is a wrong command line.
pub(super) fn refuse_wrong_library(path: Option<&PathBuf>) -> Result<(), Problem> {
    preflight::nixl_lib("--nixl-lib", path).map_err(Problem::usage)
}

/// Tries NIXL on this machine. `node` is what the machine could do, where that is known.
pub(super) async fn here(
    nixl_lib: Option<&PathBuf>,
    node: Option<&NodeReport>,
    terminal: &Terminal,
) -> Vec<Finding> {
    let nixl_lib = nixl_lib.map(|path| path.display().to_string());
    let mut findings = match try_out(nixl_lib.as_deref(), terminal).await {
        Ok((trial, log)) => of_trial(&trial, &log),
        Err(failure) => return vec![not_found(&failure)],
    };
    findings.push(offer::finding(nixl_lib.as_deref(), node, terminal).await);
    findings
}

async fn try_out(nixl_lib: Option<&str>, terminal: &Terminal) -> Result<(Trial, Vec<String>), EngineFailure> {
    let mut engine = Engine::spawn(Role::Initiator, &BTreeMap::new(), terminal)?;
    let command = Command::TryOut { nixl_lib: nixl_lib.map(str::to_owned) };
    let answer = engine.request(&command, Phase::Opening, DEADLINE).await;
    let confused = engine.confused(Phase::Opening);
    let log = engine.trouble().await;
    match answer {
        Ok(Event::Tried(trial)) => Ok((*trial, log)),
        Ok(_) => Err(confused),
        Err(failure) => Err(failure),
    }
}

/// No NIXL to try, or an engine that died of it.
fn not_found(failure: &EngineFailure) -> Finding {
    let inner = failure.finding();
    let status = if inner.id == "nixl-missing" { Status::Warn } else { Status::Fail };
    let id = if matches!(inner.id.as_str(), "nixl-missing" | "nixl-unusable") {
        "nixl:binary"
    } else {
        "nixl-loopback"
    };
    Finding::new(id, status, inner.title)
        .detail(inner.detail)
        .evidence(inner.evidence)
        .next_step(inner.next_step)
}

fn of_trial(trial: &Trial, log: &[String]) -> Vec<Finding> {
    let nixl = &trial.nixl;
    let mut findings = vec![
        Finding::new("nixl:binary", Status::Ok, nixl.versions())
            .detail("run a pairwise transfer to prove the wire: kvwire run")
            .evidence([Some(nixl.library.clone()), nixl.ucx_library.clone()].into_iter().flatten()),
    ];
    let steps = [
        ("plugins", "nixl-plugins", "the UCX plugin is there"),
        ("backend", "nixl-backend", "the UCX backend starts"),
        ("host memory", "nixl-memory", "host memory can be registered"),
        (
            "loopback",
            "nixl-loopback",
            "1 MiB moved between two agents of one process, and every byte was right",
        ),
    ];
    let failed = trial.steps.iter().find_map(|step| Some((step.name.as_str(), step.error.as_deref()?)));
    for (name, id, title) in steps {
        let done = trial.steps.iter().any(|step| step.name == name && step.error.is_none());
        findings.push(match failed {
            _ if done && name == "plugins" => Finding::new(id, Status::Ok, title)
                .evidence([format!("plugins: {}", trial.plugins.join(", "))]),
            _ if done => Finding::new(id, Status::Ok, title),
            Some((step, error)) if step == name || (step == "agent" && name == "plugins") => {
                Finding::new(id, Status::Fail, format!("{name}: {error}"))
                    .evidence(log.iter().cloned())
                    .next_step(hint(name))
            }
            _ => Finding::new(id, Status::Skipped, "a step before it failed"),
        });
    }
    findings.push(gpu_memory(trial, log));
    findings
}

fn hint(step: &str) -> &'static str {
    match step {
        "plugins" => {
            "see where NIXL looks for plugins (NIXL_PLUGIN_DIR), and that core and plugins are of one install"
        }
        "backend" => {
            "read the UCX lines above: a UCX_TLS or UCX_NET_DEVICES that leaves nothing usable is the usual cause; try again with both unset"
        }
        "host memory" => "raise the limit of locked memory (IPC_LOCK, ulimit -l), see the finding memlock",
        _ => "read the UCX lines above, and run again with --verbose and UCX_LOG_LEVEL=info",
    }
}

/// Registration of GPU memory: tried where there is a GPU, and never called right where it was not.
fn gpu_memory(trial: &Trial, log: &[String]) -> Finding {
    let id = "nixl-gpu-memory";
    match &trial.gpu_memory {
        Attempt::Done => Finding::new(id, Status::Ok, "GPU memory can be registered"),
        Attempt::Failed(error) => Finding::new(id, Status::Fail, format!("GPU memory: {error}"))
            .evidence(log.iter().cloned())
            .next_step(
                "see gpudirect and libraries-ucx: UCX needs its CUDA modules, libcudart for them (`kvwire info` says where it was looked for), and cuda_copy in UCX_TLS",
            ),
        Attempt::Skipped(why) => Finding::new(id, Status::Skipped, why.as_str()),
    }
}

/// Tries NIXL in a pod. `pods` are all that were asked for, for the next command.
pub(super) async fn in_pod(pod: &Pod, pods: &[Pod]) -> Vec<Finding> {
    let output = match pod.exec(&["sh", "-c", SEARCH]).await {
        Ok(output) if output.no_program() => pod.exec(&["kvwire", "check", "nixl", "--json"]).await,
        other => other,
    };
    let output = match output {
        Ok(output) => output,
        Err(finding) => return vec![*finding],
    };
    if let Some(findings) = of_json(&output) {
        return findings;
    }
    let found: Vec<String> =
        output.stdout.lines().filter_map(|line| line.strip_prefix("found ")).map(str::to_owned).collect();
    let binary = if found.is_empty() {
        Finding::new("nixl:binary", Status::Warn, "no NIXL was found in the usual places of this pod")
            .evidence(output.said())
            .next_step("use an image that has NIXL, or kvwire's own image as a debug container")
    } else {
        Finding::new("nixl:binary", Status::Ok, format!("found {}", found.join(", ")))
            .detail("run a pairwise transfer to prove the wire")
    };
    let loopback = Finding::new(
        "nixl-loopback",
        Status::Skipped,
        "kvwire is not in this pod, so nothing was loaded or moved",
    )
    .next_step(commands(pod, pods));
    vec![binary, loopback]
}

/// The findings of a kvwire that ran in the pod.
fn of_json(output: &Output) -> Option<Vec<Finding>> {
    let json = &output.stdout[output.stdout.find('{')?..];
    let report: Report = serde_json::from_str(json).ok()?;
    let finding = |check: Check| {
        Finding::new(&check.name, check.status, check.detail)
            .evidence(check.evidence)
            .next_step(check.next_step)
    };
    Some(report.checks.into_iter().map(finding).collect())
}

/// What to type next, with the pods' names filled in.
fn commands(pod: &Pod, pods: &[Pod]) -> String {
    let copy = |pod: &Pod| pod.copy_command("kvwire", "/tmp/kvwire");
    match pods {
        // A token for this run alone, and the first pod's address: nothing is left to be filled in.
        [target, initiator] => format!(
            "T=$(od -An -N16 -tx1 /dev/urandom | tr -d ' '); {}; {}; {} & {}",
            copy(target),
            copy(initiator),
            target.typed(&format!(
                "env KVWIRE_TOKEN=$T /tmp/kvwire target --rendezvous tcp://0.0.0.0:{PORT} --run-id check"
            )),
            initiator.typed(&format!(
                "env KVWIRE_TOKEN=$T /tmp/kvwire initiator --rendezvous tcp://$({}):{PORT} --run-id check",
                target.address_command()
            ))
        ),
        _ => format!("{}; {}", copy(pod), pod.typed("/tmp/kvwire check nixl")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::protocol::Step;

    fn trial(steps: &[(&str, Option<&str>)]) -> Trial {
        let step = |(name, error): &(&str, Option<&str>)| Step {
            name: (*name).to_owned(),
            error: error.map(str::to_owned),
        };
        Trial {
            nixl: Default::default(),
            plugins: vec!["UCX".into()],
            memory_kinds: Vec::new(),
            gpu_memory: Attempt::Skipped("no GPU here".into()),
            steps: steps.iter().map(step).collect(),
        }
    }

    fn statuses(trial: &Trial) -> Vec<(String, Status)> {
        of_trial(trial, &[]).into_iter().map(|finding| (finding.id, finding.status)).collect()
    }

    #[test]
    fn what_comes_after_a_failed_step_is_skipped_and_never_ok() {
        let found = statuses(&trial(&[("plugins", None), ("backend", Some("no device"))]));
        let expected = [
            ("nixl:binary", Status::Ok),
            ("nixl-plugins", Status::Ok),
            ("nixl-backend", Status::Fail),
            ("nixl-memory", Status::Skipped),
            ("nixl-loopback", Status::Skipped),
            ("nixl-gpu-memory", Status::Skipped),
        ];
        assert_eq!(found, expected.map(|(id, status)| (id.to_owned(), status)));
        assert_eq!(statuses(&trial(&[("agent", Some("no"))]))[1], ("nixl-plugins".to_owned(), Status::Fail));
    }
}
