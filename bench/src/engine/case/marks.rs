//! Transfers beside the timed loop that are marked and looked at one by one.

use std::time::{Duration, Instant};

use super::super::lookout::{LATE_WITHIN, LOOKS, Late, Mark, marked_slots};
use super::super::protocol::EngineError;
use super::super::session::{Session, nixl_failed};
use super::super::timed::{Limits, Outcome, Timings, ns};
use super::{CaseRun, EXTRA_SHARE, Wire, failed, run_alone};
use crate::memory::pattern::Mismatch;
use crate::plan::Op;

/// What a transfer without its bytes at its completion turned out to be.
#[derive(Default)]
pub(super) struct Missed {
    pub(super) mismatch: Option<Mismatch>,
    pub(super) late: Option<Late>,
}

impl CaseRun<'_> {
    /// Some more READs, each marked before and looked at when its completion is seen. In GPU memory a look is a copy of
    /// one word on a stream of our own; nothing waits for the whole GPU.
    pub(super) fn look_at_each(&mut self, session: &Session<'_>, epoch: u32) -> Result<Missed, EngineError> {
        let plan = session.plan;
        let limits = Limits {
            transfers: LOOKS.max(self.slots.len() as u64),
            time: plan.time_of(&self.lists.part.case) / EXTRA_SHARE,
            ..self.once(plan)
        };
        self.slots.iter_mut().for_each(|slot| slot.request.marks = true);
        let all = 0..self.slots.len();
        let outcome = self.run(session, all, limits, &mut Timings::new(&limits))?;
        self.looked_at = outcome.transfers;
        self.look_at_missing(session, epoch, outcome)
    }

    /// Says what is wrong with a transfer whose bytes were not there at its completion: late, or not what they should be.
    pub(super) fn look_at_missing(
        &self,
        session: &Session<'_>,
        epoch: u32,
        outcome: Outcome,
    ) -> Result<Missed, EngineError> {
        let Some(number) = outcome.missing else { return Ok(Missed::default()) };
        let slot = &self.slots[number];
        let waited = wait_for(session, &slot.request)?;
        let checked = match &slot.request.rounds {
            Some(rounds) => rounds.check(session, epoch)?,
            None => session.check_slot(self.lists.part, epoch, number as u32, None)?,
        };
        Ok(match checked {
            Ok(_) => {
                let late = Late { transfer: slot.iteration, after_ns: ns(waited) };
                Missed { mismatch: None, late: Some(late) }
            }
            Err(mismatch) => Missed { mismatch: Some(mismatch), late: None },
        })
    }

    /// One marked WRITE of each slot, up to [`LOOKS`] of them, with notifications that say what the other side is to look
    /// for. Gives their number: none for READs, and where a block is shorter than a word.
    ///
    /// # Errors
    /// A request could not be made, or a transfer failed or stalled.
    pub(crate) fn mark_writes(&mut self, session: &Session<'_>) -> Result<u64, EngineError> {
        let (part, plan) = (self.lists.part, session.plan);
        let slots = &mut self.slots[..marked_slots(&part.case, plan.depth) as usize];
        if part.case.op != Op::Write || !slots.iter().all(|slot| slot.request.can_be_marked()) {
            return Ok(0);
        }
        for (number, slot) in (0..).zip(&mut *slots) {
            let transfer = slot.next_iteration();
            let mark = Mark { rank: session.rank, base: part.base, slot: number, transfer };
            slot.request.marks = true;
            slot.request.options.notify = Some(mark.notification());
        }
        let limits = Limits {
            transfers: slots.len() as u64,
            time: Duration::ZERO,
            stall: plan.transfer_timeout(),
            remake: true,
            interval: None,
        };
        let outcome = run_alone(slots, limits, &mut Timings::new(&limits))
            .map_err(|trouble| failed(&part.case, plan, trouble))?;
        Ok(outcome.transfers)
    }
}

impl Wire<'_> {
    fn can_be_marked(&self) -> bool {
        self.rounds.as_ref().map_or(self.ends.is_some(), |rounds| rounds.have_ends())
    }
}

/// Waits for the words that were not there, and says how long. What does not come is judged by the check of all bytes.
fn wait_for(session: &Session<'_>, request: &Wire<'_>) -> Result<Duration, EngineError> {
    let begin = Instant::now();
    let there = || request.ends.is_none_or(|ends| ends.arrived(request.key, 0));
    while !there() && begin.elapsed() < LATE_WITHIN {
        // Nobody notifies an initiator: this progresses NIXL, which late bytes may need.
        session.agent.notifications(|_, _| {}).map_err(nixl_failed)?;
    }
    Ok(begin.elapsed())
}
