//! The target's look-out for marked WRITEs: are the marks of a transfer in memory when its notification is taken?
//!
//! A WRITE completes where it began. Whether its bytes are there when the other side hears of it, only the other side
//! can see. Each marked WRITE carries its number in its first and its last word, and in a notification that says where
//! these words arrive. The initiator makes the next one only after the answer to the last, so that none is overwritten
//! before it was looked at. The answer does not come over the wire: a READ of it could push bytes along that are late.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::protocol::{Check, EngineError, SlotEnd};
use super::session::{Session, blocks, layout, out_of_order};
use crate::memory::Pool;
use crate::memory::pattern::{Block, EndWords, Key, Mismatch};
use crate::plan::{Case, Op, Part};
use crate::workload::place;

/// Transfers of a part that are looked at one by one beside the timed loop, at most.
pub(crate) const LOOKS: u64 = 64;
/// Words that are not there at first are waited for so long, to tell late bytes from lost ones.
pub(super) const LATE_WITHIN: Duration = Duration::from_millis(1500);
/// How a notification of a marked transfer begins.
const PREFIX: &str = "kvwire-mark ";

/// A transfer that was complete before its bytes were there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Late {
    /// Its number in its slot.
    pub(crate) transfer: u32,
    /// From the look that missed its bytes to the one that found them, in nanoseconds.
    pub(crate) after_ns: u64,
}

/// What the marked transfers of a part showed at the side that their bytes arrived on.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Looks {
    /// Marked transfers that were looked at as their notification was taken.
    pub(crate) looked: u64,
    /// The first whose bytes came after its notification.
    pub(crate) late: Option<Late>,
    /// What is wrong with the first whose bytes did not come.
    pub(crate) mismatch: Option<Mismatch>,
}

/// What a notification says of its transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    /// Rank of the initiator that made it.
    pub(super) rank: u32,
    /// Where the memory of its part begins.
    pub(super) base: u64,
    pub(super) slot: u32,
    /// Its number in the slot.
    pub(super) transfer: u32,
}

impl Mark {
    pub(super) fn notification(self) -> Vec<u8> {
        let Self { rank, base, slot, transfer } = self;
        format!("{PREFIX}{rank} {base} {slot} {transfer}").into_bytes()
    }

    /// `None` for any other notification.
    pub(super) fn of(message: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(message).ok()?.strip_prefix(PREFIX)?.split(' ');
        let rank = words.next()?.parse().ok()?;
        let base = words.next()?.parse().ok()?;
        let (slot, transfer) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        words.next().is_none().then_some(Self { rank, base, slot, transfer })
    }
}

/// The parts whose marked transfers are looked at.
#[derive(Debug)]
pub(crate) struct Lookout {
    pool: Pool,
    watched: Vec<Watched>,
    /// Marks that were not there, by the number of their part, and since when they are waited for.
    missing: Vec<(usize, Mark, Instant)>,
}

#[derive(Debug)]
struct Watched {
    part: Part,
    key: Key,
    /// The first and the last block of each slot that may be marked, in each of its placements.
    ends: Vec<Vec<Vec<Block>>>,
    looked: u64,
    late: Option<Late>,
    lost: Option<Mark>,
}

impl Lookout {
    /// Knows from now on where the marks of these parts will be. Looking must take no longer than it has to.
    ///
    /// # Errors
    /// A part does not fit the pool.
    pub(super) fn new(session: &Session<'_>, parts: &[Part], epoch: u32) -> Result<Self, EngineError> {
        let watch = |part: &Part| {
            let ends = ends_of(session, part)?;
            for blocks in ends.iter().flatten() {
                EndWords::in_destination(session.words(part), blocks).map_err(layout)?;
            }
            let key = session.key(part, epoch);
            Ok(Watched { part: part.clone(), key, ends, looked: 0, late: None, lost: None })
        };
        let watched = parts.iter().map(watch).collect::<Result<_, EngineError>>()?;
        Ok(Self { pool: session.pool.clone(), watched, missing: Vec::new() })
    }

    /// Looks at what a notification belongs to. One of another case is none of ours.
    pub(super) fn look(&mut self, mark: Mark) {
        let ours = |watched: &Watched| watched.part.rank == mark.rank && watched.part.base == mark.base;
        let Some(number) = self.watched.iter().position(ours) else { return };
        let watched = &mut self.watched[number];
        let Some(there) = watched.arrived(&self.pool, mark) else { return };
        watched.looked += 1;
        if !there {
            self.missing.push((number, mark, Instant::now()));
        }
    }

    /// Looks again at what was not there. Called between calls that progress NIXL, which late bytes may need.
    pub(super) fn look_again(&mut self) {
        let (pool, watched) = (&self.pool, &mut self.watched);
        self.missing.retain(|&(number, mark, since)| {
            let (watched, waited) = (&mut watched[number], since.elapsed());
            if watched.arrived(pool, mark) == Some(true) {
                let late = Late { transfer: mark.transfer, after_ns: super::timed_ns(waited) };
                watched.late.get_or_insert(late);
                return false;
            }
            if waited > LATE_WITHIN {
                watched.lost.get_or_insert(mark);
            }
            waited <= LATE_WITHIN
        });
    }

    /// Whether marks are waited for that were not there.
    pub(super) fn is_waiting(&self) -> bool {
        !self.missing.is_empty()
    }

    /// Marked transfers of all parts that were looked at.
    pub(super) fn looked(&self) -> u64 {
        self.watched.iter().map(|watched| watched.looked).sum()
    }

    /// What was seen, part by part.
    ///
    /// # Errors
    /// The memory cannot be compared.
    pub(super) fn judge(&self, session: &Session<'_>) -> Result<Vec<Looks>, EngineError> {
        self.watched.iter().map(|watched| watched.judge(session)).collect()
    }
}

impl Watched {
    /// Whether the marks of a transfer are in memory; `None` for one that cannot be.
    fn arrived(&self, pool: &Pool, mark: Mark) -> Option<bool> {
        let placements = self.ends.get(mark.slot as usize)?;
        let blocks = placements.get(mark.transfer as usize % placements.len().max(1))?;
        let region = pool.region().after_byte(self.part.base);
        let ends = EndWords::in_destination(region, blocks).ok().flatten()?;
        Some(ends.arrived(self.key, mark.transfer))
    }

    fn judge(&self, session: &Session<'_>) -> Result<Looks, EngineError> {
        let mut looks = Looks { looked: self.looked, late: self.late, mismatch: None };
        let Some(Mark { slot, transfer, .. }) = self.lost else { return Ok(looks) };
        let (part, epoch) = (&self.part, self.key.epoch());
        looks.mismatch = match &part.case.kv {
            None => session.check_slot(part, epoch, slot, Some(transfer))?.err(),
            Some(shape) => {
                // That transfer alone: the others of its case have been checked before.
                let end = |number: u32| SlotEnd {
                    iteration: transfer,
                    transfers: u32::from(number == slot),
                    stamped: true,
                };
                let check = Check { part: part.clone(), stamps: (0..shape.slots()).map(end).collect() };
                super::rounds::verify(session, &check, shape, epoch)?.mismatch
            }
        };
        if looks.mismatch.is_none() {
            let late = Late { transfer, after_ns: super::timed_ns(LATE_WITHIN) };
            looks.late.get_or_insert(late);
        }
        Ok(looks)
    }
}

/// Slots of a part that are marked.
pub(super) fn marked_slots(case: &Case, depth: u32) -> u32 {
    case.slots(depth).min(LOOKS as u32)
}

fn ends_of(session: &Session<'_>, part: &Part) -> Result<Vec<Vec<Vec<Block>>>, EngineError> {
    if part.case.op != Op::Write {
        return Err(out_of_order("a look at transfers that do not arrive here"));
    }
    let slots = 0..marked_slots(&part.case, session.plan.depth);
    let Some(shape) = &part.case.kv else {
        return Ok(slots.map(|slot| vec![ends(&blocks(&part.case, slot))]).collect());
    };
    session.check_shape(part, shape)?;
    let placed = |slot: u32, round: u32| {
        let placement = place(shape, session.plan.seed, slot, round);
        shape.ends_of(slot, &placement)
    };
    Ok(slots.map(|slot| (0..shape.placements).map(|round| placed(slot, round)).collect()).collect())
}

/// The first and the last of some blocks.
fn ends(blocks: &[Block]) -> Vec<Block> {
    blocks.first().into_iter().chain(blocks.last()).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_back_and_nothing_else_is_one() {
        let mark = Mark { rank: 3, base: 1 << 40, slot: 63, transfer: u32::MAX };
        assert_eq!(Mark::of(&mark.notification()), Some(mark));
        for other in ["kvwire3", "kvwire-mark 1 2 3", "kvwire-mark 1 2 3 4 5", "kvwire-mark 1 2 3 -4", ""] {
            assert_eq!(Mark::of(other.as_bytes()), None, "{other}");
        }
        assert_eq!(Mark::of(&[0xff, 0xfe]), None);
    }
}
