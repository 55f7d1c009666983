//! kvwire's own pods: they say by their command what they are, and by their plan which wire they expect.

use super::{found, report, worker};
use crate::Status;

/// A Job of kvwire with these lines in its container.
fn job(lines: &str) -> String {
    let lines: String = lines.lines().map(|line| format!("          {line}\n")).collect();
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: kvwire}}\nspec:\n  template:\n    spec:\n      containers:\n        - name: kvwire\n          image: kvwire:1\n          command: [/opt/kvwire/kvwire]\n          args: [run]\n{lines}"
    )
}

fn status(lines: &str, id: &str) -> Option<Status> {
    found(&report(&job(lines)), id).map(|finding| finding.status)
}

#[test]
fn they_are_workers_of_both_roles_with_nixl_and_ucx() {
    let report = report(&job(""));
    let found = worker(&report, "kvwire");
    assert!(found.role_from.contains("active test"), "{found:?}");
    assert!(found.kv_transfer.contains("UCX"), "{found:?}");
}

#[test]
fn no_fabric_is_a_fault_unless_tcp_is_what_is_expected() {
    let expects = |wire: &str| format!("env: [{{name: KVWIRE_EXPECT, value: {wire}}}]");
    assert_eq!(status("", "no-fabric-resource"), Some(Status::Warn));
    assert_eq!(status(&expects("rdma"), "no-fabric-resource"), Some(Status::Warn));
    assert_eq!(status(&expects("tcp"), "no-fabric-resource"), None);
}

#[test]
fn efa_needs_privileges_for_gpu_memory_only() {
    let efa = |more: &str| format!("resources: {{limits: {{vpc.amazonaws.com/efa: 1{more}}}}}");
    assert_eq!(status(&efa(""), "efa-needs-privileged"), None);
    assert_eq!(status(&efa(", nvidia.com/gpu: 1"), "efa-needs-privileged"), Some(Status::Warn));
    assert_eq!(status(&efa(""), "efa-with-ucx"), Some(Status::Warn));
}
