//! A part of a case that has been measured and checked: its figures, and what is to be said about them.

use checks::{Finding, Status};

use super::marks::{Marked, Told};
use super::record::not_run;
use crate::engine::protocol::{Measured, TelemetryPair, TwoClocks, Verified, WarmedUp};
use crate::plan::Part;
use crate::report::model::{CaseResult, CaseStatus, Descriptors, EndedBy, NixlTelemetry, Verification};
use crate::verdict::data_finding;

/// Share of a timed loop without a processor from which on its figures need a word.
const OFF_CPU_SHARE: f64 = 0.1;
/// Share by which two clocks around the same call may differ before it is worth a word.
const TELEMETRY_TOLERANCE: f64 = 0.05;

/// A part of a case that has been measured and checked.
pub(super) struct Done {
    pub(super) part: Part,
    pub(super) warm: WarmedUp,
    pub(super) measured: Measured,
    pub(super) verified: Verified,
    /// Notifications that did not arrive.
    pub(super) lost: u64,
    /// Its marked WRITEs.
    pub(super) marked: Marked,
}

impl Done {
    /// Its result, and what is to be said about it. `name` is that of the case, with the rank where there are several;
    /// `depth` the requests in flight.
    pub(super) fn judge(self, name: &str, depth: u32) -> (CaseResult, Vec<Finding>) {
        let Self { part, warm, measured, verified, lost, marked } = self;
        let case = &part.case;
        let unnoticed = marked.unnoticed();
        let mismatch = measured.mismatch.or(verified.mismatch).or(marked.looks.mismatch);
        let reason = if let Some(mismatch) = &mismatch {
            Some(mismatch.to_string())
        } else if let Some(late) = measured.late.or(marked.looks.late) {
            Some(Told(case.op, late).to_string())
        } else if lost > 0 {
            Some(format!("{lost} of {} notifications did not arrive at the target", measured.notifications))
        } else {
            unnoticed
        };
        let telemetry = measured.telemetry.as_ref().map(compare_telemetry);
        let disagreement = telemetry.as_ref().and_then(|t| t.disagreement.as_deref());
        let found = [
            reason.as_ref().map(|reason| data_finding(name, reason)),
            disagreement.map(|why| two_clocks(name, why)),
            starved(name, measured.off_cpu_ns, measured.wall_ns),
            too_fast(name, measured.unserved),
        ];
        let payload_bytes = measured.payload_bytes;
        let seen = measured.seen.as_ref();
        let passed = reason.is_none();
        let result = CaseResult {
            status: if passed { CaseStatus::Pass } else { CaseStatus::Fail },
            reason,
            descriptors: Descriptors {
                requested: u64::from(case.batch),
                posted: measured.telemetry.as_ref().map(|t| t.descriptors),
            },
            transfers: measured.transfers,
            payload_bytes,
            wall_ns: measured.wall_ns,
            bandwidth_bytes_per_s: (passed && measured.wall_ns > 0)
                .then(|| payload_bytes as f64 * 1e9 / measured.wall_ns as f64),
            cold_ns: Some(warm.cold_ns),
            prep: measured.prep,
            post: measured.post,
            wire: measured.wire,
            total: measured.total,
            notify: measured.notify,
            lists_ns: Some(warm.prepare_ns),
            lists: warm.prepare,
            notified_resolution_ns: seen.map(|seen| seen.resolution_ns),
            notified: seen.and_then(|seen| seen.total.clone()),
            scheduled: measured.scheduled,
            unserved: measured.unserved,
            off_cpu_ns: Some(measured.off_cpu_ns),
            warmup_transfers: warm.transfers,
            verification: Verification {
                verified_bytes: verified.bytes,
                per_transfer_checks: measured.checked + marked.looks.looked,
                checks_at_initiator: measured.checked,
                checks_at_target: marked.looks.looked,
                epochs: 2,
                mismatch,
            },
            nixl_telemetry: telemetry,
            transport: None,
            ended_by: Some(if measured.ended_by_samples { EndedBy::Samples } else { EndedBy::Time }),
            ..not_run(case, depth, "")
        };
        (result, found.into_iter().flatten().collect())
    }
}

/// A timed loop that had no processor for a good part of its time: what it measured is also the machine's load.
fn starved(case: &str, off_cpu_ns: u64, wall_ns: u64) -> Option<Finding> {
    let share = off_cpu_ns as f64 / wall_ns.max(1) as f64;
    (share > OFF_CPU_SHARE).then(|| {
        let title = format!(
            "the initiator's engine had no processor for more than {:.0} % of a timed loop",
            OFF_CPU_SHARE * 100.0
        );
        Finding::new("cpu-contended", Status::Warn, title)
            .evidence([format!("case {case}: {:.0} %", share * 100.0)])
            .next_step("end what else runs here, or give both engines a core each: bandwidth and the tail of the latencies suffer")
    })
}

/// An open loop that could not keep up.
fn too_fast(case: &str, unserved: u64) -> Option<Finding> {
    (unserved > 0).then(|| {
        Finding::new("rate-not-sustained", Status::Warn, "the pair cannot keep up with --rate")
            .evidence([format!("case {case}: {unserved} scheduled transfers were never started")])
            .next_step("lower --rate, or raise --requests-in-flight; the times from schedule grow with the length of the run")
    })
}

fn two_clocks(case: &str, why: &str) -> Finding {
    Finding::new("nixl-telemetry-differs", Status::Warn, "NIXL's own timing and kvwire's disagree")
        .evidence([format!("case {case}: {why}")])
        .next_step(
            "trust kvwire's clock for what an engine waits for; NIXL's telemetry counts whole microseconds",
        )
}

/// Puts kvwire's and NIXL's times side by side. They differ by a few calls and by NIXL's whole microseconds.
fn compare_telemetry(pair: &TelemetryPair) -> NixlTelemetry {
    let us = |ns: u64| ns as f64 / 1000.0;
    let disagreement = |what: &str, clocks: TwoClocks| {
        let allowed = (2 * pair.resolution_ns) as f64 + clocks.ours_ns as f64 * TELEMETRY_TOLERANCE;
        (clocks.apart_ns.unsigned_abs() as f64 > allowed).then(|| {
            format!(
                "NIXL's telemetry says {} us for {what} where kvwire measured {:.1} us",
                us(clocks.nixl_ns),
                us(clocks.ours_ns)
            )
        })
    };
    NixlTelemetry {
        samples: pair.samples,
        post_p50_us: Some(us(pair.post.nixl_ns)),
        total_p50_us: Some(us(pair.total.nixl_ns)),
        ours_post_p50_us: Some(us(pair.post.ours_ns)),
        ours_total_p50_us: Some(us(pair.total.ours_ns)),
        disagreement: disagreement("a transfer", pair.total).or_else(|| disagreement("the post", pair.post)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(ours_ns: u64, nixl_ns: u64) -> TelemetryPair {
        let apart_ns = ours_ns.cast_signed() - nixl_ns.cast_signed();
        let clocks = TwoClocks { ours_ns, nixl_ns, apart_ns };
        TelemetryPair {
            samples: 64,
            resolution_ns: 1000,
            post: clocks,
            total: clocks,
            descriptors: 1,
            bytes: 1,
        }
    }

    #[test]
    fn a_loop_is_starved_when_it_had_no_processor_for_a_tenth_of_its_time() {
        assert!(starved("READ 4 KiB x1", 100, 1000).is_none());
        let finding = starved("READ 4 KiB x1", 340, 1000).unwrap();
        assert_eq!(finding.evidence, ["case READ 4 KiB x1: 34 %"]);
    }

    #[test]
    fn two_clocks_agree_within_the_resolution_and_a_few_percent() {
        assert_eq!(compare_telemetry(&pair(4_811, 4_000)).disagreement, None);
        assert_eq!(compare_telemetry(&pair(1_000_000, 960_000)).disagreement, None);
        assert!(compare_telemetry(&pair(1_000_000, 900_000)).disagreement.is_some());
        assert!(compare_telemetry(&pair(9_000, 4_000)).disagreement.is_some());
    }
}
