//! Copies, which the links between the GPUs are told of.

use std::ffi::c_void;

use crate::contexts::current;
use crate::heap::{block_of, free_host_pages, host_pages};
use crate::{Code, INVALID_VALUE, Opaque, call, give, hookable};

/// # Safety
/// What is not memory of a GPU must be as long as that.
unsafe fn copy(to: u64, from: u64, bytes: usize) -> Result<(), Code> {
    current()?;
    let gpu = |address| block_of(address, bytes).ok().map(|(_, block)| block.gpu);
    let (source, destination) = (gpu(from), gpu(to));
    // SAFETY: memory of a GPU has been looked up; the rest is the caller's word.
    unsafe {
        std::ptr::copy(
            std::ptr::with_exposed_provenance::<u8>(from as usize),
            std::ptr::with_exposed_provenance_mut::<u8>(to as usize),
            bytes,
        );
    }
    if source.or(destination).is_some() {
        fake_gpus::carried(source, destination, bytes as u64);
    }
    Ok(())
}

fn on_gpu(address: u64, bytes: usize) -> Result<(), Code> {
    block_of(address, bytes).map(|_| ()).map_err(|_| INVALID_VALUE)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, _stream: Opaque) -> Code {
    // SAFETY: the caller's word, here and below.
    call("cuMemcpyAsync", || unsafe { copy(to, from, bytes) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) -> Code {
    call("cuMemcpyHtoD_v2", || {
        on_gpu(to, bytes)?;
        // SAFETY: as above.
        unsafe { copy(to, from.expose_provenance() as u64, bytes) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: *const c_void,
    bytes: usize,
    _stream: Opaque,
) -> Code {
    call("cuMemcpyHtoDAsync_v2", || {
        on_gpu(to, bytes)?;
        // SAFETY: as above.
        unsafe { copy(to, from.expose_provenance() as u64, bytes) }
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
        on_gpu(from, bytes)?;
        // SAFETY: as above.
        unsafe { copy(to.expose_provenance() as u64, from, bytes) }
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
        on_gpu(from, bytes)?;
        on_gpu(to, bytes)?;
        // SAFETY: both ends have been looked up.
        unsafe { copy(to, from, bytes) }
    })
}

hookable! {
    cuMemFreeHost = free_host;
}

/// Any host memory is as good as another here.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemAllocHost_v2(out: *mut *mut c_void, bytes: usize) -> Code {
    call("cuMemAllocHost_v2", || {
        current()?;
        let start = host_pages(bytes)?;
        // SAFETY: as above.
        unsafe { give(out, std::ptr::with_exposed_provenance_mut(start)) }
    })
}

extern "C" fn free_host(start: *mut c_void) -> Code {
    call("cuMemFreeHost", || free_host_pages(start.expose_provenance()))
}

/// Host memory needs nothing here.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemHostRegister_v2(_start: *mut c_void, _bytes: usize, _flags: u32) -> Code {
    call("cuMemHostRegister_v2", || Ok(()))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuMemHostUnregister(_start: *mut c_void) -> Code {
    call("cuMemHostUnregister", || Ok(()))
}
