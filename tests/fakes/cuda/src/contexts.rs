//! Contexts: each GPU has its primary one, whose handle is the GPU's number plus one. A thread has a stack of them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::Mutex;
use std::sync::PoisonError;

use fake_gpus::Gpu;

use crate::devices::gpu;
use crate::{Code, INVALID_CONTEXT, Opaque, call, give};

thread_local! {
    /// The GPUs whose contexts have been pushed; the last one is current.
    static STACK: RefCell<Vec<Option<usize>>> = const { RefCell::new(Vec::new()) };
}

/// How often each primary context is held.
static HELD: Mutex<BTreeMap<c_int, usize>> = Mutex::new(BTreeMap::new());

/// The GPU of the current context.
pub(crate) fn current() -> Result<(usize, &'static Gpu), Code> {
    let index = STACK.with_borrow(|stack| stack.last().copied().flatten()).ok_or(INVALID_CONTEXT)?;
    Ok((index, gpu(c_int::try_from(index).map_err(|_| INVALID_CONTEXT)?)?))
}

/// The context of a GPU.
pub(crate) fn handle(index: usize) -> Opaque {
    std::ptr::without_provenance_mut(index + 1)
}

fn held() -> std::sync::MutexGuard<'static, BTreeMap<c_int, usize>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDevicePrimaryCtxRetain(out: *mut Opaque, device: c_int) -> Code {
    call("cuDevicePrimaryCtxRetain", || {
        gpu(device)?;
        *held().entry(device).or_default() += 1;
        // SAFETY: the caller's word, here and below.
        unsafe { give(out, handle(usize::try_from(device).unwrap_or(0))) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> Code {
    call("cuDevicePrimaryCtxRelease_v2", || {
        let mut held = held();
        let count = held.get_mut(&device).filter(|count| **count > 0).ok_or(INVALID_CONTEXT)?;
        *count -= 1;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDevicePrimaryCtxGetState(
    device: c_int,
    flags: *mut c_uint,
    active: *mut c_int,
) -> Code {
    call("cuDevicePrimaryCtxGetState", || {
        gpu(device)?;
        let is_active = held().get(&device).is_some_and(|count| *count > 0);
        // SAFETY: as above.
        unsafe {
            give(flags, 0)?;
            give(active, c_int::from(is_active))
        }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxSetCurrent(context: Opaque) -> Code {
    call("cuCtxSetCurrent", || {
        STACK.with_borrow_mut(|stack| {
            stack.pop();
            stack.push(context.addr().checked_sub(1));
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuCtxGetCurrent(out: *mut Opaque) -> Code {
    // SAFETY: as above.
    call("cuCtxGetCurrent", || unsafe {
        give(out, current().map_or(std::ptr::null_mut(), |(index, _)| handle(index)))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxPushCurrent_v2(context: Opaque) -> Code {
    call("cuCtxPushCurrent_v2", || {
        STACK.with_borrow_mut(|stack| stack.push(context.addr().checked_sub(1)));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuCtxPopCurrent_v2(out: *mut Opaque) -> Code {
    call("cuCtxPopCurrent_v2", || {
        let popped = STACK.with_borrow_mut(Vec::pop).ok_or(INVALID_CONTEXT)?;
        if out.is_null() {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { give(out, popped.map_or(std::ptr::null_mut(), handle)) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuCtxGetDevice(out: *mut c_int) -> Code {
    // SAFETY: as above.
    call("cuCtxGetDevice", || unsafe { give(out, c_int::try_from(current()?.0).unwrap_or(c_int::MAX)) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuCtxGetId(context: Opaque, out: *mut c_ulonglong) -> Code {
    call("cuCtxGetId", || {
        let index = if context.is_null() { current()?.0 + 1 } else { context.addr() };
        // SAFETY: as above.
        unsafe { give(out, index as c_ulonglong) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuCtxGetFlags(out: *mut c_uint) -> Code {
    call("cuCtxGetFlags", || {
        current()?;
        // SAFETY: as above.
        unsafe { give(out, 0) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuCtxSetFlags(_flags: c_uint) -> Code {
    call("cuCtxSetFlags", || current().map(|_| ()))
}
