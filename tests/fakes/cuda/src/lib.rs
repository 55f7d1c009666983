//! A `libcuda.so.1` for tests. GPU memory is host memory that other processes can map, so that real bytes move between
//! "GPUs", and kernels can be run: their PTX is interpreted. See `fake_gpus` for what a test can say.
//!
//! It has the functions that kvwire and UCX's CUDA modules call, with the types and the rules of cuda.h: what a caller must
//! see to stands there. So the real UCX takes it for a driver, and moves bytes by its own `cuda_copy` and `cuda_ipc`.
#![allow(non_snake_case, reason = "names of the C API")]

mod contexts;
mod copies;
mod devices;
mod exports;
mod heap;
mod modules;
mod pointers;
mod ptx;
mod refusals;
mod streams;
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

/// Exports functions that begin with an instruction which can be moved, as the driver's do: UCX writes a jump over the
/// beginning of those that take or give back memory, and keeps what stood there.
macro_rules! hookable {
    ($($name:ident = $body:ident;)*) => {
        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub(crate) extern "C" fn $name() {
                std::arch::naked_asm!("mov eax, 0", "jmp {body}", body = sym $body)
            }
        )*
    };
}
pub(crate) use hookable;

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
