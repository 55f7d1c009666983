//! A Job and its two pods, as the cluster tells of them.

use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::sleep;

use super::kubectl::{Kubectl, is_kubernetes_name};
use super::{Problem, cluster};
use crate::cli::JobArgs;
use crate::exit::Exit;
use crate::terminal::Terminal;

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Looks in a row that may fail: an API server may be away for a moment.
const FAILED_LOOKS_MAX: u32 = 5;
/// The container that runs kvwire.
pub(super) const CONTAINER: &str = "kvwire";

/// A Job by its name.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) kubectl: Kubectl,
    pub(super) name: String,
}

/// How a Job stands.
#[derive(Debug)]
pub(super) struct Standing {
    /// Complete or failed, with the reason; `None` while it goes on.
    pub(super) end: Option<End>,
    /// The pods, by index.
    pub(super) pods: Vec<Pod>,
}

/// How a Job ended.
#[derive(Debug)]
pub(super) struct End {
    pub(super) complete: bool,
    why: String,
}

/// One of the two pods.
#[derive(Debug)]
pub(super) struct Pod {
    pub(super) name: String,
    /// 0 is the target, 1 the initiator.
    pub(super) index: u64,
    /// Its container has been started: there is a log.
    pub(super) started: bool,
    /// Its container's exit code.
    code: Option<i64>,
    /// What the container left as its last word.
    message: String,
    /// Why it is not running, as the cluster says it.
    pub(super) waiting: Option<String>,
}

impl Job {
    /// Follows the flags.
    ///
    /// # Errors
    /// A name that Kubernetes does not allow.
    pub(super) fn new(args: &JobArgs) -> Result<Self, Problem> {
        if !is_kubernetes_name(&args.job) {
            return Err(Problem::usage(format!(
                "--job: `{}` is no name of Kubernetes\n  fix: choose one of `kubectl get jobs`",
                args.job
            )));
        }
        Ok(Self { kubectl: cluster(args)?, name: args.job.clone() })
    }

    async fn look(&self) -> Result<Standing, String> {
        let job = self.kubectl.call(&["get", "job", &self.name, "--output=json"], "").await?;
        let pods = format!("--selector=batch.kubernetes.io/job-name={}", self.name);
        let pods = self.kubectl.call(&["get", "pods", &pods, "--output=json"], "").await?;
        let read = |text: &str| {
            serde_json::from_str::<Value>(text).map_err(|e| format!("kubectl's answer is not JSON: {e}"))
        };
        Ok(standing(&read(&job)?, &read(&pods)?))
    }

    /// Waits until the Job has ended and tells what changes. `seen` is called at each look.
    ///
    /// # Errors
    /// There is no such Job, the cluster does not answer, or the time is over.
    pub(super) async fn wait(
        &self,
        limit: Duration,
        terminal: &Terminal,
        mut seen: impl FnMut(&Standing),
    ) -> Result<Standing, Problem> {
        let end = Instant::now() + limit;
        let (mut failed, mut told) = (0, Vec::new());
        loop {
            let waits = match self.look().await {
                Ok(standing) => {
                    failed = 0;
                    seen(&standing);
                    let new = standing.news();
                    new.iter().filter(|line| !told.contains(*line)).for_each(|line| terminal.note(line));
                    told = new;
                    if standing.end.is_some() {
                        return Ok(standing);
                    }
                    standing.waits()
                }
                Err(message) if message.contains("NotFound") || failed >= FAILED_LOOKS_MAX => {
                    return Err(Problem::cluster(format!(
                        "the Job {} cannot be looked at: {message}\n  fix: see it with: kubectl get jobs{}",
                        self.name,
                        self.kubectl.typed_namespace()
                    )));
                }
                Err(message) => {
                    failed += 1;
                    message
                }
            };
            if Instant::now() >= end {
                return Err(Problem::cluster(format!(
                    "the Job {} has not ended within {:?} (--timeout): {waits}\n  fix: see why: kubectl describe job,pod --selector batch.kubernetes.io/job-name={}{}",
                    self.name,
                    limit,
                    self.name,
                    self.kubectl.typed_namespace()
                )));
            }
            sleep(LOOK_EVERY.min(end.saturating_duration_since(Instant::now()))).await;
        }
    }
}

impl Standing {
    /// What the Job waits for.
    fn waits(&self) -> String {
        match self.pods.as_slice() {
            [] => "it has no pods".to_owned(),
            pods => pods.iter().map(Pod::ending).collect::<Vec<_>>().join("; "),
        }
    }

    fn news(&self) -> Vec<String> {
        let of_pod = |pod: &Pod| pod.waiting.as_ref().map(|why| format!("{}: {why}", pod.name));
        let mut news: Vec<String> = self.pods.iter().filter_map(of_pod).collect();
        if let Some(end) = &self.end {
            news.push(format!("Job {}{}", if end.complete { "complete" } else { "failed" }, end.why));
        }
        news
    }

    /// The run's exit code: the worst of the two sides'; a side that was killed, or is gone, says nothing about the wire.
    pub(super) fn exit(&self) -> Exit {
        let complete = self.end.as_ref().is_some_and(|end| end.complete);
        let codes = self.pods.iter().map(|pod| pod.code.map_or(Exit::Inconclusive, exit_of));
        let worst = codes.max_by_key(|exit| severity(*exit));
        match worst {
            Some(exit) if exit != Exit::Trusted => exit,
            _ if complete => Exit::Trusted,
            _ => Exit::Inconclusive,
        }
    }
}

impl Pod {
    /// `target` or `initiator`.
    pub(super) fn role(&self) -> &'static str {
        if self.index == 0 { "target" } else { "initiator" }
    }

    /// How it ended, in a line.
    pub(super) fn ending(&self) -> String {
        let how = match (self.code, &self.message) {
            (Some(code), message) if message.is_empty() => format!("exit code {code}"),
            (Some(_), message) => message.clone(),
            (None, _) if self.started => "is running".to_owned(),
            (None, _) => self.waiting.clone().unwrap_or_else(|| "has not been started".to_owned()),
        };
        format!("{} {}: {how}", self.role(), self.name)
    }
}

fn exit_of(code: i64) -> Exit {
    match code {
        0 => Exit::Trusted,
        1 => Exit::NotTrusted,
        2 => Exit::Usage,
        4 => Exit::Internal,
        _ => Exit::Inconclusive,
    }
}

/// The order of `docs/exit-codes.md`; a wrong plan comes before what followed from it on the other side.
fn severity(exit: Exit) -> u8 {
    match exit {
        Exit::Trusted => 0,
        Exit::Inconclusive => 1,
        Exit::Usage => 2,
        Exit::NotTrusted => 3,
        Exit::Internal => 4,
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// `: reason, message`, as far as they are there.
fn because(value: &Value) -> String {
    let said: Vec<&str> =
        ["/reason", "/message"].map(|part| text(value, part)).into_iter().filter(|s| !s.is_empty()).collect();
    if said.is_empty() { String::new() } else { format!(": {}", said.join(", ")) }
}

fn standing(job: &Value, pods: &Value) -> Standing {
    let holds = |kind: &str| {
        list(job, "/status/conditions")
            .iter()
            .find(|c| text(c, "/type") == kind && text(c, "/status") == "True")
    };
    let end = match (holds("Complete"), holds("Failed")) {
        (Some(condition), _) => Some(End { complete: true, why: because(condition) }),
        (None, Some(condition)) => Some(End { complete: false, why: because(condition) }),
        (None, None) => None,
    };
    let mut pods: Vec<Pod> = list(pods, "/items").iter().map(pod).collect();
    pods.sort_by_key(|pod| pod.index);
    Standing { end, pods }
}

fn pod(value: &Value) -> Pod {
    const INDEX: &str = "/metadata/annotations/batch.kubernetes.io~1job-completion-index";
    let containers = || {
        list(value, "/status/initContainerStatuses").iter().chain(list(value, "/status/containerStatuses"))
    };
    let own = containers().find(|status| text(status, "/name") == CONTAINER);
    let state = own.and_then(|status| status.get("state"));
    let terminated = state.and_then(|state| state.get("terminated"));
    Pod {
        name: text(value, "/metadata/name").to_owned(),
        index: text(value, INDEX).parse().unwrap_or(0),
        started: state.is_some_and(|state| state.get("running").is_some() || terminated.is_some()),
        code: terminated.and_then(|end| end.get("exitCode")).and_then(Value::as_i64),
        message: terminated.map_or("", |end| text(end, "/message")).trim().to_owned(),
        waiting: waiting(value, containers()),
    }
}

/// Why the pod does not run: it is not scheduled, or one of its containers does not start or has failed.
fn waiting<'a>(pod: &Value, mut containers: impl Iterator<Item = &'a Value>) -> Option<String> {
    let unscheduled = list(pod, "/status/conditions")
        .iter()
        .find(|c| text(c, "/type") == "PodScheduled" && text(c, "/status") == "False");
    if let Some(condition) = unscheduled {
        return Some(format!("is not scheduled{}", because(condition)));
    }
    containers.find_map(|status| {
        let (name, state) = (text(status, "/name"), status.get("state")?);
        if let Some(waiting) = state.get("waiting") {
            return Some(format!("container {name} waits{}", because(waiting)));
        }
        let failed = state
            .get("terminated")
            .filter(|end| name != CONTAINER && end.get("exitCode") != Some(&0.into()))?;
        Some(format!("container {name} failed{}", because(failed)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod_of(index: &str, state: &Value) -> Value {
        json!({ "metadata": { "name": format!("kvwire-{index}-x"), "annotations": { "batch.kubernetes.io/job-completion-index": index } },
                "status": { "containerStatuses": [{ "name": "kvwire", "state": state }] } })
    }

    fn ended(code: i64) -> Value {
        json!({ "terminated": { "exitCode": code, "message": "" } })
    }

    fn exit(kind: &str, states: &[Value; 2]) -> Exit {
        let job = json!({ "status": { "conditions": [{ "type": kind, "status": "True", "reason": "R" }] } });
        let pods = json!({ "items": [pod_of("1", &states[1]), pod_of("0", &states[0])] });
        standing(&job, &pods).exit()
    }

    #[test]
    fn the_worse_side_decides_and_a_killed_one_says_nothing_about_the_wire() {
        assert_eq!(exit("Complete", &[ended(0), ended(0)]), Exit::Trusted);
        assert_eq!(exit("Failed", &[ended(0), ended(1)]), Exit::NotTrusted);
        assert_eq!(exit("Failed", &[ended(137), ended(3)]), Exit::Inconclusive);
        assert_eq!(exit("Failed", &[ended(3), ended(2)]), Exit::Usage);
        assert_eq!(exit("Failed", &[ended(0), ended(0)]), Exit::Inconclusive, "over its deadline");
        assert_eq!(exit("Failed", &[json!({ "running": {} }), ended(0)]), Exit::Inconclusive);
    }

    #[test]
    fn what_keeps_a_pod_from_running_is_told() {
        let job = json!({ "status": {} });
        let pulls = json!({ "waiting": { "reason": "ImagePullBackOff", "message": "no such image" } });
        let unscheduled = json!({ "metadata": { "name": "kvwire-1-x" }, "status": { "conditions": [
            { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes" }] } });
        let standing = standing(&job, &json!({ "items": [pod_of("0", &pulls), unscheduled] }));
        assert!(standing.end.is_none());
        assert_eq!(
            standing.news(),
            [
                "kvwire-0-x: container kvwire waits: ImagePullBackOff, no such image",
                "kvwire-1-x: is not scheduled: Unschedulable, 0/1 nodes"
            ]
        );
    }
}
