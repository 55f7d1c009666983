//! Handles by which another process gets at memory.

use std::ffi::{CString, c_int, c_uint, c_ulonglong, c_void};
use std::path::PathBuf;

use fake_gpus::script;

use crate::contexts::current;
use crate::heap::{Block, Kind, block_of, close, enter, map, strike, unmap};
use crate::{Code, INVALID_CONTEXT, INVALID_VALUE, NOT_SUPPORTED, call, give};

const DMA_BUF: c_int = 1;
const PAGE: usize = 4096;
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
    /// Memory that other process-id namespaces reach too is a file with this number in the folder of the GPUs; else 0.
    number: u64,
    rest: [u64; 3],
}

impl Handle {
    /// For memory of this process.
    pub(crate) fn of(file: c_int, bytes: usize, gpu: usize, number: u64) -> Self {
        Self { mark: MARK, process: std::process::id(), file, bytes, gpu, number, rest: [0; 3] }
    }

    /// A file of this process over the same pages. The process that they belong to must live.
    pub(crate) fn open(&self) -> Result<c_int, Code> {
        if self.mark != MARK {
            return Err(INVALID_VALUE);
        }
        let path = match self.number {
            0 => PathBuf::from(format!("/proc/{}/fd/{}", self.process, self.file)),
            number => shared_file(number)?,
        };
        let path = CString::new(path.into_os_string().into_encoded_bytes()).map_err(|_| INVALID_VALUE)?;
        // SAFETY: the path is a C string.
        let file = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        if file < 0 { Err(INVALID_VALUE) } else { Ok(file) }
    }
}

/// Memory with a fabric handle.
pub(crate) fn shared_file(number: u64) -> Result<PathBuf, Code> {
    Ok(fake_gpus::folder().ok_or(INVALID_VALUE)?.join(format!("fabric-{number:x}")))
}

/// A file of its own for who is given it.
pub(crate) fn duplicate(file: c_int) -> Result<c_int, Code> {
    // SAFETY: a file of this fake.
    let copy = unsafe { libc::fcntl(file, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 { Err(INVALID_VALUE) } else { Ok(copy) }
}

/// The block that lies on whole pages: the driver exports nothing less.
fn block_of_pages(address: u64, bytes: usize) -> Result<Block, Code> {
    let whole = address.is_multiple_of(PAGE as u64) && bytes.is_multiple_of(PAGE) && bytes > 0;
    let (start, block) = block_of(address, 1)?;
    let end = start + block.bytes.next_multiple_of(PAGE);
    if whole && address + bytes as u64 <= end as u64 { Ok(block) } else { Err(INVALID_VALUE) }
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
        unsafe { give(out.cast(), Handle::of(block.file, block.bytes, block.gpu, 0)) }
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
        let block = block_of_pages(address, bytes)?;
        if kind != DMA_BUF || !script().gpus.get(block.gpu).is_some_and(|gpu| gpu.dma_buf) {
            return Err(NOT_SUPPORTED);
        }
        // SAFETY: as above.
        unsafe { give(out.cast(), duplicate(block.file)?) }
    })
}
