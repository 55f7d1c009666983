//! What a run can say at most.

use checks::Node;

use crate::memory::MemoryWish;
use crate::plan::Plan;
use crate::report::model::{Placement, Sides};

/// Hosts, memory and workload of a run. The memory is known for sure once both engines have theirs.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    hosts: String,
    memory: String,
    payload: String,
    /// What the run says nothing about, because of where it ran.
    not_the_network: bool,
    not_the_gpu: bool,
}

impl Scope {
    /// Of a run on one host that made both sides itself.
    pub(crate) fn of_pair(node: &Node, plan: &Plan) -> Self {
        Self {
            not_the_network: true,
            ..Self::new(format!("{} on one host ({})", processes(plan), node.hostname), plan)
        }
    }

    /// Of a run between two nodes that met.
    pub(crate) fn of_nodes(initiator: &Node, target: &Node, plan: &Plan) -> Self {
        let hosts = if initiator.same_host(target) {
            format!("{} on one host ({})", processes(plan), initiator.hostname)
        } else {
            format!("these two hosts (initiator {}, target {})", initiator.hostname, target.hostname)
        };
        Self { not_the_gpu: true, ..Self::new(hosts, plan) }
    }

    /// In words that somebody else has chosen.
    pub(crate) fn said(text: String) -> Self {
        Self {
            hosts: text,
            memory: String::new(),
            payload: String::new(),
            not_the_network: false,
            not_the_gpu: false,
        }
    }

    fn new(hosts: String, plan: &Plan) -> Self {
        let MemoryWish { initiator, target, .. } = &plan.memory;
        let memory = both(&initiator.to_string(), &target.to_string());
        Self { hosts, memory, payload: plan.payload(), not_the_network: false, not_the_gpu: false }
    }

    /// The memory that was used in the end.
    pub(crate) fn settle(&mut self, placement: &Sides<Vec<Placement>>) {
        let (Some(initiator), Some(target)) = (&placement.initiator, &placement.target) else { return };
        if self.payload.is_empty() {
            return;
        }
        self.memory = both(&words(initiator), &words(target));
        self.not_the_gpu &= initiator.iter().chain(target).all(|placement| placement.gpu.is_none());
    }

    /// In one sentence.
    pub(crate) fn text(&self) -> String {
        if self.payload.is_empty() {
            return self.hosts.clone();
        }
        let silent = match (self.not_the_network, self.not_the_gpu) {
            (true, _) => "; nothing is said about the network between two hosts",
            (false, true) => "; nothing is said about GPU memory",
            (false, false) => "",
        };
        format!("{}, {}, {}{silent}", self.hosts, self.memory, self.payload)
    }
}

fn processes(plan: &Plan) -> &'static str {
    if plan.ranks > 1 { "two sides of several processes" } else { "two processes" }
}

fn words(placements: &[Placement]) -> String {
    let memory = Placement::memory_of(placements);
    if placements.iter().any(|placement| placement.instead_of_gpu.is_some()) {
        format!("{memory} because no GPU could be used")
    } else {
        memory
    }
}

fn both(initiator: &str, target: &str) -> String {
    if initiator == target {
        initiator.to_owned()
    } else {
        format!("{initiator} on the initiator and {target} on the target")
    }
}
