//! What can be said about a worker as a whole, and what could not be seen.

use std::collections::HashMap;

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
    let worst = by_worker(out);
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
        let status = worst.get(&(worker.name.clone(), worker.span.file)).copied().unwrap_or(Status::Ok);
        if matches!(status, Status::Ok | Status::Skipped | Status::Warn) && worker.partial.is_none() {
            let title = if worker.is_process {
                "nothing in the environment forbids RDMA or NVLink; it cannot prove a wire"
            } else {
                "nothing here forbids RDMA or NVLink; files cannot prove a wire"
            };
            let open = worker.selection.is_nixl_ucx() && worker.env.lacks("UCX_TLS");
            let detail = if open {
                "UCX_TLS is not set: when the fast wire is missing, UCX takes TCP without an error"
            } else {
                ""
            };
            let found = finding("static-check-passed", Status::Ok, title)
                .detail(detail)
                .next_step(active_test(scene, worker));
            out.add(found, worker.span, Some(worker));
        }
    }
}

/// The worst that was found about each worker, by name and file.
fn by_worker(out: &Findings<'_>) -> HashMap<(String, u32), Status> {
    let mut worst = HashMap::new();
    for (finding, span) in out.list().iter().filter(|(f, _)| f.status != Status::Skipped) {
        for worker in &finding.workers {
            let status = worst.entry((worker.clone(), span.file)).or_insert(Status::Ok);
            *status = worse(*status, finding.status);
        }
    }
    worst
}

/// The active test for this worker: who starts what where, in the direction in which its engine moves the KV cache.
fn active_test(scene: &Scene<'_>, worker: &Worker) -> String {
    if worker.launch.is_active_test() {
        return "apply it: this is the active test".to_owned();
    }
    let pushes = matches!(worker.selection.library, Library::Nixl(_))
        && matches!(worker.engine, Engine::TensorRtLlm | Engine::Sglang);
    let (first, second, op) =
        if pushes { ("decode", "prefill", "write") } else { ("prefill", "decode", "read") };
    let only_nvlink = scene.has_imex(worker) && scene.fabric(worker).is_none();
    let wire = if only_nvlink { "nvlink" } else { "rdma" };
    format!(
        "run the active test: `kvwire target` on a {first} node prints an ADDRESS, and on a {second} node `kvwire initiator --rendezvous ADDRESS --op {op} --expect {wire}`"
    )
}
