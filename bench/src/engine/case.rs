//! One case in the engine: its descriptor lists, its requests, its warm-up and its timed loop.

use std::ops::Range;
use std::time::{Duration, Instant};

use nixl::{Agent, DescList, RemoteDescList, State, Transfer, TransferOptions};

use super::open_loop::{self, OpenOutcome};
use super::protocol::{EngineError, ErrorKind, Measured, Seen, SlotEnd, TelemetryPair, TwoClocks, WarmedUp};
use super::rounds::Rounds;
use super::seen::{BellLists, BellReader};
use super::session::{Session, blocks, layout, nixl_failed, out_of_order};
use super::timed::{Limits, Outcome, Request, Slot, Timings, Trouble, ns, run};
use crate::measure::histogram::Recorder;
use crate::memory::pattern::{EndWords, Key};
use crate::plan::{Case, Op, Plan};
use crate::workload::Where;

/// What a notification to the target says. nixlbench's habit: short and constant.
const NOTIFICATION: &[u8] = b"kvwire";
/// Shares of the case time for what surrounds the timed loop.
const WARM_UP_SHARE: u32 = 10;
const EXTRA_SHARE: u32 = 10;
/// Transfers timed beside NIXL's telemetry, at most.
const TELEMETRY_SAMPLES: u64 = 64;
/// Transfers on GPU memory that are looked at one by one after the timed loop, at most.
const LOOKS: u64 = 64;
/// Pairs of transfers with and without a notification, at most.
const NOTIFY_PAIRS: u64 = 1000;
/// NIXL counts whole microseconds.
const TELEMETRY_RESOLUTION_NS: u64 = 1000;

/// The descriptors of all slots of a case, prepared once, as engines do at their handshake.
pub(crate) struct Lists<'a> {
    pub(crate) case: Case,
    pub(super) local: DescList<'a>,
    pub(super) remote: RemoteDescList<'a>,
    /// Numbers of the descriptors of all slots, one slot after the other; none where block ids decide.
    indices: Vec<i32>,
    prepare: Duration,
    bell: Option<BellLists<'a>>,
}

impl<'a> Lists<'a> {
    /// Describes the memory of every slot on both sides.
    ///
    /// # Errors
    /// The peer is not connected, its pool is too small, or NIXL refused the descriptors.
    pub(crate) fn prepare(session: &'a Session<'_>, case: Case) -> Result<Self, EngineError> {
        let peer = session.peer.get().ok_or_else(|| out_of_order("a warm-up before the connection"))?;
        let bell = if session.plan.notifies(&case) { BellLists::prepare(session)? } else { None };
        let begin = Instant::now();
        if let Some(shape) = &case.kv {
            session.check_shape(shape)?;
            let (ours, theirs) = match case.op {
                Op::Read => (Where::Destination, Where::Source),
                Op::Write => (Where::Source, Where::Destination),
            };
            let pieces =
                |at: Where| shape.all_pieces(at).map(|(offset, bytes)| (offset as usize, bytes as usize));
            let local = session.registration.describe(pieces(ours)).map_err(nixl_failed)?;
            let remote = peer.remote.describe(&peer.region, pieces(theirs)).map_err(nixl_failed)?;
            let prepare = begin.elapsed();
            return Ok(Self { case, local, remote, indices: Vec::new(), prepare, bell });
        }
        let ranges: Vec<(usize, usize)> = (0..session.plan.depth)
            .flat_map(|slot| case.ranges(slot))
            .map(|(offset, bytes)| (offset as usize, bytes as usize))
            .collect();
        let local = session.registration.describe(ranges.iter().copied()).map_err(nixl_failed)?;
        let remote = peer.remote.describe(&peer.region, ranges.iter().copied()).map_err(nixl_failed)?;
        let indices = (0..i32::try_from(ranges.len()).unwrap_or(i32::MAX)).collect();
        Ok(Self { case, local, remote, indices, prepare: begin.elapsed(), bell })
    }

    fn slot(&self, slot: u32) -> Range<usize> {
        let batch = self.case.batch as usize;
        slot as usize * batch..(slot as usize + 1) * batch
    }
}

/// One slot's request to NIXL, and the two words that prove each of its transfers.
struct Wire<'a> {
    agent: &'a Agent,
    lists: &'a Lists<'a>,
    indices: Range<usize>,
    options: TransferOptions,
    transfer: Transfer<'a>,
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
            notify: notify.then(|| NOTIFICATION.to_vec()),
        };
        let agent = session.agent;
        let marks = !session.pool.is_far();
        if let Some(shape) = &lists.case.kv {
            let mut rounds = Box::new(Rounds::new(session, shape, lists.case.op, slot)?);
            let transfer = rounds.make(agent, lists, &options)?;
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
        let words = session.pool.region();
        let blocks = blocks(&lists.case, slot);
        let ends = match lists.case.op {
            Op::Read => EndWords::in_destination(words, &blocks),
            Op::Write => EndWords::in_source(words, &blocks),
        };
        let indices = lists.slot(slot);
        let transfer = make(agent, lists, &indices, &options)?;
        let ends = ends.map_err(layout)?;
        Ok(Self { agent, lists, indices, options, transfer, ends, key, marks, rounds: None })
    }
}

fn make<'a>(
    agent: &'a Agent,
    lists: &'a Lists<'a>,
    indices: &Range<usize>,
    options: &TransferOptions,
) -> Result<Transfer<'a>, EngineError> {
    let op = match lists.case.op {
        Op::Read => nixl::Op::Read,
        Op::Write => nixl::Op::Write,
    };
    let chosen = &lists.indices[indices.clone()];
    agent.make_transfer(op, &lists.local, chosen, &lists.remote, chosen, options).map_err(nixl_failed)
}

impl Request for Wire<'_> {
    type Error = EngineError;

    fn remake(&mut self) -> Result<(), EngineError> {
        if let Some(rounds) = &mut self.rounds {
            self.transfer = rounds.make(self.agent, self.lists, &self.options)?;
            return Ok(());
        }
        self.transfer = make(self.agent, self.lists, &self.indices, &self.options)?;
        Ok(())
    }

    #[inline]
    fn stamp(&mut self, iteration: u32) {
        if let Some(rounds) = &mut self.rounds {
            self.ends = rounds.turn(iteration, self.key, self.marks);
        }
        let Some(ends) = self.ends.filter(|_| self.marks) else { return };
        match self.lists.case.op {
            Op::Read => ends.poison(self.key.epoch()),
            Op::Write => ends.stamp(self.key, iteration),
        }
    }

    #[inline]
    fn post(&mut self) -> Result<State, EngineError> {
        self.transfer.post().map_err(nixl_failed)
    }

    #[inline]
    fn poll(&mut self) -> Result<State, EngineError> {
        self.transfer.poll().map_err(nixl_failed)
    }

    #[inline]
    fn arrived(&self, _iteration: u32) -> bool {
        match (self.lists.case.op, self.ends.filter(|_| self.marks)) {
            (Op::Read, Some(ends)) => ends.arrived(self.key, 0),
            // The bytes of a WRITE arrive on the other side: the check of the whole range there looks at the stamps.
            (Op::Write, _) | (_, None) => true,
        }
    }
}

/// The requests of a case, made once; the warm-up has used them.
pub(crate) struct CaseRun<'a> {
    lists: &'a Lists<'a>,
    slots: Vec<Slot<Wire<'a>>>,
    /// The request of slot 0 without a notification, to tell what a notification costs.
    plain: Option<Slot<Wire<'a>>>,
    /// Number of each slot's last transfer when the memory was made ready for the timed loop.
    begun: Vec<u32>,
    /// Transfers after the timed loop that were marked and looked at one by one; only on GPU memory.
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
        let key = Key::new(plan.seed, epoch);
        let begin = Instant::now();
        let notify = plan.notifies(&lists.case);
        let mut slots = vec![Slot::new(Wire::new(session, lists, 0, notify, key)?)];
        let make_time = begin.elapsed();
        for slot in 1..lists.case.slots(plan.depth) {
            slots.push(Slot::new(Wire::new(session, lists, slot, notify, key)?));
        }
        let plain = if notify { Some(Slot::new(Wire::new(session, lists, 0, false, key)?)) } else { None };
        let mut case = Self { lists, slots, plain, begun: Vec::new(), looked_at: 0 };
        let remake = case.remakes(plan);
        let mut timings = Timings::new(remake);
        let cold = case.run(session, 0..1, case.once(plan), &mut timings)?;
        let limits = Limits {
            transfers: plan.warmup,
            time: plan.case_time() / WARM_UP_SHARE,
            stall: plan.transfer_timeout(),
            remake,
        };
        let all = 0..case.slots.len();
        let warm =
            if plan.warmup == 0 { None } else { Some(case.run(session, all, limits, &mut timings)?) };
        let warmed = WarmedUp {
            prepare_ns: ns(lists.prepare),
            make_ns: ns(make_time),
            cold_ns: ns(cold.wall),
            transfers: warm.map_or(0, |outcome| outcome.transfers),
        };
        Ok((case, warmed))
    }

    /// The timed loop, and then, outside of it, NIXL's own timing and the cost of a notification.
    ///
    /// # Errors
    /// A transfer failed or stalled.
    pub(crate) fn measure(&mut self, session: &Session<'_>, epoch: u32) -> Result<Measured, EngineError> {
        let plan = session.plan;
        let key = Key::new(plan.seed, epoch);
        for slot in self.slots.iter_mut().chain(&mut self.plain) {
            slot.request.key = key;
        }
        self.begun = self.slots.iter().map(|slot| slot.iteration).collect();
        let limits = Limits {
            transfers: plan.samples,
            time: plan.case_time(),
            stall: plan.transfer_timeout(),
            remake: self.remakes(plan),
        };
        let mut timings = Timings::new(limits.remake);
        let mut scheduled = Recorder::new();
        let all = 0..self.slots.len();
        let OpenOutcome { outcome, unserved } = match plan.interval_ns.filter(|_| self.is_prompt()) {
            Some(interval) => self.run_open(session, limits, interval, &mut timings, &mut scheduled)?,
            None => OpenOutcome { outcome: self.run(session, all, limits, &mut timings)?, unserved: 0 },
        };
        let payload_bytes = self.payload_bytes();
        let (mut mismatch, mut arrived_late) = self.look_at_missing(session, epoch, outcome)?;
        let fine = outcome.missing.is_none();
        let notify = if fine { self.notify_cost(session)? } else { None };
        let seen = if fine { self.seen(session)? } else { None };
        let telemetry = if fine { self.telemetry(session)? } else { None };
        if fine && session.pool.is_far() {
            // Last of all: the marks of these transfers are what the check of the whole range finds.
            (mismatch, arrived_late) = self.look_at_each(session, epoch)?;
        }
        Ok(Measured {
            transfers: outcome.transfers,
            moved: self.transfers().map(u64::from).sum(),
            moved_bytes: self.payload_bytes(),
            payload_bytes,
            wall_ns: ns(outcome.wall),
            ended_by_samples: outcome.ended_by_count,
            prep: timings.prep.and_then(|prep| prep.distribution()),
            post: timings.post.distribution(),
            wire: timings.wire.distribution(),
            total: timings.total.distribution(),
            notify,
            scheduled: scheduled.distribution(),
            unserved,
            seen,
            notifications: session.notifications_sent.get(),
            stamps: self.stamps(),
            checked: self.checked(outcome),
            mismatch,
            arrived_late,
            telemetry,
        })
    }

    /// Whether each transfer makes its request anew: always where block ids decide, as in the engines.
    fn remakes(&self, plan: &Plan) -> bool {
        plan.recreate || self.lists.case.kv.is_some()
    }

    /// Whether the transfers are those of prompts.
    fn is_prompt(&self) -> bool {
        self.lists.case.kv.as_ref().is_some_and(|shape| !shape.is_sweep())
    }

    /// Limits of a single transfer.
    fn once(&self, plan: &Plan) -> Limits {
        Limits {
            transfers: 1,
            time: Duration::ZERO,
            stall: plan.transfer_timeout(),
            remake: self.remakes(plan),
        }
    }

    /// Transfers of each slot since the memory was made ready.
    fn transfers(&self) -> impl Iterator<Item = u32> + '_ {
        self.slots.iter().zip(&self.begun).map(|(slot, begun)| slot.iteration.wrapping_sub(*begun))
    }

    fn payload_bytes(&self) -> u64 {
        (0..)
            .zip(self.transfers())
            .map(|(slot, count)| u64::from(count) * self.lists.case.transfer_bytes(slot))
            .sum()
    }

    /// Where each slot's transfers stand.
    fn stamps(&self) -> Vec<SlotEnd> {
        let marked = self.slots.iter().all(|slot| slot.request.marks);
        let stamped = self.lists.case.op == Op::Write && marked;
        let ends = self.slots.iter().zip(self.transfers());
        ends.map(|(slot, transfers)| SlotEnd { iteration: slot.iteration, transfers, stamped }).collect()
    }

    fn checked(&self, outcome: Outcome) -> u64 {
        let each = |slot: &Slot<Wire<'_>>| slot.request.marks && slot.request.ends.is_some();
        match self.lists.case.op {
            Op::Read if self.looked_at > 0 => self.looked_at,
            Op::Read if self.slots.iter().all(each) => outcome.transfers,
            _ => 0,
        }
    }

    /// Some more transfers, each marked before and looked at when its completion is seen. In GPU memory a look is a copy
    /// of one word on a stream of our own; nothing waits for the whole GPU.
    fn look_at_each(
        &mut self,
        session: &Session<'_>,
        epoch: u32,
    ) -> Result<(Option<crate::memory::pattern::Mismatch>, bool), EngineError> {
        if self.lists.case.op == Op::Write && self.lists.case.kv.is_some() {
            // The check on the other side would have to know which of the overlapping placements were marked.
            return Ok((None, false));
        }
        self.slots.iter_mut().for_each(|slot| slot.request.marks = true);
        let plan = session.plan;
        let limits = Limits {
            transfers: LOOKS.max(self.slots.len() as u64),
            time: plan.case_time() / EXTRA_SHARE,
            stall: plan.transfer_timeout(),
            remake: self.remakes(plan),
        };
        let all = 0..self.slots.len();
        let outcome = self.run(session, all, limits, &mut Timings::new(limits.remake))?;
        self.looked_at = outcome.transfers;
        self.look_at_missing(session, epoch, outcome)
    }

    /// Says what is wrong with a transfer whose bytes were not there at its completion.
    fn look_at_missing(
        &self,
        session: &Session<'_>,
        epoch: u32,
        outcome: Outcome,
    ) -> Result<(Option<crate::memory::pattern::Mismatch>, bool), EngineError> {
        let Some(slot) = outcome.missing else { return Ok((None, false)) };
        let checked = match &self.slots[slot].request.rounds {
            Some(rounds) => rounds.check(session, epoch)?,
            None => session.check_slot(&self.lists.case, epoch, slot as u32, None)?,
        };
        match checked {
            Ok(_) => Ok((None, true)),
            Err(mismatch) => Ok((Some(mismatch), false)),
        }
    }

    /// Pairs of transfers, one plain and one with a notification, in changing order: the difference of each pair.
    fn notify_cost(
        &mut self,
        session: &Session<'_>,
    ) -> Result<Option<crate::measure::histogram::Distribution>, EngineError> {
        let plan = session.plan;
        let Some(mut plain) = self.plain.take() else { return Ok(None) };
        let mut cost = Recorder::new();
        let once = self.once(plan);
        let mut timings = Timings::new(once.remake);
        let end = Instant::now() + plan.case_time() / EXTRA_SHARE;
        for pair in 0..NOTIFY_PAIRS {
            let notified_first = pair % 2 == 0;
            let mut walls = [Duration::ZERO; 2];
            for turn in [notified_first, !notified_first] {
                // Both share the memory of slot 0, and so its transfer numbers.
                walls[usize::from(turn)] = if turn {
                    self.run(session, 0..1, once, &mut timings)?.wall
                } else {
                    plain.iteration = self.slots[0].iteration;
                    let outcome = run(std::slice::from_mut(&mut plain), once, &mut timings);
                    self.slots[0].iteration = plain.iteration;
                    outcome.map_err(|trouble| failed(&self.lists.case, plan, trouble))?.wall
                };
            }
            cost.record_ns(ns(walls[1].saturating_sub(walls[0])));
            if Instant::now() > end {
                break;
            }
        }
        self.plain = Some(plain);
        Ok(cost.distribution())
    }

    /// Some more transfers, timed by NIXL as well. `None` when this NIXL does not tell.
    fn telemetry(&mut self, session: &Session<'_>) -> Result<Option<TelemetryPair>, EngineError> {
        let plan = session.plan;
        let once = self.once(plan);
        let mut timings = Timings::new(once.remake);
        let mut post = Compared::default();
        let mut total = Compared::default();
        let mut last = None;
        let end = Instant::now() + plan.case_time() / EXTRA_SHARE;
        for _ in 0..TELEMETRY_SAMPLES {
            self.run(session, 0..1, once, &mut timings)?;
            let Some(seen) = self.slots[0].request.transfer.telemetry().map_err(nixl_failed)? else {
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
        let outcome = run(&mut self.slots[slots], limits, timings)
            .map_err(|trouble| failed(&self.lists.case, session.plan, trouble))?;
        self.count_notifications(session, outcome);
        Ok(outcome)
    }

    fn run_open(
        &mut self,
        session: &Session<'_>,
        limits: Limits,
        interval_ns: u64,
        timings: &mut Timings,
        scheduled: &mut Recorder,
    ) -> Result<OpenOutcome, EngineError> {
        let interval = Duration::from_nanos(interval_ns);
        let open = open_loop::run(&mut self.slots, limits, interval, timings, scheduled)
            .map_err(|trouble| failed(&self.lists.case, session.plan, trouble))?;
        self.count_notifications(session, open.outcome);
        Ok(open)
    }

    fn count_notifications(&self, session: &Session<'_>, outcome: Outcome) {
        if session.plan.notifies(&self.lists.case) {
            session.notifications_sent.set(session.notifications_sent.get() + outcome.transfers);
        }
    }

    /// Some more transfers, each until the target has shown that it has the notification.
    fn seen(&mut self, session: &Session<'_>) -> Result<Option<Seen>, EngineError> {
        let Some(lists) = &self.lists.bell else { return Ok(None) };
        let mut reader = BellReader::new(session, lists)?;
        // Those of before have been taken.
        if !reader.wait(session.notifications_sent.get())? {
            return Ok(None);
        }
        let once = self.once(session.plan);
        let mut timings = Timings::new(once.remake);
        let mut total = Recorder::new();
        let end = Instant::now() + session.plan.case_time() / EXTRA_SHARE;
        for _ in 0..NOTIFY_PAIRS {
            let begin = Instant::now();
            self.run(session, 0..1, once, &mut timings)?;
            if !reader.wait(session.notifications_sent.get())? {
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
