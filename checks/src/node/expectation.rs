//! Two nodes together: what they differ in, and whether both can do what is expected of the wire.

use super::NodeReport;
use crate::finding::{Finding, Status};

/// What two nodes differ in, as one finding.
pub fn differences(first: &NodeReport, second: &NodeReport) -> Finding {
    let id = "nodes-differ";
    let pairs = first.beside(second);
    let lines: Vec<String> = pairs
        .iter()
        .filter(|pair| pair.differs())
        .map(|pair| {
            format!(
                "{}: {} on {}, {} on {}",
                pair.name,
                pair.first.unwrap_or("not known"),
                first.place,
                pair.second.unwrap_or("not known"),
                second.place
            )
        })
        .collect();
    if lines.is_empty() {
        return Finding::new(id, Status::Ok, "the two nodes are alike in everything that was compared");
    }
    let names: Vec<&str> = pairs.iter().filter(|pair| pair.differs()).map(|pair| pair.name).collect();
    Finding::new(id, Status::Warn, format!("the two nodes differ in {}", names.join(", ")))
        .detail("a transfer is as good as its worse side")
        .evidence(lines)
        .next_step("schedule both sides on nodes of one kind, or make sure that the difference is meant")
}

/// For a run that is to use RDMA: the side that cannot, named before anything is measured. `side` is how the node is
/// called, for example `target`.
pub fn rdma_obstacle(side: &str, report: &NodeReport) -> Option<Finding> {
    let obstacle = report.rdma_obstacle()?;
    Some(
        Finding::new(
            "rdma-expected",
            Status::Fail,
            format!("RDMA is expected and the {side} cannot use it: {}", obstacle.title),
        )
        .detail(format!("finding {} of the {side}'s node", obstacle.id))
        .evidence(obstacle.evidence.iter().cloned())
        .next_step(if obstacle.next_step.is_empty() {
            "run the side on a node with a usable RDMA device, or do not expect RDMA".to_owned()
        } else {
            obstacle.next_step.clone()
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Fact;

    fn report(place: &str, value: &str, usable: Status) -> NodeReport {
        NodeReport {
            place: place.to_owned(),
            gathered_by: String::new(),
            facts: vec![Fact { name: "port rate".to_owned(), value: value.to_owned() }],
            findings: vec![Finding::new("rdma-usable", usable, "no RDMA device").next_step("ask for one")],
        }
    }

    #[test]
    fn a_difference_names_both_values_and_places() {
        let finding = differences(&report("pod a", "400", Status::Ok), &report("pod b", "200", Status::Ok));
        assert_eq!(finding.status, Status::Warn);
        assert_eq!(finding.evidence, ["port rate: 400 on pod a, 200 on pod b"]);
        let same = differences(&report("pod a", "400", Status::Ok), &report("pod b", "400", Status::Ok));
        assert_eq!(same.status, Status::Ok);
    }

    #[test]
    fn an_obstacle_names_the_side_and_only_what_is_known_is_one() {
        let finding = rdma_obstacle("target", &report("x", "", Status::Skipped)).unwrap();
        assert!(finding.title.contains("the target cannot use it: no RDMA device"), "{}", finding.title);
        assert_eq!(finding.next_step, "ask for one");
        assert!(rdma_obstacle("target", &report("x", "", Status::Ok)).is_none());
        assert!(rdma_obstacle("target", &report("x", "", Status::Unknown)).is_none());
    }
}
