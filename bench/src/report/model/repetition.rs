//! Several timed loops of one case: kept apart for comparisons, and put together for the case.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CaseResult, CaseStatus};
use crate::measure::histogram::Distribution;

/// One timed loop of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Repetition {
    /// When it was over, from the start of the run, in ns.
    pub(crate) at_ns: u64,
    /// Transfers completed in it.
    pub(crate) transfers: u64,
    /// Its time, from just before its first post to its last completion, in ns.
    pub(crate) wall_ns: u64,
    /// How long the loop, which never sleeps, had no processor, in ns; null where it is not known.
    #[serde(default)]
    pub(crate) off_cpu_ns: Option<u64>,
    /// Its payload bytes per second. Null unless the data was verified.
    pub(crate) bandwidth_bytes_per_s: Option<f64>,
    /// Median of the total time of its transfers, in ns.
    pub(crate) total_p50_ns: Option<u64>,
    /// 90th percentile of it, in ns.
    pub(crate) total_p90_ns: Option<u64>,
    /// 99th percentile of it, in ns; null below 1,000 samples.
    pub(crate) total_p99_ns: Option<u64>,
}

impl CaseResult {
    /// The timed loop that this case was measured with, which was over `at_ns` after the start of the run.
    pub(crate) fn repetition(&self, at_ns: u64) -> Repetition {
        let total = self.total.as_ref();
        Repetition {
            at_ns,
            transfers: self.transfers,
            wall_ns: self.wall_ns,
            off_cpu_ns: self.off_cpu_ns,
            bandwidth_bytes_per_s: self.bandwidth_bytes_per_s,
            total_p50_ns: total.map(|total| total.p50),
            total_p90_ns: total.map(|total| total.p90),
            total_p99_ns: total.and_then(|total| total.p99),
        }
    }

    /// Keeps the figures of the case, and of its parts, as those of its first timed loop, which was over `at_ns` after the
    /// start of the run.
    pub(crate) fn begin_repetitions(&mut self, at_ns: u64) {
        self.repetitions = vec![self.repetition(at_ns)];
        self.parts.iter_mut().for_each(|part| part.ended_at(at_ns));
    }

    /// Takes in the next timed loop of the same case, which was over `at_ns` after the start of the run.
    ///
    /// Transfers, bytes and times add up; a failure stays; the first cold transfer is the cold one. Once
    /// something failed there is no bandwidth.
    pub(crate) fn absorb(&mut self, next: Self, at_ns: u64) {
        self.repetitions.push(next.repetition(at_ns));
        self.wall_ns += next.wall_ns;
        self.off_cpu_ns = self.off_cpu_ns.zip(next.off_cpu_ns).map(|(so_far, next)| so_far + next);
        self.ended_by = next.ended_by.or(self.ended_by);
        super::part::keep_the_worse(&mut self.transport, next.transport.as_ref());
        let mut of_next = next.parts.clone().into_iter();
        self.parts.iter_mut().zip(&mut of_next).for_each(|(part, next)| part.absorb(next, at_ns));
        self.add(next);
    }

    /// Adds the figures of other transfers of the same case: all but the time of the loop, which depends on whether they
    /// were made at the same time.
    pub(super) fn add(&mut self, next: Self) {
        self.transfers += next.transfers;
        self.payload_bytes += next.payload_bytes;
        self.warmup_transfers += next.warmup_transfers;
        self.unserved += next.unserved;
        self.prep = joined(self.prep.take(), next.prep);
        self.post = joined(self.post.take(), next.post);
        self.wire = joined(self.wire.take(), next.wire);
        self.total = joined(self.total.take(), next.total);
        self.notify = joined(self.notify.take(), next.notify);
        self.lists = joined(self.lists.take(), next.lists);
        self.notified = joined(self.notified.take(), next.notified);
        self.scheduled = joined(self.scheduled.take(), next.scheduled);
        self.verification.verified_bytes += next.verification.verified_bytes;
        self.verification.per_transfer_checks += next.verification.per_transfer_checks;
        self.verification.checks_at_initiator += next.verification.checks_at_initiator;
        self.verification.checks_at_target += next.verification.checks_at_target;
        self.verification.epochs += next.verification.epochs;
        if self.status == CaseStatus::Pass && next.status != CaseStatus::Pass {
            self.status = next.status;
            self.reason = next.reason;
            self.verification.mismatch = next.verification.mismatch;
        }
        let passed = self.status == CaseStatus::Pass && self.wall_ns > 0;
        self.bandwidth_bytes_per_s = passed.then(|| self.payload_bytes as f64 * 1e9 / self.wall_ns as f64);
    }
}

pub(super) fn joined(first: Option<Distribution>, next: Option<Distribution>) -> Option<Distribution> {
    match (first, next) {
        // A histogram of this process always decodes; if it did not, the first loop alone would stand.
        (Some(first), Some(next)) => Some(first.joined(&next).unwrap_or(first)),
        (first, next) => first.or(next),
    }
}

#[cfg(test)]
mod tests {
    use super::super::example::case;
    use super::*;
    use crate::plan::Op;

    fn repeated(times: u64) -> CaseResult {
        let one = |at: u64| case(Op::Read, "4 KiB", 4096, 2_000, 20_000 + at);
        let mut all = one(0);
        all.begin_repetitions(1);
        (1..times).for_each(|at| all.absorb(one(at), at + 1));
        all
    }

    #[test]
    fn repetitions_add_up() {
        let all = repeated(3);
        assert_eq!(all.repetitions.len(), 3);
        assert_eq!(all.transfers, 3 * 2_001);
        assert_eq!(all.total.as_ref().map(|total| total.count), Some(3 * 2_001));
        let bandwidth = all.payload_bytes as f64 * 1e9 / all.wall_ns as f64;
        assert_eq!(all.bandwidth_bytes_per_s, Some(bandwidth));
        // Three times 2,001 samples are still too few for p99.9.
        assert_eq!(all.total.and_then(|total| total.p999), None);
    }

    #[test]
    fn a_round_over_a_worse_wire_is_that_of_the_case() {
        use crate::proof::{Class, Transport};
        let over = |class, met| Transport {
            class,
            over: None,
            devices: Vec::new(),
            evidence: Vec::new(),
            doubt: None,
            meets_expectation: Some(met),
        };
        let mut all = repeated(1);
        all.transport = Some(over(Class::Rdma, true));
        for (transport, class) in [
            (over(Class::Nvlink, true), Class::Rdma),
            (over(Class::Tcp, false), Class::Tcp),
            (over(Class::Rdma, true), Class::Tcp),
        ] {
            all.absorb(CaseResult { transport: Some(transport), ..case(Op::Read, "4 KiB", 4096, 9, 9) }, 2);
            assert_eq!(all.transport.as_ref().map(|transport| transport.class), Some(class));
        }
    }

    #[test]
    fn a_failure_stays() {
        let mut all = repeated(2);
        let mut wrong = case(Op::Read, "4 KiB", 4096, 10, 20_000);
        wrong.status = CaseStatus::Fail;
        wrong.reason = Some("zeros".to_owned());
        wrong.bandwidth_bytes_per_s = None;
        all.absorb(wrong, 9);
        all.absorb(case(Op::Read, "4 KiB", 4096, 10, 20_000), 10);
        assert_eq!((all.status, all.reason.as_deref()), (CaseStatus::Fail, Some("zeros")));
        assert_eq!(all.bandwidth_bytes_per_s, None);
        assert_eq!(all.repetitions[2].bandwidth_bytes_per_s, None);
    }
}
