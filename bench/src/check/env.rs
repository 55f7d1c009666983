//! `kvwire check env`: reads manifests, judges them, prints the report in the form that was asked for.

use std::path::{Path, PathBuf};

use checks::Status;
use checks::env::{Configuration, Options, Report, Version, Versions, Waiver, check};

use super::kubectl::{self, Pod};
use super::{github, processes, sarif, text};
use crate::cli::{CheckEnvArgs, FailOn, Format};
use crate::exit::Exit;
use crate::terminal::Terminal;

/// The configuration that is read when none is named.
const CONFIGURATION: &str = ".kvwire.yaml";

/// Runs the command.
pub(crate) async fn run(args: &CheckEnvArgs, terminal: &Terminal) -> Exit {
    let (mut options, pods) = match options(args).and_then(|options| Ok((options, Pod::all(&args.pods)?))) {
        Ok(both) => both,
        Err(message) => {
            terminal.error(&message);
            return Exit::Usage;
        }
    };
    (options.pods, options.found) = processes::read_all(&pods).await;
    let report = check(&args.paths, &mut std::io::stdin().lock(), &options);
    let format = if args.output.json { Format::Json } else { args.format };
    let rendered = match format {
        Format::Text => {
            Ok(text::render(&report, terminal.color_on_stdout(), terminal.width(), args.output.verbose))
        }
        Format::Json => serde_json::to_string_pretty(&report).map(|json| json + "\n"),
        Format::Sarif => sarif::render(&report),
        Format::Github => Ok(github::render(&report)),
    };
    let written = match rendered {
        Ok(rendered) => terminal.result(&rendered),
        Err(e) => {
            terminal.error(&format!("the report cannot be written as JSON: {e}"));
            return Exit::Internal;
        }
    };
    match written {
        Ok(()) => exit(&report, args.fail_on),
        Err(e) => {
            terminal.error(&format!("standard output cannot be written: {e}"));
            Exit::Internal
        }
    }
}

/// 1 for what `--fail-on` names, 3 when there was nothing to judge or a pod could not be looked into, else 0.
fn exit(report: &Report, fail_on: FailOn) -> Exit {
    match (report.worst(), fail_on) {
        (Status::Fail, _) | (Status::Warn, FailOn::Warn) => Exit::NotTrusted,
        _ if report.judged() == 0 || report.findings.iter().any(|f| f.id == kubectl::ID) => {
            Exit::Inconclusive
        }
        _ => Exit::Trusted,
    }
}

fn options(args: &CheckEnvArgs) -> Result<Options, String> {
    let version = |flag: &str, text: &Option<String>| match text {
        None => Ok(None),
        Some(text) => Version::read(text)
            .map(Some)
            .ok_or_else(|| format!("{flag}: {text} is not a version\n  fix: for example {flag} 1.4.0")),
    };
    let versions = Versions {
        nixl: version("--nixl-version", &args.nixl_version)?,
        ucx: version("--ucx-version", &args.ucx_version)?,
        nccl: None,
    };
    let mut waivers = configuration(args.config.as_deref())?.waivers;
    waivers.extend(args.ignore.iter().map(|id| Waiver { id: id.clone(), by: "--ignore".to_owned() }));
    Ok(Options { versions, waivers, kubectl: on_path("kubectl"), ..Options::default() })
}

/// A program on PATH.
fn on_path(program: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// The configuration that is named, or the one that lies here.
///
/// # Errors
/// It cannot be read, or is none: a sentence.
pub(super) fn configuration(named: Option<&Path>) -> Result<Configuration, String> {
    let path = match named {
        Some(path) => path.to_owned(),
        None => {
            let path = PathBuf::from(CONFIGURATION);
            if !path.is_file() {
                return Ok(Configuration::default());
            }
            path
        }
    };
    let name = path.display().to_string();
    let fix = "fix: give a file such as\n    check:\n      env:\n        ignore: [one-rail]";
    let text = std::fs::read_to_string(&path)
        .map_err(|e| format!("--config: {name} cannot be read: {e}\n  {fix}"))?;
    Configuration::read(&name, &text).map_err(|e| format!("--config: {name}: {e}\n  {fix}"))
}
