//! Memory that NIXL may read and write.

use std::fmt;

use nixl_sys as sys;
use serde::{Deserialize, Serialize};

/// Where memory lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum MemoryKind {
    /// Host memory.
    Dram,
    /// GPU memory.
    Vram,
    /// A block device.
    Block,
    /// An object store.
    Object,
    /// A file.
    File,
}

impl MemoryKind {
    /// The kind behind NIXL's number, where it is known.
    pub(crate) fn from_raw(raw: i32) -> Option<Self> {
        Some(match raw {
            sys::NIXL_CAPI_MEM_DRAM => Self::Dram,
            sys::NIXL_CAPI_MEM_VRAM => Self::Vram,
            sys::NIXL_CAPI_MEM_BLOCK => Self::Block,
            sys::NIXL_CAPI_MEM_OBJECT => Self::Object,
            sys::NIXL_CAPI_MEM_FILE => Self::File,
            _ => return None,
        })
    }

    pub(crate) fn raw(self) -> i32 {
        match self {
            Self::Dram => sys::NIXL_CAPI_MEM_DRAM,
            Self::Vram => sys::NIXL_CAPI_MEM_VRAM,
            Self::Block => sys::NIXL_CAPI_MEM_BLOCK,
            Self::Object => sys::NIXL_CAPI_MEM_OBJECT,
            Self::File => sys::NIXL_CAPI_MEM_FILE,
        }
    }
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dram => "host memory",
            Self::Vram => "GPU memory",
            Self::Block => "block device",
            Self::Object => "object store",
            Self::File => "file",
        })
    }
}

/// A range of memory that can be registered.
///
/// # Safety
/// As long as the value lives, whether or not it was moved:
/// - `len` bytes at `address` are mapped and stay the same memory, and the four answers never change;
/// - nothing holds a reference to plain bytes in the range, because NIXL and any peer may write there at any time.
///   Atomics and raw volatile access are sound.
pub unsafe trait Memory: 'static {
    /// First byte, as the registering process addresses it.
    fn address(&self) -> usize;
    /// Length in bytes.
    fn len(&self) -> usize;
    /// Whether there is nothing to register.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Where it lives.
    fn kind(&self) -> MemoryKind;
    /// NIXL's device number: the CUDA ordinal for GPU memory, 0 for host memory.
    fn device(&self) -> u64;
}
