//! What can be said about a worker as a whole, and what could not be seen.

use super::super::selection::Library;
use super::super::worker::{Engine, Role, Worker};
use super::{Findings, Scene, finding, worse};
use crate::Status;

/// True when the worker has a peer that KV cache goes to or comes from, or may have one.
pub(super) fn is_apart(worker: &Worker) -> bool {
    let transport = worker
        .env
        .settings()
        .iter()
        .any(|s| ["UCX_", "NIXL_", "VLLM_NIXL_", "FI_", "MC_"].iter().any(|p| s.name.starts_with(p)));
    worker.selection.disaggregated.unwrap_or(
        transport
            || worker.partial.is_some()
            || matches!(worker.role, Role::Prefill | Role::Decode) && worker.role_from != "its name",
    )
}

pub(super) fn check(scene: &Scene<'_>, out: &mut Findings<'_>) {
    for worker in scene.workers.iter().filter(|w| w.is_judged()) {
        for source in &worker.env.open {
            let title = format!("variables may come from {}, which was not seen", source.text);
            let text = "a transport variable set there would not be in this report";
            let found = finding("env-from-unseen", Status::Skipped, title).detail(text);
            out.add(found, source.span, Some(worker));
        }
        if let Some(why) = &worker.partial {
            let title = format!("{why}: what it lacks may stand elsewhere");
            out.add(finding("partial-manifest", Status::Unknown, title), worker.span, Some(worker));
        }
        if !is_apart(worker) {
            let named = matches!(worker.role, Role::Prefill | Role::Decode);
            let (status, title) = if named {
                (
                    Status::Unknown,
                    format!("{} by {}, and no sign of a KV connector", worker.role.word(), worker.role_from),
                )
            } else {
                (
                    Status::Skipped,
                    "no disaggregation: no flag, connector or variable by which KV cache leaves this worker"
                        .to_owned(),
                )
            };
            out.add(finding("not-disaggregated", status, title), worker.span, Some(worker));
            continue;
        }
        let status = of_worker(worker, out);
        if matches!(status, Status::Ok | Status::Skipped | Status::Warn) && worker.partial.is_none() {
            let title = if worker.is_process {
                "nothing in the environment forbids RDMA or NVLink; it cannot prove a wire"
            } else {
                "nothing here forbids RDMA or NVLink; files cannot prove a wire"
            };
            let found = finding("static-check-passed", Status::Ok, title).next_step(active_test(worker));
            out.add(found, worker.span, Some(worker));
        }
    }
}

/// The worst that was found about a worker.
pub(super) fn of_worker(worker: &Worker, out: &Findings<'_>) -> Status {
    out.list()
        .iter()
        .filter(|(f, span)| f.workers.contains(&worker.name) && span.file == worker.span.file)
        .fold(Status::Ok, |sum, (f, _)| if f.status == Status::Skipped { sum } else { worse(sum, f.status) })
}

/// The active test for this worker's engine.
fn active_test(worker: &Worker) -> String {
    let op = match (&worker.selection.library, worker.engine) {
        (Library::Nixl(_), Engine::TensorRtLlm | Engine::Sglang) => "WRITE",
        _ => "READ",
    };
    format!(
        "run the active test between a prefill and a decode node: `kvwire target` there, and here `kvwire initiator --op {op} --expect rdma`"
    )
}
