//! The timed loop: posts, polls, and nothing else that a transfer would wait for.
//!
//! A loop over `slots`, each with one request: as many transfers are outstanding as there are slots. Inside the loop
//! nothing sleeps, allocates, logs or talks to the supervisor. `docs/measuring.md` says what each figure means.
//!
//! A closed loop starts the next transfer of a slot when the last one is done. That waits for a slow transfer and so
//! leaves out those that would have come meanwhile. An open loop starts transfers at the moments for which they are
//! scheduled, and times each from there, so that what a request waits for a free slot counts.

use std::time::{Duration, Instant};

use nixl::State;

use crate::measure::histogram::Recorder;

/// One request that can be posted again and again, and the proof of its bytes.
pub(crate) trait Request {
    /// Why a transfer failed.
    type Error;
    /// Makes the request anew, where that is asked for. Timed as "prep".
    fn remake(&mut self) -> Result<(), Self::Error>;
    /// Marks the memory, so that transfer number `iteration` can be told from every other one.
    fn stamp(&mut self, iteration: u32);
    /// Posts the transfer.
    fn post(&mut self) -> Result<State, Self::Error>;
    /// Asks for its completion.
    fn poll(&mut self) -> Result<State, Self::Error>;
    /// True unless the mark shows that transfer number `iteration` completed without its bytes.
    fn arrived(&self, iteration: u32) -> bool;
}

/// When a loop ends, and how it goes until then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Transfers of each lane: the loop is over when every lane has had as many.
    pub(crate) transfers: u64,
    /// Time at most. An open loop schedules for that time, and works off what is due for as long again.
    pub(crate) time: Duration,
    /// A transfer that takes longer has stalled.
    pub(crate) stall: Duration,
    /// The request is made anew for each transfer.
    pub(crate) remake: bool,
    /// Time between the scheduled starts of two transfers of a lane; `None` in a closed loop.
    pub(crate) interval: Option<Duration>,
}

/// Histograms of one lane.
#[derive(Debug)]
pub(crate) struct Timings {
    /// Making the request, when it is made per transfer.
    pub(crate) prep: Option<Recorder>,
    /// The call that posts.
    pub(crate) post: Recorder,
    /// From the return of the post to the completion.
    pub(crate) wire: Recorder,
    /// Prep, post and wire together.
    pub(crate) total: Recorder,
    /// From the moment for which a transfer was scheduled to its completion; only in an open loop.
    pub(crate) scheduled: Option<Recorder>,
}

impl Timings {
    /// Empty histograms. All memory that the loop needs is taken here.
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            prep: limits.remake.then(Recorder::new),
            post: Recorder::new(),
            wire: Recorder::new(),
            total: Recorder::new(),
            scheduled: limits.interval.map(|_| Recorder::new()),
        }
    }
}

/// How a loop went for one lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Transfers that completed.
    pub(crate) transfers: u64,
    /// From the start of the loop, just before its first post, to the lane's last completion.
    pub(crate) wall: Duration,
    /// True when the number of transfers ended the loop.
    pub(crate) ended_by_count: bool,
    /// Slot, in the order of the lane's slots, of a transfer that completed without its bytes. It ends the loop.
    pub(crate) missing: Option<usize>,
    /// Transfers that were scheduled and never started: the loop was far behind and its time over.
    pub(crate) unserved: u64,
}

/// Why a loop did not end well.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Trouble<E> {
    /// A call failed.
    Failed(E),
    /// A transfer was posted and did not complete in time.
    Stalled {
        /// Its slot.
        slot: usize,
        /// Transfers that had completed before.
        completed: u64,
    },
}

/// A request with what the loop knows about it. The iteration goes on over several loops.
#[derive(Debug)]
pub(crate) struct Slot<R> {
    /// The request.
    pub(crate) request: R,
    /// Transfers of this slot so far; the number of the last one is stamped into its data.
    pub(crate) iteration: u32,
    /// Which of the loop's lanes it belongs to: each direction of a loop that runs both has its own.
    pub(crate) lane: usize,
    /// The moment for which its transfer was scheduled; only in an open loop.
    due: Instant,
    started: Instant,
    posted: Instant,
    done: Instant,
    prep: Duration,
    active: bool,
}

impl<R: Request> Slot<R> {
    /// A slot that has not moved anything yet.
    pub(crate) fn new(request: R) -> Self {
        let now = Instant::now();
        Self {
            request,
            iteration: 0,
            lane: 0,
            due: now,
            started: now,
            posted: now,
            done: now,
            prep: Duration::ZERO,
            active: false,
        }
    }

    /// The last transfer: its post call, and from the start of that to its completion.
    pub(crate) fn last(&self) -> (Duration, Duration) {
        (self.posted - self.started, self.done - self.started)
    }

    /// The number of the next transfer.
    #[inline]
    pub(crate) fn next_iteration(&self) -> u32 {
        // Wraps after four billion transfers; zero would read as "never stamped" for one of them.
        self.iteration.wrapping_add(1)
    }

    /// Starts the next transfer. `Some` is the moment of completion, when the post already completed it.
    #[inline]
    fn start(&mut self, remake: bool) -> Result<Option<Instant>, R::Error> {
        self.iteration = self.next_iteration();
        self.request.stamp(self.iteration);
        let mut started = Instant::now();
        if remake {
            let before = started;
            self.request.remake()?;
            started = Instant::now();
            self.prep = started - before;
        }
        let state = self.request.post()?;
        self.posted = Instant::now();
        self.started = started;
        self.active = true;
        Ok((state == State::Done).then_some(self.posted))
    }

    #[inline]
    fn record(&mut self, done: Instant, timings: &mut Timings) {
        self.active = false;
        self.done = done;
        let post = self.posted - self.started;
        let wire = done - self.posted;
        timings.post.record_ns(ns(post));
        timings.wire.record_ns(ns(wire));
        timings.total.record_ns(ns(self.prep + post + wire));
        if let Some(prep) = &mut timings.prep {
            prep.record_ns(ns(self.prep));
        }
        if let Some(scheduled) = &mut timings.scheduled {
            scheduled.record_ns(ns(done - self.due));
        }
    }
}

/// Whole nanoseconds; 584 years fit.
#[inline]
pub(crate) fn ns(time: Duration) -> u64 {
    time.as_secs() * 1_000_000_000 + u64::from(time.subsec_nanos())
}

/// Polls between two looks at the clock while a transfer is on its way.
const POLLS_PER_LOOK: u32 = 1024;

/// Runs transfers over all slots until a limit ends it, and waits for those on their way. `timings` has one entry for
/// each lane, and so has the outcome.
///
/// # Errors
/// The first call that failed, or the first transfer that stalled; it stays posted.
pub(crate) fn run<R: Request>(
    slots: &mut [Slot<R>],
    limits: Limits,
    timings: &mut [Timings],
) -> Result<Vec<Outcome>, Trouble<R::Error>> {
    let mut state = Loop::new(limits, slots.len(), timings.len());
    let mut polls = 0u32;
    loop {
        for index in 0..slots.len() {
            // A slot gets one transfer a round, also where the post completes it: else the first would take them all.
            if slots[index].active {
                if slots[index].request.poll().map_err(Trouble::Failed)? == State::InProgress {
                    continue;
                }
                state.complete(slots, index, Instant::now(), timings);
            }
            if state.starts(slots[index].lane) {
                state.start(slots, index, timings)?;
            }
        }
        if state.completed == state.started && state.is_over() {
            break;
        }
        polls += 1;
        if polls == POLLS_PER_LOOK {
            polls = 0;
            state.look_for_stall(slots)?;
        }
    }
    Ok(state.outcomes(slots))
}

struct Loop {
    limits: Limits,
    slots: u64,
    lanes: Vec<Lane>,
    started: u64,
    completed: u64,
    begin: Instant,
    end: Instant,
    /// When an open loop no longer works off what is due.
    give_up: Instant,
    last: Instant,
    missing: Option<usize>,
}

struct Lane {
    started: u64,
    completed: u64,
    last: Instant,
    /// When its next transfer is due, in an open loop.
    due: Instant,
}

impl Loop {
    fn new(limits: Limits, slots: usize, lanes: usize) -> Self {
        let begin = Instant::now();
        let lane = || Lane { started: 0, completed: 0, last: begin, due: begin };
        Self {
            limits,
            slots: slots as u64,
            lanes: (0..lanes).map(|_| lane()).collect(),
            started: 0,
            completed: 0,
            begin,
            end: begin + limits.time,
            give_up: begin + limits.time * 2,
            last: begin,
            missing: None,
        }
    }

    /// Whether no further transfer will be started. Every slot gets one, however short the time.
    #[inline]
    fn is_over(&self) -> bool {
        let counted = |lane: &Lane| lane.started >= self.limits.transfers;
        if self.missing.is_some() || self.lanes.iter().all(counted) {
            return true;
        }
        match self.limits.interval {
            None => self.last >= self.end && self.started >= self.slots,
            Some(_) => self.lanes.iter().all(|lane| self.is_served(lane, Instant::now())),
        }
    }

    /// Whether everything that the schedule has for a lane was started, or will never be.
    fn is_served(&self, lane: &Lane, now: Instant) -> bool {
        lane.started > 0 && (lane.due >= self.end || now >= self.give_up)
    }

    /// Whether a free slot of the lane starts a transfer now.
    #[inline]
    fn starts(&self, lane: usize) -> bool {
        if self.is_over() {
            return false;
        }
        if self.limits.interval.is_none() {
            return true;
        }
        let (lane, now) = (&self.lanes[lane], Instant::now());
        !self.is_served(lane, now) && now >= lane.due
    }

    #[inline]
    fn start<R: Request>(
        &mut self,
        slots: &mut [Slot<R>],
        index: usize,
        timings: &mut [Timings],
    ) -> Result<(), Trouble<R::Error>> {
        let slot = &mut slots[index];
        let lane = &mut self.lanes[slot.lane];
        self.started += 1;
        lane.started += 1;
        if let Some(interval) = self.limits.interval {
            slot.due = lane.due;
            lane.due += interval;
        }
        if let Some(done) = slot.start(self.limits.remake).map_err(Trouble::Failed)? {
            self.complete(slots, index, done, timings);
        }
        Ok(())
    }

    #[inline]
    fn complete<R: Request>(
        &mut self,
        slots: &mut [Slot<R>],
        index: usize,
        done: Instant,
        timings: &mut [Timings],
    ) {
        let slot = &mut slots[index];
        slot.record(done, &mut timings[slot.lane]);
        let lane = &mut self.lanes[slot.lane];
        lane.completed += 1;
        lane.last = done;
        self.completed += 1;
        self.last = done;
        if !slot.request.arrived(slot.iteration) && self.missing.is_none() {
            self.missing = Some(index);
        }
    }

    #[cold]
    fn look_for_stall<R: Request>(&self, slots: &[Slot<R>]) -> Result<(), Trouble<R::Error>> {
        let now = Instant::now();
        match slots.iter().position(|slot| slot.active && now - slot.posted > self.limits.stall) {
            Some(slot) => Err(Trouble::Stalled { slot, completed: self.completed }),
            None => Ok(()),
        }
    }

    fn outcomes<R: Request>(&self, slots: &[Slot<R>]) -> Vec<Outcome> {
        let of_lane = |(number, lane): (usize, &Lane)| {
            let missing = self.missing.filter(|slot| slots[*slot].lane == number);
            let before = |slot: usize| slots[..slot].iter().filter(|other| other.lane == number).count();
            let ended_by_count = lane.completed >= self.limits.transfers;
            let left = self.limits.interval.map_or(0, |interval| {
                ns(self.end.saturating_duration_since(lane.due)).div_ceil(ns(interval).max(1))
            });
            Outcome {
                transfers: lane.completed,
                wall: lane.last - self.begin,
                ended_by_count,
                missing: missing.map(before),
                unserved: if ended_by_count || self.missing.is_some() { 0 } else { left },
            }
        };
        self.lanes.iter().enumerate().map(of_lane).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A request that completes after some polls, and may lose its bytes or fail at a given iteration.
    #[derive(Default)]
    struct Scripted {
        polls_needed: u32,
        polls: u32,
        remade: u64,
        stamped: Cell<u32>,
        lose_at: Option<u32>,
        fail_at: Option<u32>,
        never: bool,
    }

    impl Request for Scripted {
        type Error = &'static str;
        fn remake(&mut self) -> Result<(), Self::Error> {
            self.remade += 1;
            Ok(())
        }
        fn stamp(&mut self, iteration: u32) {
            self.stamped.set(iteration);
        }
        fn post(&mut self) -> Result<State, Self::Error> {
            self.polls = 0;
            if self.fail_at == Some(self.stamped.get()) {
                return Err("post");
            }
            Ok(if self.polls_needed == 0 && !self.never { State::Done } else { State::InProgress })
        }
        fn poll(&mut self) -> Result<State, Self::Error> {
            self.polls += 1;
            Ok(if self.polls >= self.polls_needed && !self.never { State::Done } else { State::InProgress })
        }
        fn arrived(&self, iteration: u32) -> bool {
            assert_eq!(self.stamped.get(), iteration);
            self.lose_at != Some(iteration)
        }
    }

    const LONG: Duration = Duration::from_secs(3600);

    fn limits(transfers: u64) -> Limits {
        Limits { transfers, time: LONG, stall: LONG, remake: false, interval: None }
    }

    /// Runs slots of one lane.
    fn run_one(slots: &mut [Slot<Scripted>], limits: Limits) -> (Outcome, Timings) {
        let mut timings = [Timings::new(&limits)];
        let outcome = run(slots, limits, &mut timings).unwrap()[0];
        let [timings] = timings;
        (outcome, timings)
    }

    fn slots(count: usize, polls_needed: u32) -> Vec<Slot<Scripted>> {
        (0..count).map(|_| Slot::new(Scripted { polls_needed, ..Scripted::default() })).collect()
    }

    #[test]
    fn a_count_is_met_exactly_whatever_the_depth() {
        for (depth, polls) in [(1, 0), (1, 3), (4, 0), (4, 5), (7, 1)] {
            let mut slots = slots(depth, polls);
            let (outcome, timings) = run_one(&mut slots, limits(10));
            assert_eq!(outcome.transfers, 10);
            assert!(outcome.ended_by_count && outcome.missing.is_none());
            assert_eq!(slots.iter().map(|s| s.iteration).sum::<u32>(), 10);
            assert_eq!(timings.total.count(), 10);
        }
    }

    #[test]
    fn transfers_that_complete_inside_the_post_are_spread_over_all_slots() {
        let mut slots = slots(4, 0);
        run_one(&mut slots, limits(9));
        assert_eq!(slots.iter().map(|s| s.iteration).collect::<Vec<_>>(), [3, 2, 2, 2]);
    }

    #[test]
    fn every_slot_gets_a_transfer_however_short_the_time() {
        for polls in [0, 3] {
            let mut slots = slots(3, polls);
            let (outcome, _) = run_one(&mut slots, Limits { time: Duration::ZERO, ..limits(10) });
            assert_eq!(outcome.transfers, 3);
            assert!(slots.iter().all(|s| s.iteration == 1));
        }
    }

    #[test]
    fn time_ends_a_loop_after_at_least_one_transfer() {
        let mut slots = slots(1, 2);
        let (outcome, _) = run_one(&mut slots, Limits { time: Duration::ZERO, ..limits(10) });
        assert_eq!(outcome.transfers, 1);
        assert!(!outcome.ended_by_count);
    }

    #[test]
    fn a_request_is_remade_once_per_transfer_when_asked() {
        let mut slots = slots(2, 1);
        let (_, timings) = run_one(&mut slots, Limits { remake: true, ..limits(9) });
        assert_eq!(slots.iter().map(|s| s.request.remade).sum::<u64>(), 9);
        assert_eq!(timings.prep.unwrap().count(), 9);
    }

    #[test]
    fn a_transfer_without_its_bytes_ends_the_loop_and_names_the_slot() {
        let mut slots = slots(2, 1);
        slots[1].request.lose_at = Some(3);
        let (outcome, _) = run_one(&mut slots, limits(100));
        assert_eq!(outcome.missing, Some(1));
        assert!(outcome.transfers < 100);
    }

    #[test]
    fn a_failed_post_is_reported() {
        let mut slots = slots(1, 1);
        slots[0].request.fail_at = Some(4);
        let trouble = run(&mut slots, limits(100), &mut [Timings::new(&limits(100))]).unwrap_err();
        assert_eq!(trouble, Trouble::Failed("post"));
    }

    #[test]
    fn a_transfer_that_never_completes_has_stalled() {
        let mut slots = slots(2, 1);
        slots[1].request.never = true;
        let limits = Limits { stall: Duration::from_millis(1), ..limits(4) };
        let trouble = run(&mut slots, limits, &mut [Timings::new(&limits)]).unwrap_err();
        assert!(matches!(trouble, Trouble::Stalled { slot: 1, .. }), "{trouble:?}");
    }

    /// Two lanes, each with as many slots as polls are given.
    fn two_lanes(first: &[u32], second: &[u32]) -> Vec<Slot<Scripted>> {
        let lane = |lane: usize, polls: &[u32]| {
            let slot = |polls_needed: &u32| {
                let request = Scripted { polls_needed: *polls_needed, ..Scripted::default() };
                Slot { lane, ..Slot::new(request) }
            };
            polls.iter().map(slot).collect::<Vec<_>>()
        };
        lane(0, first).into_iter().chain(lane(1, second)).collect()
    }

    #[test]
    fn two_lanes_run_at_once_until_the_slower_one_has_its_transfers() {
        for interval in [None, Some(Duration::from_nanos(1))] {
            let mut slots = two_lanes(&[1], &[40, 40]);
            let limits = Limits { interval, ..limits(20) };
            let mut timings = [Timings::new(&limits), Timings::new(&limits)];
            let [fast, slow] = run(&mut slots, limits, &mut timings).unwrap()[..] else { panic!() };
            assert!(fast.transfers > slow.transfers && slow.transfers >= 20, "{fast:?} {slow:?}");
            assert!(fast.ended_by_count && slow.ended_by_count);
            for (outcome, timings) in [fast, slow].iter().zip(&timings) {
                assert_eq!(outcome.transfers, timings.total.count());
            }
        }
    }

    #[test]
    fn a_transfer_without_its_bytes_is_named_in_its_own_lane() {
        let mut slots = two_lanes(&[1, 1], &[1, 1]);
        slots[3].request.lose_at = Some(2);
        let mut timings = [Timings::new(&limits(9)), Timings::new(&limits(9))];
        let outcomes = run(&mut slots, limits(9), &mut timings).unwrap();
        assert_eq!(outcomes.iter().map(|o| o.missing).collect::<Vec<_>>(), [None, Some(1)]);
    }

    #[test]
    fn every_scheduled_transfer_is_timed_from_its_moment() {
        for needed in [&[0][..], &[3], &[1, 5, 0]] {
            let interval = Duration::from_micros(50);
            let mut slots = two_lanes(needed, &[]);
            let (open, timings) = run_one(&mut slots, Limits { interval: Some(interval), ..limits(20) });
            assert_eq!((open.transfers, open.unserved), (20, 0));
            assert_eq!((timings.scheduled.unwrap().count(), timings.total.count()), (20, 20));
            // Twenty transfers span nineteen intervals, however fast each is.
            assert!(open.wall >= interval * 19, "{open:?}");
        }
    }

    #[test]
    fn waiting_for_a_free_slot_counts() {
        let limits = Limits { interval: Some(Duration::from_nanos(1)), ..limits(50) };
        let (_, timings) = run_one(&mut slots(1, 200), limits);
        let (own, waited) =
            (timings.total.distribution().unwrap(), timings.scheduled.unwrap().distribution().unwrap());
        assert!(
            waited.max > own.max,
            "the last of fifty waited for all others: {} and {}",
            waited.max,
            own.max
        );
    }

    #[test]
    fn what_was_never_started_is_counted() {
        let (time, interval) = (Duration::from_millis(2), Some(Duration::from_nanos(1)));
        let (open, _) = run_one(&mut slots(1, 1000), Limits { time, interval, ..limits(u64::MAX) });
        assert!(open.unserved > 0 && open.transfers > 0, "{open:?}");
        assert_eq!(open.unserved + open.transfers, 2_000_000);
    }
}
