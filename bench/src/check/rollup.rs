//! `kvwire check` alone: everything that can be reached, one answer, and what to fix first.

use std::path::PathBuf;

use checks::env::{self, Options};
use checks::node::expectation;
use checks::{Finding, Status};

use super::Problem;
use super::contract::{Check, Report};
use super::kubectl::{self, Pod};
use super::{nixl, node, processes};
use crate::cli::CheckArgs;
use crate::terminal::Terminal;

/// Findings by how likely they are the cause of the others: what makes everything below it impossible comes first.
/// What is not listed comes after, in the order found. Those about manifests stand here without their `env:`.
const CAUSES: &[&str] = &[
    "pod-exec",
    // What runs is not what was declared: the rest of the manifest says little.
    "declared-missing",
    "declared-changed",
    // The pod is given no device, or the node has none that works.
    "claim-incomplete",
    "gke-networks",
    "no-fabric-resource",
    "rdma-expected",
    "rdma-usable",
    "rdma-port",
    // What UCX is told keeps it from a device that works.
    "tls-without-rdma",
    "net-devices-without-rdma",
    "list-grammar",
    "device-port",
    "tls-without-cuda",
    "transport-not-in-build",
    "invalid-value",
    "roce-gid-index",
    "roce-gid",
    // NIXL itself, and its libraries.
    "nixl:binary",
    "nixl-plugins",
    "nixl-backend",
    "ucx-without-verbs",
    "libraries-rdma",
    "ucx-transports",
    "memlock",
    "nixl-memory",
    // GPU memory.
    "gpu-direct-off",
    "gpudirect",
    "nixl-gpu-memory",
    "imex-claim-missing",
    "nvlink-fabric",
    "imex-channels",
    // Addresses and partitions within the fabric.
    "rdma-lid",
    "rdma-pkey",
    "rdma-fabrics",
    // The two sides do not fit together.
    "roles-differ",
    "side-channel-host",
    "nodes-differ",
    "nixl-loopback",
    // It works, and slowly.
    "tcp-fallback-possible",
    "shm-size",
    "shared-memory-small",
    "libraries-ucx",
    "libraries-nixl",
    "pcie-acs",
    "iommu",
    "virtual-machine",
    "gpu-nic-distance",
    "cpu-limit",
    "rdma-rate",
    "rdma-pcie",
    "roce-congestion",
    "nvlink",
];

/// What is not as it should be: the worst status first, and within one what is most likely the cause of the rest.
pub(super) fn ranked(checks: &[Check]) -> Vec<&Check> {
    let bad = |status: Status| match status {
        Status::Fail => Some(0),
        Status::Warn => Some(1),
        Status::Unknown => Some(2),
        Status::Ok | Status::Skipped => None,
    };
    let cause = |name: &str| {
        let id = name.strip_prefix("env:").unwrap_or(name);
        CAUSES.iter().position(|cause| *cause == id).unwrap_or(CAUSES.len())
    };
    let mut found: Vec<((u8, usize), &Check)> =
        checks.iter().filter_map(|check| Some(((bad(check.status)?, cause(&check.name)), check))).collect();
    found.sort_by_key(|(key, _)| *key);
    found.into_iter().map(|(_, check)| check).collect()
}

/// Checks everything that can be reached: the manifests, the processes and the nodes of the pods or this machine, and
/// NIXL there.
pub(super) async fn check(args: &CheckArgs, terminal: &Terminal) -> Result<Option<Report>, Problem> {
    let pods = Pod::all(&args.pods).map_err(Problem::usage)?;
    let (mut places, nodes) = node::judged(node::look(&pods, terminal).await);
    if pods.is_empty() {
        nixl::refuse_wrong_library(args.nixl_lib.as_ref())?;
        let found = nixl::here(args.nixl_lib.as_ref(), nodes.first(), terminal).await;
        extend(&mut places, "local host", found);
    }
    // A pod that could not be looked into is said to be so once.
    let is_seen = |pod: &&Pod| nodes.iter().any(|node| node.place == format!("pod {}", pod.name));
    let pods_seen: Vec<Pod> = pods.iter().filter(is_seen).cloned().collect();
    for pod in &pods_seen {
        extend(&mut places, &format!("pod {}", pod.name), nixl::in_pod(pod, &pods).await);
    }
    let declared = declared(&args.manifest, &pods_seen).await?;
    if let [first, second] = nodes.as_slice() {
        places.push((
            format!("{} and {}", first.place, second.place),
            vec![expectation::differences(first, second)],
        ));
    }
    Ok(Some(Report::with(declared, places, &nodes)))
}

/// What the manifests and the environments of the pods' processes say.
async fn declared(manifests: &[PathBuf], pods: &[Pod]) -> Result<Vec<Check>, Problem> {
    if manifests.is_empty() && pods.is_empty() {
        return Ok(Vec::new());
    }
    let waivers = super::env::configuration(None).map_err(Problem::usage)?.waivers;
    let (processes, found) = processes::read_all(pods).await;
    let options = Options { waivers, pods: processes, found, ..Options::default() };
    let report = env::check(manifests, &mut std::io::stdin().lock(), &options);
    Ok(report.findings.into_iter().map(of_manifest).collect())
}

/// A finding about a manifest or an environment: its place is the line.
fn of_manifest(mut finding: Finding) -> Check {
    let place = match &finding.source {
        Some(source) => format!("{}:{}", source.file, source.line),
        None => "manifests and environments".to_owned(),
    };
    finding.id = if finding.id == kubectl::ID { finding.id } else { format!("env:{}", finding.id) };
    if finding.next_step.is_empty() {
        let id = finding.id.strip_prefix("env:").unwrap_or(&finding.id);
        finding.next_step = env::rule(id).map_or_else(String::new, |rule| rule.remedy.to_owned());
    }
    Check::new(finding, Some(&place))
}

fn extend(places: &mut Vec<(String, Vec<Finding>)>, place: &str, findings: Vec<Finding>) {
    match places.iter_mut().find(|(name, _)| name == place) {
        Some((_, all)) => all.extend(findings),
        None => places.push((place.to_owned(), findings)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
