//! Memory of the GPUs: host memory, and a list of what belongs to whom.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::devices::current;
use crate::{Code, INVALID_VALUE, OUT_OF_MEMORY, Opaque, call, give};

/// One allocation, or one mapping of virtual memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    pub(crate) bytes: usize,
    pub(crate) gpu: usize,
    /// `cuMemAlloc`: only such memory has a legacy IPC handle.
    pub(crate) plain: bool,
}

static BLOCKS: Mutex<BTreeMap<usize, Block>> = Mutex::new(BTreeMap::new());

pub(crate) fn blocks() -> MutexGuard<'static, BTreeMap<usize, Block>> {
    BLOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The block that holds all of a range.
pub(crate) fn block_of(address: u64, bytes: usize) -> Result<(usize, Block), Code> {
    let address = usize::try_from(address).map_err(|_| INVALID_VALUE)?;
    let end = address.checked_add(bytes).ok_or(INVALID_VALUE)?;
    let blocks = blocks();
    let (start, block) = blocks.range(..=address).next_back().ok_or(INVALID_VALUE)?;
    if end <= start + block.bytes { Ok((*start, *block)) } else { Err(INVALID_VALUE) }
}

/// Bytes of a GPU that are taken.
pub(crate) fn taken(gpu: usize) -> usize {
    blocks().values().filter(|block| block.gpu == gpu).map(|block| block.bytes).sum()
}

/// Fresh pages, zeroed.
pub(crate) fn pages(bytes: usize) -> Result<usize, Code> {
    // SAFETY: a new anonymous mapping.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED { Err(OUT_OF_MEMORY) } else { Ok(start.addr()) }
}

pub(crate) fn unmap(address: usize, bytes: usize) {
    // SAFETY: pages of this fake, that nobody uses any more.
    unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(address), bytes) };
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemAlloc_v2(out: *mut u64, bytes: usize) -> Code {
    call("cuMemAlloc_v2", || {
        let (gpu, limits) = current()?;
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        if taken(gpu).saturating_add(bytes) > limits.memory {
            return Err(OUT_OF_MEMORY);
        }
        let address = pages(bytes)?;
        blocks().insert(address, Block { bytes, gpu, plain: true });
        // SAFETY: the caller's word.
        unsafe { give(out, address as u64) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemFree_v2(address: u64) -> Code {
    call("cuMemFree_v2", || {
        let (start, block) = block_of(address, 0)?;
        blocks().remove(&start);
        unmap(start, block.bytes);
        Ok(())
    })
}

/// # Safety
/// The host's end must be as long as that.
unsafe fn copy(to: *mut c_void, from: *const c_void, bytes: usize) -> Result<(), Code> {
    current()?;
    // SAFETY: the GPU's end has been looked up; the other one is the caller's word.
    unsafe { std::ptr::copy(from.cast::<u8>(), to.cast::<u8>(), bytes) };
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: *const c_void,
    bytes: usize,
    _stream: Opaque,
) -> Code {
    call("cuMemcpyHtoDAsync_v2", || {
        block_of(to, bytes)?;
        // SAFETY: the caller's word.
        unsafe { copy(std::ptr::with_exposed_provenance_mut(to as usize), from, bytes) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: u64,
    bytes: usize,
    _stream: Opaque,
) -> Code {
    call("cuMemcpyDtoHAsync_v2", || {
        block_of(from, bytes)?;
        // SAFETY: the caller's word.
        unsafe { copy(to, std::ptr::with_exposed_provenance(from as usize), bytes) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemcpyDtoDAsync_v2(
    to: u64,
    from: u64,
    bytes: usize,
    _stream: Opaque,
) -> Code {
    call("cuMemcpyDtoDAsync_v2", || {
        block_of(from, bytes)?;
        block_of(to, bytes)?;
        let (to, from) = (to as usize, from as usize);
        // SAFETY: both ends have been looked up.
        unsafe {
            copy(std::ptr::with_exposed_provenance_mut(to), std::ptr::with_exposed_provenance(from), bytes)
        }
    })
}
