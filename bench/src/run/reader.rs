//! Reads a side's counters, and has the rates of links watched between two readings where nothing counts them.

use super::supervisor::Supervisor;
use crate::engine::Engine;
use crate::plan::Op;
use crate::proof::counters::{Reading, Sampler, Sources, Ways};
use crate::report::model::Placement;

/// Reads this side's counters. Both roles have one.
#[derive(Debug)]
pub(super) struct Reader {
    sources: Sources,
    last: Option<Reading>,
    /// GPUs that the payload of this side lies on.
    gpus: Vec<String>,
    sampler: Option<Sampler>,
}

impl Reader {
    pub(super) fn new() -> Self {
        Self { sources: Sources::of_this_host(), last: None, gpus: Vec::new(), sampler: None }
    }

    /// Learns where the engines of this side sit.
    pub(super) fn know(&mut self, placements: &[Placement]) {
        let uuids = placements.iter().filter_map(|placement| Some(placement.gpu.as_ref()?.uuid.clone()));
        self.gpus = uuids.collect();
        self.gpus.sort_unstable();
        self.gpus.dedup();
    }

    /// Reads once, after drivers that repeat old values for a while would do so no more, and takes the rates that were
    /// watched since. Those of `sample` are watched from now on.
    pub(super) async fn read(&mut self, supervisor: &Supervisor, sample: Option<Ways>) -> Reading {
        let sampled = self.sampled().await;
        if let Some(last) = &self.last {
            tokio::time::sleep(last.settle_time()).await;
        }
        let engines: Vec<u32> = supervisor.engines.iter().filter_map(Engine::pid).collect();
        let reading = Reading { sampled, ..self.sources.read(&engines) };
        self.sampler = sample.and_then(|ways| self.sources.sample(&self.gpus, ways, &reading));
        self.last = Some(Reading { sampled: Vec::new(), ..reading.clone() });
        reading
    }

    async fn sampled(&mut self) -> Vec<crate::proof::counters::Sampled> {
        let Some(sampler) = self.sampler.take() else { return Vec::new() };
        // It ends with the window that is being watched, and must not hold up the lease meanwhile.
        tokio::task::spawn_blocking(move || sampler.stop()).await.unwrap_or_default()
    }
}

/// Ways of the payload through a GPU of the initiator and one of the target, in the direction of a case.
pub(super) fn ways_of(op: Op) -> [Ways; 2] {
    let (read, write) = (op.directions().contains(&Op::Read), op.directions().contains(&Op::Write));
    [Ways { sent: write, received: read }, Ways { sent: read, received: write }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_comes_into_the_initiators_gpu_and_out_of_the_targets() {
        let [initiator, target] = ways_of(Op::Read);
        assert_eq!((initiator.sent, initiator.received), (false, true));
        assert_eq!((target.sent, target.received), (true, false));
        assert_eq!(ways_of(Op::Write), [target, initiator]);
        assert_eq!(ways_of(Op::Both), [Ways { sent: true, received: true }; 2]);
    }
}
