//! A running process as a worker: what arrived in it is judged by the rules that manifests are judged by.

use std::rc::Rc;

use super::super::environment::{Environment, Maps};
use super::super::launch::{Launch, Program};
use super::super::process::{PodProcesses, Process};
use super::super::secret;
use super::super::shell::Word;
use super::super::source::Sources;
use super::super::worker::Worker;
use super::super::yaml::{Node, Span};
use super::container::Draft;
use crate::{Finding, Status};

/// Id of the finding that says which processes were read.
const READ: &str = "process-environment";

/// The worker that runs in a pod: its engine's process where there is one, else its first process. With it the finding
/// that says what was read.
pub(in super::super) fn worker(pod: &PodProcesses, sources: &mut Sources) -> (Option<Worker>, Finding) {
    let engine = pod.processes.iter().find(|process| is_engine(process));
    let readable = |process: &&Process| process.environment.as_ref().is_some_and(|all| !all.is_empty());
    let chosen = engine.filter(readable).or_else(|| pod.processes.first().filter(readable));
    let Some(chosen) = chosen else { return (None, unreadable(pod)) };
    let finding = read(pod, chosen, engine);
    let worker = put_together(pod, chosen, sources);
    (worker, finding)
}

fn is_engine(process: &Process) -> bool {
    let words = process.command.iter().map(|text| word(text, Span::default())).collect();
    let launch = Launch::of_process(words, Span::default());
    matches!(launch.program, Some((_, Program::Engine(_) | Program::DynamoEngine(_))))
}

fn word(text: &str, span: Span) -> Word {
    Word { text: text.to_owned(), dynamic: false, quoted: true, span }
}

fn put_together(pod: &PodProcesses, process: &Process, sources: &mut Sources) -> Option<Worker> {
    let variables = process.environment.as_deref().unwrap_or_default();
    let lines = std::iter::once(process.command.join(" "))
        .chain(variables.iter().map(|(name, value)| format!("{name}={value}")))
        .map(|line| line.replace(['\n', '\r'], " "));
    let text = lines.collect::<Vec<_>>().join("\n");
    let file = sources.add_process(format!("pod {}, process {}", pod.pod, process.id), &text);
    let span = |line: usize, column: usize, length: usize| {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let (line, column) = (number(line), number(column));
        Span { file, line, column, end_line: line, end_column: column.saturating_add(number(length)) }
    };
    let mut column = 1;
    let words = process.command.iter().map(|argument| {
        let length = argument.chars().count();
        let here = span(1, column, length);
        column += length + 1;
        word(argument, here)
    });
    let launch = Launch::of_process(words.collect(), span(1, 1, text.lines().next().unwrap_or("").len()));
    let mut environment = Environment::default();
    for (at, (name, value)) in variables.iter().enumerate() {
        let here = span(at + 2, 1, name.chars().count() + 1 + value.chars().count());
        if secret::is_secret_name(name) || secret::is_credential(value) {
            sources.hide(here);
        }
        if !is_service_link(name, variables) {
            environment.add_process(name, value, here);
        }
    }
    let container = Node::empty_map(span(1, 1, 1));
    let mut draft = Draft::new(&pod.pod, &format!("Pod {}", pod.pod), Rc::clone(&container));
    draft.container_name = pod.container.clone().unwrap_or_default();
    draft.script = Some(launch);
    draft.process = Some(environment);
    draft.finish(&Maps::default(), &mut Vec::new())
}

/// Kubernetes sets `NAME_SERVICE_HOST`, `NAME_PORT_…` and so on for each service: a service called `nixl-etcd` makes
/// variables that look as if they were meant for NIXL.
fn is_service_link(name: &str, variables: &[(String, String)]) -> bool {
    variables.iter().filter_map(|(other, _)| other.strip_suffix("_SERVICE_HOST")).any(|service| {
        name.strip_prefix(service)
            .is_some_and(|rest| rest.starts_with("_SERVICE_") || rest.starts_with("_PORT"))
    })
}

fn unreadable(pod: &PodProcesses) -> Finding {
    let ids: Vec<String> = pod.processes.iter().map(told).collect();
    let title = format!("pod {}: the environment of no process of its worker could be read", pod.pod);
    Finding::new(READ, Status::Unknown, title)
        .evidence(ids)
        .next_step(format!(
            "use the container's own user (kubectl exec {} -- id), and name the container with --container",
            pod.pod
        ))
        .worker(&pod.pod)
}

fn read(pod: &PodProcesses, chosen: &Process, engine: Option<&Process>) -> Finding {
    let judged = format!("pod {}: judged by the environment of {}", pod.pod, told(chosen));
    let finding = |status, title: String| Finding::new(READ, status, title).worker(&pod.pod);
    match engine {
        Some(engine) if engine.id != chosen.id => {
            finding(Status::Unknown, format!("{judged}; that of the engine, process {}, could not be read", engine.id))
                .next_step("the engine runs as another user, or wrote over its environment: compare with `kubectl describe pod`")
        }
        Some(_) => finding(Status::Ok, judged).evidence(changed(pod, chosen)),
        None => finding(Status::Unknown, format!("{judged}; no process of a known engine was seen"))
            .detail("a start script may set variables that only the engine sees")
            .evidence(pod.processes.iter().filter(|process| process.id != chosen.id).map(told))
            .next_step("name the worker's container with --container, and look once the engine runs"),
    }
}

/// What the pod's first process does not have, or has otherwise: a start script set it.
fn changed(pod: &PodProcesses, engine: &Process) -> Vec<String> {
    let Some(first) = pod.processes.first().filter(|first| first.id != engine.id) else { return Vec::new() };
    let Some(before) = &first.environment else {
        return vec![format!("the environment of {} may not be read", told(first))];
    };
    let after = engine.environment.as_deref().unwrap_or_default();
    let decides = |name: &str| super::super::catalogue::catalogue().get(name).is_some();
    let value = |all: &[(String, String)], name: &str| {
        all.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone())
    };
    let set = after
        .iter()
        .filter(|(name, text)| decides(name) && value(before, name).as_ref() != Some(text))
        .map(|(name, text)| {
            format!("set on the way from {}: {name}={}", told(first), secret::value(name, text))
        });
    let lost = before
        .iter()
        .filter(|(name, _)| decides(name) && value(after, name).is_none())
        .map(|(name, _)| format!("taken away on the way from {}: {name}", told(first)));
    set.chain(lost).collect()
}

/// `process 7 (vllm serve)`
fn told(process: &Process) -> String {
    let words = process.command.iter().take(3).map(|word| word.rsplit('/').next().unwrap_or(word));
    let mut words = secret::text(&words.collect::<Vec<_>>().join(" "));
    if let Some((at, _)) = words.char_indices().nth(60) {
        words.truncate(at);
    }
    format!("process {} ({words})", process.id)
}
