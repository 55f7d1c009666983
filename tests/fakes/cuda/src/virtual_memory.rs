//! `cuMemCreate` and its kin, and the handles that memory can be exported as.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_ulonglong, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fake_gpus::script;

use crate::devices::current;
use crate::heap::{Block, block_of, blocks, pages, taken, unmap};
use crate::{Code, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, call, give};

const GRANULARITY: usize = 2 << 20;
const POSIX_FD: c_int = 1;
const FABRIC: c_int = 8;
const DMA_BUF: c_int = 1;

/// `CUmemAllocationProp`, as far as this reads it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prop {
    kind: c_int,
    handles: c_int,
    location: [c_int; 2],
    rest: [u64; 2],
}

#[derive(Debug, Clone, Copy)]
struct Physical {
    bytes: usize,
    gpu: usize,
    handles: c_int,
}

static PHYSICAL: Mutex<BTreeMap<u64, Physical>> = Mutex::new(BTreeMap::new());

fn physical() -> MutexGuard<'static, BTreeMap<u64, Physical>> {
    PHYSICAL.lock().unwrap_or_else(PoisonError::into_inner)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemGetAllocationGranularity(
    out: *mut usize,
    _prop: *const Prop,
    _option: c_int,
) -> Code {
    // SAFETY: the caller's word, here and below.
    call("cuMemGetAllocationGranularity", || unsafe { give(out, GRANULARITY) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemCreate(
    out: *mut u64,
    bytes: usize,
    prop: *const Prop,
    _flags: c_ulonglong,
) -> Code {
    call("cuMemCreate", || {
        // SAFETY: as above.
        let prop = unsafe { prop.as_ref() }.ok_or(INVALID_VALUE)?;
        let gpu = usize::try_from(prop.location[1]).map_err(|_| INVALID_VALUE)?;
        let limits = script().gpus.get(gpu).ok_or(INVALID_VALUE)?;
        if !limits.vmm || (prop.handles == FABRIC && !limits.fabric) {
            return Err(NOT_SUPPORTED);
        }
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
            return Err(INVALID_VALUE);
        }
        if taken(gpu).saturating_add(bytes) > limits.memory {
            return Err(OUT_OF_MEMORY);
        }
        let mut all = physical();
        let handle = all.keys().next_back().map_or(1, |last| last + 1);
        all.insert(handle, Physical { bytes, gpu, handles: prop.handles });
        // SAFETY: as above.
        unsafe { give(out, handle) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemRelease(handle: u64) -> Code {
    call("cuMemRelease", || physical().remove(&handle).map(|_| ()).ok_or(INVALID_VALUE))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemAddressReserve(
    out: *mut u64,
    bytes: usize,
    _alignment: usize,
    _address: u64,
    _flags: c_ulonglong,
) -> Code {
    // SAFETY: as above.
    call("cuMemAddressReserve", || unsafe { give(out, pages(bytes)? as u64) })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemAddressFree(address: u64, bytes: usize) -> Code {
    call("cuMemAddressFree", || {
        unmap(address as usize, bytes);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemMap(
    address: u64,
    bytes: usize,
    offset: usize,
    handle: u64,
    _flags: c_ulonglong,
) -> Code {
    call("cuMemMap", || {
        let memory = *physical().get(&handle).ok_or(INVALID_VALUE)?;
        if offset != 0 || bytes != memory.bytes {
            return Err(INVALID_VALUE);
        }
        blocks().insert(address as usize, Block { bytes, gpu: memory.gpu, plain: false });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemUnmap(address: u64, _bytes: usize) -> Code {
    call("cuMemUnmap", || blocks().remove(&(address as usize)).map(|_| ()).ok_or(INVALID_VALUE))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemSetAccess(
    address: u64,
    bytes: usize,
    _what: *const c_void,
    count: usize,
) -> Code {
    call("cuMemSetAccess", || {
        block_of(address, bytes)?;
        if count == 1 { Ok(()) } else { Err(INVALID_VALUE) }
    })
}

/// Some file descriptor that stands for the memory.
fn descriptor() -> Result<c_int, Code> {
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"fake-gpu-memory".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 { Err(OUT_OF_MEMORY) } else { Ok(fd) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemExportToShareableHandle(
    out: *mut c_void,
    handle: u64,
    kind: c_int,
    _flags: c_ulonglong,
) -> Code {
    call("cuMemExportToShareableHandle", || {
        let memory = *physical().get(&handle).ok_or(INVALID_VALUE)?;
        if memory.handles != kind {
            return Err(INVALID_VALUE);
        }
        if kind == POSIX_FD {
            // SAFETY: as above.
            unsafe { give(out.cast(), descriptor()?) }
        } else {
            // SAFETY: as above.
            unsafe { give(out.cast(), [7_u8; 64]) }
        }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemGetHandleForAddressRange(
    out: *mut c_void,
    address: u64,
    bytes: usize,
    kind: c_int,
    _flags: c_ulonglong,
) -> Code {
    call("cuMemGetHandleForAddressRange", || {
        let (_, block) = block_of(address, bytes)?;
        if kind != DMA_BUF || !script().gpus.get(block.gpu).is_some_and(|gpu| gpu.dma_buf) {
            return Err(NOT_SUPPORTED);
        }
        // SAFETY: as above.
        unsafe { give(out.cast(), descriptor()?) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuIpcGetMemHandle(out: *mut c_void, address: u64) -> Code {
    call("cuIpcGetMemHandle", || {
        current()?;
        if !block_of(address, 0)?.1.plain {
            return Err(INVALID_VALUE);
        }
        // SAFETY: as above.
        unsafe { give(out.cast(), [7_u8; 64]) }
    })
}
