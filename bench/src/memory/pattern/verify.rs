//! Comparing a destination with what was sent: one multiply-mix and one compare a word until something
//! differs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use thiserror::Error;

use super::diagnosis::{Compared, compare_block, diagnose};
use super::stamp::Stamp;
use super::{Key, Mismatch, Span, SpanError, word_index};

/// One descriptor of a transfer: where its bytes come from and where they must be afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Bytes from the start of the source region; a multiple of 8.
    pub(crate) source: u64,
    /// Bytes from the start of the destination region; a multiple of 8.
    pub(crate) destination: u64,
    /// Length in bytes.
    pub(crate) bytes: u64,
}

/// What a destination must hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// The key the source was filled with.
    pub(crate) key: Key,
    /// The salt the destination was poisoned with; only used to recognise bytes that were never written.
    pub(crate) poison_salt: u32,
    /// The stamp that the last transfer of the loop carried, if it carried one.
    pub(crate) stamp: Option<Stamp>,
}

impl Expected {
    /// The word that belongs to `position` of the source.
    #[inline]
    pub(super) const fn word(&self, position: u64) -> u64 {
        match self.stamp {
            Some(stamp) => self.key.word(position) ^ stamp.bits_at(position),
            None => self.key.word(position),
        }
    }
}

/// Why a check did not pass.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum CheckError {
    /// The blocks do not fit the region: nothing was compared.
    #[error("the data cannot be checked: {0}")]
    Layout(#[from] SpanError),
    /// The destination does not hold what was sent.
    #[error("{0}")]
    Data(Box<Mismatch>),
    /// The memory cannot be read: nothing was compared.
    #[error("the data cannot be checked: {0}")]
    Memory(String),
}

/// Compares the destination region `words` with what `blocks` must have brought there, byte for byte.
///
/// Returns the number of bytes that were compared. Bytes outside of the blocks are not looked at.
///
/// # Errors
/// [`CheckError::Data`] with a diagnosis of the first word that differs (in the order of the blocks);
/// [`CheckError::Layout`] when a block is not aligned to 8 bytes or leaves the region.
pub(crate) fn verify(words: &[AtomicU64], blocks: &[Block], expected: &Expected) -> Result<u64, CheckError> {
    let mut checked = 0_u64;
    for (index, block) in blocks.iter().enumerate() {
        let span = Span::of(words, block.destination, block.bytes)?;
        let first = word_index(block.source)?;
        if let Some((place, found)) = first_difference(span, first, expected) {
            // The word as it was then: it may have changed since, which is a diagnosis of its own.
            let wrong = compare_block(words, index, block, expected)?.nth(place);
            if let Some(wrong) = wrong.map(|word| Compared { found: found & word.mask, ..word }) {
                return Err(CheckError::Data(Box::new(diagnose(words, blocks, expected, wrong)?)));
            }
        }
        checked = checked.saturating_add(block.bytes);
    }
    Ok(checked)
}

/// The first word of `span` that differs, as its index and what it holds.
fn first_difference(span: Span<'_>, first: u64, expected: &Expected) -> Option<(usize, u64)> {
    let found = |word: &AtomicU64| u64::from_le(word.load(Relaxed));
    let position = |index: usize| first.wrapping_add(index as u64);
    // Stamps only concern two words. They are looked at apart, so that the long loop compares with the plain
    // pattern.
    let ends = expected.stamp.map(|stamp| [stamp.head, stamp.tail]).into_iter().flatten();
    let wrong_end = ends
        .filter_map(|end| usize::try_from(end.checked_sub(first)?).ok())
        .filter_map(|index| Some((index, found(span.whole.get(index)?))))
        .find(|(index, word)| *word != expected.word(position(*index)));
    let wrong =
        span.whole.iter().enumerate().map(|(index, word)| (index, found(word))).find(|(index, word)| {
            *word != expected.key.word(position(*index)) && *word != expected.word(position(*index))
        });
    let partial = || {
        let (word, mask) = span.partial?;
        let (index, word) = (span.whole.len(), found(word));
        ((word ^ expected.word(position(index))) & mask != 0).then_some((index, word))
    };
    wrong_end.into_iter().chain(wrong).min_by_key(|(index, _)| *index).or_else(partial)
}
