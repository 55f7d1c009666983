//! NIXL's status codes as results.

use nixl_sys as sys;

/// A failed call: the status that it answers with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failed(pub(crate) i32);

pub(crate) type Outcome<T> = Result<T, Failed>;

pub(crate) const INVALID_PARAM: Failed = Failed(sys::NIXL_CAPI_ERROR_INVALID_PARAM);
pub(crate) const BACKEND: Failed = Failed(sys::NIXL_CAPI_ERROR_BACKEND);
pub(crate) const INVALID_STATE: Failed = Failed(sys::NIXL_CAPI_ERROR_INVALID_STATE);
pub(crate) const NO_TELEMETRY: Failed = Failed(sys::NIXL_CAPI_ERROR_NO_TELEMETRY);
pub(crate) const NOT_FOUND: Failed = Failed(sys::NIXL_CAPI_ERROR_NOT_FOUND);
/// Not an error: the transfer goes on.
pub(crate) const IN_PROGRESS: Failed = Failed(sys::NIXL_CAPI_IN_PROG);

/// Fails with the status that the script gives, if it gives one.
pub(crate) fn scripted(status: Option<i32>) -> Outcome<()> {
    status.map_or(Ok(()), |status| Err(Failed(status)))
}
