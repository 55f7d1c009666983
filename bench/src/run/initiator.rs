//! The initiator: owns the plan, leads the target through it case by case, and keeps the result.

use std::time::{Duration, Instant};

use checks::{Finding, NixlIdentity, Node, Status};
use coordinator::Role;

use super::join::Met;
use super::message::Message;
use super::nodes;
use super::record::{Record, not_run};
use super::seats::{self, Chooser};
use super::stop::Stop;
use super::supervisor::{Supervisor, makes_no_sense};
use super::target::{OPEN_DEADLINE, wrong_event};
use super::witness::{Moved, Witness};
use crate::engine::protocol::{Command, End, Event, Measured, TelemetryPair, TwoClocks, Verified, WarmedUp};
use crate::engine::{Engine, Phase, initiator_end};
use crate::plan::{Case, Op, Plan};
use crate::report::model::{CaseResult, CaseStatus, Descriptors, EndedBy, NixlTelemetry, Verification};
use crate::terminal::Terminal;
use crate::verdict::{Outcome, data_finding};

/// Time that the last notifications of a case may be on their way.
const NOTIFICATION_TIMEOUT_MS: u64 = 2000;
/// What a case takes beside its timed loop, as a share of it: for the time shown as left.
const AROUND_SHARE: f64 = 0.3;

/// The leading side of a run.
#[derive(Debug)]
pub(crate) struct Initiator {
    supervisor: Supervisor,
    node: Node,
    nixl_lib: Option<String>,
    terminal: Terminal,
    record: Record,
    plan: Plan,
    /// The case that is measured.
    current: Option<usize>,
    witness: Witness,
}

impl Initiator {
    /// The leading side of a run whose two sides have met.
    pub(crate) fn new(
        met: Met,
        nixl_lib: Option<String>,
        terminal: Terminal,
        mut record: Record,
        plan: Plan,
    ) -> Self {
        record.rendezvous(&met.own.place, met.own.route, met.peer.route);
        record.known_target(met.peer.node);
        met.findings.into_iter().for_each(|finding| record.finding(finding));
        Self {
            supervisor: met.supervisor,
            node: met.own.node,
            nixl_lib,
            terminal,
            record,
            plan,
            current: None,
            witness: Witness::new(),
        }
    }

    /// Runs the plan and gives back the closed result.
    pub(crate) async fn run(mut self) -> (Outcome, Record) {
        let stopped = match self.lead().await {
            Ok(()) => None,
            Err(stop) => {
                let (outcome, title) = self.explain(stop).await;
                self.close_case(outcome, &title);
                Some(outcome)
            }
        };
        self.terminal.end_progress();
        let outcome = self.record.close(stopped);
        self.supervisor.end_engine(stopped.is_none()).await;
        let over = Message::Over {
            outcome,
            summary: self.record.result.verdict.summary.clone(),
            result: Some(Box::new(self.record.result.clone())),
        };
        self.supervisor.part(Some(&over)).await;
        (outcome, self.record)
    }

    async fn lead(&mut self) -> Result<(), Stop> {
        self.compare_nodes()?;
        self.open().await?;
        if self.plan.listens() {
            self.expect_done(Message::Listen, Phase::Preparing).await?;
        }
        self.terminal.start_progress(self.plan.cases.len() as u64 * u64::from(self.plan.repeat));
        let begin = Instant::now();
        let cases = self.plan.cases.clone();
        let all = cases.len() * self.plan.repeat as usize;
        for ordinal in 0..all {
            let (index, case) = (ordinal % cases.len(), &cases[ordinal % cases.len()]);
            if self.plan.total_time().is_some_and(|total| begin.elapsed() >= total) {
                self.record.mark_not_run(0, "--total-time was over");
                self.record.missing_repetitions();
                return Ok(());
            }
            self.terminal.show_case(ordinal as u64, &case.to_string(), self.time_left(ordinal));
            self.terminal.detail(&format!("case {}/{all}: {case}", ordinal + 1));
            self.supervisor.enter(case.to_string());
            self.current = Some(index);
            let result = self.case(ordinal, case).await?;
            self.current = None;
            self.record.repetition(index, result)?;
            if let Some(result) = self.record.result.cases.get(index).cloned() {
                self.supervisor.tell(&Message::Finished { index, result: Box::new(result) }).await?;
            }
        }
        self.witness.close(&mut self.supervisor, &mut self.record).await
    }

    /// Records why the run stopped. When the own engine met an error that the peer can explain (its engine is gone),
    /// the peer's word comes first and decides.
    async fn explain(&mut self, stop: Stop) -> (Outcome, String) {
        let at = self.supervisor.at();
        let mut outcome = stop.outcome();
        let mut title = stop.finding(&at).title;
        self.witness.note_failure(&self.supervisor, &mut self.record);
        if let Stop::Engine(_) = stop {
            self.supervisor.end_engine(false).await;
            if let Some(cause) = self.supervisor.peer_trouble().await {
                outcome = cause.outcome();
                title = cause.finding(&at).title;
                self.record.finding(cause.finding(&at));
            }
        }
        let mut finding = stop.finding(&at);
        if let Some(versions) = self.versions_that_met() {
            finding.evidence.push(versions);
        }
        self.record.finding(finding);
        (outcome, title)
    }

    /// What the two nodes can do, before anything is opened: a side that cannot do what is expected ends the run.
    fn compare_nodes(&mut self) -> Result<(), Stop> {
        let Some(target) = self.record.result.nodes.target.as_ref() else { return Ok(()) };
        let judged = nodes::judge(&self.node, target, &self.plan);
        self.record.initiator_node(self.node.clone());
        match judged {
            Ok(findings) => {
                findings.into_iter().for_each(|finding| self.record.finding(finding));
                Ok(())
            }
            Err(finding) => Err(Stop::Unfit(finding)),
        }
    }

    /// Both sides' versions, where they differ: an error may come from that.
    fn versions_that_met(&self) -> Option<String> {
        let versions = |node: &Option<Node>| node.as_ref()?.nixl.as_ref().map(NixlIdentity::versions);
        let nodes = &self.record.result.nodes;
        let (ours, theirs) = (versions(&nodes.initiator)?, versions(&nodes.target)?);
        (ours != theirs).then(|| format!("two versions met: initiator {ours}; target {theirs}"))
    }

    fn time_left(&self, ordinal: usize) -> Duration {
        let one = self.plan.case_time().mul_f64(1.0 + AROUND_SHARE);
        let all = self.plan.cases.len() * self.plan.repeat as usize;
        let cases = u32::try_from(all - ordinal).unwrap_or(u32::MAX);
        one.saturating_mul(cases)
    }

    /// The case in which the run stopped, and those after it.
    fn close_case(&mut self, outcome: Outcome, title: &str) {
        let Some(index) = self.current else {
            self.record.mark_not_run(0, title);
            return;
        };
        if let Some(case) = self.plan.cases.get(index) {
            let mut result = not_run(case, self.plan.depth, title);
            if outcome == Outcome::NotTrusted {
                result.status = CaseStatus::Fail;
            }
            // Ignored: the result is written again, and a failure reported, when the run is closed.
            let _ = self.record.stopped_in(index, result);
        }
        self.record.mark_not_run(index + 1, &format!("the run had stopped: {title}"));
        self.record.missing_repetitions();
    }

    /// Opens both engines at once and connects them.
    async fn open(&mut self) -> Result<(), Stop> {
        let begin = Instant::now();
        self.record.startup("join", self.record.elapsed_ns());
        let environment = self.plan.engine_env();
        let chooser = Chooser {
            role: Role::Initiator,
            wish: &self.plan.memory,
            own_gpus: &[],
            environment: &environment,
            number: 0,
            terminal: &self.terminal,
        };
        let seat = chooser.choose(&mut self.supervisor).await?;
        let engine = Engine::spawn(Role::Initiator, &seats::environment(&seat, environment), &self.terminal);
        self.supervisor.engine = Some(engine.map_err(Stop::Engine)?);
        let command = Command::Open {
            agent: format!("kvwire-initiator-{}", std::process::id()),
            nixl_lib: self.nixl_lib.clone(),
            polls: false,
            plan: Box::new(self.plan.clone()),
            seat: Box::new(seat),
        };
        let message = Message::Begin { plan: Box::new(self.plan.clone()) };
        let (event, answer) =
            self.supervisor.work_both(&command, Phase::Opening, &message, OPEN_DEADLINE).await?;
        let Event::Opened(opened) = event else { return Err(wrong_event(&event)) };
        let Message::Opened(target) = answer else { return Err(out_of_order()) };
        let join = self.record.result.startup.initiator.take().unwrap_or_default();
        self.node.nixl = Some(opened.nixl);
        let mut phases: Vec<(String, u64)> = join.into_iter().map(|p| (p.name, p.ns)).collect();
        phases.extend(opened.phases);
        for (side, placement) in [("initiator", &opened.placement), ("target", &target.placement)] {
            seats::judge(side, placement).into_iter().for_each(|finding| self.record.finding(finding));
        }
        self.record.initiator(self.node.clone(), opened.placement, &phases);
        self.record.target(target.node, target.placement, &target.phases);
        self.record.startup("both engines open", crate::engine::timed_ns(begin.elapsed()));
        self.compare_versions();
        let connect = Command::Connect { metadata: target.metadata, region: target.region };
        match self.supervisor.work(&connect, Phase::Connecting, OPEN_DEADLINE).await? {
            Event::Done { ns } => self.record.startup("load metadata", ns),
            other => return Err(wrong_event(&other)),
        }
        self.witness.open(&mut self.supervisor, &self.plan, &mut self.record).await
    }

    /// Two NIXL or UCX versions may work together; a reader should know that they met.
    fn compare_versions(&mut self) {
        if let Some(versions) = self.versions_that_met() {
            self.record.finding(
                Finding::new(
                    "versions-differ",
                    Status::Warn,
                    "the two sides use different NIXL or UCX versions",
                )
                .evidence([versions])
                .next_step("deploy one version on both sides, or test each combination that you deploy"),
            );
        }
    }

    async fn expect_done(&mut self, message: Message, phase: Phase) -> Result<(), Stop> {
        match self.supervisor.ask(&message, phase, self.plan.longest_command()).await? {
            Message::Done => Ok(()),
            _ => Err(out_of_order()),
        }
    }

    /// Fills the source and poisons the consumer, both sides at once.
    async fn prepare(&mut self, case: &Case, epoch: u32) -> Result<(), Stop> {
        let ours = initiator_end(case.op);
        let theirs = match ours {
            End::Source => End::Consumer,
            End::Consumer => End::Source,
        };
        let command = Command::Prepare { case: case.clone(), epoch, end: ours };
        let message = Message::Prepare { case: case.clone(), epoch, end: theirs };
        let deadline = self.plan.longest_command();
        match self.supervisor.work_both(&command, Phase::Preparing, &message, deadline).await? {
            (Event::Done { .. }, Message::Done) => Ok(()),
            (Event::Done { .. }, _) => Err(out_of_order()),
            (event, _) => Err(wrong_event(&event)),
        }
    }

    async fn work(&mut self, command: Command, phase: Phase) -> Result<Event, Stop> {
        self.supervisor.work(&command, phase, self.plan.longest_command()).await
    }

    /// Measures a case. `ordinal` counts the cases measured before it, in all rounds.
    async fn case(&mut self, ordinal: usize, case: &Case) -> Result<CaseResult, Stop> {
        // Two fillings a case: what the warm-up brought must not pass for what the timed loop brings.
        let (warm_epoch, timed_epoch) = (2 * ordinal as u32 + 1, 2 * ordinal as u32 + 2);
        self.prepare(case, warm_epoch).await?;
        let command = Command::WarmUp { case: case.clone(), epoch: warm_epoch };
        let event = self.work(command, Phase::WarmUp).await?;
        let Event::Warm(warm) = event else { return Err(wrong_event(&event)) };
        if ordinal == 0 {
            self.record.startup("program start to first transfer done", self.record.elapsed_ns());
        }
        self.prepare(case, timed_epoch).await?;
        self.witness.before(&mut self.supervisor, &self.plan).await?;
        let event = self.work(Command::Measure { epoch: timed_epoch }, Phase::TimedLoop).await?;
        let Event::Measured(measured) = event else { return Err(wrong_event(&event)) };
        self.witness.after(&mut self.supervisor).await?;
        let moved = Moved { transfers: measured.moved, bytes: measured.moved_bytes };
        let lost = self.count_notifications(&measured).await?;
        let verified = self.verify(case, timed_epoch, &measured).await?;
        let mut result = self.judge_case(case, &warm, *measured, verified, lost);
        self.witness.judge(&mut self.supervisor, case, moved, &mut result, &mut self.record).await?;
        Ok(result)
    }

    /// How many notifications the target did not get, when they were asked for.
    async fn count_notifications(&mut self, measured: &Measured) -> Result<u64, Stop> {
        if !self.plan.listens() {
            return Ok(0);
        }
        let message =
            Message::Heard { expected: measured.notifications, timeout_ms: NOTIFICATION_TIMEOUT_MS };
        match self.supervisor.ask(&message, Phase::Verification, self.plan.longest_command()).await? {
            Message::HeardNotifications { notifications } => {
                Ok(measured.notifications.saturating_sub(notifications))
            }
            _ => Err(out_of_order()),
        }
    }

    /// Checks the data where it arrived.
    async fn verify(&mut self, case: &Case, epoch: u32, measured: &Measured) -> Result<Verified, Stop> {
        let stamps = measured.stamps.clone();
        match case.op {
            Op::Read => {
                let command = Command::Verify { case: case.clone(), epoch, stamps };
                match self.work(command, Phase::Verification).await? {
                    Event::Verified(verified) => Ok(verified),
                    other => Err(wrong_event(&other)),
                }
            }
            Op::Write => {
                let message = Message::Verify { case: case.clone(), epoch, stamps };
                match self.supervisor.ask(&message, Phase::Verification, self.plan.longest_command()).await? {
                    Message::Verified(verified) => Ok(verified),
                    _ => Err(out_of_order()),
                }
            }
        }
    }

    fn judge_case(
        &mut self,
        case: &Case,
        warm: &WarmedUp,
        measured: Measured,
        verified: Verified,
        lost: u64,
    ) -> CaseResult {
        let mismatch = measured.mismatch.or(verified.mismatch);
        let reason = if let Some(mismatch) = &mismatch {
            Some(mismatch.to_string())
        } else if measured.arrived_late {
            Some("a transfer was reported complete before its bytes were there; they came later".to_owned())
        } else if lost > 0 {
            Some(format!("{lost} of {} notifications did not arrive at the target", measured.notifications))
        } else {
            None
        };
        if let Some(reason) = &reason {
            self.record.finding(data_finding(&case.to_string(), reason));
        }
        let telemetry = measured.telemetry.as_ref().map(compare_telemetry);
        if let Some(why) = telemetry.as_ref().and_then(|t| t.disagreement.as_ref()) {
            self.record.finding(
                Finding::new("nixl-telemetry-differs", Status::Warn, format!("{case}: {why}"))
                    .next_step("trust kvwire's clock for what an engine waits for; NIXL's telemetry counts whole microseconds"),
            );
        }
        if measured.unserved > 0 {
            self.record.finding(too_fast(case, measured.unserved));
        }
        let payload_bytes = measured.payload_bytes;
        let seen = measured.seen.as_ref();
        let passed = reason.is_none();
        CaseResult {
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
            notified_resolution_ns: seen.map(|seen| seen.resolution_ns),
            notified: seen.and_then(|seen| seen.total.clone()),
            scheduled: measured.scheduled,
            unserved: measured.unserved,
            warmup_transfers: warm.transfers,
            verification: Verification {
                verified_bytes: verified.bytes,
                per_transfer_checks: measured.checked,
                epochs: 2,
                mismatch,
            },
            nixl_telemetry: telemetry,
            transport: None,
            ended_by: Some(if measured.ended_by_samples { EndedBy::Samples } else { EndedBy::Time }),
            ..not_run(case, self.plan.depth, "")
        }
    }
}

/// The finding for an open loop that could not keep up.
fn too_fast(case: &Case, unserved: u64) -> Finding {
    let title = format!(
        "{case}: the pair cannot keep up with --rate, {unserved} scheduled transfers were never started"
    );
    Finding::new("rate-not-sustained", Status::Warn, title)
        .next_step("lower --rate, or raise --requests-in-flight; the times from schedule grow with the length of the run")
}

fn out_of_order() -> Stop {
    makes_no_sense("an answer to something that was not asked".to_owned())
}

/// Share by which two clocks around the same call may differ before it is worth a word.
const TELEMETRY_TOLERANCE: f64 = 0.05;

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
    fn two_clocks_agree_within_the_resolution_and_a_few_percent() {
        assert_eq!(compare_telemetry(&pair(4_811, 4_000)).disagreement, None);
        assert_eq!(compare_telemetry(&pair(1_000_000, 960_000)).disagreement, None);
        assert!(compare_telemetry(&pair(1_000_000, 900_000)).disagreement.is_some());
        assert!(compare_telemetry(&pair(9_000, 4_000)).disagreement.is_some());
    }
}
