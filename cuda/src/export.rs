//! What an allocation can be exported as: that decides which wires can reach it.

use std::ffi::c_int;
use std::fmt;
use std::os::fd::{FromRawFd, OwnedFd};

use serde::{Deserialize, Serialize};

use crate::abi::{
    Address, Allocation, DMA_BUF_FD, HANDLE_BYTES, HANDLE_FABRIC, HANDLE_POSIX_FD, HandleKind, IpcHandle,
};
use crate::context::Context;
use crate::memory::{Alloc, Backing};

/// What was tried at the allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exports {
    /// As a dma-buf: for a network card, where no peer-memory module is loaded.
    pub dma_buf: Export,
    /// To another process, for NVLink or PCIe between GPUs (`cuda_ipc`).
    pub process: Export,
    /// By which means that is.
    pub means: String,
}

/// Whether an export worked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Export {
    /// It did.
    Works,
    /// It did not, and why.
    Fails(String),
}

impl fmt::Display for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Works => f.write_str("yes"),
            Self::Fails(why) => write!(f, "no ({why})"),
        }
    }
}

impl Exports {
    pub(crate) fn of(
        context: &Context,
        address: Address,
        bytes: usize,
        alloc: Alloc,
        backing: Backing,
    ) -> Self {
        let (means, process) = match (alloc, backing) {
            (Alloc::Fabric, Backing::Mapped { allocation, .. }) => {
                ("fabric handle", handle(context, allocation, HANDLE_FABRIC))
            }
            (_, Backing::Mapped { allocation, .. }) => {
                ("file descriptor", handle(context, allocation, HANDLE_POSIX_FD))
            }
            _ => ("legacy IPC handle", ipc(context, address)),
        };
        Self { dma_buf: dma_buf(context, address, bytes), process, means: means.to_owned() }
    }
}

fn dma_buf(context: &Context, address: Address, bytes: usize) -> Export {
    let Some(call) = context.driver().api.range_handle else {
        return Export::Fails("this driver has no cuMemGetHandleForAddressRange".to_owned());
    };
    if !context.device().dma_buf {
        return Export::Fails("the driver says that this GPU and kernel have no dma-buf".to_owned());
    }
    let (begin, bytes) = pages(address, bytes, rustix::param::page_size());
    let mut fd: c_int = -1;
    // SAFETY: the pages are those of our own allocation, and the handle asked for is a file descriptor.
    let code = unsafe { call((&raw mut fd).cast(), begin, bytes, DMA_BUF_FD, 0) };
    answered(context, code, "cuMemGetHandleForAddressRange", fd)
}

fn ipc(context: &Context, address: Address) -> Export {
    let mut room: IpcHandle = [0; HANDLE_BYTES];
    // SAFETY: the pointer is to a local, and the address is our own allocation.
    let code = unsafe { (context.driver().api.ipc_handle)(&raw mut room, address) };
    answered(context, code, "cuIpcGetMemHandle", -1)
}

fn handle(context: &Context, allocation: Allocation, kind: HandleKind) -> Export {
    let Some(call) = context.driver().api.export else {
        return Export::Fails("this driver has no cuMemExportToShareableHandle".to_owned());
    };
    let mut room = [0_u8; HANDLE_BYTES];
    // SAFETY: the larger of both kinds of handle fits.
    let code = unsafe { call(room.as_mut_ptr().cast(), allocation, kind, 0) };
    let fd = c_int::from_ne_bytes([room[0], room[1], room[2], room[3]]);
    answered(context, code, "cuMemExportToShareableHandle", if kind == HANDLE_POSIX_FD { fd } else { -1 })
}

/// The pages of host memory that a range lies on, as the driver wants it: a small allocation shares its page with others.
fn pages(address: Address, bytes: usize, page: usize) -> (Address, usize) {
    let page = page as u64;
    let begin = address / page * page;
    let end = address.saturating_add(bytes as u64).div_ceil(page).saturating_mul(page);
    (begin, usize::try_from(end - begin).unwrap_or(usize::MAX))
}

fn answered(context: &Context, code: i32, call: &str, fd: c_int) -> Export {
    match context.check(code, call) {
        Ok(()) => {
            if fd >= 0 {
                // SAFETY: the driver has just made it for us.
                drop(unsafe { OwnedFd::from_raw_fd(fd) });
            }
            Export::Works
        }
        Err(error) => Export::Fails(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_widened_to_whole_pages() {
        assert_eq!(pages(0x20_0000, 0x40_0000, 4096), (0x20_0000, 0x40_0000));
        assert_eq!(pages(0x20_0200, 8, 4096), (0x20_0000, 4096));
        assert_eq!(pages(0x20_0ff8, 16, 4096), (0x20_0000, 8192));
        assert_eq!(pages(0x21_0000, 4096, 65536), (0x21_0000, 65536));
    }
}
