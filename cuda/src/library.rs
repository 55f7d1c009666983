//! The driver's library and the functions of it that are used.

use std::env;
use std::error::Error as _;
use std::ffi::{CStr, OsString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fmt;
use std::path::Path;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::abi::{
    AccessDesc, Address, Allocation, AllocationProp, Attribute, Code, ContextHandle, DeviceHandle,
    FlushScope, FlushTarget, Function, Granularity, HandleKind, IpcHandle, Module, RangeHandleKind, SUCCESS,
    Stream, Uuid,
};
use crate::error::{CallError, Error, Result};

/// Names the library where the loader would not find it.
pub const VARIABLE: &str = "KVWIRE_CUDA_LIB";
/// What the driver installs. Not `libcuda.so`: that is the name of a toolkit's stub.
const NAME: &str = "libcuda.so.1";
/// What is there when a driver is loaded, and what a container needs of it.
const SIGNS: [&str; 2] = ["/proc/driver/nvidia/version", "/dev/nvidiactl"];

/// Why there is no usable driver library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadError {
    /// It could not be opened.
    NotFound {
        /// What was looked for, and what else was seen.
        looked_for: Vec<String>,
    },
    /// It is not a CUDA driver, or one that is far too old.
    MissingSymbol {
        /// The library.
        library: String,
        /// The function.
        symbol: &'static str,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { looked_for } => write!(f, "no NVIDIA driver: {}", looked_for.join("; ")),
            Self::MissingSymbol { library, symbol } => {
                write!(f, "{library} has no `{symbol}`: it is no CUDA driver, or one older than 11.4")
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// Declares the table: each function with its symbol, required ones first.
macro_rules! table {
    (required { $($name:ident: $symbol:literal $type:ty,)* } optional { $($opt:ident: $opt_symbol:literal $opt_type:ty,)* }) => {
        /// Every function with its type, for the test that holds them against cuda.h.
        #[cfg(test)]
        pub(crate) const DECLARED: &[(&str, &str)] =
            &[$(($symbol, stringify!($type)),)* $(($opt_symbol, stringify!($opt_type)),)*];

        /// The functions, as cuda.h declares them.
        pub(crate) struct Api {
            $(pub(crate) $name: $type,)*
            $(pub(crate) $opt: Option<$opt_type>,)*
        }

        impl Api {
            fn resolve(library: &Library, path: &str) -> std::result::Result<Self, LoadError> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the type is that of cuda.h for this versioned symbol.
                        let found = unsafe { library.get::<$type>($symbol.as_bytes()) };
                        *found.map_err(|_| LoadError::MissingSymbol { library: path.to_owned(), symbol: $symbol })?
                    },)*
                    // SAFETY: as above.
                    $($opt: unsafe { library.get::<$opt_type>($opt_symbol.as_bytes()) }.ok().map(|found| *found),)*
                })
            }
        }
    };
}

table! {
    required {
        init: "cuInit" unsafe extern "C" fn(c_uint) -> Code,
        driver_version: "cuDriverGetVersion" unsafe extern "C" fn(*mut c_int) -> Code,
        error_name: "cuGetErrorName" unsafe extern "C" fn(Code, *mut *const c_char) -> Code,
        device_count: "cuDeviceGetCount" unsafe extern "C" fn(*mut c_int) -> Code,
        device: "cuDeviceGet" unsafe extern "C" fn(*mut DeviceHandle, c_int) -> Code,
        device_name: "cuDeviceGetName" unsafe extern "C" fn(*mut c_char, c_int, DeviceHandle) -> Code,
        device_uuid: "cuDeviceGetUuid_v2" unsafe extern "C" fn(*mut Uuid, DeviceHandle) -> Code,
        device_pci: "cuDeviceGetPCIBusId" unsafe extern "C" fn(*mut c_char, c_int, DeviceHandle) -> Code,
        device_memory: "cuDeviceTotalMem_v2" unsafe extern "C" fn(*mut usize, DeviceHandle) -> Code,
        device_attribute: "cuDeviceGetAttribute" unsafe extern "C" fn(*mut c_int, Attribute, DeviceHandle) -> Code,
        can_access_peer: "cuDeviceCanAccessPeer" unsafe extern "C" fn(*mut c_int, DeviceHandle, DeviceHandle) -> Code,
        retain_primary: "cuDevicePrimaryCtxRetain" unsafe extern "C" fn(*mut ContextHandle, DeviceHandle) -> Code,
        release_primary: "cuDevicePrimaryCtxRelease_v2" unsafe extern "C" fn(DeviceHandle) -> Code,
        set_current: "cuCtxSetCurrent" unsafe extern "C" fn(ContextHandle) -> Code,
        create_stream: "cuStreamCreate" unsafe extern "C" fn(*mut Stream, c_uint) -> Code,
        wait_for_stream: "cuStreamSynchronize" unsafe extern "C" fn(Stream) -> Code,
        destroy_stream: "cuStreamDestroy_v2" unsafe extern "C" fn(Stream) -> Code,
        alloc: "cuMemAlloc_v2" unsafe extern "C" fn(*mut Address, usize) -> Code,
        free: "cuMemFree_v2" unsafe extern "C" fn(Address) -> Code,
        ipc_handle: "cuIpcGetMemHandle" unsafe extern "C" fn(*mut IpcHandle, Address) -> Code,
        to_device: "cuMemcpyHtoDAsync_v2" unsafe extern "C" fn(Address, *const c_void, usize, Stream) -> Code,
        to_host: "cuMemcpyDtoHAsync_v2" unsafe extern "C" fn(*mut c_void, Address, usize, Stream) -> Code,
        on_device: "cuMemcpyDtoDAsync_v2" unsafe extern "C" fn(Address, Address, usize, Stream) -> Code,
        load_module: "cuModuleLoadData" unsafe extern "C" fn(*mut Module, *const c_void) -> Code,
        unload_module: "cuModuleUnload" unsafe extern "C" fn(Module) -> Code,
        function: "cuModuleGetFunction" unsafe extern "C" fn(*mut Function, Module, *const c_char) -> Code,
        launch: "cuLaunchKernel" unsafe extern "C" fn(Function, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Stream, *mut *mut c_void, *mut *mut c_void) -> Code,
    }
    optional {
        alloc_host: "cuMemAllocHost_v2" unsafe extern "C" fn(*mut *mut c_void, usize) -> Code,
        free_host: "cuMemFreeHost" unsafe extern "C" fn(*mut c_void) -> Code,
        parent_uuid: "cuDeviceGetUuid" unsafe extern "C" fn(*mut Uuid, DeviceHandle) -> Code,
        granularity: "cuMemGetAllocationGranularity" unsafe extern "C" fn(*mut usize, *const AllocationProp, Granularity) -> Code,
        create: "cuMemCreate" unsafe extern "C" fn(*mut Allocation, usize, *const AllocationProp, c_ulonglong) -> Code,
        release: "cuMemRelease" unsafe extern "C" fn(Allocation) -> Code,
        reserve: "cuMemAddressReserve" unsafe extern "C" fn(*mut Address, usize, usize, Address, c_ulonglong) -> Code,
        unreserve: "cuMemAddressFree" unsafe extern "C" fn(Address, usize) -> Code,
        map: "cuMemMap" unsafe extern "C" fn(Address, usize, usize, Allocation, c_ulonglong) -> Code,
        unmap: "cuMemUnmap" unsafe extern "C" fn(Address, usize) -> Code,
        set_access: "cuMemSetAccess" unsafe extern "C" fn(Address, usize, *const AccessDesc, usize) -> Code,
        export: "cuMemExportToShareableHandle" unsafe extern "C" fn(*mut c_void, Allocation, HandleKind, c_ulonglong) -> Code,
        flush_writes: "cuFlushGPUDirectRDMAWrites" unsafe extern "C" fn(FlushTarget, FlushScope) -> Code,
        range_handle: "cuMemGetHandleForAddressRange" unsafe extern "C" fn(*mut c_void, Address, usize, RangeHandleKind, c_ulonglong) -> Code,
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").finish_non_exhaustive()
    }
}

impl Api {
    /// Opens the library: the one that the environment names, else the driver's own.
    ///
    /// # Errors
    /// [`LoadError`].
    pub(crate) fn open() -> std::result::Result<(Self, String), LoadError> {
        let named = env::var_os(VARIABLE);
        let path = named.clone().unwrap_or_else(|| OsString::from(NAME));
        let text = path.to_string_lossy().into_owned();
        // SAFETY: a driver's initialisers only prepare its own state. `RTLD_LOCAL`, so that nobody else binds to it.
        let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| {
            let how = if named.is_some() { VARIABLE } else { "by the loader" };
            // The loader's own words, which say what is missing.
            let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            let mut looked_for = vec![format!("{text} ({how}): {why}")];
            looked_for.extend(SIGNS.iter().map(|sign| {
                format!("{sign} is {}", if Path::new(sign).exists() { "there" } else { "not there" })
            }));
            LoadError::NotFound { looked_for }
        })?;
        let api = Self::resolve(&library, &text)?;
        // Never unloaded: the driver keeps threads.
        std::mem::forget(library);
        Ok((api, text))
    }

    /// Turns a code into a result. `call` says what was called, on what.
    pub(crate) fn check(&self, code: Code, call: impl FnOnce() -> String) -> Result<()> {
        if code == SUCCESS {
            return Ok(());
        }
        let mut name = std::ptr::null();
        // SAFETY: the pointer is to a local; the driver answers with a string of its own that is never freed.
        let known = unsafe { (self.error_name)(code, &raw mut name) } == SUCCESS && !name.is_null();
        let name = if known {
            // SAFETY: a C string of the driver, as just said.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        } else {
            "an error that the driver has no name for".to_owned()
        };
        Err(Error::Call(CallError { call: call(), code, name }))
    }
}
