//! Types and numbers of cuda.h, as they are in every CUDA from 11.4 on. Checked against NVIDIA's header of 12.9.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

/// `CUresult`.
pub(crate) type Code = c_int;
/// `CUdevice`.
pub(crate) type DeviceHandle = c_int;
/// `CUdeviceptr`.
pub(crate) type Address = u64;
/// `CUcontext`, `CUmodule`, `CUfunction` and `CUstream`.
pub(crate) type Opaque = *mut c_void;
/// `CUmemGenericAllocationHandle`.
pub(crate) type Allocation = c_ulonglong;

pub(crate) const SUCCESS: Code = 0;
pub(crate) const OUT_OF_MEMORY: Code = 2;
pub(crate) const STUB_LIBRARY: Code = 34;
pub(crate) const DEVICE_UNAVAILABLE: Code = 46;
pub(crate) const NO_DEVICE: Code = 100;
pub(crate) const NO_BINARY_FOR_GPU: Code = 209;
pub(crate) const ECC_UNCORRECTABLE: Code = 214;
pub(crate) const LAUNCH_FAILED: Code = 719;
pub(crate) const NOT_PERMITTED: Code = 800;
pub(crate) const NOT_SUPPORTED: Code = 801;
pub(crate) const SYSTEM_NOT_READY: Code = 802;
pub(crate) const SYSTEM_DRIVER_MISMATCH: Code = 803;
pub(crate) const UNKNOWN: Code = 999;

/// `CUdevice_attribute`.
pub(crate) mod attribute {
    use std::ffi::c_int;
    pub(crate) const CAPABILITY_MAJOR: c_int = 75;
    pub(crate) const CAPABILITY_MINOR: c_int = 76;
    pub(crate) const VIRTUAL_MEMORY: c_int = 102;
    pub(crate) const RDMA_WITH_VIRTUAL_MEMORY: c_int = 110;
    pub(crate) const FABRIC_HANDLES: c_int = 128;
}

/// `CU_STREAM_NON_BLOCKING`: such a stream does not wait for the default one.
pub(crate) const NON_BLOCKING: c_uint = 1;
/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`.
pub(crate) const DMA_BUF_FD: c_int = 1;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
pub(crate) const PINNED: c_int = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
pub(crate) const ON_DEVICE: c_int = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
pub(crate) const READ_WRITE: c_int = 3;
/// `CU_MEM_ALLOC_GRANULARITY_RECOMMENDED`.
pub(crate) const RECOMMENDED: c_int = 1;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(crate) const HANDLE_POSIX_FD: c_int = 1;
/// `CU_MEM_HANDLE_TYPE_FABRIC`.
pub(crate) const HANDLE_FABRIC: c_int = 8;
/// Size of `CUipcMemHandle` and of `CUmemFabricHandle`.
pub(crate) const HANDLE_BYTES: usize = 64;

/// `CUuuid`.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Uuid(pub(crate) [u8; 16]);

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Location {
    pub(crate) kind: c_int,
    pub(crate) id: c_int,
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AllocationProp {
    pub(crate) kind: c_int,
    pub(crate) handles: c_int,
    pub(crate) location: Location,
    pub(crate) windows: *mut c_void,
    pub(crate) compression: u8,
    pub(crate) rdma_capable: u8,
    pub(crate) usage: u16,
    pub(crate) reserved: [u8; 4],
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AccessDesc {
    pub(crate) location: Location,
    pub(crate) flags: c_int,
}

pub(crate) type LaunchKernel = unsafe extern "C" fn(
    Opaque,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    Opaque,
    *mut *mut c_void,
    *mut *mut c_void,
) -> Code;
pub(crate) type GetErrorName = unsafe extern "C" fn(Code, *mut *const c_char) -> Code;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_laid_out_as_in_cuda_h() {
        assert_eq!(size_of::<AllocationProp>(), 32);
        assert_eq!(std::mem::offset_of!(AllocationProp, location), 8);
        assert_eq!(std::mem::offset_of!(AllocationProp, windows), 16);
        assert_eq!(std::mem::offset_of!(AllocationProp, rdma_capable), 25);
        assert_eq!(std::mem::offset_of!(AllocationProp, usage), 26);
        assert_eq!(size_of::<AccessDesc>(), 12);
        assert_eq!(size_of::<Uuid>(), 16);
    }
}
