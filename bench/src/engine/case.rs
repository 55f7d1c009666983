//! One case in the engine: its descriptor lists, its requests, its warm-up and its timed loop.

mod marks;

use std::ops::Range;
use std::time::{Duration, Instant};

use nixl::{Agent, DescList, RemoteDescList, State, Transfer, TransferOptions};

use super::desk::notification;
use super::protocol::{EngineError, ErrorKind, Measured, Seen, SlotEnd, TelemetryPair, TwoClocks, WarmedUp};
use super::rounds::Rounds;
use super::seen::{BellLists, BellReader};
use super::session::{Session, blocks, layout, nixl_failed, out_of_order};
use super::timed::{Limits, Outcome, Request, Slot, Timings, Trouble, ns, run};
use crate::measure::clock;
use crate::measure::histogram::Recorder;
use crate::memory::pattern::{EndWords, Key};
use crate::plan::{Case, Op, Part, Plan};
use crate::workload::Where;

/// When a timed loop ran, and how long it could not.
#[derive(Clone, Copy)]
struct Took {
    began_ns: u64,
    off_cpu_ns: u64,
}

impl Took {
    /// A loop that is over now. `had_ns`: the processor time of this thread when it began.
    fn since(began_ns: u64, had_ns: u64) -> Self {
        let (wall, had) = (clock::now_ns() - began_ns, clock::thread_ns().saturating_sub(had_ns));
        Self { began_ns, off_cpu_ns: wall.saturating_sub(had) }
    }
}

/// Shares of the case time for what surrounds the timed loop.
const WARM_UP_SHARE: u32 = 10;
const EXTRA_SHARE: u32 = 10;
/// Transfers timed beside NIXL's telemetry, at most.
const TELEMETRY_SAMPLES: u64 = 64;
/// Pairs of transfers with and without a notification, at most.
const NOTIFY_PAIRS: u64 = 1000;
/// Times that descriptor lists are prepared, at most.
const LIST_SAMPLES: usize = 100;
/// NIXL counts whole microseconds.
const TELEMETRY_RESOLUTION_NS: u64 = 1000;

/// The descriptors of all slots of a part, prepared once, as engines do at their handshake.
pub(crate) struct Lists<'a> {
    pub(crate) part: &'a Part,
    pub(super) local: DescList<'a>,
    pub(super) remote: RemoteDescList<'a>,
    /// Numbers of the descriptors of all slots, one slot after the other; none where block ids decide.
    indices: Vec<i32>,
    /// How long that took: the first time, and each time.
    prepare: (Duration, Recorder),
    bell: Option<BellLists<'a>>,
}

impl<'a> Lists<'a> {
    /// Describes the memory of every slot on both sides.
    ///
    /// # Errors
    /// The peer is not connected, its pool is too small, or NIXL refused the descriptors.
    pub(crate) fn prepare(session: &'a Session<'_>, part: &'a Part) -> Result<Self, EngineError> {
        let (case, plan) = (&part.case, session.plan);
        let bell = if plan.notifies(case) { BellLists::prepare(session, part.peer)? } else { None };
        if let Some(shape) = &case.kv {
            session.check_shape(part, shape)?;
        }
        // An engine does it once, at its handshake; several times make a distribution.
        let end = Instant::now() + plan.time_of(case) / EXTRA_SHARE;
        let mut recorder = Recorder::new();
        let mut first = None;
        loop {
            let begin = Instant::now();
            let (local, remote) = describe(session, part)?;
            let took = begin.elapsed();
            recorder.record_ns(ns(took));
            let first = *first.get_or_insert(took);
            if recorder.count() >= LIST_SAMPLES as u64 || Instant::now() >= end {
                let count = if case.kv.is_some() { 0 } else { local.len() };
                let indices = (0..i32::try_from(count).unwrap_or(i32::MAX)).collect();
                return Ok(Self { part, local, remote, indices, prepare: (first, recorder), bell });
            }
        }
    }

    fn slot(&self, slot: u32) -> Range<usize> {
        let batch = self.part.case.batch as usize;
        slot as usize * batch..(slot as usize + 1) * batch
    }
}

/// The descriptors of all slots on both sides.
fn describe<'a>(
    session: &'a Session<'_>,
    part: &Part,
) -> Result<(DescList<'a>, RemoteDescList<'a>), EngineError> {
    let (case, peer) = (&part.case, session.peer(part.peer)?);
    let here = |(offset, bytes): (u64, u64)| ((part.base + offset) as usize, bytes as usize);
    if let Some(shape) = &case.kv {
        let (ours, theirs) = match case.op {
            Op::Read => (Where::Destination, Where::Source),
            Op::Write | Op::Both => (Where::Source, Where::Destination),
        };
        let local = session.registration.describe(shape.all_pieces(ours).map(here)).map_err(nixl_failed)?;
        let remote =
            peer.remote.describe(&peer.region, shape.all_pieces(theirs).map(here)).map_err(nixl_failed)?;
        return Ok((local, remote));
    }
    let ranges = || (0..session.plan.depth).flat_map(|slot| case.ranges(slot)).map(here);
    let local = session.registration.describe(ranges()).map_err(nixl_failed)?;
    let remote = peer.remote.describe(&peer.region, ranges()).map_err(nixl_failed)?;
    Ok((local, remote))
}

/// One slot's request to NIXL, and the two words that prove each of its transfers.
struct Wire<'a> {
    agent: &'a Agent,
    lists: &'a Lists<'a>,
    indices: Range<usize>,
    options: TransferOptions,
    /// None only while it is made anew.
    transfer: Option<Transfer<'a>>,
    ends: Option<EndWords<'a>>,
    key: Key,
    /// Whether each transfer is marked and looked at. Not in a timed loop on GPU memory, where that takes longer than a
    /// small transfer.
    marks: bool,
    /// The placements of KV blocks; boxed, since uniform blocks have none.
    rounds: Option<Box<Rounds<'a>>>,
}

impl<'a> Wire<'a> {
    fn new(
        session: &'a Session<'_>,
        lists: &'a Lists<'a>,
        slot: u32,
        notify: bool,
        key: Key,
    ) -> Result<Self, EngineError> {
        let options = TransferOptions {
            skip_merge: !session.plan.merge,
            notify: notify.then(|| notification(session.rank)),
        };
        let (agent, part) = (session.agent, lists.part);
        let marks = !session.pool.is_far();
        if let Some(shape) = &part.case.kv {
            let mut rounds = Box::new(Rounds::new(session, part, shape, slot)?);
            let transfer = Some(rounds.make(agent, lists, &options)?);
            return Ok(Self {
                agent,
                lists,
                indices: 0..0,
                options,
                transfer,
                ends: None,
                key,
                marks,
                rounds: Some(rounds),
            });
        }
        let words = session.words(part);
        let blocks = blocks(&part.case, slot);
        let ends = match part.case.op {
            Op::Read => EndWords::in_destination(words, &blocks),
            Op::Write | Op::Both => EndWords::in_source(words, &blocks),
        };
        let indices = lists.slot(slot);
        let transfer = Some(make(agent, lists, &indices, &options)?);
        let ends = ends.map_err(layout)?;
        Ok(Self { agent, lists, indices, options, transfer, ends, key, marks, rounds: None })
    }
}

impl<'a> Wire<'a> {
    #[inline]
    fn made(&mut self) -> Result<&mut Transfer<'a>, EngineError> {
        self.transfer.as_mut().ok_or_else(|| out_of_order("a transfer that was not made"))
    }

    /// From the next making on, transfers carry a notification or not.
    fn notify(&mut self, notify: bool, rank: u32) {
        self.options.notify = notify.then(|| notification(rank));
    }
}

fn make<'a>(
    agent: &'a Agent,
    lists: &'a Lists<'a>,
    indices: &Range<usize>,
    options: &TransferOptions,
) -> Result<Transfer<'a>, EngineError> {
    let op = match lists.part.case.op {
        Op::Read => nixl::Op::Read,
        Op::Write | Op::Both => nixl::Op::Write,
    };
    let chosen = &lists.indices[indices.clone()];
    agent.make_transfer(op, &lists.local, chosen, &lists.remote, chosen, options).map_err(nixl_failed)
}

impl Request for Wire<'_> {
    type Error = EngineError;

    fn remake(&mut self) -> Result<(), EngineError> {
        // Released first, so that there is never memory for two.
        self.transfer = None;
        self.transfer = Some(match &mut self.rounds {
            Some(rounds) => rounds.make(self.agent, self.lists, &self.options)?,
            None => make(self.agent, self.lists, &self.indices, &self.options)?,
        });
        Ok(())
    }

    #[inline]
    fn stamp(&mut self, iteration: u32) {
        if let Some(rounds) = &mut self.rounds {
            self.ends = rounds.turn(iteration, self.key, self.marks);
        }
        let Some(ends) = self.ends.filter(|_| self.marks) else { return };
        match self.lists.part.case.op {
            Op::Read => ends.poison(self.key.epoch()),
            Op::Write | Op::Both => ends.stamp(self.key, iteration),
        }
    }

    #[inline]
    fn post(&mut self) -> Result<State, EngineError> {
        self.made()?.post().map_err(nixl_failed)
    }

    #[inline]
    fn poll(&mut self) -> Result<State, EngineError> {
        self.made()?.poll().map_err(nixl_failed)
    }

    #[inline]
    fn arrived(&self, _iteration: u32) -> bool {
        match (self.lists.part.case.op, self.ends.filter(|_| self.marks)) {
            (Op::Read, Some(ends)) => ends.arrived(self.key, 0),
            // The bytes of a WRITE arrive on the other side: the check of the whole range there looks at the stamps.
            (Op::Write | Op::Both, _) | (_, None) => true,
        }
    }
}

/// The requests of a case, made once; the warm-up has used them.
pub(crate) struct CaseRun<'a> {
    lists: &'a Lists<'a>,
    slots: Vec<Slot<Wire<'a>>>,
    /// The request of slot 0 without a notification, to tell what a notification costs. None where slot 0 makes its
    /// request anew each time.
    plain: Option<Slot<Wire<'a>>>,
    /// Number of each slot's last transfer when the memory was made ready for the timed loop.
    begun: Vec<u32>,
    /// READs after the timed loop that were marked and looked at one by one; only on GPU memory.
    looked_at: u64,
}

impl<'a> CaseRun<'a> {
    /// Makes the requests, moves the first transfer of the case, and warms up.
    ///
    /// # Errors
    /// A request could not be made, a transfer failed or stalled.
    pub(crate) fn warm_up(
        session: &'a Session<'_>,
        lists: &'a Lists<'a>,
        epoch: u32,
    ) -> Result<(Self, WarmedUp), EngineError> {
        let plan = session.plan;
        let (part, key) = (lists.part, session.key(lists.part, epoch));
        let begin = Instant::now();
        let notify = plan.notifies(&part.case);
        let mut slots = vec![Slot::new(Wire::new(session, lists, 0, notify, key)?)];
        let make_time = begin.elapsed();
        for slot in 1..part.case.slots(plan.depth) {
            slots.push(Slot::new(Wire::new(session, lists, slot, notify, key)?));
        }
        let mut case = Self { lists, slots, plain: None, begun: Vec::new(), looked_at: 0 };
        if notify && !case.remakes(plan) {
            case.plain = Some(Slot::new(Wire::new(session, lists, 0, false, key)?));
        }
        let once = case.once(plan);
        let mut timings = Timings::new(&once);
        let cold = case.run(session, 0..1, once, &mut timings)?;
        let limits =
            Limits { transfers: plan.warmup, time: plan.time_of(&part.case) / WARM_UP_SHARE, ..once };
        let all = 0..case.slots.len();
        let warm =
            if plan.warmup == 0 { None } else { Some(case.run(session, all, limits, &mut timings)?) };
        let warmed = WarmedUp {
            prepare_ns: ns(lists.prepare.0),
            prepare: lists.prepare.1.distribution(),
            make_ns: ns(make_time),
            cold_ns: ns(cold.wall),
            transfers: warm.map_or(0, |outcome| outcome.transfers),
        };
        Ok((case, warmed))
    }

    /// The timed loop over all parts at once, and then, outside of it, each part by itself: NIXL's own timing and the cost
    /// of a notification. The loop begins at `start_at_ns` of the host's monotonic clock, or at once when that is over.
    ///
    /// # Errors
    /// A transfer failed or stalled.
    pub(crate) fn measure(
        parts: &mut [Self],
        session: &Session<'_>,
        epoch: u32,
        start_at_ns: u64,
    ) -> Result<Vec<Measured>, EngineError> {
        let Some(first) = parts.first() else { return Ok(Vec::new()) };
        let plan = session.plan;
        let limits = Limits {
            transfers: plan.samples,
            time: plan.time_of(&first.lists.part.case),
            interval: plan.interval_ns.filter(|_| first.is_prompt()).map(Duration::from_nanos),
            ..first.once(plan)
        };
        let mut timings: Vec<Timings> = parts.iter().map(|_| Timings::new(&limits)).collect();
        let mut slots = Vec::new();
        for (lane, part) in parts.iter_mut().enumerate() {
            part.begin(session, epoch);
            part.slots.iter_mut().for_each(|slot| slot.lane = lane);
            slots.append(&mut part.slots);
        }
        while clock::now_ns() < start_at_ns {
            std::hint::spin_loop();
        }
        let (began_ns, had_ns) = (clock::now_ns(), clock::thread_ns());
        let outcomes = run(&mut slots, limits, &mut timings);
        let took = Took::since(began_ns, had_ns);
        for mut slot in slots {
            let lane = std::mem::take(&mut slot.lane);
            parts[lane].slots.push(slot);
        }
        let case = &parts[0].lists.part.case;
        let outcomes = outcomes.map_err(|trouble| failed(case, plan, trouble))?;
        for (part, outcome) in parts.iter().zip(&outcomes) {
            part.count_notifications(session, *outcome)?;
        }
        let each = parts.iter_mut().zip(outcomes.into_iter().zip(timings));
        each.map(|(part, (outcome, timings))| part.conclude(session, epoch, took, outcome, timings)).collect()
    }

    /// Takes the data of an epoch, from which on transfers are counted.
    fn begin(&mut self, session: &Session<'_>, epoch: u32) {
        let key = session.key(self.lists.part, epoch);
        for slot in self.slots.iter_mut().chain(&mut self.plain) {
            slot.request.key = key;
        }
        self.begun = self.slots.iter().map(|slot| slot.iteration).collect();
    }

    fn conclude(
        &mut self,
        session: &Session<'_>,
        epoch: u32,
        took: Took,
        outcome: Outcome,
        timings: Timings,
    ) -> Result<Measured, EngineError> {
        let payload_bytes = self.payload_bytes();
        let mut missed = self.look_at_missing(session, epoch, outcome)?;
        let fine = outcome.missing.is_none();
        let notify = if fine { self.notify_cost(session)? } else { None };
        let seen = if fine { self.seen(session)? } else { None };
        let telemetry = if fine { self.telemetry(session)? } else { None };
        if fine && session.pool.is_far() && self.lists.part.case.op == Op::Read {
            missed = self.look_at_each(session, epoch)?;
        }
        Ok(Measured {
            transfers: outcome.transfers,
            moved: self.transfers().map(u64::from).sum(),
            moved_bytes: self.payload_bytes(),
            payload_bytes,
            began_ns: took.began_ns,
            off_cpu_ns: took.off_cpu_ns,
            wall_ns: ns(outcome.wall),
            ended_by_samples: outcome.ended_by_count,
            prep: timings.prep.and_then(|prep| prep.distribution()),
            post: timings.post.distribution(),
            wire: timings.wire.distribution(),
            total: timings.total.distribution(),
            notify,
            scheduled: timings.scheduled.and_then(|scheduled| scheduled.distribution()),
            unserved: outcome.unserved,
            seen,
            notifications: session.peer(self.lists.part.peer)?.notifications_sent.get(),
            stamps: self.stamps(),
            checked: self.checked(outcome),
            mismatch: missed.mismatch,
            late: missed.late,
            telemetry,
        })
    }

    /// Whether each transfer makes its request anew: always where block ids decide, as in the engines.
    fn remakes(&self, plan: &Plan) -> bool {
        plan.recreate || self.lists.part.case.kv.is_some()
    }

    /// Whether the transfers are those of prompts.
    fn is_prompt(&self) -> bool {
        self.lists.part.case.kv.as_ref().is_some_and(|shape| !shape.is_sweep())
    }

    /// Limits of a single transfer.
    fn once(&self, plan: &Plan) -> Limits {
        Limits {
            transfers: 1,
            time: Duration::ZERO,
            stall: plan.transfer_timeout(),
            remake: self.remakes(plan),
            interval: None,
        }
    }

    /// Transfers of each slot since the memory was made ready.
    fn transfers(&self) -> impl Iterator<Item = u32> + '_ {
        self.slots.iter().zip(&self.begun).map(|(slot, begun)| slot.iteration.wrapping_sub(*begun))
    }

    fn payload_bytes(&self) -> u64 {
        (0..)
            .zip(self.transfers())
            .map(|(slot, count)| u64::from(count) * self.lists.part.case.transfer_bytes(slot))
            .sum()
    }

    /// Where each slot's transfers stand.
    fn stamps(&self) -> Vec<SlotEnd> {
        let marked = self.slots.iter().all(|slot| slot.request.marks);
        let stamped = self.lists.part.case.op == Op::Write && marked;
        let ends = self.slots.iter().zip(self.transfers());
        ends.map(|(slot, transfers)| SlotEnd { iteration: slot.iteration, transfers, stamped }).collect()
    }

    fn checked(&self, outcome: Outcome) -> u64 {
        let each = |slot: &Slot<Wire<'_>>| slot.request.marks && slot.request.ends.is_some();
        match self.lists.part.case.op {
            Op::Read if self.looked_at > 0 => self.looked_at,
            Op::Read if self.slots.iter().all(each) => outcome.transfers,
            _ => 0,
        }
    }

    /// Pairs of transfers, one plain and one with a notification, in changing order: the difference of each pair.
    fn notify_cost(
        &mut self,
        session: &Session<'_>,
    ) -> Result<Option<crate::measure::histogram::Distribution>, EngineError> {
        let plan = session.plan;
        if !plan.notifies(&self.lists.part.case) {
            return Ok(None);
        }
        let mut cost = Recorder::new();
        let once = self.once(plan);
        let mut timings = Timings::new(&once);
        let end = Instant::now() + plan.time_of(&self.lists.part.case) / EXTRA_SHARE;
        for pair in 0..NOTIFY_PAIRS {
            let notified_first = pair % 2 == 0;
            let mut walls = [Duration::ZERO; 2];
            for notified in [notified_first, !notified_first] {
                walls[usize::from(notified)] = if notified {
                    self.run(session, 0..1, once, &mut timings)?.wall
                } else {
                    self.run_plain(session, once, &mut timings)?.wall
                };
            }
            cost.record_ns(ns(walls[1].saturating_sub(walls[0])));
            if Instant::now() > end {
                break;
            }
        }
        Ok(cost.distribution())
    }

    /// A transfer of slot 0 without a notification.
    fn run_plain(
        &mut self,
        session: &Session<'_>,
        once: Limits,
        timings: &mut Timings,
    ) -> Result<Outcome, EngineError> {
        let first = &mut self.slots[0];
        let outcome = match &mut self.plain {
            Some(plain) => {
                // Both share the memory of slot 0, and so its transfer numbers.
                plain.iteration = first.iteration;
                let outcome = run_alone(std::slice::from_mut(plain), once, timings);
                first.iteration = plain.iteration;
                outcome
            }
            None => {
                first.request.notify(false, session.rank);
                let outcome = run_alone(std::slice::from_mut(first), once, timings);
                first.request.notify(true, session.rank);
                outcome
            }
        };
        outcome.map_err(|trouble| failed(&self.lists.part.case, session.plan, trouble))
    }

    /// Some more transfers, timed by NIXL as well. `None` when this NIXL does not tell.
    fn telemetry(&mut self, session: &Session<'_>) -> Result<Option<TelemetryPair>, EngineError> {
        let plan = session.plan;
        let once = self.once(plan);
        let mut timings = Timings::new(&once);
        let mut post = Compared::default();
        let mut total = Compared::default();
        let mut last = None;
        let end = Instant::now() + plan.time_of(&self.lists.part.case) / EXTRA_SHARE;
        for _ in 0..TELEMETRY_SAMPLES {
            self.run(session, 0..1, once, &mut timings)?;
            let Some(seen) = self.slots[0].request.made()?.telemetry().map_err(nixl_failed)? else {
                return Ok(None);
            };
            let (our_post, our_total) = self.slots[0].last();
            post.add(ns(our_post), seen.post_us * TELEMETRY_RESOLUTION_NS);
            total.add(ns(our_total), seen.transfer_us * TELEMETRY_RESOLUTION_NS);
            last = Some(seen);
            if Instant::now() > end {
                break;
            }
        }
        Ok(last.map(|seen| TelemetryPair {
            samples: total.ours.len() as u64,
            resolution_ns: TELEMETRY_RESOLUTION_NS,
            post: post.medians(),
            total: total.medians(),
            descriptors: seen.descriptors,
            bytes: seen.total_bytes,
        }))
    }

    fn run(
        &mut self,
        session: &Session<'_>,
        slots: Range<usize>,
        limits: Limits,
        timings: &mut Timings,
    ) -> Result<Outcome, EngineError> {
        let outcome = run_alone(&mut self.slots[slots], limits, timings)
            .map_err(|trouble| failed(&self.lists.part.case, session.plan, trouble))?;
        self.count_notifications(session, outcome)?;
        Ok(outcome)
    }

    fn count_notifications(&self, session: &Session<'_>, outcome: Outcome) -> Result<(), EngineError> {
        if session.plan.notifies(&self.lists.part.case) {
            let sent = &session.peer(self.lists.part.peer)?.notifications_sent;
            sent.set(sent.get() + outcome.transfers);
        }
        Ok(())
    }

    /// Some more transfers, each until the target has shown that it has the notification.
    fn seen(&mut self, session: &Session<'_>) -> Result<Option<Seen>, EngineError> {
        let Some(lists) = &self.lists.bell else { return Ok(None) };
        let mut reader = BellReader::new(session, lists)?;
        let sent = &session.peer(self.lists.part.peer)?.notifications_sent;
        // Those of before have been taken.
        if !reader.wait(sent.get())? {
            return Ok(None);
        }
        let once = self.once(session.plan);
        let mut timings = Timings::new(&once);
        let mut total = Recorder::new();
        let end = Instant::now() + session.plan.time_of(&self.lists.part.case) / EXTRA_SHARE;
        for _ in 0..NOTIFY_PAIRS {
            let begin = Instant::now();
            self.run(session, 0..1, once, &mut timings)?;
            if !reader.wait(sent.get())? {
                break;
            }
            total.record_ns(ns(begin.elapsed()));
            if Instant::now() > end {
                break;
            }
        }
        Ok(Some(Seen { total: total.distribution(), resolution_ns: reader.resolution_ns() }))
    }
}

/// Runs slots of one lane.
fn run_alone(
    slots: &mut [Slot<Wire<'_>>],
    limits: Limits,
    timings: &mut Timings,
) -> Result<Outcome, Trouble<EngineError>> {
    Ok(run(slots, limits, std::slice::from_mut(timings))?[0])
}

fn failed(case: &Case, plan: &Plan, trouble: Trouble<EngineError>) -> EngineError {
    match trouble {
        Trouble::Failed(error) => error,
        Trouble::Stalled { slot, completed } => EngineError {
            kind: ErrorKind::Stalled,
            message: format!(
                "{case}: a posted transfer (slot {slot}, after {completed} that completed) did not complete within {:?}",
                plan.transfer_timeout()
            ),
        },
    }
}

/// The same times by two clocks, transfer by transfer.
#[derive(Default)]
struct Compared {
    ours: Vec<u64>,
    theirs: Vec<u64>,
    apart: Vec<i64>,
}

impl Compared {
    fn add(&mut self, ours: u64, theirs: u64) {
        self.ours.push(ours);
        self.theirs.push(theirs);
        self.apart.push(ours.cast_signed() - theirs.cast_signed());
    }

    /// Medians. That of the differences is not the difference of those: noise that both clocks saw cancels out.
    fn medians(mut self) -> TwoClocks {
        TwoClocks {
            ours_ns: median(&mut self.ours),
            nixl_ns: median(&mut self.theirs),
            apart_ns: median(&mut self.apart),
        }
    }
}

fn median<T: Ord + Copy + Default>(values: &mut [T]) -> T {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_sleeps_had_no_processor() {
        let (began, had) = (clock::now_ns(), clock::thread_ns());
        std::thread::sleep(Duration::from_millis(20));
        let took = Took::since(began, had);
        assert_eq!(took.began_ns, began);
        assert!(took.off_cpu_ns >= 19_000_000, "{}", took.off_cpu_ns);
    }
}
