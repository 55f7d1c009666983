//! A `libcuda.so.1` for tests. GPU memory is host memory, so that the fake NIXL moves real bytes between "GPUs" and
//! kernels can be run: their PTX is interpreted. See `fake_gpus` for what a test can say.
//!
//! It has the functions that kvwire calls, with the types and the rules of cuda.h: what a caller must see to stands there.
#![allow(non_snake_case, reason = "names of the C API")]

mod devices;
mod heap;
mod modules;
mod ptx;
mod virtual_memory;

use std::ffi::{c_int, c_void};

type Code = c_int;
type Opaque = *mut c_void;

const SUCCESS: Code = 0;
const INVALID_VALUE: Code = 1;
const OUT_OF_MEMORY: Code = 2;
const NO_DEVICE: Code = 100;
const INVALID_DEVICE: Code = 101;
const INVALID_CONTEXT: Code = 201;
const INVALID_PTX: Code = 218;
const NOT_FOUND: Code = 500;
const LAUNCH_FAILED: Code = 719;
const NOT_SUPPORTED: Code = 801;

/// Runs a call, unless the script says that it fails.
fn call(name: &str, run: impl FnOnce() -> Result<(), Code>) -> Code {
    match fake_gpus::fault(name) {
        Some(code) => code,
        None => run().err().unwrap_or(SUCCESS),
    }
}

/// Writes through a pointer of the caller.
///
/// # Safety
/// It must be writable for one `T`, or null.
unsafe fn give<T>(out: *mut T, value: T) -> Result<(), Code> {
    if out.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller's word.
    unsafe { out.write(value) };
    Ok(())
}
