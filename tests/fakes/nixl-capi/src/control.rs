//! What a test asks of the fake itself.

use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicU64, Ordering};

/// What lives at the moment, and what was done that must not be.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Agents that were created and not destroyed.
    pub agents: u64,
    /// Registered regions.
    pub registrations: u64,
    /// Handles of every kind that were made and not freed, agents included.
    pub handles: u64,
    /// Transfer requests that were released while they were in progress.
    pub released_in_flight: u64,
}

pub(crate) static AGENTS: AtomicU64 = AtomicU64::new(0);
pub(crate) static REGISTRATIONS: AtomicU64 = AtomicU64::new(0);
pub(crate) static HANDLES: AtomicU64 = AtomicU64::new(0);
pub(crate) static RELEASED_IN_FLIGHT: AtomicU64 = AtomicU64::new(0);

/// Copies the counters of this process to `out`.
///
/// # Safety
/// `out` must point to writable memory for one [`Counters`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_nixl_counters(out: *mut Counters) {
    let counters = Counters {
        agents: AGENTS.load(Ordering::Relaxed),
        registrations: REGISTRATIONS.load(Ordering::Relaxed),
        handles: HANDLES.load(Ordering::Relaxed),
        released_in_flight: RELEASED_IN_FLIGHT.load(Ordering::Relaxed),
    };
    // SAFETY: the caller's word.
    unsafe { out.write(counters) };
}

/// Replaces this process' script: the same words as in `KVWIRE_FAKE_NIXL`. Posts are counted from zero again.
///
/// # Safety
/// `text` must be a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_nixl_set_script(text: *const c_char) {
    // SAFETY: the caller's word.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    crate::script::set(&text);
    crate::transfer::forget_first_bytes();
}
