//! Handles by which another process gets at memory.

use std::ffi::{CString, c_int, c_uint, c_ulonglong, c_void};

use fake_gpus::script;

use crate::contexts::current;
use crate::heap::{Kind, block_of, close, enter, map, strike, unmap};
use crate::{Code, INVALID_CONTEXT, INVALID_VALUE, NOT_SUPPORTED, call, give};

const DMA_BUF: c_int = 1;
/// Begins every handle.
const MARK: u64 = u64::from_le_bytes(*b"fake-gpu");

/// What stands in the 64 bytes of a legacy IPC handle or of a fabric handle.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Handle {
    mark: u64,
    process: u32,
    file: c_int,
    pub(crate) bytes: usize,
    pub(crate) gpu: usize,
    rest: [u64; 4],
}

impl Handle {
    /// For memory of this process.
    pub(crate) fn of(file: c_int, bytes: usize, gpu: usize) -> Self {
        Self { mark: MARK, process: std::process::id(), file, bytes, gpu, rest: [0; 4] }
    }

    /// A file of this process over the same pages. The process that they belong to must live.
    pub(crate) fn open(&self) -> Result<c_int, Code> {
        if self.mark != MARK {
            return Err(INVALID_VALUE);
        }
        let path =
            CString::new(format!("/proc/{}/fd/{}", self.process, self.file)).map_err(|_| INVALID_VALUE)?;
        // SAFETY: the path is a C string.
        let file = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        if file < 0 { Err(INVALID_VALUE) } else { Ok(file) }
    }
}

/// A file of its own for who is given it.
pub(crate) fn duplicate(file: c_int) -> Result<c_int, Code> {
    // SAFETY: a file of this fake.
    let copy = unsafe { libc::fcntl(file, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 { Err(INVALID_VALUE) } else { Ok(copy) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuIpcGetMemHandle(out: *mut c_void, address: u64) -> Code {
    call("cuIpcGetMemHandle", || {
        current()?;
        let (_, block) = block_of(address, 0)?;
        if block.kind != Kind::Plain {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the caller's word, here and below.
        unsafe { give(out.cast(), Handle::of(block.file, block.bytes, block.gpu)) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuIpcOpenMemHandle_v2(out: *mut u64, handle: Handle, _flags: c_uint) -> Code {
    call("cuIpcOpenMemHandle_v2", || {
        let (gpu, limits) = current()?;
        // The driver does not open a process' own handles.
        if handle.process == std::process::id() {
            return Err(INVALID_CONTEXT);
        }
        // Nothing leads across the border of an instance.
        let instance = limits.mig || script().gpus.get(handle.gpu).is_some_and(|gpu| gpu.mig);
        if gpu != handle.gpu && (instance || !limits.peers) {
            return Err(NOT_SUPPORTED);
        }
        let file = handle.open()?;
        let address = map(file, handle.bytes, None)?;
        enter(address, handle.bytes, handle.gpu, Kind::Imported, file);
        // SAFETY: as above.
        unsafe { give(out, address as u64) }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn cuIpcCloseMemHandle(address: u64) -> Code {
    call("cuIpcCloseMemHandle", || {
        let start = usize::try_from(address).map_err(|_| INVALID_VALUE)?;
        let block = strike(start)?;
        unmap(start, block.bytes);
        close(block.file);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuMemGetHandleForAddressRange(
    out: *mut c_void,
    address: u64,
    bytes: usize,
    kind: c_int,
    _flags: c_ulonglong,
) -> Code {
    call("cuMemGetHandleForAddressRange", || {
        let (_, block) = block_of(address, bytes)?;
        if kind != DMA_BUF || !script().gpus.get(block.gpu).is_some_and(|gpu| gpu.dma_buf) {
            return Err(NOT_SUPPORTED);
        }
        // SAFETY: as above.
        unsafe { give(out.cast(), duplicate(block.file)?) }
    })
}
