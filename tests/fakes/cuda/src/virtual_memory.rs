//! `cuMemCreate` and its kin.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_ulonglong, c_void};
use std::fs::File;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use fake_gpus::script;

use crate::exports::{Handle, duplicate, shared_file};
use crate::heap::{Kind, block_of, close, enter, is_mapped, map, pages, reserve, strike, taken, unmap};
use crate::{Code, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, call, give, hookable};

const GRANULARITY: usize = 2 << 20;
const POSIX_FD: c_int = 1;
const FABRIC: c_int = 8;

/// `CUmemAllocationProp`.
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
    file: c_int,
    /// Handles to it. Mappings keep the file open too.
    held: usize,
    imported: bool,
    /// Of the file that has a fabric handle; else 0.
    number: u64,
}

/// Pages as a file that processes of other namespaces find too, and its number.
fn shared_pages(bytes: usize) -> Result<(c_int, u64), Code> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|_| INVALID_VALUE)?.as_nanos() as u64;
    let number = (u64::from(std::process::id()) << 44) ^ now;
    let path = shared_file(number)?;
    let file = File::create_new(path).and_then(|file| file.set_len(bytes as u64).map(|()| file));
    // Opened for writing alone it could not be mapped.
    drop(file.map_err(|_| OUT_OF_MEMORY)?);
    Ok((Handle::of(-1, bytes, 0, number).open()?, number))
}

/// By handle. An entry stays, with no handle to it, while it is mapped.
static PHYSICAL: Mutex<BTreeMap<u64, Physical>> = Mutex::new(BTreeMap::new());

fn physical() -> MutexGuard<'static, BTreeMap<u64, Physical>> {
    PHYSICAL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add(memory: Physical) -> u64 {
    let mut all = physical();
    let handle = all.keys().next_back().map_or(1, |last| last + 1);
    all.insert(handle, memory);
    handle
}

fn held(handle: u64) -> Result<Physical, Code> {
    physical().get(&handle).copied().filter(|memory| memory.held > 0).ok_or(INVALID_VALUE)
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
        let (file, number) =
            if prop.handles & FABRIC == 0 { (pages(bytes)?, 0) } else { shared_pages(bytes)? };
        let handles = prop.handles;
        let handle = add(Physical { bytes, gpu, handles, file, held: 1, imported: false, number });
        // SAFETY: as above.
        unsafe { give(out, handle) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemRelease(handle: u64) -> Code {
    call("cuMemRelease", || {
        let mut all = physical();
        let memory = all.get_mut(&handle).filter(|memory| memory.held > 0).ok_or(INVALID_VALUE)?;
        memory.held -= 1;
        let (file, last) = (memory.file, memory.held == 0);
        if last && !is_mapped(file) {
            all.remove(&handle);
            close(file);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemRetainAllocationHandle(out: *mut u64, address: *mut c_void) -> Code {
    call("cuMemRetainAllocationHandle", || {
        let (_, block) = block_of(address.addr() as u64, 0)?;
        let mut all = physical();
        let same = |memory: &Physical| memory.file == block.file;
        let (handle, memory) = all.iter_mut().find(|(_, memory)| same(memory)).ok_or(INVALID_VALUE)?;
        memory.held += 1;
        // SAFETY: as above.
        unsafe { give(out, *handle) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemGetAllocationPropertiesFromHandle(out: *mut Prop, handle: u64) -> Code {
    call("cuMemGetAllocationPropertiesFromHandle", || {
        let memory = held(handle)?;
        let gpu = c_int::try_from(memory.gpu).map_err(|_| INVALID_VALUE)?;
        // SAFETY: as above. Pinned memory that lies on a device: both types are 1.
        unsafe { give(out, Prop { kind: 1, handles: memory.handles, location: [1, gpu], rest: [0; 2] }) }
    })
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
    call("cuMemAddressReserve", || unsafe { give(out, reserve(bytes, None)? as u64) })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemAddressFree(address: u64, bytes: usize) -> Code {
    call("cuMemAddressFree", || {
        unmap(address as usize, bytes);
        Ok(())
    })
}

hookable! {
    cuMemMap = lay;
    cuMemUnmap = lift;
}

extern "C" fn lay(address: u64, bytes: usize, offset: usize, handle: u64, _flags: c_ulonglong) -> Code {
    call("cuMemMap", || {
        let memory = held(handle)?;
        if offset != 0 || bytes != memory.bytes {
            return Err(INVALID_VALUE);
        }
        let start = map(memory.file, bytes, Some(address as usize))?;
        let kind = if memory.imported { Kind::Imported } else { Kind::Mapped(memory.handles) };
        enter(start, bytes, memory.gpu, kind, memory.file);
        Ok(())
    })
}

extern "C" fn lift(address: u64, bytes: usize) -> Code {
    call("cuMemUnmap", || {
        let block = strike(address as usize)?;
        reserve(bytes, Some(address as usize))?;
        let mut all = physical();
        let gone = |memory: &Physical| memory.file == block.file && memory.held == 0;
        if let Some(handle) = all.iter().find_map(|(handle, memory)| gone(memory).then_some(*handle)) {
            all.remove(&handle);
            close(block.file);
        }
        Ok(())
    })
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

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemExportToShareableHandle(
    out: *mut c_void,
    handle: u64,
    kind: c_int,
    _flags: c_ulonglong,
) -> Code {
    call("cuMemExportToShareableHandle", || {
        let memory = held(handle)?;
        if memory.handles & kind == 0 {
            return Err(INVALID_VALUE);
        }
        if kind == POSIX_FD {
            // SAFETY: as above.
            unsafe { give(out.cast(), duplicate(memory.file)?) }
        } else {
            // SAFETY: as above.
            unsafe { give(out.cast(), Handle::of(memory.file, memory.bytes, memory.gpu, memory.number)) }
        }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemImportFromShareableHandle(
    out: *mut u64,
    from: *const c_void,
    kind: c_int,
) -> Code {
    call("cuMemImportFromShareableHandle", || {
        if kind != FABRIC {
            return Err(NOT_SUPPORTED);
        }
        // SAFETY: as above.
        let handle = unsafe { from.cast::<Handle>().as_ref() }.ok_or(INVALID_VALUE)?;
        let (bytes, gpu, file) = (handle.bytes, handle.gpu, handle.open()?);
        let handle = add(Physical { bytes, gpu, handles: kind, file, held: 1, imported: true, number: 0 });
        // SAFETY: as above.
        unsafe { give(out, handle) }
    })
}
