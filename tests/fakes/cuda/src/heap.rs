//! Memory of the GPUs: host memory that other processes can map, and a list of what belongs to whom.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::contexts::current;
use crate::{Code, INVALID_VALUE, OUT_OF_MEMORY, call, give, hookable};

/// One allocation, or one mapping of virtual memory or of another process' memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    pub(crate) bytes: usize,
    pub(crate) gpu: usize,
    pub(crate) kind: Kind,
    /// The pages as a file.
    pub(crate) file: c_int,
    /// Which block it is, of all that this process has had.
    pub(crate) id: u64,
}

/// How a block came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `cuMemAlloc`: only such memory has a legacy IPC handle.
    Plain,
    /// `cuMemMap` of what `cuMemCreate` made, with these handle types.
    Mapped(c_int),
    /// Memory of another process.
    Imported,
}

static BLOCKS: Mutex<(u64, BTreeMap<usize, Block>)> = Mutex::new((0, BTreeMap::new()));

/// How many blocks have ended.
static ENDED: AtomicU64 = AtomicU64::new(0);

fn blocks() -> MutexGuard<'static, (u64, BTreeMap<usize, Block>)> {
    BLOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Enters a block.
pub(crate) fn enter(address: usize, bytes: usize, gpu: usize, kind: Kind, file: c_int) {
    let mut blocks = blocks();
    blocks.0 += 1;
    let id = blocks.0;
    blocks.1.insert(address, Block { bytes, gpu, kind, file, id });
}

/// Strikes out the block that begins there.
pub(crate) fn strike(address: usize) -> Result<Block, Code> {
    ENDED.fetch_add(1, Ordering::AcqRel);
    blocks().1.remove(&address).ok_or(INVALID_VALUE)
}

/// Whether these pages are mapped in some block.
pub(crate) fn is_mapped(file: c_int) -> bool {
    blocks().1.values().any(|block| block.file == file)
}

/// The block that holds all of a range.
pub(crate) fn block_of(address: u64, bytes: usize) -> Result<(usize, Block), Code> {
    let address = usize::try_from(address).map_err(|_| INVALID_VALUE)?;
    let end = address.checked_add(bytes.max(1)).ok_or(INVALID_VALUE)?;
    let blocks = blocks();
    let (start, block) = blocks.1.range(..=address).next_back().ok_or(INVALID_VALUE)?;
    if end <= start + block.bytes { Ok((*start, *block)) } else { Err(INVALID_VALUE) }
}

thread_local! {
    /// Where this thread's kernel last found memory, and how many blocks had ended by then.
    static FOUND: Cell<(u64, u64, u64)> = const { Cell::new((0, 0, 0)) };
}

/// Whether a word is memory of a GPU. Kernels ask for every word, mostly of one block.
pub(crate) fn holds_word(address: u64) -> bool {
    let ended = ENDED.load(Ordering::Acquire);
    let (start, end, then) = FOUND.get();
    if then == ended && start <= address && address.saturating_add(8) <= end {
        return true;
    }
    let Ok((start, block)) = block_of(address, 8) else { return false };
    FOUND.set((start as u64, (start + block.bytes) as u64, ended));
    true
}

/// Bytes of a GPU that this process has taken.
pub(crate) fn taken(gpu: usize) -> usize {
    let own = |block: &&Block| block.gpu == gpu && block.kind != Kind::Imported;
    blocks().1.values().filter(own).map(|block| block.bytes).sum()
}

/// Zeroed pages that are a file, so that another process can map them.
pub(crate) fn pages(bytes: usize) -> Result<c_int, Code> {
    // SAFETY: the name is a C string.
    let file = unsafe { libc::memfd_create(c"fake-gpu-memory".as_ptr(), libc::MFD_CLOEXEC) };
    let length = libc::off_t::try_from(bytes).map_err(|_| INVALID_VALUE)?;
    // SAFETY: a file of this fake.
    if file < 0 || unsafe { libc::ftruncate(file, length) } != 0 {
        return Err(OUT_OF_MEMORY);
    }
    Ok(file)
}

/// Maps a file: somewhere, or over addresses that were reserved.
pub(crate) fn map(file: c_int, bytes: usize, over: Option<usize>) -> Result<usize, Code> {
    let place = std::ptr::with_exposed_provenance_mut(over.unwrap_or(0));
    let flags = libc::MAP_SHARED | if over.is_some() { libc::MAP_FIXED } else { 0 };
    // SAFETY: a new mapping, or one over pages that this fake reserved.
    let start = unsafe { libc::mmap(place, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, file, 0) };
    if start == libc::MAP_FAILED { Err(OUT_OF_MEMORY) } else { Ok(start.expose_provenance()) }
}

/// Addresses that nothing lies at yet: anew, or over a mapping that ends.
pub(crate) fn reserve(bytes: usize, over: Option<usize>) -> Result<usize, Code> {
    let place = std::ptr::with_exposed_provenance_mut(over.unwrap_or(0));
    let flags = libc::MAP_PRIVATE
        | libc::MAP_ANONYMOUS
        | libc::MAP_NORESERVE
        | if over.is_some() { libc::MAP_FIXED } else { 0 };
    // SAFETY: a new mapping, or one over pages of this fake.
    let start = unsafe { libc::mmap(place, bytes, libc::PROT_NONE, flags, -1, 0) };
    if start == libc::MAP_FAILED { Err(OUT_OF_MEMORY) } else { Ok(start.expose_provenance()) }
}

pub(crate) fn unmap(address: usize, bytes: usize) {
    // SAFETY: pages of this fake, that nobody uses any more.
    unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(address), bytes) };
}

/// Host memory that the driver gave away, and its length.
static HOST: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

pub(crate) fn host_pages(bytes: usize) -> Result<usize, Code> {
    let file = pages(bytes)?;
    let start = map(file, bytes, None)?;
    close(file);
    HOST.lock().unwrap_or_else(PoisonError::into_inner).insert(start, bytes);
    Ok(start)
}

pub(crate) fn free_host_pages(start: usize) -> Result<(), Code> {
    let bytes = HOST.lock().unwrap_or_else(PoisonError::into_inner).remove(&start).ok_or(INVALID_VALUE)?;
    unmap(start, bytes);
    Ok(())
}

pub(crate) fn close(file: c_int) {
    // SAFETY: a file of this fake, that is not used any more.
    unsafe { libc::close(file) };
}

hookable! {
    cuMemAlloc_v2 = allocate;
    cuMemFree_v2 = free;
}

unsafe extern "C" fn allocate(out: *mut u64, bytes: usize) -> Code {
    call("cuMemAlloc_v2", || {
        let (gpu, limits) = current()?;
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        if taken(gpu).saturating_add(bytes) > limits.memory {
            return Err(OUT_OF_MEMORY);
        }
        let file = pages(bytes)?;
        let address = map(file, bytes, None)?;
        enter(address, bytes, gpu, Kind::Plain, file);
        // SAFETY: the caller's word.
        unsafe { give(out, address as u64) }
    })
}

extern "C" fn free(address: u64) -> Code {
    call("cuMemFree_v2", || {
        let (start, block) = block_of(address, 0)?;
        if start as u64 != address || block.kind != Kind::Plain {
            return Err(INVALID_VALUE);
        }
        strike(start)?;
        unmap(start, block.bytes);
        close(block.file);
        Ok(())
    })
}
