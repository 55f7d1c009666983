//! From the first wrong word to an explanation. Runs once, after a check has failed, and so may be slow.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::verify::{Block, Expected};
use super::{
    Key, Mismatch, MismatchKind, POISON_TAG, Place, Span, SpanError, WORD_BYTES, poison_word, word_index,
};

/// Earlier fillings of the source that a stale word is compared with.
const EPOCHS_BACK: u32 = 64;

/// A position counts as a place in this run's memory below 1 TiB. A random word falls below it, for any of
/// the compared epochs, about once in two million times.
const LARGEST_SOURCE_WORDS: u64 = (1 << 40) / WORD_BYTES;

/// Iterations that a stamp of an earlier epoch may carry.
const PLAUSIBLE_ITERATIONS: u32 = 1 << 30;

/// One word of the destination beside what it should be, both with the bits of the transfer only.
#[derive(Clone, Copy)]
pub(super) struct Compared {
    /// Index of its block.
    pub(super) block: usize,
    /// Index in its block.
    pub(super) index: u64,
    /// Index in the source.
    pub(super) position: u64,
    pub(super) expected: u64,
    pub(super) found: u64,
    /// The bits that belong to the transfer.
    pub(super) mask: u64,
}

impl Compared {
    /// Where it stands in the order of the transfer.
    fn place(&self) -> (usize, u64) {
        (self.block, self.index)
    }

    /// Byte in the word of the first difference.
    fn first_wrong_byte(&self) -> u64 {
        u64::from((self.expected ^ self.found).trailing_zeros() / 8)
    }

    fn is_whole(&self) -> bool {
        self.mask == u64::MAX
    }
}

/// All words of one block.
pub(super) fn compare_block<'a>(
    words: &'a [AtomicU64],
    index: usize,
    block: &Block,
    expected: &'a Expected,
) -> Result<impl Iterator<Item = Compared> + use<'a>, SpanError> {
    let span = Span::of(words, block.destination, block.bytes)?;
    let first = word_index(block.source)?;
    Ok((0_u64..).zip(span.masked()).map(move |(word_index, (word, mask))| {
        let position = first.wrapping_add(word_index);
        Compared {
            block: index,
            index: word_index,
            position,
            expected: expected.word(position) & mask,
            found: u64::from_le(word.load(Relaxed)) & mask,
            mask,
        }
    }))
}

/// Explains `first`, the first word that differs.
pub(super) fn diagnose(
    words: &[AtomicU64],
    blocks: &[Block],
    expected: &Expected,
    first: Compared,
) -> Result<Mismatch, SpanError> {
    let mut wrong_bytes = 0;
    let mut run_bytes = 0;
    let mut run_goes_on = true;
    let mut arrived_since = false;
    let mut all = Vec::with_capacity(blocks.len());
    for (index, block) in blocks.iter().enumerate() {
        all.push(compare_block(words, index, block, expected)?);
    }
    for compared in all.into_iter().flatten() {
        wrong_bytes += differing_bytes(compared.expected ^ compared.found);
        if compared.place() < first.place() {
            continue;
        }
        if compared.place() == first.place() {
            arrived_since = compared.found == compared.expected;
        }
        if run_goes_on {
            let bytes = poisoned_bytes(&compared, expected.poison_salt, run_bytes == 0);
            run_bytes += bytes;
            run_goes_on = bytes > 0;
        }
    }
    let kind = if arrived_since {
        MismatchKind::Late
    } else {
        untouched(&first, run_bytes, run_goes_on, expected.poison_salt)
            .unwrap_or_else(|| recognise(&first, blocks, expected))
    };
    let offset = first.index * WORD_BYTES + first.first_wrong_byte();
    Ok(Mismatch {
        byte_offset: blocks.get(first.block).map_or(0, |block| block.destination) + offset,
        descriptor: Some(Place { index: first.block as u64, offset }),
        expected: first.expected,
        found: first.found,
        checked_bytes: blocks.iter().map(|block| block.bytes).sum(),
        wrong_bytes,
        kind,
        place: None,
        belongs_to: None,
    })
}

/// Bytes in which two words differ, from their exclusive or.
fn differing_bytes(difference: u64) -> u64 {
    difference.to_le_bytes().iter().filter(|byte| **byte != 0).count() as u64
}

/// How many bytes of the word, up to its end, are poison. In the first word of a run the poison may begin
/// inside.
fn poisoned_bytes(compared: &Compared, salt: u32, begins: bool) -> u64 {
    let valid = u64::from(compared.mask.count_ones() / 8);
    if !begins {
        return if is_poison(compared, salt) { valid } else { 0 };
    }
    let from = compared.first_wrong_byte();
    if from >= valid {
        return 0;
    }
    let rest = u64::MAX << (from * 8) & compared.mask;
    let ends_in_poison = compared.found & rest == poison_word(salt) & rest;
    if ends_in_poison || is_poison(compared, salt) { valid - from } else { 0 }
}

/// Poison of this check, or a whole word of an earlier check's.
fn is_poison(compared: &Compared, salt: u32) -> bool {
    compared.found == poison_word(salt) & compared.mask
        || (compared.is_whole() && compared.found >> 32 == POISON_TAG)
}

/// `Untouched`, when the first wrong word is poison, or when it ends in poison and more follows.
fn untouched(first: &Compared, bytes: u64, to_the_end: bool, salt: u32) -> Option<MismatchKind> {
    // One or two bytes alone equal poison by chance too often to call them that.
    let convincing = is_poison(first, salt) || bytes > WORD_BYTES || (to_the_end && bytes >= 3);
    (bytes > 0 && convincing).then_some(MismatchKind::Untouched { bytes, to_the_end })
}

/// What a word that is not poison looks like.
fn recognise(word: &Compared, blocks: &[Block], expected: &Expected) -> MismatchKind {
    if word.found == 0 {
        return MismatchKind::Zero;
    }
    stale(word, expected).or_else(|| elsewhere(word, blocks, expected)).unwrap_or_else(|| turned_bits(word))
}

/// Keys of this filling and of those before it, newest first.
fn keys_back(key: Key) -> impl Iterator<Item = Key> {
    let oldest = key.epoch().saturating_sub(EPOCHS_BACK);
    (oldest..=key.epoch()).rev().map(move |epoch| key.with_epoch(epoch))
}

/// The right position, written earlier.
fn stale(word: &Compared, expected: &Expected) -> Option<MismatchKind> {
    let stamp = expected.stamp.filter(|stamp| stamp.bits_at(word.position) != 0);
    if let Some(stamp) = stamp.filter(|_| word.is_whole()) {
        let iteration = expected.key.iteration_of(word.position, word.found);
        if let Some(iteration) = iteration.filter(|found| *found < stamp.iteration) {
            return Some(MismatchKind::StaleTransfer { iteration });
        }
    }
    // Less than half a word matches one of 64 older epochs by chance too often.
    if word.mask.count_ones() < 32 {
        return None;
    }
    let older = |key: &Key| {
        let plain = key.word(word.position) & word.mask == word.found;
        let marked = stamp.is_some()
            && key
                .iteration_of(word.position, word.found)
                .is_some_and(|iteration| iteration < PLAUSIBLE_ITERATIONS);
        plain || marked
    };
    let key = keys_back(expected.key).skip(1).find(older)?;
    Some(MismatchKind::Stale { epoch: key.epoch() })
}

/// A word of this run that belongs to another position.
fn elsewhere(word: &Compared, blocks: &[Block], expected: &Expected) -> Option<MismatchKind> {
    if !word.is_whole() {
        return None;
    }
    let stamped_end = expected
        .stamp
        .and_then(|stamp| [stamp.head, stamp.tail].into_iter().find(|end| expected.word(*end) == word.found))
        .map(|position| (position, expected.key));
    let (position, key) = stamped_end.or_else(|| {
        keys_back(expected.key)
            .map(|key| (key.position_of(word.found), key))
            .find(|(position, _)| *position < LARGEST_SOURCE_WORDS)
    })?;
    let source_offset = position * WORD_BYTES;
    Some(MismatchKind::Elsewhere {
        source_offset,
        descriptor: descriptor_of(blocks, source_offset),
        stale_epoch: (key != expected.key).then_some(key.epoch()),
    })
}

/// The descriptor whose source covers a byte.
fn descriptor_of(blocks: &[Block], source_offset: u64) -> Option<Place> {
    (0_u64..).zip(blocks).find_map(|(index, block)| {
        let offset = source_offset.checked_sub(block.source)?;
        (offset < block.bytes).then_some(Place { index, offset })
    })
}

/// A few wrong bits are a flip; more than one in eight are something else altogether.
fn turned_bits(word: &Compared) -> MismatchKind {
    let bits = (word.expected ^ word.found).count_ones();
    if bits <= word.mask.count_ones() / 8 { MismatchKind::BitFlip { bits } } else { MismatchKind::Garbage }
}
