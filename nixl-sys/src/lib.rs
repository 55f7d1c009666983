//! The NIXL C API: types generated from our own header, and a loader that needs no NIXL to build or to start.
//!
//! ```no_run
//! let nixl = nixl_sys::open(&nixl_sys::SearchOptions::from_process(None))?;
//! let version = nixl.version.as_deref().unwrap_or("of unknown version");
//! # Ok::<(), nixl_sys::LoadError>(())
//! ```
//!
//! Functions are called through [`Library`], which derefs to [`Functions`]. Statuses stay integers, because a later NIXL
//! may answer with codes that this one does not know. The safe API stands in the crate `nixl`.

#[expect(
    non_camel_case_types,
    missing_docs,
    reason = "generated from C, whose names and comments it keeps"
)]
#[rustfmt::skip]
mod bindings;
mod cuda_runtime;
mod error;
#[cfg(feature = "bindgen")]
pub mod generate;
pub mod header;
mod library;
pub mod maps;
mod search;
mod table;
mod version;

pub use bindings::*;
pub use cuda_runtime::CudaRuntime;
pub use error::{LoadError, OLDEST_SUPPORTED};
pub use library::{Library, Loaded, open};
pub use search::{Candidate, NIXL_LIB_VARIABLE, Origin, SearchOptions};
pub use table::Functions;
