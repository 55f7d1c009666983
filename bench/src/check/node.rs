//! `kvwire check node`: evidence from here, from a pod, or from a file; one judgement for all three.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use checks::Finding;
use checks::node::{CAPTURE_MAX, Evidence, NodeReport, gather, judge, script};

use super::Problem;
use super::contract::Report;
use super::kubectl::{Output, Pod};
use crate::cli::CheckNodeArgs;
use crate::terminal::Terminal;

/// In a pod that has kvwire, it does the reading; else the script below this line does.
const KVWIRE_FIRST: &str =
    "if command -v kvwire >/dev/null 2>&1; then kvwire check node --capture - 2>/dev/null && exit 0; fi\n";

/// A place, and what was found there: findings alone where it could not be looked into.
pub(super) enum Looked {
    At(String, Evidence),
    Not(String, Box<Finding>),
}

impl Looked {
    fn note_place(&mut self) {
        if let Self::At(place, evidence) = self {
            evidence.set_place(place);
        }
    }
}

/// Runs the command. `None` when `--capture -` has printed all there is.
pub(super) async fn check(args: &CheckNodeArgs, terminal: &Terminal) -> Result<Option<Report>, Problem> {
    let pods = Pod::all(&args.pods).map_err(Problem::usage)?;
    let mut looked = if args.from.is_empty() { look(&pods, terminal).await } else { from_files(&args.from)? };
    if args.from.is_empty() {
        looked.iter_mut().for_each(Looked::note_place);
    }
    if args.mask {
        looked = looked.into_iter().map(masked).collect();
    }
    if let Some(path) = &args.capture {
        save(path, &looked)?;
        if path.as_os_str() == "-" {
            return Ok(None);
        }
    }
    let (places, nodes) = judged(looked);
    Ok(Some(Report::new(places, &nodes)))
}

/// Reads this machine, or each of the pods.
pub(super) async fn look(pods: &[Pod], terminal: &Terminal) -> Vec<Looked> {
    if pods.is_empty() {
        return vec![Looked::At("local host".to_owned(), gather(env!("CARGO_PKG_VERSION")))];
    }
    let mut looked = Vec::new();
    for pod in pods {
        terminal.detail(&format!("pod {}: reading its node", pod.name));
        let place = format!("pod {}", pod.name);
        looked.push(match read_pod(pod).await {
            Ok(evidence) => Looked::At(place, evidence),
            Err(finding) => Looked::Not(place, finding),
        });
    }
    looked
}

/// The findings of each place, and the reports of those that could be looked at.
pub(super) fn judged(looked: Vec<Looked>) -> (Vec<(String, Vec<Finding>)>, Vec<NodeReport>) {
    let mut nodes = Vec::new();
    let places = looked.into_iter().map(|looked| match looked {
        Looked::At(place, evidence) => {
            let report = judge(&evidence, &place);
            let findings = report.findings.clone();
            nodes.push(report);
            (place, findings)
        }
        Looked::Not(place, finding) => (place, vec![*finding]),
    });
    (places.collect(), nodes)
}

/// One command in the pod gathers everything.
async fn read_pod(pod: &Pod) -> Result<Evidence, Box<Finding>> {
    let script = format!("{KVWIRE_FIRST}{}", script());
    let mut output = pod.exec(&["sh", "-c", &script]).await?;
    if output.no_program() {
        // An image without a shell may still have kvwire.
        output = pod.exec(&["kvwire", "check", "node", "--capture", "-"]).await?;
        if output.no_program() {
            return Err(Box::new(nothing_to_run(pod, &output)));
        }
    }
    Evidence::from_capture(&output.stdout)
        .map_err(|error| Box::new(garbled(pod, &output, &error.to_string())))
}

/// A container in which only a shell could do what was asked.
pub(super) fn no_shell(pod: &Pod, output: &Output) -> Finding {
    unknown(format!("pod {}: its image has no shell, by which its processes are read", pod.name), output).next_step(format!(
        "attach a container with a shell that sees the same processes: kubectl debug {} --image=busybox --target=CONTAINER -- sh -c 'tr \"\\0\" \"\\n\" </proc/1/environ'",
        pod.name
    ))
}

fn nothing_to_run(pod: &Pod, output: &Output) -> Finding {
    unknown(format!("pod {}: its image has neither a shell nor kvwire", pod.name), output).next_step(format!(
        "attach a container that has kvwire: kubectl debug {} --image=IMAGE --target=CONTAINER -- kvwire check node",
        pod.name
    ))
}

/// An answer that is no capture.
pub(super) fn garbled(pod: &Pod, output: &Output, why: &str) -> Finding {
    unknown(format!("pod {}: what it answered cannot be used: {why}", pod.name), output)
        .detail(format!("exit code {}", output.code))
        .next_step(format!("see what it prints: {}", pod.typed("sh -c 'ls /sys/class/infiniband; id'")))
}

fn unknown(title: String, output: &Output) -> Finding {
    Finding::new(super::kubectl::ID, checks::Status::Unknown, title).evidence(output.said())
}

fn from_files(paths: &[std::path::PathBuf]) -> Result<Vec<Looked>, Problem> {
    let mut looked = Vec::new();
    for path in paths {
        let wrong = |why: String| {
            Problem::usage(format!(
                "--from: {}: {why}\n  fix: give a file that `kvwire check node --capture FILE` wrote",
                path.display()
            ))
        };
        let text = read_bounded(path).map_err(|e| wrong(e.to_string()))?;
        for evidence in Evidence::all_from_captures(&text).map_err(|e| wrong(e.to_string()))? {
            let place = match evidence.place() {
                Some(place) => format!("{place} of capture {}", path.display()),
                None => format!("capture {}", path.display()),
            };
            looked.push(Looked::At(place, evidence));
        }
    }
    if looked.len() > 2 {
        return Err(Problem::usage("--from: more than two nodes\n  fix: give captures of one or two nodes"));
    }
    Ok(looked)
}

fn read_bounded(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(CAPTURE_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn masked(looked: Looked) -> Looked {
    match looked {
        Looked::At(place, evidence) => Looked::At(place, evidence.masked()),
        Looked::Not(..) => looked,
    }
}

/// Saves the evidence of all nodes in one file.
fn save(path: &Path, looked: &[Looked]) -> Result<(), Problem> {
    let captures = looked.iter().filter_map(|looked| match looked {
        Looked::At(_, evidence) => Some(evidence.to_capture()),
        Looked::Not(..) => None,
    });
    let text: String = captures.collect();
    if path.as_os_str() == "-" {
        let mut out = std::io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        return written.map_err(|e| Problem::internal(format!("standard output cannot be written: {e}")));
    }
    // A capture says much about a machine: for its owner's eyes.
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|e| {
        Problem::usage(format!(
            "--capture: {} cannot be written: {e}\n  fix: choose a file in a folder that you may write to",
            path.display()
        ))
    })
}
