//! Modules and launches.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_uint, c_void};

use crate::contexts::current;
use crate::ptx::{Kernel, parse};
use crate::{Code, INVALID_PTX, INVALID_VALUE, NOT_FOUND, Opaque, call, give};

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuModuleLoadData(out: *mut Opaque, image: *const c_void) -> Code {
    call("cuModuleLoadData", || {
        current()?;
        // SAFETY: the caller's word, here and below.
        let text = unsafe { CStr::from_ptr(image.cast::<c_char>()) }.to_str().map_err(|_| INVALID_PTX)?;
        let kernels = parse(text).map_err(|error| {
            use std::io::Write as _;
            let _ = writeln!(std::io::stderr(), "fake CUDA: PTX: {error}");
            INVALID_PTX
        })?;
        let module: Box<BTreeMap<String, Kernel>> = Box::new(kernels);
        // SAFETY: as above.
        unsafe { give(out, Box::into_raw(module).cast()) }
    })
}

/// The fake keeps it: functions point into it.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuModuleUnload(_module: Opaque) -> Code {
    call("cuModuleUnload", || Ok(()))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuModuleGetFunction(
    out: *mut Opaque,
    module: Opaque,
    name: *const c_char,
) -> Code {
    call("cuModuleGetFunction", || {
        // SAFETY: a module of `cuModuleLoadData`, which is never freed.
        let kernels = unsafe { module.cast::<BTreeMap<String, Kernel>>().as_ref() }.ok_or(INVALID_VALUE)?;
        // SAFETY: as above.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let kernel = kernels.get(name.as_ref()).ok_or(NOT_FOUND)?;
        // SAFETY: as above.
        unsafe { give(out, std::ptr::from_ref(kernel).cast_mut().cast()) }
    })
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "as cuda.h has it")]
pub(crate) unsafe extern "C" fn cuLaunchKernel(
    function: Opaque,
    blocks: c_uint,
    _blocks_y: c_uint,
    _blocks_z: c_uint,
    threads: c_uint,
    _threads_y: c_uint,
    _threads_z: c_uint,
    _shared: c_uint,
    _stream: Opaque,
    parameters: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> Code {
    call("cuLaunchKernel", || {
        current()?;
        // SAFETY: a function of `cuModuleGetFunction`, whose module is never freed.
        let kernel = unsafe { function.cast::<Kernel>().as_ref() }.ok_or(INVALID_VALUE)?;
        let values: Vec<u64> = (0..kernel.parameters())
            // SAFETY: as many pointers as the kernel has parameters, each to 64 bits.
            .map(|index| unsafe { (*parameters.add(index)).cast::<u64>().read() })
            .collect();
        kernel.run(&values, blocks, threads)
    })
}
