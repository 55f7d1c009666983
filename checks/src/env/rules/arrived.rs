//! What a manifest declares, and what of it the running process has.

use super::super::catalogue::{Effect, catalogue};
use super::super::environment::{Content, Setting};
use super::super::worker::{Role, Worker};
use super::{Findings, Scene, finding};
use crate::Status;

/// Variables that are listed in one finding.
const LISTED_MAX: usize = 40;

pub(super) fn check(scene: &Scene<'_>, out: &mut Findings<'_>) {
    let declared: Vec<&Worker> = scene.workers.iter().filter(|w| w.is_judged() && !w.is_process).collect();
    if declared.is_empty() {
        return;
    }
    for process in scene.workers.iter().filter(|w| w.is_process) {
        match counterpart(&declared, process) {
            Ok(worker) => compare(worker, process, out),
            Err(candidates) => {
                let title =
                    format!("which worker of the manifest runs in pod {} could not be told", process.name);
                let lines = candidates.iter().map(|w| format!("{} in {}", w.name, w.object));
                let found = finding("process-unmatched", Status::Unknown, title).evidence(lines);
                out.add(found, process.span, Some(process));
            }
        }
    }
}

/// The worker that a pod is of: by its name in the pod's, then by role, then since there is no other.
///
/// # Errors
/// The workers among which nothing decides; none where no worker is of the pod's side.
fn counterpart<'a>(declared: &[&'a Worker], process: &Worker) -> Result<&'a Worker, Vec<&'a Worker>> {
    let pod = plain(&process.name);
    let score = |worker: &Worker| {
        let own = plain(worker.name.split(" (").next().unwrap_or(&worker.name));
        let object = plain(worker.object.split(' ').nth(1).unwrap_or_default());
        let within = |name: &str| if !name.is_empty() && pod.contains(name) { name.len() } else { 0 };
        (within(&own), within(&object))
    };
    // A pod of one side is never taken for a worker of the other.
    let sides = |role: Role| matches!(role, Role::Prefill | Role::Decode);
    let fits =
        |worker: &&&'a Worker| !sides(process.role) || !sides(worker.role) || worker.role == process.role;
    let declared: Vec<&'a Worker> = declared.iter().filter(fits).copied().collect();
    let best = declared.iter().map(|worker| score(worker)).max().unwrap_or_default();
    let mut left: Vec<&'a Worker> = declared.iter().copied().filter(|worker| score(worker) == best).collect();
    let narrow = |left: &mut Vec<&'a Worker>, fits: &dyn Fn(&Worker) -> bool| {
        let fitting: Vec<&'a Worker> = left.iter().copied().filter(|worker| fits(worker)).collect();
        if !fitting.is_empty() {
            *left = fitting;
        }
    };
    if !process.container.is_empty() {
        narrow(&mut left, &|worker| worker.container == process.container);
    }
    if sides(process.role) {
        narrow(&mut left, &|worker| worker.role == process.role);
    }
    match left.as_slice() {
        [only] => Ok(only),
        _ => Err(left),
    }
}

/// Lower-case letters and digits alone: `VllmDecodeWorker` runs in `graph-0-vllmdecodeworker-x7k2p`.
fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

fn compare(worker: &Worker, process: &Worker, out: &mut Findings<'_>) {
    let is_engine = process.launch.program.is_some();
    let (mut arrived, mut not_seen) = (0, Vec::new());
    for setting in worker.env.settings() {
        // What the command exports is in the engine's environment and not in that of the shell that starts it.
        if setting.origin == "command" && !is_engine {
            not_seen.push(setting.name.clone());
            continue;
        }
        match (process.env.get(&setting.name), &setting.content) {
            (None, _) => missing(worker, process, setting, out),
            (Some(there), Content::Text(text)) if there.text() != Some(text) => {
                changed(worker, process, setting, there, out);
            }
            (Some(_), _) => arrived += 1,
        }
    }
    for removed in worker.env.removed.iter().filter(|removed| process.env.get(&removed.text).is_some()) {
        let title =
            format!("{} is taken away by the manifest, and pod {} has it", removed.text, process.name);
        out.add(finding("declared-changed", Status::Warn, title), removed.span, Some(process));
    }
    let total = worker.env.settings().len() - not_seen.len();
    let title = format!(
        "{arrived} of {total} variables that {} declares arrived in pod {}",
        worker.name, process.name
    );
    let lines = (!not_seen.is_empty()).then(|| {
        format!("set by the command, and not looked at since no engine was seen: {}", not_seen.join(", "))
    });
    // Where none arrived, each says so itself.
    if arrived > 0 || lines.is_some() || total == 0 {
        out.add(finding("declared-arrived", Status::Ok, title).evidence(lines), process.span, Some(process));
    }
    undeclared(worker, process, out);
}

fn decides(name: &str) -> bool {
    catalogue().get(name).is_some_and(|entry| matches!(entry.effect, Effect::Live | Effect::Deprecated))
}

fn missing(worker: &Worker, process: &Worker, setting: &Setting, out: &mut Findings<'_>) {
    let status = if decides(&setting.name) { Status::Fail } else { Status::Warn };
    let title = format!(
        "{} is declared for {} and did not arrive in pod {}",
        setting.name, worker.name, process.name
    );
    out.about(finding("declared-missing", status, title), setting, &setting.name, process);
}

fn changed(worker: &Worker, process: &Worker, setting: &Setting, there: &Setting, out: &mut Findings<'_>) {
    let status = if decides(&setting.name) { Status::Fail } else { Status::Warn };
    let title = format!(
        "{} is declared for {} and arrived with another value in pod {}",
        setting.name, worker.name, process.name
    );
    let lines = [format!("declared  {}", setting.shown()), format!("arrived   {}", there.shown())];
    out.about(finding("declared-changed", status, title).evidence(lines), setting, &setting.name, process);
}

fn undeclared(worker: &Worker, process: &Worker, out: &mut Findings<'_>) {
    let own = process.env.settings().iter();
    let extra: Vec<String> = own
        .filter(|setting| decides(&setting.name) && worker.env.get(&setting.name).is_none())
        .map(|setting| format!("{}={}", setting.name, setting.shown()))
        .take(LISTED_MAX)
        .collect();
    if !extra.is_empty() {
        let title = format!(
            "pod {} has variables that decide the wire and that the manifest does not declare: from its image, its operator or its start script",
            process.name
        );
        out.add(finding("undeclared", Status::Ok, title).evidence(extra), process.span, Some(process));
    }
}
