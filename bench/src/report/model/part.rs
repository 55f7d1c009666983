//! The parts of a case that several ranks, or both directions, moved at once: each by itself, and all together.

use std::cmp::Ordering;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CaseResult, CaseStatus, EndedBy, Limit, Repetition, Verification};
use crate::measure::histogram::Distribution;
use crate::memory::pattern::Mismatch;
use crate::plan::{Op, Part};
use crate::proof::Transport;

/// What one rank of the initiator moved in one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PartResult {
    /// Rank on the initiator's side.
    pub(crate) rank: u32,
    /// The rank of the target that it exchanged with.
    pub(crate) target_rank: u32,
    /// The GPU that its payload lies on, on the initiator's side: `GPU-…`; null for host memory.
    #[serde(default)]
    pub(crate) gpu: Option<String>,
    /// The same on the target's side.
    #[serde(default)]
    pub(crate) target_gpu: Option<String>,
    /// Direction.
    pub(crate) op: Op,
    /// How it ended.
    pub(crate) status: CaseStatus,
    /// Why it failed; null for a pass.
    pub(crate) reason: Option<String>,
    /// Transfers completed in the timed loop.
    pub(crate) transfers: u64,
    /// Bytes those transfers moved.
    pub(crate) payload_bytes: u64,
    /// Start of its timed loop after that of the first rank, in ns.
    pub(crate) began_after_ns: u64,
    /// Time of its timed loop, from just before its first post to its last completion, in ns.
    pub(crate) wall_ns: u64,
    /// payload_bytes / wall_ns, in bytes per second. Null unless the data was verified.
    pub(crate) bandwidth_bytes_per_s: Option<f64>,
    /// Its first transfer, in ns.
    pub(crate) cold_ns: Option<u64>,
    /// What an inference engine waits for.
    pub(crate) total: Option<Distribution>,
    /// Bytes compared one by one where they arrived.
    pub(crate) verified_bytes: u64,
    /// The first difference; null when there was none.
    pub(crate) mismatch: Option<Mismatch>,
    /// Which wire carried its bytes, and the evidence.
    pub(crate) transport: Option<Transport>,
    /// The most that its path can reach; null where it is not known.
    #[serde(default)]
    pub(crate) limit: Option<Limit>,
    /// Its timed loops one by one, in their order. The figures above are over all of them.
    #[serde(default)]
    pub(crate) repetitions: Vec<Repetition>,
}

/// A part as it was measured.
#[derive(Debug)]
pub(crate) struct MeasuredPart {
    /// Which.
    pub(crate) part: Part,
    /// When its timed loop began, by the initiator's monotonic clock, in ns.
    pub(crate) began_ns: u64,
    /// The GPUs of the initiator's and of the target's rank.
    pub(crate) gpus: [Option<String>; 2],
    /// Its figures, as of a case of its own.
    pub(crate) result: CaseResult,
}

impl CaseResult {
    /// The case over all its parts: bytes and transfers add up, its time is from the first start to the last completion,
    /// and times of all transfers stand together. A failure of one part is one of the case. `whole` has what does not
    /// depend on the measurement.
    pub(crate) fn of_parts(whole: Self, parts: Vec<MeasuredPart>, ranks: u32) -> Self {
        let begin = parts.iter().map(|part| part.began_ns).min().unwrap_or(0);
        let end = parts.iter().map(|part| part.began_ns + part.result.wall_ns).max().unwrap_or(0);
        let listed = parts.iter().map(|part| PartResult::of(part, begin)).collect();
        let mut all: Option<Self> = None;
        for MeasuredPart { part, result, .. } in parts {
            let label = part.label(ranks, whole.op);
            let reason = result.reason.as_ref().map(|reason| format!("{label}: {reason}"));
            let result = Self { reason, ..result };
            match &mut all {
                Some(all) => all.stand_beside(result),
                none => *none = Some(result),
            }
        }
        let Some(all) = all else { return whole };
        let wall_ns = end - begin;
        let passed = all.status == CaseStatus::Pass && wall_ns > 0;
        Self {
            name: whole.name,
            op: whole.op,
            kv: whole.kv,
            wall_ns,
            bandwidth_bytes_per_s: passed.then(|| all.payload_bytes as f64 * 1e9 / wall_ns as f64),
            parts: listed,
            limit: whole.limit,
            ..all
        }
    }

    /// A part as a case of its own, without the figures that only all parts together have.
    pub(crate) fn alone(&self, part: &PartResult) -> Self {
        Self {
            op: part.op,
            status: part.status,
            reason: part.reason.clone(),
            transfers: part.transfers,
            payload_bytes: part.payload_bytes,
            wall_ns: part.wall_ns,
            off_cpu_ns: None,
            bandwidth_bytes_per_s: part.bandwidth_bytes_per_s,
            cold_ns: part.cold_ns,
            total: part.total.clone(),
            verification: Verification {
                verified_bytes: part.verified_bytes,
                per_transfer_checks: 0,
                checks_at_initiator: 0,
                checks_at_target: 0,
                epochs: self.verification.epochs,
                mismatch: part.mismatch.clone(),
            },
            transport: part.transport.clone(),
            repetitions: part.repetitions.clone(),
            limit: part.limit.clone(),
            parts: Vec::new(),
            prep: None,
            post: None,
            wire: None,
            notify: None,
            lists_ns: None,
            lists: None,
            notified: None,
            notified_resolution_ns: None,
            scheduled: None,
            nixl_telemetry: None,
            unserved: 0,
            ..self.clone()
        }
    }

    /// What tells a part from the others of its case: `rank 1`, `READ`, or `rank 1 READ`.
    pub(crate) fn label(&self, part: &PartResult) -> String {
        let differ = |of: fn(&PartResult) -> String| self.parts.iter().any(|other| of(other) != of(part));
        let mut words = Vec::new();
        words.extend(differ(|part| part.rank.to_string()).then(|| format!("rank {}", part.rank)));
        words.extend(differ(|part| part.op.to_string()).then(|| part.op.to_string()));
        words.join(" ")
    }

    /// The slowest and the fastest of the parts that have a bandwidth, where there are several.
    pub(crate) fn slowest_and_fastest(&self) -> Option<[&PartResult; 2]> {
        let mut parts: Vec<&PartResult> =
            self.parts.iter().filter(|part| part.bandwidth_bytes_per_s.is_some()).collect();
        parts.sort_by(|a, b| {
            a.bandwidth_bytes_per_s.partial_cmp(&b.bandwidth_bytes_per_s).unwrap_or(Ordering::Equal)
        });
        let [slowest, .., fastest] = parts.as_slice() else { return None };
        Some([slowest, fastest])
    }

    /// Takes in the figures of a part that was measured at the same time.
    fn stand_beside(&mut self, other: Self) {
        self.cold_ns = self.cold_ns.max(other.cold_ns);
        self.lists_ns = self.lists_ns.max(other.lists_ns);
        self.notified_resolution_ns = self.notified_resolution_ns.max(other.notified_resolution_ns);
        if other.ended_by == Some(EndedBy::Time) {
            self.ended_by = other.ended_by;
        }
        keep_the_worse(&mut self.transport, other.transport.as_ref());
        self.add(other);
    }
}

/// The worst wire is that of a case and of a part: all of them must be what was expected.
pub(super) fn keep_the_worse(known: &mut Option<Transport>, other: Option<&Transport>) {
    if let (Some(known), Some(other)) = (known, other)
        && other.standing() < known.standing()
    {
        known.clone_from(other);
    }
}

impl PartResult {
    fn of(measured: &MeasuredPart, begin_ns: u64) -> Self {
        let MeasuredPart { part, began_ns, gpus: [gpu, target_gpu], result } = measured;
        Self {
            rank: part.rank,
            target_rank: part.peer,
            gpu: gpu.clone(),
            target_gpu: target_gpu.clone(),
            op: part.case.op,
            status: result.status,
            reason: result.reason.clone(),
            transfers: result.transfers,
            payload_bytes: result.payload_bytes,
            began_after_ns: began_ns - begin_ns,
            wall_ns: result.wall_ns,
            bandwidth_bytes_per_s: result.bandwidth_bytes_per_s,
            cold_ns: result.cold_ns,
            total: result.total.clone(),
            verified_bytes: result.verification.verified_bytes,
            mismatch: result.verification.mismatch.clone(),
            transport: result.transport.clone(),
            limit: result.limit.clone(),
            repetitions: vec![result.repetition(0)],
        }
    }

    /// Its timed loop was over `at_ns` after the start of the run.
    pub(super) fn ended_at(&mut self, at_ns: u64) {
        self.repetitions.iter_mut().for_each(|one| one.at_ns = at_ns);
    }

    /// Takes in the next timed loop of the same part, which was over `at_ns` after the start of the run.
    pub(super) fn absorb(&mut self, mut next: Self, at_ns: u64) {
        next.ended_at(at_ns);
        self.repetitions.append(&mut next.repetitions);
        keep_the_worse(&mut self.transport, next.transport.as_ref());
        self.transfers += next.transfers;
        self.payload_bytes += next.payload_bytes;
        self.wall_ns += next.wall_ns;
        self.verified_bytes += next.verified_bytes;
        self.total = super::repetition::joined(self.total.take(), next.total);
        if self.status == CaseStatus::Pass && next.status != CaseStatus::Pass {
            self.status = next.status;
            self.reason = next.reason;
            self.mismatch = next.mismatch;
        }
        let passed = self.status == CaseStatus::Pass && self.wall_ns > 0;
        self.bandwidth_bytes_per_s = passed.then(|| self.payload_bytes as f64 * 1e9 / self.wall_ns as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::super::example::case;
    use super::*;
    use crate::plan::Case;

    fn part(rank: u32, op: Op, began_ns: u64) -> MeasuredPart {
        let moved = Case { op, block_bytes: 4096, batch: 1, kv: None };
        let result = case(op, "4 KiB", 4096, 2_000, 20_000);
        MeasuredPart {
            part: Part { rank, peer: rank, case: moved, base: 0 },
            began_ns,
            gpus: [None, None],
            result,
        }
    }

    fn whole() -> CaseResult {
        case(Op::Both, "4 KiB", 4096, 1, 1)
    }

    #[test]
    fn bytes_add_up_over_the_time_from_the_first_start_to_the_last_end() {
        let parts = vec![part(0, Op::Read, 1_000), part(0, Op::Write, 1_000), part(1, Op::Read, 501_000)];
        let one = parts[0].result.clone();
        let all = CaseResult::of_parts(whole(), parts, 2);
        assert_eq!((all.name.as_str(), all.op), ("READ+WRITE 4 KiB x1", Op::Both));
        assert_eq!((all.transfers, all.payload_bytes), (3 * one.transfers, 3 * one.payload_bytes));
        assert_eq!(all.wall_ns, one.wall_ns + 500_000);
        let bandwidth = all.payload_bytes as f64 * 1e9 / all.wall_ns as f64;
        assert_eq!(all.bandwidth_bytes_per_s, Some(bandwidth));
        assert_eq!(all.total.as_ref().map(|total| total.count), Some(3 * one.transfers));
        assert_eq!(all.parts.iter().map(|part| part.began_after_ns).collect::<Vec<_>>(), [0, 0, 500_000]);
        assert_eq!(all.parts[2].bandwidth_bytes_per_s, one.bandwidth_bytes_per_s);
    }

    #[test]
    fn a_part_that_failed_fails_the_case_and_is_named() {
        let mut parts = vec![part(0, Op::Read, 0), part(1, Op::Write, 0)];
        parts[1].result.status = CaseStatus::Fail;
        parts[1].result.reason = Some("zeros".to_owned());
        let all = CaseResult::of_parts(whole(), parts, 2);
        assert_eq!((all.status, all.reason.as_deref()), (CaseStatus::Fail, Some("rank 1 WRITE: zeros")));
        assert_eq!(all.bandwidth_bytes_per_s, None);
        assert_eq!(all.parts[0].status, CaseStatus::Pass);
    }

    #[test]
    fn repetitions_of_parts_add_up_part_by_part() {
        let round = || CaseResult::of_parts(whole(), vec![part(0, Op::Read, 0), part(1, Op::Read, 0)], 2);
        let mut all = round();
        all.begin_repetitions(1);
        all.absorb(round(), 2);
        assert_eq!(all.parts.len(), 2);
        assert_eq!(all.parts[1].transfers, 2 * round().parts[1].transfers);
        assert_eq!(all.transfers, all.parts.iter().map(|part| part.transfers).sum::<u64>());
        for part in &all.parts {
            let rounds: Vec<u64> = part.repetitions.iter().map(|one| one.at_ns).collect();
            assert_eq!(rounds, [1, 2]);
            assert_eq!(part.repetitions[0].bandwidth_bytes_per_s, round().parts[0].bandwidth_bytes_per_s);
        }
    }

    #[test]
    fn a_part_alone_has_its_own_figures_and_none_of_the_whole() {
        let mut parts = vec![part(0, Op::Read, 0), part(1, Op::Read, 0), part(1, Op::Write, 0)];
        parts[1].result.bandwidth_bytes_per_s = Some(1.0);
        let all = CaseResult::of_parts(whole(), parts, 2);
        let alone = all.alone(&all.parts[2]);
        assert_eq!((alone.name.as_str(), alone.op), ("READ+WRITE 4 KiB x1", Op::Write));
        assert_eq!((alone.transfers, alone.wall_ns), (all.parts[2].transfers, all.parts[2].wall_ns));
        assert!(alone.parts.is_empty() && alone.post.is_none() && alone.total == all.parts[2].total);
        assert_eq!(all.label(&all.parts[2]), "rank 1 WRITE");
        let [slowest, fastest] = all.slowest_and_fastest().unwrap();
        assert_eq!((slowest.rank, slowest.op), (1, Op::Read));
        assert!(fastest.bandwidth_bytes_per_s > Some(1.0));
        let ranks = CaseResult::of_parts(whole(), vec![part(0, Op::Read, 0), part(1, Op::Read, 0)], 2);
        assert_eq!(ranks.label(&ranks.parts[1]), "rank 1");
    }
}
