//! Opaque handles: boxed values behind C pointers, counted.

use std::ffi::{CStr, c_char};
use std::sync::atomic::Ordering;

use crate::control::HANDLES;
use crate::status::{INVALID_PARAM, Outcome};

/// Stores a new handle for `value`.
///
/// # Safety
/// `out` must be null or writable.
pub(crate) unsafe fn give<T, H>(out: *mut *mut H, value: T) -> Outcome<()> {
    let handle = Box::into_raw(Box::new(value));
    HANDLES.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the caller's word.
    unsafe { store(out, handle.cast()) }
}

/// Frees a handle and gives its value back.
///
/// # Safety
/// `handle` must be null or come from [`give`] with the same `T`, and be used no more.
pub(crate) unsafe fn take<T, H>(handle: *mut H) -> Outcome<Box<T>> {
    if handle.is_null() {
        return Err(INVALID_PARAM);
    }
    HANDLES.fetch_sub(1, Ordering::Relaxed);
    // SAFETY: the caller's word.
    Ok(unsafe { Box::from_raw(handle.cast()) })
}

/// The value behind a handle.
///
/// # Safety
/// `handle` must be null or come from [`give`] with the same `T`, live, and be used by this thread only.
pub(crate) unsafe fn value<'a, T, H>(handle: *mut H) -> Outcome<&'a mut T> {
    // SAFETY: the caller's word.
    unsafe { handle.cast::<T>().as_mut() }.ok_or(INVALID_PARAM)
}

/// Writes one result.
///
/// # Safety
/// `out` must be null or writable.
pub(crate) unsafe fn store<T>(out: *mut T, result: T) -> Outcome<()> {
    if out.is_null() {
        return Err(INVALID_PARAM);
    }
    // SAFETY: not null, and the caller vouches for the rest.
    unsafe { out.write(result) };
    Ok(())
}

/// The text of a C string.
///
/// # Safety
/// `text` must be null or a C string.
pub(crate) unsafe fn text(text: *const c_char) -> Outcome<String> {
    if text.is_null() {
        return Err(INVALID_PARAM);
    }
    // SAFETY: the caller's word.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(ToOwned::to_owned).map_err(|_| INVALID_PARAM)
}

/// The bytes at a pointer.
///
/// # Safety
/// `data` must be readable for `len` bytes, or `len` zero.
pub(crate) unsafe fn bytes<T>(data: *const T, len: usize) -> Vec<u8> {
    if data.is_null() || len == 0 {
        return Vec::new();
    }
    // SAFETY: the caller's word.
    unsafe { std::slice::from_raw_parts(data.cast(), len) }.to_vec()
}

/// A copy of `bytes` that the caller frees with `free`, as NIXL's callers do.
pub(crate) fn malloced(bytes: &[u8]) -> *mut u8 {
    // SAFETY: malloc takes any size; a null result is checked.
    let memory = unsafe { libc::malloc(bytes.len().max(1)) }.cast::<u8>();
    if !memory.is_null() {
        // SAFETY: `memory` is new and holds at least `bytes.len()` bytes.
        unsafe { memory.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
    memory
}
