//! Devices, and names of errors.

use std::ffi::{CStr, c_char, c_int, c_uint};

use fake_gpus::{Gpu, script};

use crate::{Code, INVALID_DEVICE, INVALID_VALUE, NO_DEVICE, SUCCESS, call, give};

pub(crate) fn gpu(handle: c_int) -> Result<&'static Gpu, Code> {
    usize::try_from(handle).ok().and_then(|index| script().gpus.get(index)).ok_or(INVALID_DEVICE)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuInit(_flags: c_uint) -> Code {
    call("cuInit", || if script().gpus.is_empty() { Err(NO_DEVICE) } else { Ok(()) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDriverGetVersion(out: *mut c_int) -> Code {
    // SAFETY: the caller's word, here and below.
    call("cuDriverGetVersion", || unsafe { give(out, script().driver) })
}

fn name(code: Code) -> Option<&'static CStr> {
    Some(match code {
        0 => c"CUDA_SUCCESS",
        1 => c"CUDA_ERROR_INVALID_VALUE",
        2 => c"CUDA_ERROR_OUT_OF_MEMORY",
        34 => c"CUDA_ERROR_STUB_LIBRARY",
        46 => c"CUDA_ERROR_DEVICE_UNAVAILABLE",
        100 => c"CUDA_ERROR_NO_DEVICE",
        201 => c"CUDA_ERROR_INVALID_CONTEXT",
        214 => c"CUDA_ERROR_ECC_UNCORRECTABLE",
        218 => c"CUDA_ERROR_INVALID_PTX",
        719 => c"CUDA_ERROR_LAUNCH_FAILED",
        800 => c"CUDA_ERROR_NOT_PERMITTED",
        801 => c"CUDA_ERROR_NOT_SUPPORTED",
        803 => c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        999 => c"CUDA_ERROR_UNKNOWN",
        _ => return None,
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuGetErrorName(code: Code, out: *mut *const c_char) -> Code {
    let Some(name) = name(code) else { return INVALID_VALUE };
    // SAFETY: as above.
    unsafe { give(out, name.as_ptr()) }.err().unwrap_or(SUCCESS)
}

/// A sentence in the real driver.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuGetErrorString(code: Code, out: *mut *const c_char) -> Code {
    // SAFETY: as above.
    unsafe { cuGetErrorName(code, out) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGetCount(out: *mut c_int) -> Code {
    // SAFETY: as above.
    call("cuDeviceGetCount", || unsafe {
        give(out, c_int::try_from(script().gpus.len()).unwrap_or(c_int::MAX))
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGet(out: *mut c_int, ordinal: c_int) -> Code {
    call("cuDeviceGet", || {
        gpu(ordinal)?;
        // SAFETY: as above.
        unsafe { give(out, ordinal) }
    })
}

/// # Safety
/// `out` must have room for `len` bytes.
unsafe fn give_text(out: *mut c_char, len: c_int, text: &str) -> Result<(), Code> {
    if text.len() >= usize::try_from(len).unwrap_or(0) {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the text and its zero fit.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), out, text.len());
        out.add(text.len()).write(0);
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGetName(out: *mut c_char, len: c_int, handle: c_int) -> Code {
    call("cuDeviceGetName", || {
        gpu(handle)?;
        // SAFETY: as above.
        unsafe { give_text(out, len, "Fake GPU of the tests") }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGetPCIBusId(out: *mut c_char, len: c_int, handle: c_int) -> Code {
    // SAFETY: as above.
    call("cuDeviceGetPCIBusId", || unsafe { give_text(out, len, &gpu(handle)?.pci.to_uppercase()) })
}

fn uuid(handle: c_int, last_but_one: u8) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid[..4].copy_from_slice(b"fake");
    uuid[14] = last_but_one;
    uuid[15] = u8::try_from(handle).unwrap_or(u8::MAX);
    uuid
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGetUuid(out: *mut [u8; 16], handle: c_int) -> Code {
    call("cuDeviceGetUuid", || {
        gpu(handle)?;
        // SAFETY: as above.
        unsafe { give(out, uuid(handle, 0)) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGetUuid_v2(out: *mut [u8; 16], handle: c_int) -> Code {
    // SAFETY: as above.
    call("cuDeviceGetUuid_v2", || unsafe { give(out, uuid(handle, if gpu(handle)?.mig { 0x16 } else { 0 })) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceTotalMem_v2(out: *mut usize, handle: c_int) -> Code {
    // SAFETY: as above.
    call("cuDeviceTotalMem_v2", || unsafe { give(out, gpu(handle)?.memory) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceGetAttribute(
    out: *mut c_int,
    attribute: c_int,
    handle: c_int,
) -> Code {
    call("cuDeviceGetAttribute", || {
        let gpu = gpu(handle)?;
        let address = |part: usize| {
            gpu.pci.split([':', '.']).nth(part).and_then(|part| c_int::from_str_radix(part, 16).ok())
        };
        let value = match attribute {
            33 => address(1).ok_or(INVALID_VALUE)?,
            34 => address(2).ok_or(INVALID_VALUE)?,
            50 => address(0).ok_or(INVALID_VALUE)?,
            75 => 9,
            76 => 0,
            102 | 103 => c_int::from(gpu.vmm),
            110 | 116 | 117 => 1,
            118 => c_int::from(gpu.ordered) * 100,
            124 => c_int::from(gpu.dma_buf),
            128 => c_int::from(gpu.fabric),
            _ => return Err(INVALID_VALUE),
        };
        // SAFETY: as above.
        unsafe { give(out, value) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuDeviceCanAccessPeer(out: *mut c_int, from: c_int, to: c_int) -> Code {
    call("cuDeviceCanAccessPeer", || {
        let both = gpu(from)?.peers && gpu(to)?.peers;
        // SAFETY: as above.
        unsafe { give(out, c_int::from(both)) }
    })
}
