//! Streams and events. Everything has been done when its call returned, so that there is nothing to wait for.

use std::ffi::{c_int, c_uint, c_void};

use crate::contexts::current;
use crate::{Code, INVALID_VALUE, Opaque, SUCCESS, call, give};

/// Any handle that is not null.
const SOME: Opaque = std::ptr::without_provenance_mut(8);

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuStreamCreate(out: *mut Opaque, _flags: c_uint) -> Code {
    call("cuStreamCreate", || {
        current()?;
        // SAFETY: the caller's word, here and below.
        unsafe { give(out, SOME) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamSynchronize(_stream: Opaque) -> Code {
    call("cuStreamSynchronize", || current().map(|_| ()))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuStreamDestroy_v2(_stream: Opaque) -> Code {
    SUCCESS
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuStreamAddCallback(
    stream: Opaque,
    callback: Option<unsafe extern "C" fn(Opaque, Code, *mut c_void)>,
    data: *mut c_void,
    _flags: c_uint,
) -> Code {
    call("cuStreamAddCallback", || {
        let callback = callback.ok_or(INVALID_VALUE)?;
        // SAFETY: as above.
        unsafe { callback(stream, SUCCESS, data) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuEventCreate(out: *mut Opaque, _flags: c_uint) -> Code {
    call("cuEventCreate", || {
        current()?;
        // SAFETY: as above.
        unsafe { give(out, SOME) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventRecord(_event: Opaque, _stream: Opaque) -> Code {
    call("cuEventRecord", || Ok(()))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventQuery(_event: Opaque) -> Code {
    call("cuEventQuery", || Ok(()))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuEventDestroy_v2(_event: Opaque) -> Code {
    SUCCESS
}

/// Only who calls it, and how, can be seen.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuFlushGPUDirectRDMAWrites(target: c_int, scope: c_int) -> Code {
    call("cuFlushGPUDirectRDMAWrites", || {
        let (_, gpu) = current()?;
        if (target, scope) == (0, 100) && !gpu.ordered { Ok(()) } else { Err(INVALID_VALUE) }
    })
}
