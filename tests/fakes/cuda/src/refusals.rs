//! What UCX's CUDA modules are linked against and these GPUs do not have, and the search for functions by name.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::{Code, NOT_FOUND, NOT_SUPPORTED, call, give};

/// Each has code of its own: functions that are alike would be merged, and UCX's hook of one would be in all of them.
macro_rules! refused {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub(crate) extern "C" fn $name() -> Code {
                std::arch::naked_asm!("mov eax, {code}", "ret", code = const NOT_SUPPORTED)
            }
        )*
    };
}

// Managed memory, memory pools, and other ways to take memory, which UCX's hooks look for.
refused! {
    cuMemAlloc
    cuMemAllocAsync
    cuMemAllocFromPoolAsync
    cuMemAllocManaged
    cuMemAllocPitch
    cuMemAllocPitch_v2
    cuMemFree
    cuMemFreeAsync
    cuMemFreeHost_v2
    cuMemPoolDestroy
    cuMemPoolExportPointer
    cuMemPoolExportToShareableHandle
    cuMemPoolImportFromShareableHandle
    cuMemPoolImportPointer
    cuMemPoolSetAccess
}

/// `CU_GET_PROC_ADDRESS_SUCCESS`.
const FOUND: c_int = 0;
/// `CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND`.
const SYMBOL_NOT_FOUND: c_int = 1;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    out: *mut *mut c_void,
    _version: c_int,
    _flags: u64,
    status: *mut c_int,
) -> Code {
    call("cuGetProcAddress_v2", || {
        // SAFETY: the caller's word.
        let function = match unsafe { CStr::from_ptr(name) }.to_bytes() {
            b"cuMemGetHandleForAddressRange" => {
                Some(crate::exports::cuMemGetHandleForAddressRange as *mut c_void)
            }
            b"cuCtxSetFlags" => Some(crate::contexts::cuCtxSetFlags as *mut c_void),
            _ => None,
        };
        if !status.is_null() {
            // SAFETY: as above. UCX believes what stands here, and does not clear it before.
            unsafe { give(status, if function.is_some() { FOUND } else { SYMBOL_NOT_FOUND })? };
        }
        // SAFETY: as above.
        unsafe { give(out, function.ok_or(NOT_FOUND)?) }
    })
}
