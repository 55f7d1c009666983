//! Memory as words, wherever it lies.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::WORD_BYTES;

/// Memory that the processor does not address: each word is a copy to or from it.
pub(crate) trait FarMemory: fmt::Debug {
    /// The word at `index`, as it lies in memory; 0 when it cannot be had. What keeps it from being had also fails the
    /// check of the whole range, and is reported there.
    fn load(&self, index: usize) -> u64;
    /// Writes the word at `index`.
    fn store(&self, index: usize, word: u64);
}

/// The words from a byte on; none beyond the end.
pub(crate) fn after(words: &[AtomicU64], base: u64) -> &[AtomicU64] {
    words.get(word_of(base)..).unwrap_or_default()
}

fn word_of(byte: u64) -> usize {
    usize::try_from(byte / WORD_BYTES).unwrap_or(usize::MAX)
}

/// The words of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Region<'a> {
    /// Host memory.
    Near(&'a [AtomicU64]),
    /// Memory of a GPU: the index of the first word, and how many there are from it on.
    Far(&'a dyn FarMemory, usize, usize),
}

impl<'a> From<&'a [AtomicU64]> for Region<'a> {
    fn from(words: &'a [AtomicU64]) -> Self {
        Self::Near(words)
    }
}

impl<'a> Region<'a> {
    /// What is left of it from a byte on. Beyond its end there is no memory: whatever is done there is refused.
    pub(crate) fn after_byte(self, base: u64) -> Self {
        match self {
            Self::Near(words) => Self::Near(after(words, base)),
            Self::Far(memory, first, words) => {
                let begin = word_of(base).min(words);
                Self::Far(memory, first + begin, words - begin)
            }
        }
    }

    /// Its length in words.
    pub(crate) fn words(self) -> usize {
        match self {
            Self::Near(words) => words.len(),
            Self::Far(_, _, words) => words,
        }
    }

    /// One word of it.
    pub(crate) fn word(self, index: usize) -> Option<Word<'a>> {
        match self {
            Self::Near(words) => words.get(index).map(Word::Near),
            Self::Far(memory, first, words) => (index < words).then_some(Word::Far(memory, first + index)),
        }
    }
}

/// One word of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Word<'a> {
    /// In host memory.
    Near(&'a AtomicU64),
    /// In memory of a GPU.
    Far(&'a dyn FarMemory, usize),
}

impl Word<'_> {
    /// What it holds, as it lies in memory.
    #[inline]
    pub(crate) fn load(self) -> u64 {
        match self {
            Self::Near(word) => word.load(Relaxed),
            Self::Far(memory, index) => memory.load(index),
        }
    }

    /// The same, before everything that is read after it.
    pub(crate) fn load_first(self) -> u64 {
        match self {
            Self::Near(word) => word.load(Acquire),
            Self::Far(memory, index) => memory.load(index),
        }
    }

    /// Writes it.
    #[inline]
    pub(crate) fn store(self, value: u64) {
        match self {
            Self::Near(word) => word.store(value, Relaxed),
            Self::Far(memory, index) => memory.store(index, value),
        }
    }

    /// The same, after everything that was written before it.
    pub(crate) fn store_last(self, value: u64) {
        match self {
            Self::Near(word) => word.store(value, Release),
            Self::Far(memory, index) => memory.store(index, value),
        }
    }
}
