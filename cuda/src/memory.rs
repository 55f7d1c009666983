//! Allocations on a GPU.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use nixl::{Memory, MemoryKind};
use serde::{Deserialize, Serialize};

use crate::abi::{
    AccessDesc, Address, Allocation, AllocationProp, HANDLE_FABRIC, HANDLE_POSIX_FD, Location, ON_DEVICE,
    PINNED, READ_WRITE, RECOMMENDED,
};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::export::Exports;
use crate::library::Api;

/// How GPU memory is allocated. What can be exported over NVLink and as dma-buf depends on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Alloc {
    /// `cuMemAlloc`, as `cudaMalloc` does.
    #[default]
    Malloc,
    /// Physical memory that is mapped (`cuMemCreate`), shareable as a file descriptor.
    Vmm,
    /// The same, shareable with other nodes of an NVLink domain.
    Fabric,
}

impl fmt::Display for Alloc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malloc => "malloc",
            Self::Vmm => "vmm",
            Self::Fabric => "fabric",
        })
    }
}

/// Memory of one GPU. It is freed when dropped.
pub struct GpuMemory {
    context: Arc<Context>,
    address: Address,
    len: usize,
    alloc: Alloc,
    backing: Backing,
    exports: Exports,
}

/// What is to be undone.
#[derive(Clone, Copy)]
pub(crate) enum Backing {
    Malloc,
    Mapped { reserved: usize, allocation: Allocation },
}

/// The functions of virtual memory management, all of them or none.
struct Vmm {
    granularity: unsafe extern "C" fn(*mut usize, *const AllocationProp, i32) -> i32,
    create: unsafe extern "C" fn(*mut Allocation, usize, *const AllocationProp, u64) -> i32,
    release: unsafe extern "C" fn(Allocation) -> i32,
    reserve: unsafe extern "C" fn(*mut Address, usize, usize, Address, u64) -> i32,
    unreserve: unsafe extern "C" fn(Address, usize) -> i32,
    map: unsafe extern "C" fn(Address, usize, usize, Allocation, u64) -> i32,
    unmap: unsafe extern "C" fn(Address, usize) -> i32,
    set_access: unsafe extern "C" fn(Address, usize, *const AccessDesc, usize) -> i32,
}

impl Vmm {
    fn of(api: &Api) -> Result<Self> {
        let missing =
            Error::Unsupported { symbol: "cuMemCreate", needed_for: "memory of kind vmm or fabric" };
        let all = || {
            Some(Self {
                granularity: api.granularity?,
                create: api.create?,
                release: api.release?,
                reserve: api.reserve?,
                unreserve: api.unreserve?,
                map: api.map?,
                unmap: api.unmap?,
                set_access: api.set_access?,
            })
        };
        all().ok_or(missing)
    }
}

impl GpuMemory {
    /// Allocates `bytes` on the GPU of `context`, and asks the driver what they can be exported as.
    ///
    /// # Errors
    /// The GPU has not so much free memory, or cannot allocate that way.
    pub fn new(context: &Arc<Context>, bytes: usize, alloc: Alloc) -> Result<Self> {
        context.bind()?;
        let (address, backing) = match alloc {
            Alloc::Malloc => (malloc(context, bytes)?, Backing::Malloc),
            Alloc::Vmm | Alloc::Fabric => mapped(context, bytes, alloc)?,
        };
        let exports = Exports::of(context, address, bytes, alloc, backing);
        Ok(Self { context: Arc::clone(context), address, len: bytes, alloc, backing, exports })
    }

    /// How it was allocated.
    #[must_use]
    pub fn alloc(&self) -> Alloc {
        self.alloc
    }

    /// What it can be exported as.
    #[must_use]
    pub fn exports(&self) -> &Exports {
        &self.exports
    }

    /// Where it is.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Copies the first `bytes` bytes of `host` to `offset`, and waits for that.
    ///
    /// # Errors
    /// One of the ends is too short, or the GPU failed.
    pub fn write(&self, offset: usize, host: &[AtomicU64], bytes: usize) -> Result<()> {
        let to = self.range(offset, bytes, host)?;
        // SAFETY: both ends have been checked.
        unsafe { self.context.to_device(to, host, bytes) }
    }

    /// Copies `bytes` bytes from `offset` to the start of `host`, and waits for that.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn read(&self, offset: usize, host: &[AtomicU64], bytes: usize) -> Result<()> {
        let from = self.range(offset, bytes, host)?;
        // SAFETY: both ends have been checked.
        unsafe { self.context.to_host(host, from, bytes) }
    }

    /// Copies the first half of the first `2 * bytes` bytes onto the second, and waits for that: what a copy within the
    /// GPU costs.
    ///
    /// # Errors
    /// The memory is too small, or the GPU failed.
    pub fn copy_within(&self, bytes: usize) -> Result<()> {
        let from = self.at(0, bytes.saturating_mul(2))?;
        self.context.bind()?;
        let api = &self.context.driver().api;
        // SAFETY: both halves lie in this memory.
        let code = unsafe { (api.on_device)(from + bytes as u64, from, bytes, self.context.stream()) };
        self.context.check(code, "cuMemcpyDtoDAsync")?;
        self.context.wait()
    }

    fn range(&self, offset: usize, bytes: usize, host: &[AtomicU64]) -> Result<Address> {
        if bytes > size_of_val(host) {
            return Err(Error::Incapable(format!(
                "{bytes} bytes do not fit a buffer of {}",
                size_of_val(host)
            )));
        }
        self.at(offset, bytes)
    }

    /// The address of a range of this memory.
    pub(crate) fn at(&self, offset: usize, bytes: usize) -> Result<Address> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.len => Ok(self.address + offset as u64),
            _ => Err(Error::Incapable(format!(
                "{bytes} bytes at {offset} leave a region of {} bytes",
                self.len
            ))),
        }
    }
}

fn malloc(context: &Context, bytes: usize) -> Result<Address> {
    let mut address = 0;
    // SAFETY: the pointer is to a local.
    let code = unsafe { (context.driver().api.alloc)(&raw mut address, bytes) };
    context.check(code, &format!("cuMemAlloc of {bytes} bytes"))?;
    Ok(address)
}

/// Physical memory, mapped to a range of addresses of its own.
fn mapped(context: &Context, bytes: usize, alloc: Alloc) -> Result<(Address, Backing)> {
    let device = context.device();
    if !device.virtual_memory {
        return Err(Error::Incapable(format!(
            "{device} has no virtual memory management, which --alloc {alloc} needs"
        )));
    }
    if alloc == Alloc::Fabric && !device.fabric_handles {
        return Err(Error::Incapable(format!(
            "{device} has no fabric handles, which --alloc fabric needs: they need a Hopper or newer GPU, its fabric manager, and in a container an IMEX channel"
        )));
    }
    let vmm = Vmm::of(&context.driver().api)?;
    let prop = AllocationProp {
        kind: PINNED,
        handles: if alloc == Alloc::Fabric { HANDLE_FABRIC } else { HANDLE_POSIX_FD },
        location: on_gpu(device.ordinal),
        windows: std::ptr::null_mut(),
        compression: 0,
        rdma_capable: u8::from(device.virtual_memory_rdma),
        usage: 0,
        reserved: [0; 4],
    };
    let mut unit = 0;
    // SAFETY: both pointers are to locals of the types that cuda.h says.
    let code = unsafe { (vmm.granularity)(&raw mut unit, &raw const prop, RECOMMENDED) };
    context.check(code, "cuMemGetAllocationGranularity")?;
    let reserved = bytes.checked_next_multiple_of(unit.max(1)).unwrap_or(usize::MAX);
    let mut allocation = 0;
    // SAFETY: as above.
    let code = unsafe { (vmm.create)(&raw mut allocation, reserved, &raw const prop, 0) };
    context.check(code, &format!("cuMemCreate of {reserved} bytes ({alloc})"))?;
    let mut address = 0;
    // SAFETY: the pointer is to a local; the driver chooses the range.
    let code = unsafe { (vmm.reserve)(&raw mut address, reserved, 0, 0, 0) };
    if let Err(error) = context.check(code, "cuMemAddressReserve") {
        // SAFETY: nothing is mapped to it.
        unsafe { (vmm.release)(allocation) };
        return Err(error);
    }
    let access = AccessDesc { location: prop.location, flags: READ_WRITE };
    // SAFETY: the range and the allocation are our own and have the same size.
    let code = unsafe { (vmm.map)(address, reserved, 0, allocation, 0) };
    let done = context.check(code, "cuMemMap").and_then(|()| {
        // SAFETY: the range has just been mapped; the description is one structure.
        let code = unsafe { (vmm.set_access)(address, reserved, &raw const access, 1) };
        context.check(code, "cuMemSetAccess")
    });
    let backing = Backing::Mapped { reserved, allocation };
    match done {
        Ok(()) => Ok((address, backing)),
        Err(error) => {
            undo(&context.driver().api, address, backing);
            Err(error)
        }
    }
}

fn on_gpu(ordinal: u32) -> Location {
    Location { kind: ON_DEVICE, id: i32::try_from(ordinal).unwrap_or(i32::MAX) }
}

/// Gives memory back. Codes are ignored: there is nobody left to tell, and a GPU that failed has nothing to free.
fn undo(api: &Api, address: Address, backing: Backing) {
    match (backing, Vmm::of(api)) {
        (Backing::Mapped { reserved, allocation }, Ok(vmm)) => {
            // SAFETY: the mapping is our own, and nobody uses it any more.
            unsafe {
                (vmm.unmap)(address, reserved);
                (vmm.unreserve)(address, reserved);
                (vmm.release)(allocation);
            }
        }
        // SAFETY: as above.
        _ => unsafe {
            (api.free)(address);
        },
    }
}

impl Drop for GpuMemory {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            undo(&self.context.driver().api, self.address, self.backing);
        }
    }
}

impl fmt::Debug for GpuMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GpuMemory")
            .field("device", &self.context.device().uuid)
            .field("len", &self.len)
            .field("alloc", &self.alloc)
            .finish_non_exhaustive()
    }
}

// SAFETY: the range is one allocation for the whole life of the value, it is not the processor's memory, and nothing
// in Rust refers to it: all access is by copies and kernels of the driver.
unsafe impl Memory for GpuMemory {
    fn address(&self) -> usize {
        usize::try_from(self.address).unwrap_or(usize::MAX)
    }

    fn len(&self) -> usize {
        self.len
    }

    fn kind(&self) -> MemoryKind {
        MemoryKind::Vram
    }

    fn device(&self) -> u64 {
        u64::from(self.context.device().ordinal)
    }
}
