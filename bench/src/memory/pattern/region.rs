//! Memory as words, wherever it lies.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Memory that the processor does not address: each word is a copy to or from it.
pub(crate) trait FarMemory: fmt::Debug {
    /// The word at `index`, as it lies in memory; 0 when it cannot be had. What keeps it from being had also fails the
    /// check of the whole range, and is reported there.
    fn load(&self, index: usize) -> u64;
    /// Writes the word at `index`.
    fn store(&self, index: usize, word: u64);
}

/// The words of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Region<'a> {
    /// Host memory.
    Near(&'a [AtomicU64]),
    /// Memory of a GPU, and how many words it has.
    Far(&'a dyn FarMemory, usize),
}

impl<'a> From<&'a [AtomicU64]> for Region<'a> {
    fn from(words: &'a [AtomicU64]) -> Self {
        Self::Near(words)
    }
}

impl<'a> Region<'a> {
    /// Its length in words.
    pub(crate) fn words(self) -> usize {
        match self {
            Self::Near(words) => words.len(),
            Self::Far(_, words) => words,
        }
    }

    /// One word of it.
    pub(crate) fn word(self, index: usize) -> Option<Word<'a>> {
        match self {
            Self::Near(words) => words.get(index).map(Word::Near),
            Self::Far(memory, words) => (index < words).then_some(Word::Far(memory, index)),
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
