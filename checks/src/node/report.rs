//! A node's report: what it is compared by, and every judgement.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::finding::{Finding, Status};

/// Id of the finding that says whether an RDMA device can be used.
pub(super) const USABLE: &str = "rdma-usable";
/// Id of the finding that says whether one of its ports is up.
pub(super) const PORT: &str = "rdma-port";

/// One line of what a node is like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fact {
    /// What, for example `port rate`.
    pub name: String,
    /// How it is here.
    pub value: String,
}

/// What a node says about its fabric, and what that means.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeReport {
    /// What was looked at: `local host` or `pod NAME`.
    pub place: String,
    /// Who read the evidence: `kvwire VERSION`, or `shell` where the image has no kvwire.
    pub gathered_by: String,
    /// What two nodes are compared by, in a fixed order.
    pub facts: Vec<Fact>,
    /// Every judgement.
    pub findings: Vec<Finding>,
}

/// One fact of two nodes side by side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactPair<'a> {
    /// What.
    pub name: &'a str,
    /// On the first node.
    pub first: Option<&'a str>,
    /// On the second node.
    pub second: Option<&'a str>,
}

impl FactPair<'_> {
    /// True when the two nodes are not alike in this.
    pub fn differs(&self) -> bool {
        self.first != self.second
    }
}

impl NodeReport {
    /// The finding with this id.
    pub fn finding(&self, id: &str) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.id == id)
    }

    /// Whether RDMA can be used from here; `None` when that could not be told.
    pub fn can_use_rdma(&self) -> Option<bool> {
        let of = |id: &str| self.finding(id).map(|finding| finding.status);
        match (of(USABLE)?, of(PORT)) {
            (Status::Ok | Status::Warn, Some(Status::Fail)) => Some(false),
            (Status::Ok | Status::Warn, _) => Some(true),
            // Skipped: there is no device at all.
            (Status::Fail | Status::Skipped, _) => Some(false),
            (Status::Unknown, _) => None,
        }
    }

    /// Why RDMA cannot be used from here: the finding that says so.
    pub fn rdma_obstacle(&self) -> Option<&Finding> {
        if self.can_use_rdma() != Some(false) {
            return None;
        }
        let port = self.finding(PORT).filter(|finding| finding.status == Status::Fail);
        self.finding(USABLE).filter(|finding| !matches!(finding.status, Status::Ok | Status::Warn)).or(port)
    }

    /// This node's facts beside another's.
    pub fn beside<'a>(&'a self, other: &'a Self) -> Vec<FactPair<'a>> {
        let value = |report: &'a Self, name: &str| {
            report.facts.iter().find(|fact| fact.name == name).map(|fact| fact.value.as_str())
        };
        let only_there = other.facts.iter().filter(|fact| value(self, &fact.name).is_none());
        self.facts
            .iter()
            .chain(only_there)
            .map(|fact| FactPair {
                name: &fact.name,
                first: value(self, &fact.name),
                second: value(other, &fact.name),
            })
            .collect()
    }
}
