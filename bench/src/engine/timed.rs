//! The timed loop: posts, polls, and nothing else that a transfer would wait for.
//!
//! A closed loop over `slots`, each with one request: as many transfers are outstanding as there are slots.
//! Inside the loop nothing sleeps, allocates, logs or talks to the supervisor. `docs/measuring.md` says what
//! each figure means.

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

/// When a loop ends. Whatever comes first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Transfers at most.
    pub(crate) transfers: u64,
    /// Time at most.
    pub(crate) time: Duration,
    /// A transfer that takes longer has stalled.
    pub(crate) stall: Duration,
    /// The request is made anew for each transfer.
    pub(crate) remake: bool,
}

/// Histograms of one loop.
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
}

impl Timings {
    /// Empty histograms. All memory that the loop needs is taken here.
    pub(crate) fn new(remake: bool) -> Self {
        Self {
            prep: remake.then(Recorder::new),
            post: Recorder::new(),
            wire: Recorder::new(),
            total: Recorder::new(),
        }
    }
}

/// How a loop went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Transfers that completed.
    pub(crate) transfers: u64,
    /// From the first post to the last completion.
    pub(crate) wall: Duration,
    /// True when the number of transfers ended it.
    pub(crate) ended_by_count: bool,
    /// Slot of a transfer that completed without its bytes. It ends the loop.
    pub(crate) missing: Option<usize>,
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

    /// Whether a transfer is on its way.
    pub(super) fn is_active(&self) -> bool {
        self.active
    }

    /// When the last post returned.
    pub(super) fn posted(&self) -> Instant {
        self.posted
    }

    /// Starts the next transfer. `Some` is the moment of completion, when the post already completed it.
    #[inline]
    pub(super) fn start(&mut self, remake: bool) -> Result<Option<Instant>, R::Error> {
        // Wraps after four billion transfers; zero would read as "never stamped" for one of them.
        self.iteration = self.iteration.wrapping_add(1);
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
    pub(super) fn record(&mut self, done: Instant, timings: &mut Timings) {
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
    }
}

/// Whole nanoseconds; 584 years fit.
#[inline]
pub(crate) fn ns(time: Duration) -> u64 {
    time.as_secs() * 1_000_000_000 + u64::from(time.subsec_nanos())
}

/// Polls between two looks at the clock while a transfer is on its way.
pub(super) const POLLS_PER_LOOK: u32 = 1024;

/// Runs transfers over all slots until a limit ends it, and waits for those on their way.
///
/// # Errors
/// The first call that failed, or the first transfer that stalled; it stays posted.
pub(crate) fn run<R: Request>(
    slots: &mut [Slot<R>],
    limits: Limits,
    timings: &mut Timings,
) -> Result<Outcome, Trouble<R::Error>> {
    let begin = Instant::now();
    let end = begin + limits.time;
    let mut state = Loop { started: 0, completed: 0, last: begin, end, limits, missing: None };
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
            if state.goes_on(slots.len()) {
                state.start(slots, index, timings)?;
            }
        }
        if state.completed == state.started && !state.goes_on(slots.len()) {
            break;
        }
        polls += 1;
        if polls == POLLS_PER_LOOK {
            polls = 0;
            state.look_for_stall(slots)?;
        }
    }
    Ok(Outcome {
        transfers: state.completed,
        wall: state.last - begin,
        ended_by_count: state.completed >= limits.transfers,
        missing: state.missing,
    })
}

struct Loop {
    started: u64,
    completed: u64,
    last: Instant,
    end: Instant,
    limits: Limits,
    missing: Option<usize>,
}

impl Loop {
    /// Whether another transfer is to be started. Every slot gets one, however short the time.
    #[inline]
    fn goes_on(&self, slots: usize) -> bool {
        self.started < self.limits.transfers
            && self.missing.is_none()
            && (self.last < self.end || self.started < slots as u64)
    }

    #[inline]
    fn start<R: Request>(
        &mut self,
        slots: &mut [Slot<R>],
        index: usize,
        timings: &mut Timings,
    ) -> Result<(), Trouble<R::Error>> {
        self.started += 1;
        if let Some(done) = slots[index].start(self.limits.remake).map_err(Trouble::Failed)? {
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
        timings: &mut Timings,
    ) {
        let slot = &mut slots[index];
        slot.record(done, timings);
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
        Limits { transfers, time: LONG, stall: LONG, remake: false }
    }

    fn slots(count: usize, polls_needed: u32) -> Vec<Slot<Scripted>> {
        (0..count).map(|_| Slot::new(Scripted { polls_needed, ..Scripted::default() })).collect()
    }

    #[test]
    fn a_count_is_met_exactly_whatever_the_depth() {
        for (depth, polls) in [(1, 0), (1, 3), (4, 0), (4, 5), (7, 1)] {
            let mut slots = slots(depth, polls);
            let mut timings = Timings::new(false);
            let outcome = run(&mut slots, limits(10), &mut timings).unwrap();
            assert_eq!(outcome.transfers, 10);
            assert!(outcome.ended_by_count && outcome.missing.is_none());
            assert_eq!(slots.iter().map(|s| s.iteration).sum::<u32>(), 10);
            assert_eq!(timings.total.count(), 10);
        }
    }

    #[test]
    fn transfers_that_complete_inside_the_post_are_spread_over_all_slots() {
        let mut slots = slots(4, 0);
        run(&mut slots, limits(9), &mut Timings::new(false)).unwrap();
        assert_eq!(slots.iter().map(|s| s.iteration).collect::<Vec<_>>(), [3, 2, 2, 2]);
    }

    #[test]
    fn every_slot_gets_a_transfer_however_short_the_time() {
        for polls in [0, 3] {
            let mut slots = slots(3, polls);
            let outcome =
                run(&mut slots, Limits { time: Duration::ZERO, ..limits(10) }, &mut Timings::new(false))
                    .unwrap();
            assert_eq!(outcome.transfers, 3);
            assert!(slots.iter().all(|s| s.iteration == 1));
        }
    }

    #[test]
    fn time_ends_a_loop_after_at_least_one_transfer() {
        let mut slots = slots(1, 2);
        let outcome =
            run(&mut slots, Limits { time: Duration::ZERO, ..limits(10) }, &mut Timings::new(false)).unwrap();
        assert_eq!(outcome.transfers, 1);
        assert!(!outcome.ended_by_count);
    }

    #[test]
    fn a_request_is_remade_once_per_transfer_when_asked() {
        let mut slots = slots(2, 1);
        let mut timings = Timings::new(true);
        run(&mut slots, Limits { remake: true, ..limits(9) }, &mut timings).unwrap();
        assert_eq!(slots.iter().map(|s| s.request.remade).sum::<u64>(), 9);
        assert_eq!(timings.prep.unwrap().count(), 9);
    }

    #[test]
    fn a_transfer_without_its_bytes_ends_the_loop_and_names_the_slot() {
        let mut slots = slots(2, 1);
        slots[1].request.lose_at = Some(3);
        let outcome = run(&mut slots, limits(100), &mut Timings::new(false)).unwrap();
        assert_eq!(outcome.missing, Some(1));
        assert!(outcome.transfers < 100);
    }

    #[test]
    fn a_failed_post_is_reported() {
        let mut slots = slots(1, 1);
        slots[0].request.fail_at = Some(4);
        let trouble = run(&mut slots, limits(100), &mut Timings::new(false)).unwrap_err();
        assert_eq!(trouble, Trouble::Failed("post"));
    }

    #[test]
    fn a_transfer_that_never_completes_has_stalled() {
        let mut slots = slots(2, 1);
        slots[1].request.never = true;
        let limits = Limits { stall: Duration::from_millis(1), ..limits(4) };
        let trouble = run(&mut slots, limits, &mut Timings::new(false)).unwrap_err();
        assert!(matches!(trouble, Trouble::Stalled { slot: 1, .. }), "{trouble:?}");
    }
}
