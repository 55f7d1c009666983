//! Stamps: a proof for every single transfer, at the price of two words.
//!
//! The whole range is checked once a case. In between, the first and the last whole word of each transfer
//! carry the iteration, so that a transfer which moved nothing, or not to its end, is caught by looking at
//! two words.

use super::verify::Block;
use super::{Key, MIX, MIX_INVERSE, Region, SpanError, WORD_BYTES, Word, poison_word, word_index};

/// Iterations are multiplied by an odd number, so that a flipped bit does not look like another iteration.
const fn code(iteration: u32) -> u64 {
    (iteration as u64).wrapping_mul(MIX)
}

impl Key {
    /// The word at `position`, stamped with `iteration`. Iterations count from 1; 0 is the plain pattern.
    #[inline]
    pub(crate) const fn stamped_word(self, position: u64, iteration: u32) -> u64 {
        self.word(position) ^ code(iteration)
    }

    /// The iteration whose stamp at `position` reads `word`, if there is one.
    pub(super) fn iteration_of(self, position: u64, word: u64) -> Option<u32> {
        u32::try_from((word ^ self.word(position)).wrapping_mul(MIX_INVERSE)).ok()
    }
}

/// The indices of the first and the last whole word in `bytes` bytes at offset `start` (a multiple of 8) of a
/// region. They are one word for 8 to 15 bytes; below 8 bytes there is none.
#[inline]
pub(crate) const fn head_tail(start: u64, bytes: u64) -> Option<(usize, usize)> {
    if bytes < WORD_BYTES {
        return None;
    }
    let head = start / WORD_BYTES;
    Some((head as usize, (head + bytes / WORD_BYTES - 1) as usize))
}

/// Which two words of a transfer are stamped, as positions in the source, and with which iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Position of the first whole word.
    pub(crate) head: u64,
    /// Position of the last whole word.
    pub(crate) tail: u64,
    /// The last iteration that was stamped, from 1.
    pub(crate) iteration: u32,
}

impl Stamp {
    /// The bits that the stamp changes in the word at `position`.
    #[inline]
    pub(super) const fn bits_at(self, position: u64) -> u64 {
        if position == self.head || position == self.tail { self.bits() } else { 0 }
    }

    /// The bits that the stamp changes in both of its words.
    pub(crate) const fn bits(self) -> u64 {
        code(self.iteration)
    }
}

/// The first and the last whole word of one transfer, on one of its sides, found once before the loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndWords<'a> {
    head: Word<'a>,
    tail: Word<'a>,
    head_position: u64,
    tail_position: u64,
}

/// Which side of a transfer a region is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
}

impl<'a> EndWords<'a> {
    /// The end words of `blocks` in the source region.
    /// `None` when the first or the last block is shorter than a word.
    ///
    /// # Errors
    /// [`SpanError`] when the blocks do not fit the region.
    pub(crate) fn in_source(
        region: impl Into<Region<'a>>,
        blocks: &[Block],
    ) -> Result<Option<Self>, SpanError> {
        Self::find(region.into(), blocks, Side::Source)
    }

    /// The end words of `blocks` in the destination region.
    /// `None` when the first or the last block is shorter than a word.
    ///
    /// # Errors
    /// [`SpanError`] when the blocks do not fit the region.
    pub(crate) fn in_destination(
        region: impl Into<Region<'a>>,
        blocks: &[Block],
    ) -> Result<Option<Self>, SpanError> {
        Self::find(region.into(), blocks, Side::Destination)
    }

    fn find(region: Region<'a>, blocks: &[Block], side: Side) -> Result<Option<Self>, SpanError> {
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else {
            return Ok(None);
        };
        let ends = |block: &Block| {
            let offset = match side {
                Side::Source => block.source,
                Side::Destination => block.destination,
            };
            word_index(offset)?;
            word_index(block.source)?;
            let source = head_tail(block.source, block.bytes);
            let here = head_tail(offset, block.bytes);
            let outside = SpanError::OutOfRegion {
                start: offset,
                bytes: block.bytes,
                region: region.words() as u64 * WORD_BYTES,
            };
            let Some(((head, tail), positions)) = here.zip(source) else {
                return Ok(None);
            };
            let head = region.word(head).ok_or(outside)?;
            let tail = region.word(tail).ok_or(outside)?;
            Ok(Some((head, tail, positions)))
        };
        let (Some((head, _, (head_position, _))), Some((_, tail, (_, tail_position)))) =
            (ends(first)?, ends(last)?)
        else {
            return Ok(None);
        };
        Ok(Some(Self {
            head,
            tail,
            head_position: head_position as u64,
            tail_position: tail_position as u64,
        }))
    }

    /// Stamps both words with `iteration`: in the source, before a WRITE is posted.
    #[inline]
    pub(crate) fn stamp(self, key: Key, iteration: u32) {
        self.head.store(key.stamped_word(self.head_position, iteration).to_le());
        self.tail.store(key.stamped_word(self.tail_position, iteration).to_le());
    }

    /// Poisons both words: in the destination, before a READ is posted.
    #[inline]
    pub(crate) fn poison(self, salt: u32) {
        self.head.store(poison_word(salt).to_le());
        self.tail.store(poison_word(salt).to_le());
    }

    /// Whether both words are what `iteration` wrote (0: the plain pattern, for a READ of an unstamped
    /// source).
    #[inline]
    #[must_use]
    pub(crate) fn arrived(self, key: Key, iteration: u32) -> bool {
        let head = u64::from_le(self.head.load());
        let tail = u64::from_le(self.tail.load());
        head == key.stamped_word(self.head_position, iteration)
            && tail == key.stamped_word(self.tail_position, iteration)
    }

    /// What [`verify`](super::verify) is to expect in these two words after `iteration`.
    pub(crate) const fn as_stamp(self, iteration: u32) -> Stamp {
        Stamp { head: self.head_position, tail: self.tail_position, iteration }
    }
}
