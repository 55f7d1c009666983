//! The test pattern: what is put into a source so that a destination can prove what reached it.
//!
//! Each 64-bit word is an invertible mix of its position in the source, the run's seed and an epoch. No two
//! positions hold the same word, every refill changes all of them, and from a word found in the wrong place
//! one can compute where and when it was written. A constant fill would hide both stale and swapped blocks.
//!
//! Words are little-endian in memory, so that two hosts agree on every byte. All functions work on
//! `&[AtomicU64]` with relaxed loads and stores, because a network adapter or another process may share the
//! memory.

mod diagnosis;
mod mismatch;
mod region;
mod stamp;
#[cfg(test)]
mod tests;
mod verify;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use thiserror::Error;

pub(crate) use mismatch::{Mismatch, MismatchKind, Place};
pub(crate) use region::{FarMemory, Region, Word, after};
pub(crate) use stamp::{EndWords, Stamp};
pub(crate) use verify::{Block, CheckError, Expected, verify};

/// Bytes in a word of the pattern, and the alignment of everything that is filled or checked.
pub(crate) const WORD_BYTES: u64 = 8;

/// Odd multipliers with well spread bits (the 64-bit golden ratio and a constant of David Stafford's mix 13).
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
const MIX: u64 = 0x94D0_49BB_1331_11EB;
const SPREAD_INVERSE: u64 = inverse(SPREAD);
const MIX_INVERSE: u64 = inverse(MIX);

/// Upper half of every poison word, whatever its salt.
const POISON_TAG: u64 = 0xDEAD_BEA7;

/// The inverse of an odd number modulo 2^64, by Newton's iteration (each step doubles the right bits, from 3
/// to 96).
const fn inverse(odd: u64) -> u64 {
    let mut guess = odd;
    let mut step = 0;
    while step < 5 {
        guess = guess.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(guess)));
        step += 1;
    }
    guess
}

/// Scrambles key material; run once a key, never once a word.
const fn scramble(value: u64) -> u64 {
    let x = value.wrapping_add(SPREAD);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(MIX);
    x ^ (x >> 31)
}

/// What decides the pattern apart from the position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    seed: u64,
    epoch: u32,
    shift: u64,
}

impl Key {
    /// The pattern of one filling: `seed` differs from run to run, `epoch` counts the fillings of a source in
    /// a run.
    pub(crate) const fn new(seed: u64, epoch: u32) -> Self {
        let shift = scramble(seed ^ scramble(epoch as u64));
        Self { seed, epoch, shift }
    }

    /// The same run at another epoch.
    pub(crate) const fn with_epoch(self, epoch: u32) -> Self {
        Self::new(self.seed, epoch)
    }

    /// The filling this key belongs to.
    pub(crate) const fn epoch(self) -> u32 {
        self.epoch
    }

    /// What is added to a position before it is mixed: all that a kernel needs to know of a key.
    pub(crate) const fn shift(self) -> u64 {
        self.shift
    }

    /// The word at `position`, counted in words from the start of the source region.
    #[inline]
    pub(crate) const fn word(self, position: u64) -> u64 {
        let x = position.wrapping_add(self.shift).wrapping_mul(SPREAD);
        let x = (x ^ (x >> 32)).wrapping_mul(MIX);
        x ^ (x >> 32)
    }

    /// The position at which this key writes `word`: the inverse of [`Key::word`]. Every word has one; only a
    /// position inside of the source means that the word really came from there.
    pub(crate) const fn position_of(self, word: u64) -> u64 {
        let x = (word ^ (word >> 32)).wrapping_mul(MIX_INVERSE);
        let x = (x ^ (x >> 32)).wrapping_mul(SPREAD_INVERSE);
        x.wrapping_sub(self.shift)
    }
}

/// The word that marks memory as not yet written; the salt makes one check's poison differ from the last
/// one's.
#[inline]
pub(crate) const fn poison_word(salt: u32) -> u64 {
    (POISON_TAG << 32) | (scramble(salt as u64) & 0xFFFF_FFFF)
}

/// Why a range cannot carry the pattern. Both are mistakes of the layout, not of the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum SpanError {
    /// The pattern is made of whole words.
    #[error("offset {0} is not a multiple of 8 bytes, and the test pattern is made of 8-byte words")]
    Unaligned(u64),
    /// The range leaves the region.
    #[error("{bytes} bytes at offset {start} leave a region of {region} bytes")]
    OutOfRegion { start: u64, bytes: u64, region: u64 },
}

/// A range of bytes of a region that starts on a word and may end inside one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span<'a> {
    whole: &'a [AtomicU64],
    partial: Option<(&'a AtomicU64, u64)>,
}

impl<'a> Span<'a> {
    /// `bytes` bytes from byte offset `start` of the region `words`.
    ///
    /// # Errors
    /// [`SpanError`] when the start is not on a word or the range leaves the region.
    pub(crate) fn of(words: &'a [AtomicU64], start: u64, bytes: u64) -> Result<Self, SpanError> {
        let first = word_index(start)?;
        let count = usize::try_from(bytes.div_ceil(WORD_BYTES)).unwrap_or(usize::MAX);
        let end = usize::try_from(first).unwrap_or(usize::MAX).saturating_add(count);
        let outside = SpanError::OutOfRegion { start, bytes, region: words.len() as u64 * WORD_BYTES };
        let all = words.get(end.saturating_sub(count)..end).ok_or(outside)?;
        let rest = bytes % WORD_BYTES;
        match all.split_last() {
            Some((last, whole)) if rest > 0 => Ok(Self { whole, partial: Some((last, low_bytes(rest))) }),
            _ => Ok(Self { whole: all, partial: None }),
        }
    }

    /// All words with the bits of each that belong to the range.
    fn masked(self) -> impl Iterator<Item = (&'a AtomicU64, u64)> {
        self.whole.iter().map(|word| (word, u64::MAX)).chain(self.partial)
    }
}

/// The word at byte offset `byte`.
fn word_index(byte: u64) -> Result<u64, SpanError> {
    if byte.is_multiple_of(WORD_BYTES) { Ok(byte / WORD_BYTES) } else { Err(SpanError::Unaligned(byte)) }
}

/// A mask of the first `count` (1 to 7) bytes of a little-endian word.
const fn low_bytes(count: u64) -> u64 {
    (1 << (count * 8)) - 1
}

/// Writes `bits` under `mask` and leaves the other bits alone. One writer at a time, as everywhere here.
fn store_masked(word: &AtomicU64, bits: u64, mask: u64) {
    let old = u64::from_le(word.load(Relaxed));
    word.store(((old & !mask) | (bits & mask)).to_le(), Relaxed);
}

/// Writes the pattern into `span`, whose first byte is byte `origin` of the source.
///
/// `origin` differs from the span's own offset only where the source is filled through a window.
///
/// # Errors
/// [`SpanError::Unaligned`] when `origin` is not a multiple of 8.
pub(crate) fn fill(span: Span<'_>, key: Key, origin: u64) -> Result<(), SpanError> {
    let mut position = word_index(origin)?;
    for word in span.whole {
        word.store(key.word(position).to_le(), Relaxed);
        position = position.wrapping_add(1);
    }
    if let Some((word, mask)) = span.partial {
        store_masked(word, key.word(position), mask);
    }
    Ok(())
}

/// Marks `span` as not yet written, so that bytes which never arrive cannot pass for bytes that did.
pub(crate) fn poison(span: Span<'_>, salt: u32) {
    let poisoned = poison_word(salt);
    for word in span.whole {
        word.store(poisoned.to_le(), Relaxed);
    }
    if let Some((word, mask)) = span.partial {
        store_masked(word, poisoned, mask);
    }
}
