//! Marked WRITEs: transfers beside the timed loop that the target looks at when it takes their notification.
//!
//! One round makes a marked WRITE of each slot and waits for the target's answer, which comes through the rendezvous and
//! not over the wire that is judged. The data of the timed loop has been checked before, so that marks change nothing
//! that is still to be compared.

use std::fmt;
use std::time::{Duration, Instant};

use super::message::Message;
use super::stop::Stop;
use super::supervisor::{Supervisor, makes_no_sense};
use super::target::wrong_event;
use crate::engine::Phase;
use crate::engine::lookout::{LOOKS, Late, Looks};
use crate::engine::protocol::{Command, Event};
use crate::plan::{Op, Part, Plan};

/// Time that the notification of a marked WRITE may be on its way, beyond the round trip of the question.
const NOTIFICATION_TIMEOUT_MS: u64 = 2000;
/// Share of the time of a case for its marked WRITEs.
const TIME_SHARE: u32 = 10;

/// The marked WRITEs of a part.
#[derive(Debug, Clone, Default)]
pub(super) struct Marked {
    /// How many were made.
    made: u64,
    /// What the target saw of them.
    pub(super) looks: Looks,
}

impl Marked {
    /// Those that the target got no notification of.
    pub(super) fn unnoticed(&self) -> Option<String> {
        let Self { made, looks } = self;
        let lost = made.saturating_sub(looks.looked);
        (lost > 0)
            .then(|| format!("{lost} of {made} notifications of marked WRITEs did not arrive at the target"))
    }

    fn is_fine(&self) -> bool {
        self.looks.late.is_none() && self.looks.mismatch.is_none() && self.made == self.looks.looked
    }
}

/// A late transfer in words, by the side that looked.
pub(super) struct Told(pub(super) Op, pub(super) Late);

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(op, Late { transfer, after_ns }) = self;
        let us = *after_ns as f64 / 1e3;
        match op {
            Op::Read => {
                write!(
                    f,
                    "transfer {transfer} was complete before its bytes were there; they came {us:.0} us later"
                )
            }
            Op::Write | Op::Both => write!(
                f,
                "the target had the notification of transfer {transfer} before its bytes; they came {us:.0} us later"
            ),
        }
    }
}

/// Makes marked WRITEs of all parts that write, each round after the answer to the one before, and gives what came of
/// them part by part.
///
/// # Errors
/// An engine or the peer failed, or answered something else.
pub(super) async fn look(
    supervisor: &mut Supervisor,
    plan: &Plan,
    parts: &[Part],
    epoch: u32,
) -> Result<Vec<Marked>, Stop> {
    let mut all = vec![Marked::default(); parts.len()];
    let writes: Vec<Part> = parts.iter().filter(|part| part.case.op == Op::Write).cloned().collect();
    let Some(first) = writes.first() else { return Ok(all) };
    let time = plan.time_of(&first.case) / TIME_SHARE;
    let deadline = plan.longest_command();
    match supervisor.ask(&Message::LookOut { parts: writes, epoch }, Phase::Looking, deadline).await? {
        Message::Done => {}
        _ => return Err(out_of_order()),
    }
    let begin = Instant::now();
    while mark(supervisor, parts, &mut all, deadline).await? {
        ask(supervisor, plan.ranks, parts, &mut all, deadline).await?;
        let enough = all.iter().any(|marked| marked.made >= LOOKS);
        if enough || begin.elapsed() >= time || !all.iter().all(Marked::is_fine) {
            break;
        }
    }
    Ok(all)
}

/// One round of all ranks. False when there is nothing that can be marked.
async fn mark(
    supervisor: &mut Supervisor,
    parts: &[Part],
    all: &mut [Marked],
    deadline: Duration,
) -> Result<bool, Stop> {
    let mut made = Vec::new();
    for event in supervisor.work_all(&Command::MarkWrites, Phase::Looking, deadline).await? {
        match event {
            Event::Marked(of_rank) => made.extend(of_rank),
            other => return Err(wrong_event(&other)),
        }
    }
    if made.len() != parts.len() {
        return Err(out_of_order());
    }
    all.iter_mut().zip(&made).for_each(|(marked, made)| marked.made += made);
    Ok(made.iter().any(|made| *made > 0))
}

/// What the target has seen of all rounds so far.
async fn ask(
    supervisor: &mut Supervisor,
    ranks: u32,
    parts: &[Part],
    all: &mut [Marked],
    deadline: Duration,
) -> Result<(), Stop> {
    let to = |rank: u32| {
        let there = parts.iter().zip(&*all).filter(|(part, _)| part.peer == rank);
        there.map(|(_, marked)| marked.made).sum()
    };
    let expected = (0..ranks).map(to).collect();
    let message = Message::Looked { expected, timeout_ms: NOTIFICATION_TIMEOUT_MS };
    let Message::Seen(seen) = supervisor.ask(&message, Phase::Looking, deadline).await? else {
        return Err(out_of_order());
    };
    let writing = parts.iter().zip(all).filter(|(part, _)| part.case.op == Op::Write);
    let mut seen = seen.into_iter();
    for (_, marked) in writing {
        marked.looks = seen.next().ok_or_else(out_of_order)?;
    }
    Ok(())
}

fn out_of_order() -> Stop {
    makes_no_sense("an answer to something that was not asked".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_transfer_says_who_looked_and_by_how_much_it_was_late() {
        let late = Late { transfer: 7, after_ns: 1_234_567 };
        assert_eq!(
            Told(Op::Read, late).to_string(),
            "transfer 7 was complete before its bytes were there; they came 1235 us later"
        );
        assert_eq!(
            Told(Op::Write, late).to_string(),
            "the target had the notification of transfer 7 before its bytes; they came 1235 us later"
        );
    }

    #[test]
    fn marked_writes_that_nobody_heard_of_are_counted() {
        let marked = |made, looked| Marked { made, looks: Looks { looked, ..Looks::default() } };
        assert_eq!(marked(3, 3).unnoticed(), None);
        assert!(marked(3, 3).is_fine() && !marked(3, 2).is_fine());
        assert!(marked(3, 1).unnoticed().unwrap().starts_with("2 of 3 "));
    }
}
