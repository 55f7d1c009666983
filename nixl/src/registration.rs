//! Memory that NIXL knows.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::from_ref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::Agent;
use crate::backend::Backend;
use crate::descriptors::DescList;
use crate::error::{Error, Result, check};
use crate::handle::{OptArgs, RegDlist};
use crate::memory::{Memory, MemoryKind};
use crate::users::Users;

/// Registered memory. It is deregistered when dropped, and holds the memory until then.
pub struct Registration<'a> {
    pub(crate) agent: &'a Agent,
    pub(crate) region: Region,
    pub(crate) args: OptArgs<'a>,
    pub(crate) users: Users,
    list: RegDlist<'a>,
    memory: ManuallyDrop<Arc<dyn Memory>>,
}

/// Where registered memory is. Taken once, so that bounds do not depend on what a `Memory` answers later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) address: usize,
    pub(crate) len: usize,
    pub(crate) device: u64,
    pub(crate) kind: MemoryKind,
}

/// A registered range as a peer needs it to address it: plain data for the region table of a rendezvous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteRegion {
    /// First byte, as the owning process addresses it.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// NIXL's device number.
    pub device: u64,
    /// Where the memory lives.
    pub kind: MemoryKind,
}

impl Agent {
    /// Registers memory with a backend. Peers can reach it once they have loaded metadata made after this.
    ///
    /// # Errors
    /// When the memory is empty, the backend belongs to another agent, or NIXL refuses (for example because of the
    /// limit on locked memory).
    pub fn register<M: Memory>(&self, backend: &Backend<'_>, memory: &Arc<M>) -> Result<Registration<'_>> {
        if !std::ptr::eq(from_ref(backend.agent), self) {
            return Err(Error::ForeignAgent { what: "the backend" });
        }
        if memory.is_empty() {
            return Err(Error::Empty { what: "the memory" });
        }
        let region = Region {
            address: memory.address(),
            len: memory.len(),
            device: memory.device(),
            kind: memory.kind(),
        };
        let list =
            RegDlist::new(&self.library, region.kind.raw(), region.address, region.len, region.device)?;
        let args = backend.only(&self.library)?;
        // SAFETY: all handles are live. The memory is mapped, and stays so until it is deregistered: the registration
        // holds it.
        let code = unsafe { (self.library.register_mem)(self.raw, list.raw(), args.raw()) };
        check("register_mem", code, || format!("{region} with {backend}"))?;
        self.users.enter();
        let memory = ManuallyDrop::new(Arc::clone(memory) as Arc<dyn Memory>);
        Ok(Registration { agent: self, region, args, users: Users::default(), list, memory })
    }
}

impl<'a> Registration<'a> {
    /// This memory as peers address it.
    #[must_use]
    pub fn region(&self) -> RemoteRegion {
        RemoteRegion {
            addr: self.region.address as u64,
            len: self.region.len as u64,
            device: self.region.device,
            kind: self.region.kind,
        }
    }

    /// Prepares descriptors for parts of this memory, each an offset and a length in bytes.
    ///
    /// # Errors
    /// As [`Agent::describe`].
    pub fn describe<'r>(&'r self, ranges: impl IntoIterator<Item = (usize, usize)>) -> Result<DescList<'r>>
    where
        'a: 'r,
    {
        self.agent.describe(ranges.into_iter().map(|(offset, len)| (self, offset, len)))
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        // With a list left behind, NIXL may still move bytes here: the memory stays registered and is never freed.
        if !self.users.is_idle() {
            return;
        }
        // SAFETY: all handles are live, and nothing that NIXL holds refers to the memory.
        let code =
            unsafe { (self.agent.library.deregister_mem)(self.agent.raw, self.list.raw(), self.args.raw()) };
        if code < 0 {
            self.agent.quarantine();
            return;
        }
        // SAFETY: dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.memory) };
        self.agent.users.leave();
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of {}", self.len, self.kind)?;
        if self.kind == MemoryKind::Vram { write!(f, " {}", self.device) } else { Ok(()) }
    }
}

impl fmt::Debug for Registration<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("region", &self.region).finish_non_exhaustive()
    }
}
