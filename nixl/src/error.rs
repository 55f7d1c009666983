//! What can go wrong, with everything that NIXL does not say itself.

use std::fmt;

use nixl_sys as sys;

/// The result of a call to NIXL.
pub type Result<T> = std::result::Result<T, Error>;

/// NIXL's answer to a call. Most causes arrive as [`Status::Backend`]: the C API has no finer ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// -1: a parameter was refused.
    InvalidParam,
    /// -2: the backend failed, the peer disconnected, the transfer is active, and more.
    Backend,
    /// -3: a handle is not in the state that the call needs.
    InvalidState,
    /// -4: NIXL threw an exception.
    Exception,
    /// -5: telemetry is off.
    NoTelemetry,
    /// -6: the peer's metadata is not loaded, or no backend serves the request (NIXL 1.5 and later).
    NotFound,
    /// A code that is not known here.
    Unknown(i32),
}

impl Status {
    /// The meaning of a raw code.
    #[must_use]
    pub fn from_code(code: i32) -> Self {
        match code {
            sys::NIXL_CAPI_ERROR_INVALID_PARAM => Self::InvalidParam,
            sys::NIXL_CAPI_ERROR_BACKEND => Self::Backend,
            sys::NIXL_CAPI_ERROR_INVALID_STATE => Self::InvalidState,
            sys::NIXL_CAPI_ERROR_EXCEPTION => Self::Exception,
            sys::NIXL_CAPI_ERROR_NO_TELEMETRY => Self::NoTelemetry,
            sys::NIXL_CAPI_ERROR_NOT_FOUND => Self::NotFound,
            other => Self::Unknown(other),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidParam => "ERROR_INVALID_PARAM",
            Self::Backend => "ERROR_BACKEND",
            Self::InvalidState => "ERROR_INVALID_STATE",
            Self::Exception => "ERROR_EXCEPTION",
            Self::NoTelemetry => "ERROR_NO_TELEMETRY",
            Self::NotFound => "ERROR_NOT_FOUND",
            Self::Unknown(_) => "unknown status",
        })
    }
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// NIXL refused. Its reason stands, if anywhere, in what NIXL and UCX wrote to stderr.
    #[error("NIXL {call} failed for {subject}: {status} ({code})")]
    Call {
        /// The C function without its prefix, for example `register_mem`.
        call: &'static str,
        /// The code as NIXL returned it.
        code: i32,
        /// What the code means.
        status: Status,
        /// What the call was about: a peer, a plugin, a memory range.
        subject: String,
    },
    /// This NIXL has no such function.
    #[error("this NIXL has no {call}")]
    Unsupported {
        /// The C function without its prefix.
        call: &'static str,
    },
    /// A name or parameter for NIXL holds a zero byte.
    #[error("{what} holds a zero byte")]
    ZeroByte {
        /// What the text was meant as.
        what: &'static str,
    },
    /// A descriptor does not lie inside its region.
    #[error("{len} bytes at offset {offset} are outside the region of {region_len} bytes, or none at all")]
    OutOfBounds {
        /// Start of the descriptor in its region, in bytes.
        offset: usize,
        /// Length of the descriptor in bytes.
        len: usize,
        /// Length of the region in bytes.
        region_len: u64,
    },
    /// A region of a peer ends beyond the address space.
    #[error("a region of {len} bytes at {addr:#x} does not fit into memory")]
    ImpossibleRegion {
        /// Start of the region in the peer's process.
        addr: u64,
        /// Length in bytes.
        len: u64,
    },
    /// A list or a set of indices without entries.
    #[error("{what} is empty")]
    Empty {
        /// What is empty.
        what: &'static str,
    },
    /// One list cannot hold memory of several kinds.
    #[error("a descriptor list holds one kind of memory")]
    MixedKinds,
    /// The two sides of a transfer name different numbers of descriptors.
    #[error("{local} local and {remote} remote descriptors cannot be paired")]
    UnpairedIndices {
        /// Local indices given.
        local: usize,
        /// Remote indices given.
        remote: usize,
    },
    /// An index points past its list.
    #[error("index {index} is outside a list of {len} descriptors")]
    IndexOutOfRange {
        /// The index.
        index: i32,
        /// Descriptors in the list.
        len: usize,
    },
    /// Two paired descriptors differ in length.
    #[error("pair {pair} joins {local} local to {remote} remote bytes")]
    LengthMismatch {
        /// Position in both index lists.
        pair: usize,
        /// Length of the local descriptor in bytes.
        local: usize,
        /// Length of the remote descriptor in bytes.
        remote: usize,
    },
    /// Something was made from another agent.
    #[error("{what} belongs to another agent")]
    ForeignAgent {
        /// What it was.
        what: &'static str,
    },
    /// Memory could not be allocated.
    #[error("cannot allocate {bytes} bytes of host memory: {source}")]
    Allocation {
        /// How much was asked for.
        bytes: usize,
        /// The system's answer.
        source: std::io::Error,
    },
}

impl Error {
    /// NIXL's status, where the failure came from NIXL.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Call { status, .. } => Some(*status),
            _ => None,
        }
    }

    #[cold]
    pub(crate) fn call(call: &'static str, code: i32, subject: impl fmt::Display) -> Self {
        Self::Call { call, code, status: Status::from_code(code), subject: subject.to_string() }
    }
}

/// Turns a status into a result; `subject` is only asked for on failure.
#[inline]
pub(crate) fn check<S: fmt::Display>(
    call: &'static str,
    code: i32,
    subject: impl FnOnce() -> S,
) -> Result<()> {
    if code == sys::NIXL_CAPI_SUCCESS { Ok(()) } else { Err(Error::call(call, code, subject())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_call_says_what_on_what_and_the_code() {
        let error = Error::call("register_mem", -2, "4096 bytes of host memory");
        assert_eq!(
            error.to_string(),
            "NIXL register_mem failed for 4096 bytes of host memory: ERROR_BACKEND (-2)"
        );
        assert_eq!(error.status(), Some(Status::Backend));
    }

    #[test]
    fn an_unknown_code_is_kept() {
        assert_eq!(Status::from_code(-77), Status::Unknown(-77));
        assert_eq!(
            Error::call("post_xfer_req", -77, "peer `a`").to_string(),
            "NIXL post_xfer_req failed for peer `a`: unknown status (-77)"
        );
    }
}
