//! What the two nodes of a run say about the wire before a byte moves.

use checks::node::{FactPair, NodeReport, expectation};
use checks::{Finding, Node};

use crate::plan::Plan;
use crate::proof::Expect;
use crate::report::model::NodeDifference;

/// Transports of UCX that need an RDMA device, as UCX_TLS names them.
const RDMA: [&str; 11] =
    ["ib", "rc", "rc_x", "rc_v", "rc_mlx5", "rc_verbs", "dc", "dc_x", "dc_mlx5", "ud", "srd"];
/// Transports that carry data between two hosts without RDMA.
const OTHER: [&str; 2] = ["tcp", "all"];

/// Judges the two nodes together: what they differ in.
///
/// # Errors
/// RDMA is expected and one side cannot use it: the finding that names the side.
pub(super) fn judge(initiator: &Node, target: &Node, plan: &Plan) -> Result<Vec<Finding>, Box<Finding>> {
    let (Some(ours), Some(theirs)) = (&initiator.report, &target.report) else { return Ok(Vec::new()) };
    if expects_rdma(plan) {
        let obstacle = expectation::rdma_obstacle("initiator", ours)
            .or_else(|| expectation::rdma_obstacle("target", theirs));
        if let Some(finding) = obstacle {
            return Err(Box::new(finding));
        }
    }
    if initiator.same_host(target) && differences(initiator, target).is_empty() {
        return Ok(Vec::new());
    }
    let finding = expectation::differences(&named(ours, "the initiator"), &named(theirs, "the target"));
    Ok(vec![finding])
}

/// Every fact in which the two nodes are not alike.
pub(super) fn differences(initiator: &Node, target: &Node) -> Vec<NodeDifference> {
    let (Some(ours), Some(theirs)) = (&initiator.report, &target.report) else { return Vec::new() };
    let pairs = ours.beside(theirs).into_iter().filter(FactPair::differs);
    pairs
        .map(|pair| NodeDifference {
            name: pair.name.to_owned(),
            initiator: pair.first.map(str::to_owned),
            target: pair.second.map(str::to_owned),
        })
        .collect()
}

fn named(report: &NodeReport, place: &str) -> NodeReport {
    NodeReport { place: place.to_owned(), ..report.clone() }
}

/// True when the user expects RDMA, or UCX is allowed nothing between two hosts but RDMA.
fn expects_rdma(plan: &Plan) -> bool {
    if plan.expect == Expect::Rdma {
        return true;
    }
    let set = plan.ucx_env.get("UCX_TLS").cloned().or_else(|| std::env::var("UCX_TLS").ok());
    set.is_some_and(|value| names_rdma_alone(&value))
}

fn names_rdma_alone(tls: &str) -> bool {
    let names: Vec<&str> = tls.split(',').map(str::trim).collect();
    let has = |wanted: &[&str]| names.iter().any(|name| wanted.contains(name));
    !tls.starts_with('^') && has(&RDMA) && !has(&OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rdma_is_expected_where_nothing_else_is_allowed() {
        for (tls, expected) in [
            ("rc", true),
            ("rc_x,cuda_copy,self,sm", true),
            ("ib", true),
            ("rc,tcp", false),
            ("all", false),
            ("^tcp", false),
            ("tcp", false),
            ("self,sm", false),
            ("", false),
        ] {
            assert_eq!(names_rdma_alone(tls), expected, "{tls}");
        }
    }
}
