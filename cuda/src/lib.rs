//! GPU memory through the CUDA driver: devices, allocations of every kind, copies, and three small kernels.
//!
//! The driver's library is opened at run time and only when GPU memory is asked for: kvwire builds and starts without
//! it, and without a CUDA toolkit. What is missing is an error that says so. That is why this is a table of the
//! functions that are used and not cudarc, which panics when the library or one of its functions is missing.
//!
//! Everything works in the *primary* context of a GPU, the one that UCX and inference engines use, and on one stream of
//! its own: nothing here waits for the whole GPU.

mod abi;
mod context;
mod device;
mod error;
mod export;
mod kernels;
mod library;
mod memory;
mod pinned;

pub use context::Context;
pub use device::{Device, Driver};
pub use error::{Error, Result};
pub use export::{Export, Exports};
pub use kernels::{Kernels, Marks, Piece};
pub use library::{LoadError, VARIABLE};
pub use memory::{Alloc, GpuMemory};
pub use pinned::PinnedMemory;
