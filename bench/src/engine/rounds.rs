//! KV blocks in the engine: placements in turn, descriptor numbers from block ids, and the check of what arrived.

use nixl::{Agent, Transfer, TransferOptions};

use std::rc::Rc;

use super::case::Lists;
use super::protocol::{Check, EngineError, Verified};
use super::session::{Session, layout, nixl_failed};
use crate::memory::pattern::{EndWords, Key, Mismatch, MismatchKind};
use crate::plan::{Op, Part};
use crate::workload::{Claimed, KvShape, Placement, Where, place};

/// The placements of one prompt, and the descriptor numbers of the transfer that is made next.
pub(crate) struct Rounds<'a> {
    part: &'a Part,
    shape: &'a KvShape,
    slot: u32,
    placements: Rc<[Placement]>,
    ends: Vec<Option<EndWords<'a>>>,
    current: usize,
    source: Vec<i32>,
    destination: Vec<i32>,
}

impl<'a> Rounds<'a> {
    /// All placements of `slot`. Everything that the timed loop needs is allocated here.
    ///
    /// # Errors
    /// The shape does not fit the pool.
    pub(crate) fn new(
        session: &'a Session<'_>,
        part: &'a Part,
        shape: &'a KvShape,
        slot: u32,
    ) -> Result<Self, EngineError> {
        let words = session.words(part);
        let placements: Rc<[Placement]> =
            (0..shape.placements).map(|round| place(shape, session.plan.seed, slot, round)).collect();
        let ends = placements.iter().map(|placement| {
            let ends = shape.ends_of(slot, placement);
            match part.case.op {
                Op::Read => EndWords::in_destination(words, &ends),
                Op::Write | Op::Both => EndWords::in_source(words, &ends),
            }
        });
        let ends = ends.collect::<Result<_, _>>().map_err(layout)?;
        let descriptors = usize::try_from(shape.descriptors(slot)).unwrap_or(usize::MAX);
        let (source, destination) = (Vec::with_capacity(descriptors), Vec::with_capacity(descriptors));
        let mut rounds = Self { part, shape, slot, placements, ends, current: 0, source, destination };
        rounds.fill();
        Ok(rounds)
    }

    /// Whether every placement has words to mark.
    pub(crate) fn have_ends(&self) -> bool {
        self.ends.iter().all(Option::is_some)
    }

    /// Takes the placement of a transfer. Returns its end words. `mark`: the transfers carry marks.
    pub(crate) fn turn(&mut self, iteration: u32, key: Key, mark: bool) -> Option<EndWords<'a>> {
        let round = |iteration: u32| (iteration % self.shape.placements) as usize;
        if mark
            && self.part.case.op == Op::Write
            && let Some(ends) = self.ends[round(iteration.wrapping_sub(1))]
        {
            // The marks of the transfer before must not travel as data of this one.
            ends.stamp(key, 0);
        }
        self.current = round(iteration);
        self.ends[self.current]
    }

    /// The descriptor numbers of the current placement, from its block ids.
    fn fill(&mut self) {
        if let Some(placement) = self.placements.get(self.current) {
            self.shape.fill_indices(self.slot, placement, &mut self.source, &mut self.destination);
        }
    }

    /// Makes the request of the current placement from its block ids.
    ///
    /// # Errors
    /// NIXL refused.
    pub(crate) fn make(
        &mut self,
        agent: &'a Agent,
        lists: &'a Lists<'a>,
        options: &TransferOptions,
    ) -> Result<Transfer<'a>, EngineError> {
        self.fill();
        let (op, local, remote) = match self.part.case.op {
            Op::Read => (nixl::Op::Read, &self.destination, &self.source),
            Op::Write | Op::Both => (nixl::Op::Write, &self.source, &self.destination),
        };
        agent.make_transfer(op, &lists.local, local, &lists.remote, remote, options).map_err(nixl_failed)
    }

    /// Checks the blocks of the current placement.
    ///
    /// # Errors
    /// The shape does not fit the pool.
    pub(crate) fn check(
        &self,
        session: &Session<'_>,
        epoch: u32,
    ) -> Result<Result<u64, Mismatch>, EngineError> {
        let Some(placement) = self.placements.get(self.current) else { return Ok(Ok(0)) };
        let blocks = self.shape.pieces_of(self.slot, placement, &mut Claimed::none(self.shape));
        let checked = session.check_blocks(self.part, &blocks, epoch, None)?;
        Ok(checked.map_err(|mismatch| named(self.shape, mismatch)))
    }
}

/// Compares every block of the decode side with what the last transfer that moved it must have brought there.
///
/// Placements overlap, so the transfers of each slot are looked at from the last one back: a block that a later one has
/// written is not expected to hold what an earlier one brought.
///
/// # Errors
/// The shape does not fit the pool.
pub(crate) fn verify(
    session: &Session<'_>,
    check: &Check,
    shape: &KvShape,
    epoch: u32,
) -> Result<Verified, EngineError> {
    let Check { part, stamps } = check;
    let words = session.words(part);
    let mut claimed = Claimed::none(shape);
    let mut bytes = 0;
    for (slot, end) in (0..shape.slots()).zip(stamps) {
        for back in 0..end.transfers.min(shape.placements) {
            let iteration = end.iteration.wrapping_sub(back);
            let placement = place(shape, session.plan.seed, slot, iteration % shape.placements);
            let stamp = if end.stamped {
                let ends =
                    EndWords::in_destination(words, &shape.ends_of(slot, &placement)).map_err(layout)?;
                ends.map(|ends| ends.as_stamp(iteration))
            } else {
                None
            };
            let blocks = shape.pieces_of(slot, &placement, &mut claimed);
            match session.check_blocks(part, &blocks, epoch, stamp)? {
                Ok(checked) => bytes += checked,
                Err(mismatch) => {
                    // Only the last transfer is compared whole, so that its descriptors count from the first.
                    let descriptor = mismatch.descriptor.filter(|_| back == 0);
                    let mismatch = named(shape, Mismatch { descriptor, ..mismatch });
                    return Ok(Verified { bytes, mismatch: Some(mismatch) });
                }
            }
        }
    }
    Ok(Verified { bytes, mismatch: None })
}

/// A mismatch with its place in the KV cache.
fn named(shape: &KvShape, mismatch: Mismatch) -> Mismatch {
    let belongs_to = match mismatch.kind {
        MismatchKind::Elsewhere { source_offset, .. } => shape.place_at(Where::Source, source_offset),
        _ => None,
    };
    Mismatch { place: shape.place_at(Where::Destination, mismatch.byte_offset), belongs_to, ..mismatch }
}
