//! The initiator: owns the plan, leads the target through it case by case, and keeps the result.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use checks::{Finding, NixlIdentity, Node, Status};
use coordinator::Role;

use super::done::Done;
use super::join::Met;
use super::marks::{self, Marked};
use super::message::Message;
use super::nodes;
use super::record::{Record, not_run};
use super::seats::{self, Chooser};
use super::stop::Stop;
use super::supervisor::{Supervisor, makes_no_sense};
use super::target::{OPEN_DEADLINE, OpenedSide, open_commands, opened, wrong_event};
use super::witness::{Moved, Witness};
use crate::engine::protocol::{Check, Command, Event, Measured, PeerRank, Verified};
use crate::engine::{Engine, Phase, ends};
use crate::measure::clock;
use crate::plan::{Case, Op, Part, Plan};
use crate::proof::logged;
use crate::report::model::{CaseResult, CaseStatus, MeasuredPart};
use crate::terminal::Terminal;
use crate::verdict::Outcome;

/// Time that the last notifications of a case may be on their way.
const NOTIFICATION_TIMEOUT_MS: u64 = 2000;
/// From the word to all ranks to the start of their timed loops, in nanoseconds: every engine has read it by then.
const START_TOGETHER_NS: u64 = 5_000_000;
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
    /// Notifications sent so far, from each rank to each across.
    sent: BTreeMap<(u32, u32), u64>,
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
            sent: BTreeMap::new(),
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
        self.supervisor.end_engines(stopped.is_none()).await;
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
        // From here on there is a file, whatever becomes of this process.
        self.record.keep()?;
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
        self.supervisor.stopping(&stop);
        let at = self.supervisor.at();
        let mut outcome = stop.outcome();
        let mut title = stop.finding(&at).title;
        self.witness.note_failure(&self.supervisor, &mut self.record);
        if matches!(&stop, Stop::Engine(failure) if !failure.speaks_for_itself()) {
            self.supervisor.end_engines(false).await;
            if let Some(cause) = self.supervisor.peer_trouble().await {
                outcome = cause.outcome();
                title = cause.finding(&at).title;
                self.record.finding(cause.finding(&at));
            }
        }
        let mut finding = stop.finding(&at);
        // Its own engine may have met the same, and been ended before it could log that.
        if finding.title.starts_with("target engine") {
            let told = logged::quoted("target", &finding.evidence);
            told.into_iter().for_each(|finding| self.record.finding(finding));
        }
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
        let differences = nodes::differences(&self.node, target);
        self.record.node_differences(differences);
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
        let all = self.plan.cases.len() * self.plan.repeat as usize;
        let cases = self.plan.cases.iter().cycle().take(all).skip(ordinal);
        cases.map(|case| self.plan.time_of(case).mul_f64(1.0 + AROUND_SHARE)).sum()
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

    /// Opens the engines of both sides at once and connects them.
    async fn open(&mut self) -> Result<(), Stop> {
        let begin = Instant::now();
        self.record.startup("join", self.record.elapsed_ns());
        let environment = self.plan.engine_env();
        let chooser = Chooser {
            role: Role::Initiator,
            wish: &self.plan.memory,
            own_gpus: &[],
            environment: &environment,
            ranks: self.plan.ranks as usize,
            after_the_other: false,
            terminal: &self.terminal,
        };
        let seats = chooser.choose(&mut self.supervisor).await?;
        let environments: Vec<_> =
            seats.iter().map(|seat| seats::environment(seat, environment.clone())).collect();
        let engines = Engine::spawn_ranks(Role::Initiator, &environments, &self.terminal);
        self.supervisor.engines = engines.map_err(Stop::Engine)?;
        let commands = open_commands("initiator", false, self.nixl_lib.as_ref(), &self.plan, seats);
        let message = Message::Begin { plan: Box::new(self.plan.clone()) };
        let (events, answer) =
            self.supervisor.work_both(&commands, Phase::Opening, &message, OPEN_DEADLINE).await?;
        let OpenedSide { nixl, placements, phases, .. } = opened(events)?;
        let Message::Opened(target) = answer else { return Err(out_of_order()) };
        let join = self.record.result.startup.initiator.take().unwrap_or_default();
        self.node.nixl = Some(nixl);
        let mut all: Vec<(String, u64)> = join.into_iter().map(|p| (p.name, p.ns)).collect();
        all.extend(phases);
        for (side, placements) in [("initiator", &placements), ("target", &target.placements)] {
            seats::judge(side, placements).into_iter().for_each(|finding| self.record.finding(finding));
        }
        self.record.initiator(self.node.clone(), placements, &all);
        self.record.target(target.node, target.placements, &target.phases);
        self.record.target_route(target.route);
        self.record.startup("both engines open", crate::engine::timed_ns(begin.elapsed()));
        self.compare_versions();
        self.compare_memory();
        let connect = self.connections(&target.ranks);
        let events = self.supervisor.work(&connect, Phase::Connecting, OPEN_DEADLINE).await?;
        let slowest = done(events)?;
        self.record.startup("load metadata", slowest);
        self.witness.open(&mut self.supervisor, &self.plan, &mut self.record).await
    }

    /// Each rank learns of those across that it exchanges with in any case.
    fn connections(&self, target: &[PeerRank]) -> Vec<Command> {
        let parts: Vec<Part> = self.plan.cases.iter().flat_map(|case| self.plan.parts(case)).collect();
        let meets = |rank: u32, peer: u32| parts.iter().any(|part| part.rank == rank && part.peer == peer);
        let of_rank = |rank: u32| {
            let peers = target.iter().filter(|peer| meets(rank, peer.rank)).cloned().collect();
            Command::Connect { peers }
        };
        (0..self.plan.ranks).map(of_rank).collect()
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

    /// Memories of two kinds may be meant; a reader should know that they met.
    fn compare_memory(&mut self) {
        let wish = &self.plan.memory;
        if wish.initiator != wish.target {
            let kinds = format!("initiator {:?}, target {:?}", wish.initiator, wish.target).to_lowercase();
            self.record.finding(
                Finding::new("memory-differs", Status::Ok, "the two sides use different kinds of memory")
                    .evidence([kinds])
                    .next_step("use --memory for both when that is not meant"),
            );
        }
    }

    async fn expect_done(&mut self, message: Message, phase: Phase) -> Result<(), Stop> {
        match self.supervisor.ask(&message, phase, self.plan.longest_command()).await? {
            Message::Done => Ok(()),
            _ => Err(out_of_order()),
        }
    }

    /// Fills the sources and poisons the consumers, both sides at once.
    async fn prepare(&mut self, case: &Case, epoch: u32) -> Result<(), Stop> {
        let commands = self.each_rank(case, |parts| {
            let parts = parts.into_iter().map(|part| (part.clone(), ends(part.case.op).0)).collect();
            Command::Prepare { parts, epoch }
        });
        let message = Message::Prepare { case: case.clone(), epoch };
        let deadline = self.plan.longest_command();
        match self.supervisor.work_both(&commands, Phase::Preparing, &message, deadline).await? {
            (events, Message::Done) => done(events).map(drop),
            _ => Err(out_of_order()),
        }
    }

    /// A command for each rank, from its parts of a case.
    fn each_rank(&self, case: &Case, command: impl Fn(Vec<Part>) -> Command) -> Vec<Command> {
        let parts = self.plan.parts(case);
        let of_rank = |rank: u32| command(parts.iter().filter(|part| part.rank == rank).cloned().collect());
        (0..self.plan.ranks).map(of_rank).collect()
    }

    async fn work(&mut self, commands: &[Command], phase: Phase) -> Result<Vec<Event>, Stop> {
        self.supervisor.work(commands, phase, self.plan.longest_command()).await
    }

    /// Measures a case. `ordinal` counts the cases measured before it, in all rounds.
    async fn case(&mut self, ordinal: usize, case: &Case) -> Result<CaseResult, Stop> {
        // Two fillings a case: what the warm-up brought must not pass for what the timed loop brings.
        let (warm_epoch, timed_epoch) = (2 * ordinal as u32 + 1, 2 * ordinal as u32 + 2);
        self.prepare(case, warm_epoch).await?;
        let commands = self.each_rank(case, |parts| Command::WarmUp { parts, epoch: warm_epoch });
        let events = self.work(&commands, Phase::WarmUp).await?;
        let warm = gathered(events, |event| match event {
            Event::Warm(warm) => Ok(warm),
            other => Err(other),
        })?;
        if ordinal == 0 {
            self.record.startup("program start to first transfer done", self.record.elapsed_ns());
        }
        self.prepare(case, timed_epoch).await?;
        self.witness.before(&mut self.supervisor, &self.plan, case.op).await?;
        let measured = self.measure(timed_epoch).await?;
        self.witness.after(&mut self.supervisor).await?;
        let parts = self.plan.parts(case);
        let lost = self.count_notifications(&parts, &measured).await?;
        let verified = self.verify(&parts, timed_epoch, &measured).await?;
        // Where the data of the loop is wrong, that is said.
        let right = verified.iter().all(|v| v.mismatch.is_none())
            && measured.iter().all(|m| m.mismatch.is_none() && m.late.is_none());
        let marked = match right {
            true => marks::look(&mut self.supervisor, &self.plan, &parts, timed_epoch).await?,
            false => vec![Marked::default(); parts.len()],
        };
        let seen = verified.into_iter().zip(lost).zip(marked);
        let figures = warm.into_iter().zip(measured).zip(seen);
        let done = parts.into_iter().zip(figures).map(|(part, ((warm, measured), seen))| {
            let ((verified, lost), marked) = seen;
            Done { part, warm, measured, verified, lost, marked }
        });
        self.judge_parts(case, done.collect()).await
    }

    /// The timed loops of all ranks. Every engine is ready; where there are several, they begin at one moment of the clock
    /// that they share.
    async fn measure(&mut self, epoch: u32) -> Result<Vec<Measured>, Stop> {
        let start_at_ns = if self.plan.ranks > 1 { clock::now_ns() + START_TOGETHER_NS } else { 0 };
        let commands = vec![Command::Measure { epoch, start_at_ns }; self.supervisor.engines.len()];
        let events = self.work(&commands, Phase::TimedLoop).await?;
        gathered(events, |event| match event {
            Event::Measured(measured) => Ok(measured),
            other => Err(other),
        })
    }

    /// How many notifications of each part the target did not get, when they were asked for. Those to one rank of the
    /// target are counted together, and are missed in the first part that sent any.
    async fn count_notifications(&mut self, parts: &[Part], measured: &[Measured]) -> Result<Vec<u64>, Stop> {
        let mut lost = vec![0; parts.len()];
        if !self.plan.listens() {
            return Ok(lost);
        }
        for (part, measured) in parts.iter().zip(measured) {
            let sent = self.sent.entry((part.rank, part.peer)).or_insert(0);
            *sent = measured.notifications.max(*sent);
        }
        let to = |rank: u32| self.sent.iter().filter(|((_, to), _)| *to == rank).map(|(_, sent)| sent).sum();
        let expected: Vec<u64> = (0..self.plan.ranks).map(to).collect();
        let message = Message::Heard { expected: expected.clone(), timeout_ms: NOTIFICATION_TIMEOUT_MS };
        let answer = self.supervisor.ask(&message, Phase::Verification, self.plan.longest_command()).await?;
        let Message::HeardNotifications { notifications } = answer else { return Err(out_of_order()) };
        for (rank, (expected, heard)) in (0..).zip(expected.into_iter().zip(notifications)) {
            if let Some(first) = parts.iter().position(|part: &Part| part.peer == rank) {
                lost[first] = expected.saturating_sub(heard);
            }
        }
        Ok(lost)
    }

    /// Checks the data where it arrived: that of a READ here, that of a WRITE at the target.
    async fn verify(
        &mut self,
        parts: &[Part],
        epoch: u32,
        measured: &[Measured],
    ) -> Result<Vec<Verified>, Stop> {
        let checks = parts
            .iter()
            .zip(measured)
            .map(|(part, measured)| Check { part: part.clone(), stamps: measured.stamps.clone() });
        let (here, there): (Vec<Check>, Vec<Check>) =
            checks.partition(|check| check.part.case.op == Op::Read);
        let mut read = Vec::new().into_iter();
        if !here.is_empty() {
            let of_rank = |rank: u32| {
                let checks = here.iter().filter(|check| check.part.rank == rank).cloned().collect();
                Command::Verify { checks, epoch }
            };
            let commands: Vec<Command> = (0..self.plan.ranks).map(of_rank).collect();
            let events = self.work(&commands, Phase::Verification).await?;
            read = gathered(events, |event| match event {
                Event::Verified(verified) => Ok(verified),
                other => Err(other),
            })?
            .into_iter();
        }
        let mut written = Vec::new().into_iter();
        if !there.is_empty() {
            let message = Message::Verify { checks: there, epoch };
            match self.supervisor.ask(&message, Phase::Verification, self.plan.longest_command()).await? {
                Message::Verified(verified) => written = verified.into_iter(),
                _ => return Err(out_of_order()),
            }
        }
        let next = |part: &Part| if part.case.op == Op::Read { read.next() } else { written.next() };
        parts.iter().map(next).collect::<Option<_>>().ok_or_else(out_of_order)
    }

    /// Judges the parts of a case one by one, and the case over all of them.
    async fn judge_parts(&mut self, case: &Case, done: Vec<Done>) -> Result<CaseResult, Stop> {
        let several = done.len() > 1;
        let moved: Vec<Moved> = done
            .iter()
            .map(|Done { part, measured, .. }| Moved {
                part: part.clone(),
                transfers: measured.moved,
                bytes: measured.moved_bytes,
            })
            .collect();
        let mut parts = Vec::new();
        for done in done {
            let name = match several {
                true => format!("{case}, {}", done.part.label(self.plan.ranks, case.op)),
                false => case.to_string(),
            };
            let (part, began_ns) = (done.part.clone(), done.measured.began_ns);
            let (mut result, found) = done.judge(&name, self.plan.depth);
            found.into_iter().for_each(|finding| self.record.finding_of_case(finding));
            self.witness
                .judge(&mut self.supervisor, (&name, &part), &moved, &mut result, &mut self.record)
                .await?;
            let gpus = self.record.gpus_of(&part);
            parts.push(MeasuredPart { part, began_ns, gpus, result });
        }
        if several {
            let limit = self.witness.limit_of_all(&parts);
            let whole = CaseResult { limit, ..not_run(case, self.plan.depth, "") };
            return Ok(CaseResult::of_parts(whole, parts, self.plan.ranks));
        }
        let only = parts.pop().map(|part| part.result);
        Ok(only.unwrap_or_else(|| not_run(case, self.plan.depth, "no rank has a part in it")))
    }
}

/// The longest time of engines that did what they were told, in nanoseconds.
fn done(events: Vec<Event>) -> Result<u64, Stop> {
    let times = events.into_iter().map(|event| match event {
        Event::Done { ns } => Ok(ns),
        other => Err(wrong_event(&other)),
    });
    times.collect::<Result<Vec<u64>, Stop>>().map(|times| times.into_iter().max().unwrap_or(0))
}

/// What all ranks answered, rank by rank.
fn gathered<T>(events: Vec<Event>, of: impl Fn(Event) -> Result<Vec<T>, Event>) -> Result<Vec<T>, Stop> {
    let mut all = Vec::new();
    for event in events {
        all.extend(of(event).map_err(|other| wrong_event(&other))?);
    }
    Ok(all)
}

fn out_of_order() -> Stop {
    makes_no_sense("an answer to something that was not asked".to_owned())
}
