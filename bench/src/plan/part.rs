//! Who moves what in a case: one part for each rank and direction.

use serde::{Deserialize, Serialize};

use super::{Case, Op, Pair, Plan};

/// Memory of a second direction begins on a page of its own.
const PAGE: u64 = 4096;

/// One direction of a case between two ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// Rank on the initiator's side.
    pub(crate) rank: u32,
    /// The rank on the target's side that it exchanges with.
    pub(crate) peer: u32,
    /// What is moved: the case in one direction (never [`Op::Both`]), with the slice of this rank.
    pub(crate) case: Case,
    /// Where its memory begins in the pools, in bytes.
    pub(crate) base: u64,
}

impl Part {
    /// The seed of its data. No two ranks and directions share one, so that data of another one is never taken for its
    /// own. Several parts may read one source: it belongs to the rank that holds the source.
    pub(crate) fn seed(&self, of_the_run: u64) -> u64 {
        let source = match self.case.op {
            Op::Read => 2 * u64::from(self.peer),
            Op::Write | Op::Both => 2 * u64::from(self.rank) + 1,
        };
        of_the_run ^ (source << u64::BITS.div_ceil(2))
    }

    /// The two ranks.
    pub(crate) fn pair(&self) -> Pair {
        Pair { rank: self.rank, peer: self.peer }
    }

    /// What tells it from the other parts of its case: the rank, the direction, or both.
    pub(crate) fn label(&self, ranks: u32, whole: Op) -> String {
        match (ranks > 1, whole) {
            (true, Op::Both) => format!("rank {} {}", self.rank, self.case.op),
            (false, Op::Both) => self.case.op.to_string(),
            _ => format!("rank {}", self.rank),
        }
    }
}

impl Plan {
    /// The parts of a case: rank by rank, in each READ before WRITE.
    pub(crate) fn parts(&self, case: &Case) -> Vec<Part> {
        let of_rank = |rank: u32| {
            case.op.directions().iter().enumerate().map(move |(turn, op)| {
                let mut part = Part { rank, peer: rank, case: Case { op: *op, ..case.clone() }, base: 0 };
                if let Some(shape) = &mut part.case.kv {
                    part.peer = shape.meet(*op, rank);
                }
                part.base = turn as u64 * case.direction_bytes(self.depth).unwrap_or(0);
                part
            })
        };
        (0..self.ranks).flat_map(of_rank).collect()
    }
}

impl Case {
    /// Bytes of the pool that one direction takes; `None` when 64 bits cannot say.
    pub(super) fn direction_bytes(&self, depth: u32) -> Option<u64> {
        let bytes = match &self.kv {
            Some(shape) => shape.footprint()?,
            None => self
                .block_bytes
                .checked_next_multiple_of(8)?
                .checked_mul(u64::from(self.batch))?
                .checked_mul(u64::from(depth))?,
        };
        if self.op == Op::Both { bytes.checked_next_multiple_of(PAGE) } else { Some(bytes) }
    }

    /// Bytes of the pool that the whole case takes; `None` when 64 bits cannot say.
    pub(super) fn pool_bytes(&self, depth: u32) -> Option<u64> {
        self.direction_bytes(depth)?.checked_mul(self.op.directions().len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::request::tests::request;
    use super::*;

    #[test]
    fn every_rank_and_direction_has_memory_and_data_of_its_own() {
        let plan = super::super::Request { ranks: 3, bidirectional: true, ops: vec![], ..request() };
        let plan = plan.resolve().unwrap();
        let parts = plan.parts(&plan.cases[0]);
        assert_eq!(parts.len(), 6);
        assert!(parts.iter().all(|part| part.rank == part.peer && part.case.op != Op::Both));
        let seeds: BTreeSet<u64> = parts.iter().map(|part| part.seed(plan.seed)).collect();
        assert_eq!(seeds.len(), 6);
        let end = |part: &Part| part.base + part.case.footprint(plan.depth);
        assert!(end(&parts[0]) <= parts[1].base && end(&parts[1]) <= plan.pool_bytes);
        assert_eq!(parts[3].label(3, Op::Both), "rank 1 WRITE");
    }

    #[test]
    fn a_single_rank_in_one_direction_is_the_case_itself() {
        let plan = request().resolve().unwrap();
        for case in &plan.cases {
            let part = Part { rank: 0, peer: 0, case: case.clone(), base: 0 };
            assert_eq!(plan.parts(case), [part]);
        }
    }
}
