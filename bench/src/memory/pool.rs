//! The registered memory of an engine, in host memory or on a GPU.

use std::rc::Rc;
use std::sync::Arc;

use nixl::HostMemory;

use super::GpuPool;
use super::pattern::{
    Block, CheckError, Expected, Key, Region, Span, SpanError, after, fill, poison, verify,
};

/// A pool. Clones share it.
#[derive(Clone, Debug)]
pub(crate) enum Pool {
    /// In host memory.
    Host(Arc<HostMemory>),
    /// On a GPU.
    Gpu(Rc<GpuPool>),
}

/// Why memory could not be made ready.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PoolError {
    /// The ranges do not fit the pool.
    #[error(transparent)]
    Layout(#[from] SpanError),
    /// The GPU failed.
    #[error("{0}")]
    Gpu(String),
}

impl Pool {
    /// Its words.
    pub(crate) fn region(&self) -> Region<'_> {
        match self {
            Self::Host(memory) => Region::Near(memory.words()),
            Self::Gpu(pool) => pool.region(),
        }
    }

    /// Looking at a single word takes longer than a small transfer: not in a timed loop.
    pub(crate) fn is_far(&self) -> bool {
        matches!(self, Self::Gpu(_))
    }

    /// Writes the pattern of `key` into ranges of bytes, as the source that they are. They, and what the pattern says of
    /// them, count from the byte `base` of the pool.
    ///
    /// # Errors
    /// A range does not fit the pool, or the GPU failed.
    pub(crate) fn fill(&self, base: u64, ranges: &[(u64, u64)], key: Key) -> Result<(), PoolError> {
        match self {
            Self::Host(memory) => ranges.iter().try_for_each(|&(offset, bytes)| {
                Ok(fill(Span::of(after(memory.words(), base), offset, bytes)?, key, offset)?)
            }),
            Self::Gpu(pool) => pool.fill(base, ranges, key),
        }
    }

    /// Marks ranges of bytes, counted from `base`, as not yet written.
    ///
    /// # Errors
    /// As [`Self::fill`].
    pub(crate) fn poison(&self, base: u64, ranges: &[(u64, u64)], salt: u32) -> Result<(), PoolError> {
        match self {
            Self::Host(memory) => ranges.iter().try_for_each(|&(offset, bytes)| {
                poison(Span::of(after(memory.words(), base), offset, bytes)?, salt);
                Ok(())
            }),
            Self::Gpu(pool) => pool.poison(base, ranges, salt),
        }
    }

    /// Compares what `blocks`, counted from `base`, must have brought, byte for byte; gives the number of bytes.
    ///
    /// # Errors
    /// The first difference with its diagnosis, or why nothing could be compared.
    pub(crate) fn verify(&self, base: u64, blocks: &[Block], expected: &Expected) -> Result<u64, CheckError> {
        match self {
            Self::Host(memory) => verify(after(memory.words(), base), blocks, expected),
            Self::Gpu(pool) => pool.verify(base, blocks, expected),
        }
    }
}
