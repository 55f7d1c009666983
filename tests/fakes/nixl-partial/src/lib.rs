//! A shared object that looks like NIXL and is not complete: three functions, none of which does anything.
//!
//! It stands for a NIXL that is older than the oldest one supported.

use std::ffi::{c_char, c_int, c_void};

const ERROR_BACKEND: c_int = -2;

/// Refuses to create an agent.
#[unsafe(no_mangle)]
pub extern "C" fn nixl_capi_create_configured_agent(
    _name: *const c_char,
    _config: *const c_void,
    _agent: *mut *mut c_void,
) -> c_int {
    ERROR_BACKEND
}

/// Refuses to destroy an agent.
#[unsafe(no_mangle)]
pub extern "C" fn nixl_capi_destroy_agent(_agent: *mut c_void) -> c_int {
    ERROR_BACKEND
}

/// Says that this is not the stub library.
#[unsafe(no_mangle)]
pub extern "C" fn nixl_capi_is_stub() -> bool {
    false
}
