//! The open loop: transfers start when they are scheduled, whether or not earlier ones are done.
//!
//! A closed loop waits for a slow transfer and so leaves out those that would have come meanwhile. Here each is timed
//! from the moment for which it was scheduled, so that what a request waits for a free slot counts.

use std::time::{Duration, Instant};

use nixl::State;

use super::timed::{Limits, Outcome, POLLS_PER_LOOK, Request, Slot, Timings, Trouble, ns};
use crate::measure::histogram::Recorder;

/// How an open loop went.
#[derive(Debug)]
pub(crate) struct OpenOutcome {
    /// As of a closed loop.
    pub(crate) outcome: Outcome,
    /// Transfers that were scheduled and never started: the loop was far behind and its time over.
    pub(crate) unserved: u64,
}

/// Runs transfers over all slots, one every `interval`, and waits for those on their way. A free slot takes the
/// transfer that is due; `scheduled` gets the time of each from its due moment to its completion.
///
/// The loop schedules for its time, and works off what is due for as long again.
///
/// # Errors
/// The first call that failed, or the first transfer that stalled; it stays posted.
pub(crate) fn run<R: Request>(
    slots: &mut [Slot<R>],
    limits: Limits,
    interval: Duration,
    timings: &mut Timings,
    scheduled: &mut Recorder,
) -> Result<OpenOutcome, Trouble<R::Error>> {
    let begin = Instant::now();
    let mut state = Schedule {
        due: begin,
        dues: vec![begin; slots.len()],
        end: begin + limits.time,
        give_up: begin + limits.time * 2,
        started: 0,
        completed: 0,
        last: begin,
        missing: None,
    };
    let mut polls = 0u32;
    loop {
        for index in 0..slots.len() {
            if slots[index].is_active() {
                if slots[index].request.poll().map_err(Trouble::Failed)? == State::InProgress {
                    continue;
                }
                state.complete(slots, index, Instant::now(), timings, scheduled);
            }
            if state.is_due(limits) {
                state.dues[index] = state.due;
                state.due += interval;
                state.started += 1;
                if let Some(done) = slots[index].start(limits.remake).map_err(Trouble::Failed)? {
                    state.complete(slots, index, done, timings, scheduled);
                }
            }
        }
        if state.completed == state.started && !state.goes_on(limits) {
            break;
        }
        polls += 1;
        if polls == POLLS_PER_LOOK {
            polls = 0;
            let now = Instant::now();
            if let Some(slot) =
                slots.iter().position(|slot| slot.is_active() && now - slot.posted() > limits.stall)
            {
                return Err(Trouble::Stalled { slot, completed: state.completed });
            }
        }
    }
    Ok(state.outcome(limits, begin, interval))
}

struct Schedule {
    /// When the next transfer is due.
    due: Instant,
    /// When that of each slot was.
    dues: Vec<Instant>,
    end: Instant,
    give_up: Instant,
    started: u64,
    completed: u64,
    last: Instant,
    missing: Option<usize>,
}

impl Schedule {
    /// Whether another transfer will be started.
    fn goes_on(&self, limits: Limits) -> bool {
        self.missing.is_none()
            && self.started < limits.transfers
            && (self.started == 0 || (self.due < self.end && Instant::now() < self.give_up))
    }

    fn is_due(&self, limits: Limits) -> bool {
        self.goes_on(limits) && Instant::now() >= self.due
    }

    fn complete<R: Request>(
        &mut self,
        slots: &mut [Slot<R>],
        index: usize,
        done: Instant,
        timings: &mut Timings,
        scheduled: &mut Recorder,
    ) {
        let slot = &mut slots[index];
        slot.record(done, timings);
        scheduled.record_ns(ns(done - self.dues[index]));
        self.completed += 1;
        self.last = done;
        if !slot.request.arrived(slot.iteration) && self.missing.is_none() {
            self.missing = Some(index);
        }
    }

    fn outcome(&self, limits: Limits, begin: Instant, interval: Duration) -> OpenOutcome {
        let left = ns(self.end.saturating_duration_since(self.due)).div_ceil(ns(interval).max(1));
        let ended_by_count = self.started >= limits.transfers;
        OpenOutcome {
            outcome: Outcome {
                transfers: self.completed,
                wall: self.last - begin,
                ended_by_count,
                missing: self.missing,
            },
            unserved: if ended_by_count || self.missing.is_some() { 0 } else { left },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request that completes at its `polls`-th poll, or never.
    struct Scripted {
        polls: u32,
        needed: u32,
    }

    impl Request for Scripted {
        type Error = &'static str;
        fn remake(&mut self) -> Result<(), Self::Error> {
            Ok(())
        }
        fn stamp(&mut self, _: u32) {
            self.polls = 0;
        }
        fn post(&mut self) -> Result<State, Self::Error> {
            Ok(if self.needed == 0 { State::Done } else { State::InProgress })
        }
        fn poll(&mut self) -> Result<State, Self::Error> {
            self.polls += 1;
            Ok(if self.polls >= self.needed { State::Done } else { State::InProgress })
        }
        fn arrived(&self, _: u32) -> bool {
            true
        }
    }

    fn slots(needed: &[u32]) -> Vec<Slot<Scripted>> {
        needed.iter().map(|needed| Slot::new(Scripted { polls: 0, needed: *needed })).collect()
    }

    const LONG: Duration = Duration::from_secs(3600);

    fn limits(transfers: u64, time: Duration) -> Limits {
        Limits { transfers, time, stall: LONG, remake: false }
    }

    #[test]
    fn every_scheduled_transfer_is_timed_from_its_moment() {
        for needed in [&[0][..], &[3], &[1, 5, 0]] {
            let (mut timings, mut scheduled) = (Timings::new(false), Recorder::new());
            let interval = Duration::from_micros(50);
            let open =
                run(&mut slots(needed), limits(20, LONG), interval, &mut timings, &mut scheduled).unwrap();
            assert_eq!((open.outcome.transfers, open.unserved), (20, 0));
            assert_eq!((scheduled.count(), timings.total.count()), (20, 20));
            // Twenty transfers span nineteen intervals, however fast each is.
            assert!(open.outcome.wall >= interval * 19, "{open:?}");
        }
    }

    #[test]
    fn waiting_for_a_free_slot_counts() {
        let (mut timings, mut scheduled) = (Timings::new(false), Recorder::new());
        let interval = Duration::from_nanos(1);
        run(&mut slots(&[200]), limits(50, LONG), interval, &mut timings, &mut scheduled).unwrap();
        let (own, waited) = (timings.total.distribution().unwrap(), scheduled.distribution().unwrap());
        assert!(
            waited.max > own.max,
            "the last of fifty waited for all others: {} and {}",
            waited.max,
            own.max
        );
    }

    #[test]
    fn what_was_never_started_is_counted() {
        let (mut timings, mut scheduled) = (Timings::new(false), Recorder::new());
        let time = Duration::from_millis(2);
        let open = run(
            &mut slots(&[1000]),
            limits(u64::MAX, time),
            Duration::from_nanos(1),
            &mut timings,
            &mut scheduled,
        );
        let open = open.unwrap();
        assert!(open.unserved > 0 && open.outcome.transfers > 0, "{open:?}");
        assert_eq!(open.unserved + open.outcome.transfers, 2_000_000);
    }

    #[test]
    fn a_transfer_that_never_completes_has_stalled() {
        let (mut timings, mut scheduled) = (Timings::new(false), Recorder::new());
        let limits = Limits { stall: Duration::from_millis(1), ..limits(4, LONG) };
        let mut slots = slots(&[u32::MAX]);
        let trouble =
            run(&mut slots, limits, Duration::from_nanos(1), &mut timings, &mut scheduled).unwrap_err();
        assert!(matches!(trouble, Trouble::Stalled { slot: 0, completed: 0 }));
    }
}
