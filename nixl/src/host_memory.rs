//! Host memory for transfers: page aligned, zeroed, never moved.

use std::fmt;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::error::{Error, Result};
use crate::memory::{Memory, MemoryKind};

/// When the pages of new host memory are backed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Populate {
    /// At once, so that no page fault falls into a measurement.
    Now,
    /// At the first touch of each page.
    OnTouch,
}

/// An anonymous mapping of zeroed memory. It is unmapped when dropped.
///
/// It is read and written as atomic words, because a peer may write at any time: a `Relaxed` access may see an old or
/// a new word, and is never undefined.
pub struct HostMemory {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping has no thread of its own, and all access from Rust is by atomics.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Maps `bytes`, rounded up to whole words of eight bytes.
    ///
    /// # Errors
    /// [`Error::Allocation`] when the system refuses, or for no bytes at all.
    pub fn new(bytes: usize, populate: Populate) -> Result<Self> {
        let memory = Self::map(bytes, MapFlags::PRIVATE)?;
        // Cross-memory attach and RDMA pin page by page: with huge pages, as UCX takes for memory of its own, that is
        // 512 times fewer. Ignored where the kernel has none to give.
        // SAFETY: the range is the mapping, and the advice changes nothing that Rust can see.
        let _ = unsafe { madvise(memory.start.as_ptr().cast(), memory.len(), Advice::LinuxHugepage) };
        if populate == Populate::Now {
            memory.populate();
        }
        Ok(memory)
    }

    /// Maps `bytes`, rounded up to 2 MiB, in huge pages that the administrator has set aside, and touches them.
    ///
    /// # Errors
    /// [`Error::Allocation`] when there are not as many.
    pub fn in_huge_pages(bytes: usize) -> Result<Self> {
        const HUGE: usize = 2 << 20;
        let rounded = bytes.checked_next_multiple_of(HUGE).unwrap_or(usize::MAX);
        let memory = Self::map(rounded, MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB)?;
        memory.populate();
        Ok(memory)
    }

    fn map(bytes: usize, flags: MapFlags) -> Result<Self> {
        let refused = |source: rustix::io::Errno| Error::Allocation { bytes, source: source.into() };
        let words = bytes.div_ceil(size_of::<u64>());
        let len = words.checked_mul(size_of::<u64>()).ok_or(refused(rustix::io::Errno::NOMEM))?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: without a wanted address the kernel chooses unused pages.
        let start = unsafe { mmap_anonymous(null_mut(), len, protection, flags) }.map_err(refused)?;
        let start = NonNull::new(start.cast()).ok_or(refused(rustix::io::Errno::NOMEM))?;
        Ok(Self { start, words })
    }

    /// Touches each page once.
    fn populate(&self) {
        const PAGE_WORDS: usize = 4096 / size_of::<u64>();
        for word in self.words().iter().step_by(PAGE_WORDS) {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// The memory as words, in its own order of bytes.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping holds that many words, is page aligned, and lives as long as `self`; whoever else writes
        // to it does so outside of Rust's model or by atomics.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is our own, and registrations keep the value alive while NIXL knows the range.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.words * size_of::<u64>()) };
        debug_assert!(unmapped.is_ok());
    }
}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostMemory").field("address", &self.start).field("len", &self.len()).finish()
    }
}

// SAFETY: the range is one mapping for the whole life of the value, and only atomics refer to it.
unsafe impl Memory for HostMemory {
    fn address(&self) -> usize {
        self.start.as_ptr().addr()
    }

    fn len(&self) -> usize {
        self.words * size_of::<u64>()
    }

    fn kind(&self) -> MemoryKind {
        MemoryKind::Dram
    }

    fn device(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn is_zeroed_aligned_and_rounded_up_to_words() {
        for populate in [Populate::Now, Populate::OnTouch] {
            let memory = HostMemory::new(4097, populate).unwrap();
            assert_eq!(memory.len(), 4104);
            assert_eq!(memory.address() % 4096, 0);
            assert!(memory.words().iter().all(|word| word.load(Ordering::Relaxed) == 0));
        }
    }

    #[test]
    fn a_refused_allocation_names_the_size() {
        for bytes in [0, usize::MAX, 1 << 62] {
            let error = HostMemory::new(bytes, Populate::OnTouch).unwrap_err();
            assert!(matches!(error, Error::Allocation { bytes: asked, .. } if asked == bytes), "{error}");
        }
    }
}
