//! `kvwire check` alone: everything that can be reached, one answer, and what to fix first.

use checks::Status;
use checks::node::expectation;

use super::Problem;
use super::contract::{Check, Report};
use super::kubectl::Pod;
use super::{nixl, node};
use crate::cli::CheckArgs;
use crate::terminal::Terminal;

/// Findings by how likely they are the cause of the others: what makes everything below it impossible comes first.
/// What is not listed comes after, in the order found.
const CAUSES: [&str; 24] = [
    "pod-exec",
    "rdma-usable",
    "rdma-port",
    "roce-gid-index",
    "roce-gid",
    "nixl:binary",
    "nixl-plugins",
    "nixl-backend",
    "libraries-rdma",
    "ucx-transports",
    "memlock",
    "gpudirect",
    "rdma-lid",
    "rdma-pkey",
    "rdma-fabrics",
    "nodes-differ",
    "nixl-loopback",
    "shm-size",
    "libraries-ucx",
    "libraries-nixl",
    "pcie-acs",
    "iommu",
    "cpu-limit",
    "rdma-rate",
];

/// The check to mend first: of the worst status, and among those the one that is most likely the cause.
pub(super) fn most_likely(checks: &[Check]) -> Option<&Check> {
    let bad = |status: Status| match status {
        Status::Fail => Some(0),
        Status::Unknown => Some(2),
        Status::Warn => Some(1),
        Status::Ok | Status::Skipped => None,
    };
    let cause = |name: &str| CAUSES.iter().position(|cause| *cause == name).unwrap_or(CAUSES.len());
    checks
        .iter()
        .filter_map(|check| Some(((bad(check.status)?, cause(&check.name)), check)))
        .min_by_key(|(key, _)| *key)
        .map(|(_, check)| check)
}

/// Checks the nodes and NIXL of this machine, or of the pods.
pub(super) async fn check(args: &CheckArgs, terminal: &Terminal) -> Result<Option<Report>, Problem> {
    let pods = Pod::all(&args.pods).map_err(Problem::usage)?;
    let (mut places, nodes) = node::judged(node::look(&pods, terminal).await);
    if pods.is_empty() {
        nixl::refuse_wrong_library(args.nixl_lib.as_ref())?;
        let found = nixl::here(args.nixl_lib.as_ref(), nodes.first(), terminal).await;
        extend(&mut places, "local host", found);
    }
    for pod in &pods {
        let place = format!("pod {}", pod.name);
        // A pod that could not be looked into is said to be so once.
        if nodes.iter().any(|node| node.place == place) {
            extend(&mut places, &place, nixl::in_pod(pod, &pods).await);
        }
    }
    if let [first, second] = nodes.as_slice() {
        places.push((
            format!("{} and {}", first.place, second.place),
            vec![expectation::differences(first, second)],
        ));
    }
    Ok(Some(Report::new(places, &nodes)))
}

fn extend(places: &mut Vec<(String, Vec<checks::Finding>)>, place: &str, findings: Vec<checks::Finding>) {
    match places.iter_mut().find(|(name, _)| name == place) {
        Some((_, all)) => all.extend(findings),
        None => places.push((place.to_owned(), findings)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use checks::Finding;

    #[test]
    fn the_likely_cause_comes_before_its_consequences() {
        let finding = |id: &str, status| Finding::new(id, status, id).next_step(format!("mend {id}"));
        let report = |findings| Report::new(vec![("local host".to_owned(), findings)], &[]);
        let of = |findings| report(findings).fix_first;
        assert_eq!(
            of(vec![finding("gpudirect", Status::Fail), finding("rdma-usable", Status::Fail)]).as_deref(),
            Some("mend rdma-usable")
        );
        assert_eq!(
            of(vec![finding("rdma-usable", Status::Warn), finding("some-other", Status::Fail)]).as_deref(),
            Some("mend some-other")
        );
        assert_eq!(
            of(vec![finding("x", Status::Unknown), finding("y", Status::Warn)]).as_deref(),
            Some("mend y")
        );
        assert_eq!(of(vec![finding("x", Status::Ok), finding("y", Status::Skipped)]), None);
    }
}
