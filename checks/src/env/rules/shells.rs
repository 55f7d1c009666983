//! Shell lines that do not do what they seem to.

use super::super::shell::{Command, Joined};
use super::super::worker::Worker;
use super::{Findings, finding};
use crate::Status;

pub(super) fn check(worker: &Worker, out: &mut Findings<'_>) {
    let launch = &worker.launch;
    if !launch.shell {
        return;
    }
    for (i, command) in launch.commands.iter().enumerate() {
        let is = |name: &str| command.words.first().is_some_and(|w| w.text == name);
        if is("ulimit") {
            swallowed(command, worker, out);
            let next = launch.commands.get(i + 1).map(|c| c.joined);
            let guarded = next == Some(Joined::Or);
            let stops = next == Some(Joined::And) || launch.stops_on_error || sets_e(&launch.commands[..i]);
            let locks = command.words.iter().any(|w| w.text == "-l" || w.text.starts_with("-l"));
            let able = worker.pod.privileged
                || worker.pod.capabilities.iter().any(|c| matches!(c.text.as_str(), "SYS_RESOURCE" | "ALL"));
            if locks && stops && !guarded && !able && worker.partial.is_none() {
                let title = "the worker starts only when `ulimit -l unlimited` succeeds, and the container lacks SYS_RESOURCE";
                let fix = "securityContext:\n  capabilities:\n    add: [IPC_LOCK, SYS_RESOURCE]";
                let span = out.sources.locate(command.words[0].span, "ulimit");
                out.add(finding("ulimit-stops-worker", Status::Warn, title).fix(fix), span, Some(worker));
            }
        }
    }
    if let Some((engine, _)) = launch.program {
        for word in &launch.commands[engine].words {
            let rest = word.text.trim_start();
            if word.quoted && rest.len() < word.text.len() && (rest.is_empty() || rest.starts_with('-')) {
                let title = if rest.is_empty() {
                    "a backslash in this folded text gives the engine an argument that is one blank"
                        .to_owned()
                } else {
                    format!(
                        "a backslash in this folded text puts a blank in front of {rest}: the engine does not know the flag"
                    )
                };
                let span = out.sources.locate(word.span, "\\");
                let fix = "args:\n  - |";
                out.add(finding("stray-argument", Status::Fail, title).fix(fix), span, Some(worker));
                return;
            }
        }
    }
}

fn sets_e(before: &[Command]) -> bool {
    before.iter().any(|c| {
        c.words.first().is_some_and(|w| w.text == "set")
            && c.words.iter().skip(1).any(|w| {
                w.text == "errexit"
                    || (w.text.starts_with('-') && !w.text.starts_with("--") && w.text.contains('e'))
            })
    })
}

/// `ulimit -l unlimited python3 …`: the worker's words are arguments of ulimit.
fn swallowed(command: &Command, worker: &Worker, out: &mut Findings<'_>) {
    let extra = command.words.iter().skip(1).find(|w| {
        !w.text.starts_with('-')
            && w.text != "unlimited"
            && w.text != "hard"
            && w.text != "soft"
            && !w.dynamic
            && !w.text.bytes().all(|b| b.is_ascii_digit())
            && !w.text.starts_with(['>', '<', '2'])
    });
    if let Some(word) = extra {
        let title =
            format!("`{}` and what follows are arguments of ulimit: the worker never starts", word.text);
        let span = out.sources.locate(command.words[0].span, "ulimit");
        let found = finding("worker-never-starts", Status::Fail, title).fix("ulimit -l unlimited && …");
        out.add(found, span, Some(worker));
    }
}
