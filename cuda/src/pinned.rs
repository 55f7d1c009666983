//! Host memory that a GPU copies from and to at the full speed of its link: other pages the driver copies once more.

use std::ffi::c_void;
use std::fmt;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::context::Context;
use crate::error::{Error, Result};

/// Page-locked host memory. It is freed when dropped.
pub struct PinnedMemory {
    context: Arc<Context>,
    start: NonNull<AtomicU64>,
    words: usize,
}

impl PinnedMemory {
    /// Allocates whole words of 8 bytes, at most `bytes` bytes of them.
    ///
    /// # Errors
    /// The driver is too old for it, or the host has not so much memory that can be locked.
    pub fn new(context: &Arc<Context>, bytes: usize) -> Result<Self> {
        let missing =
            Error::Unsupported { symbol: "cuMemAllocHost_v2", needed_for: "page-locked host memory" };
        let alloc = context.driver().api.alloc_host.ok_or(missing)?;
        context.bind()?;
        let mut start: *mut c_void = null_mut();
        // SAFETY: the pointer is to a local.
        context.check(unsafe { alloc(&raw mut start, bytes) }, "cuMemAllocHost")?;
        let start = NonNull::new(start.cast::<AtomicU64>())
            .ok_or_else(|| Error::Incapable("the driver gave no host memory".to_owned()))?;
        Ok(Self { context: Arc::clone(context), start, words: bytes / 8 })
    }

    /// The memory.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the driver's memory is aligned to pages and as long as that; atomics may hold any bytes.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if let (Some(free), Ok(())) = (self.context.driver().api.free_host, self.context.bind()) {
            // SAFETY: it was allocated by the driver, and no copy is on its way: every one is waited for.
            unsafe { free(self.start.as_ptr().cast()) };
        }
    }
}

impl fmt::Debug for PinnedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedMemory").field("words", &self.words).finish_non_exhaustive()
    }
}
