//! Types and numbers of cuda.h, as they are in every CUDA from 11.4 on. A test holds them against NVIDIA's header of 12.9.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

/// `CUresult`.
pub(crate) type Code = c_int;
/// `CUdevice`.
pub(crate) type DeviceHandle = c_int;
/// `CUdeviceptr`.
pub(crate) type Address = u64;
/// `CUcontext`.
pub(crate) type ContextHandle = *mut c_void;
/// `CUstream`.
pub(crate) type Stream = *mut c_void;
/// `CUmodule`.
pub(crate) type Module = *mut c_void;
/// `CUfunction`.
pub(crate) type Function = *mut c_void;
/// `CUdevice_attribute`.
pub(crate) type Attribute = c_int;
/// `CUmemAllocationGranularity_flags`.
pub(crate) type Granularity = c_int;
/// `CUmemAllocationHandleType`.
pub(crate) type HandleKind = c_int;
/// `CUmemRangeHandleType`.
pub(crate) type RangeHandleKind = c_int;
/// `CUflushGPUDirectRDMAWritesTarget`.
pub(crate) type FlushTarget = c_int;
/// `CUflushGPUDirectRDMAWritesScope`.
pub(crate) type FlushScope = c_int;
/// `CUipcMemHandle`.
pub(crate) type IpcHandle = [u8; HANDLE_BYTES];
/// `CUmemGenericAllocationHandle`.
pub(crate) type Allocation = c_ulonglong;

pub(crate) const SUCCESS: Code = 0;
pub(crate) const OUT_OF_MEMORY: Code = 2;
pub(crate) const STUB_LIBRARY: Code = 34;
pub(crate) const DEVICE_UNAVAILABLE: Code = 46;
pub(crate) const NO_DEVICE: Code = 100;
pub(crate) const INVALID_DEVICE: Code = 101;
pub(crate) const NO_BINARY_FOR_GPU: Code = 209;
pub(crate) const INVALID_PTX: Code = 218;
pub(crate) const JIT_COMPILER_NOT_FOUND: Code = 221;
pub(crate) const ECC_UNCORRECTABLE: Code = 214;
pub(crate) const LAUNCH_FAILED: Code = 719;
pub(crate) const NOT_PERMITTED: Code = 800;
pub(crate) const NOT_SUPPORTED: Code = 801;
pub(crate) const SYSTEM_NOT_READY: Code = 802;
pub(crate) const SYSTEM_DRIVER_MISMATCH: Code = 803;
pub(crate) const COMPAT_NOT_SUPPORTED: Code = 804;
pub(crate) const UNKNOWN: Code = 999;

/// Values of `CUdevice_attribute`.
pub(crate) mod attribute {
    use super::Attribute;
    pub(crate) const CAPABILITY_MAJOR: Attribute = 75;
    pub(crate) const CAPABILITY_MINOR: Attribute = 76;
    pub(crate) const VIRTUAL_MEMORY: Attribute = 102;
    pub(crate) const RDMA_WITH_VIRTUAL_MEMORY: Attribute = 110;
    pub(crate) const RDMA_FLUSH_OPTIONS: Attribute = 117;
    pub(crate) const RDMA_WRITES_ORDERING: Attribute = 118;
    pub(crate) const DMA_BUF: Attribute = 124;
    pub(crate) const FABRIC_HANDLES: Attribute = 128;
}

/// `CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST`: the call below can be made.
pub(crate) const FLUSH_BY_HOST: c_int = 1;
/// `CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER`: from here on the GPU itself orders what a network card writes to it.
pub(crate) const ORDERED_FOR_OWNER: c_int = 100;
/// `CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX`.
pub(crate) const FLUSH_CURRENT: FlushTarget = 0;
/// `CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER`.
pub(crate) const FLUSH_TO_OWNER: FlushScope = 100;
/// `CU_STREAM_NON_BLOCKING`: such a stream does not wait for the default one.
pub(crate) const NON_BLOCKING: c_uint = 1;
/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`.
pub(crate) const DMA_BUF_FD: RangeHandleKind = 1;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
pub(crate) const PINNED: c_int = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
pub(crate) const ON_DEVICE: c_int = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
pub(crate) const READ_WRITE: c_int = 3;
/// `CU_MEM_ALLOC_GRANULARITY_RECOMMENDED`.
pub(crate) const RECOMMENDED: Granularity = 1;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(crate) const HANDLE_POSIX_FD: HandleKind = 1;
/// `CU_MEM_HANDLE_TYPE_FABRIC`.
pub(crate) const HANDLE_FABRIC: HandleKind = 8;
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

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use c_header::{CUDA, Claims};

    use super::*;
    use crate::library::DECLARED;

    /// Rust's names here, and those of cuda.h.
    const TYPES: [(&str, &str); 18] = [
        ("Code", "CUresult"),
        ("DeviceHandle", "CUdevice"),
        ("Address", "CUdeviceptr"),
        ("Allocation", "CUmemGenericAllocationHandle"),
        ("ContextHandle", "CUcontext"),
        ("Stream", "CUstream"),
        ("Module", "CUmodule"),
        ("Function", "CUfunction"),
        ("Attribute", "CUdevice_attribute"),
        ("Granularity", "CUmemAllocationGranularity_flags"),
        ("HandleKind", "CUmemAllocationHandleType"),
        ("RangeHandleKind", "CUmemRangeHandleType"),
        ("IpcHandle", "CUipcMemHandle"),
        ("AllocationProp", "CUmemAllocationProp"),
        ("AccessDesc", "CUmemAccessDesc"),
        ("Uuid", "CUuuid"),
        ("FlushTarget", "CUflushGPUDirectRDMAWritesTarget"),
        ("FlushScope", "CUflushGPUDirectRDMAWritesScope"),
    ];

    #[test]
    fn numbers_are_those_of_cuda_h() {
        let mut claims = Claims::of(&CUDA);
        for (name, value) in [
            ("CUDA_SUCCESS", SUCCESS),
            ("CUDA_ERROR_OUT_OF_MEMORY", OUT_OF_MEMORY),
            ("CUDA_ERROR_STUB_LIBRARY", STUB_LIBRARY),
            ("CUDA_ERROR_DEVICE_UNAVAILABLE", DEVICE_UNAVAILABLE),
            ("CUDA_ERROR_NO_DEVICE", NO_DEVICE),
            ("CUDA_ERROR_INVALID_DEVICE", INVALID_DEVICE),
            ("CUDA_ERROR_NO_BINARY_FOR_GPU", NO_BINARY_FOR_GPU),
            ("CUDA_ERROR_ECC_UNCORRECTABLE", ECC_UNCORRECTABLE),
            ("CUDA_ERROR_INVALID_PTX", INVALID_PTX),
            ("CUDA_ERROR_JIT_COMPILER_NOT_FOUND", JIT_COMPILER_NOT_FOUND),
            ("CUDA_ERROR_LAUNCH_FAILED", LAUNCH_FAILED),
            ("CUDA_ERROR_NOT_PERMITTED", NOT_PERMITTED),
            ("CUDA_ERROR_NOT_SUPPORTED", NOT_SUPPORTED),
            ("CUDA_ERROR_SYSTEM_NOT_READY", SYSTEM_NOT_READY),
            ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", SYSTEM_DRIVER_MISMATCH),
            ("CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", COMPAT_NOT_SUPPORTED),
            ("CUDA_ERROR_UNKNOWN", UNKNOWN),
            ("CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR", attribute::CAPABILITY_MAJOR),
            ("CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR", attribute::CAPABILITY_MINOR),
            ("CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED", attribute::VIRTUAL_MEMORY),
            (
                "CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED",
                attribute::RDMA_WITH_VIRTUAL_MEMORY,
            ),
            ("CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS", attribute::RDMA_FLUSH_OPTIONS),
            ("CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING", attribute::RDMA_WRITES_ORDERING),
            ("CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST", FLUSH_BY_HOST),
            ("CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER", ORDERED_FOR_OWNER),
            ("CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX", FLUSH_CURRENT),
            ("CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER", FLUSH_TO_OWNER),
            ("CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED", attribute::DMA_BUF),
            ("CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED", attribute::FABRIC_HANDLES),
            ("CU_STREAM_NON_BLOCKING", NON_BLOCKING.cast_signed()),
            ("CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD", DMA_BUF_FD),
            ("CU_MEM_ALLOCATION_TYPE_PINNED", PINNED),
            ("CU_MEM_LOCATION_TYPE_DEVICE", ON_DEVICE),
            ("CU_MEM_ACCESS_FLAGS_PROT_READWRITE", READ_WRITE),
            ("CU_MEM_ALLOC_GRANULARITY_RECOMMENDED", RECOMMENDED),
            ("CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR", HANDLE_POSIX_FD),
            ("CU_MEM_HANDLE_TYPE_FABRIC", HANDLE_FABRIC),
        ] {
            claims.number(name, value.into());
        }
        claims.hold();
    }

    #[test]
    fn structures_are_laid_out_as_in_cuda_h() {
        let mut claims = Claims::of(&CUDA);
        for (name, bytes) in [
            ("CUuuid", size_of::<Uuid>()),
            ("CUmemLocation", size_of::<Location>()),
            ("CUmemAllocationProp", size_of::<AllocationProp>()),
            ("CUmemAccessDesc", size_of::<AccessDesc>()),
            ("CUipcMemHandle", size_of::<IpcHandle>()),
            ("CUmemFabricHandle", HANDLE_BYTES),
        ] {
            claims.size(name, bytes);
        }
        claims.field("CUmemLocation", "type", offset_of!(Location, kind), 4);
        claims.field("CUmemLocation", "id", offset_of!(Location, id), 4);
        let prop = "CUmemAllocationProp";
        claims.field(prop, "type", offset_of!(AllocationProp, kind), 4);
        claims.field(prop, "requestedHandleTypes", offset_of!(AllocationProp, handles), 4);
        claims.field(prop, "location", offset_of!(AllocationProp, location), size_of::<Location>());
        claims.field(
            prop,
            "win32HandleMetaData",
            offset_of!(AllocationProp, windows),
            size_of::<*mut c_void>(),
        );
        claims.field(prop, "allocFlags.compressionType", offset_of!(AllocationProp, compression), 1);
        claims.field(prop, "allocFlags.gpuDirectRDMACapable", offset_of!(AllocationProp, rdma_capable), 1);
        claims.field(prop, "allocFlags.usage", offset_of!(AllocationProp, usage), 2);
        claims.field(prop, "allocFlags.reserved", offset_of!(AllocationProp, reserved), 4);
        claims.field("CUmemAccessDesc", "location", offset_of!(AccessDesc, location), size_of::<Location>());
        claims.field("CUmemAccessDesc", "flags", offset_of!(AccessDesc, flags), 4);
        claims.hold();
    }

    #[test]
    fn functions_are_declared_as_in_cuda_h() {
        let mut claims = Claims::of(&CUDA);
        for (symbol, rust) in DECLARED {
            claims.function(symbol, rust, &TYPES);
        }
        claims.hold();
    }
}
