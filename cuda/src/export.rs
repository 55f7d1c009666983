//! What an allocation can be exported as: that decides which wires can reach it.

use std::ffi::c_int;
use std::fmt;
use std::os::fd::{FromRawFd, OwnedFd};

use serde::{Deserialize, Serialize};

use crate::abi::{Address, DMA_BUF_FD, HANDLE_BYTES, HANDLE_FABRIC, HANDLE_POSIX_FD};
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
    // Whole pages only: the rest of an odd size does not matter for whether it can be done.
    let bytes = bytes / PAGE * PAGE;
    let mut fd: c_int = -1;
    // SAFETY: the range is our own allocation, and the handle asked for is a file descriptor.
    let code = unsafe { call((&raw mut fd).cast(), address, bytes, DMA_BUF_FD, 0) };
    answered(context, code, "cuMemGetHandleForAddressRange", fd)
}

fn ipc(context: &Context, address: Address) -> Export {
    let mut room = [0_u8; HANDLE_BYTES];
    // SAFETY: the handle is a structure of exactly that size, and the address is our own allocation.
    let code = unsafe { (context.driver().api.ipc_handle)(room.as_mut_ptr().cast(), address) };
    answered(context, code, "cuIpcGetMemHandle", -1)
}

fn handle(context: &Context, allocation: u64, kind: c_int) -> Export {
    let Some(call) = context.driver().api.export else {
        return Export::Fails("this driver has no cuMemExportToShareableHandle".to_owned());
    };
    let mut room = [0_u8; HANDLE_BYTES];
    // SAFETY: the larger of both kinds of handle fits.
    let code = unsafe { call(room.as_mut_ptr().cast(), allocation, kind, 0) };
    let fd = c_int::from_ne_bytes([room[0], room[1], room[2], room[3]]);
    answered(context, code, "cuMemExportToShareableHandle", if kind == HANDLE_POSIX_FD { fd } else { -1 })
}

/// A page of host memory, in bytes.
const PAGE: usize = 4096;

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
