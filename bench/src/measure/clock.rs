//! The host's monotonic clock, as all processes of the host read it.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since some moment before the host's start. Those of two hosts are never compared.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000)
        + u64::try_from(now.tv_nsec).unwrap_or(0)
}
