//! What goes wrong, in words.

use std::fmt;

use crate::abi;
use crate::library::LoadError;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why GPU memory cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no usable driver library.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The driver is older than everything that is known to work.
    #[error(
        "the NVIDIA driver supports CUDA {}.{} at most, and kvwire needs 12.0 as NIXL's wheels do: install driver 525 or newer",
        .version / 1000, .version % 1000 / 10
    )]
    DriverTooOld {
        /// As `cuDriverGetVersion` says: 1000 x major + 10 x minor.
        version: i32,
    },
    /// A call of the driver failed.
    #[error("{0}")]
    Call(CallError),
    /// The driver does not have a function that this needs.
    #[error("this NVIDIA driver has no `{symbol}`: {needed_for}")]
    Unsupported {
        /// The function.
        symbol: &'static str,
        /// What for.
        needed_for: &'static str,
    },
    /// The GPU cannot do what was asked.
    #[error("{0}")]
    Incapable(String),
}

/// A call of the driver that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallError {
    /// The function, and on what.
    pub call: String,
    /// Its `CUresult`.
    pub code: i32,
    /// The name of that, as the driver says it.
    pub name: String,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: {} ({})", self.call, self.name, self.code)?;
        if let Some(cause) = cause(self.code) {
            write!(f, "; {cause}")?;
        }
        Ok(())
    }
}

/// What a code usually means on a machine that was meant to have a working GPU.
fn cause(code: i32) -> Option<&'static str> {
    Some(match code {
        abi::OUT_OF_MEMORY => {
            "the GPU has not that much free memory: measure smaller sizes or another GPU (--gpu)"
        }
        abi::STUB_LIBRARY => {
            "this libcuda is the stub that comes with a CUDA toolkit and no driver: take its `stubs` folder out of LD_LIBRARY_PATH"
        }
        abi::DEVICE_UNAVAILABLE => "another process has the GPU for itself (exclusive compute mode)",
        abi::NO_DEVICE => {
            "the driver shows no GPU to this process: look at CUDA_VISIBLE_DEVICES, and in a pod at its nvidia.com/gpu request"
        }
        abi::INVALID_DEVICE => {
            "the driver does not take one of its own GPUs: look at CUDA_VISIBLE_DEVICES, and at MIG"
        }
        abi::NO_BINARY_FOR_GPU | abi::INVALID_PTX => {
            "the kernels are for the Turing generation and newer, and for drivers of CUDA 10 and newer"
        }
        abi::JIT_COMPILER_NOT_FOUND => {
            "libnvidia-ptxjitcompiler.so.1 is missing, which belongs to the driver: in a container, NVIDIA_DRIVER_CAPABILITIES needs `compute`"
        }
        abi::ECC_UNCORRECTABLE | abi::LAUNCH_FAILED => {
            "the GPU has failed: look at the kernel log for an NVRM Xid line, and have the GPU reset"
        }
        abi::NOT_PERMITTED => "this process may not: in a container, look at its device permissions",
        abi::NOT_SUPPORTED => "this GPU or driver cannot do that",
        abi::SYSTEM_NOT_READY => "the NVLink fabric is not up: look at the fabric manager's service",
        abi::SYSTEM_DRIVER_MISMATCH => {
            "libcuda and the loaded kernel module are of different versions: reboot, or mount the host's libraries"
        }
        abi::COMPAT_NOT_SUPPORTED => {
            "a newer libcuda of the image (cuda-compat) does not work with this GPU: take /usr/local/cuda/compat out of LD_LIBRARY_PATH, or update the host's driver"
        }
        abi::UNKNOWN => {
            "the kernel module may be missing or the GPU lost: look at `nvidia-smi` and the kernel log"
        }
        _ => return None,
    })
}
