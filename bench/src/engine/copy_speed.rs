//! How fast memory copies: within itself, which is what a transfer through shared memory can reach at most, and between
//! host and GPU.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cuda::{GpuMemory, PinnedMemory};
use nixl::Memory as _;

use super::protocol::{EngineError, ErrorKind};
use crate::memory::Pool;

/// Bytes of one copy, at most: more than most caches hold, and not much beside a pool.
const BYTES_MAX: u64 = 64 << 20;
/// Time for the copies of one size, and how many there are at least.
const TIME: Duration = Duration::from_millis(20);
const COPIES_MIN: u32 = 3;

/// Bytes per second of the fastest of some copies of `bytes` bytes: of host memory by one core, or within the GPU.
///
/// # Errors
/// There is no memory for it, or the GPU failed.
pub(crate) fn measure(pool: &Pool, bytes: u64) -> Result<f64, EngineError> {
    match pool {
        Pool::Host(_) => {
            let bytes = usize::try_from(bytes.clamp(8, BYTES_MAX)).unwrap_or(8);
            let (from, mut to) = (vec![1_u8; bytes], vec![0_u8; bytes]);
            Ok(fastest(bytes, || {
                to.copy_from_slice(std::hint::black_box(&from));
                std::hint::black_box(&mut to);
                Ok(())
            })?)
        }
        Pool::Gpu(pool) => {
            let memory = Arc::clone(pool.memory());
            let bytes = usize::try_from(bytes.min(BYTES_MAX)).unwrap_or(8).min(memory.len() / 2).max(8);
            fastest(bytes, || {
                memory
                    .copy_within(bytes)
                    .map_err(|error| EngineError { kind: ErrorKind::Gpu, message: error.to_string() })
            })
        }
    }
}

/// Bytes per second of the fastest of some copies from page-locked host memory to the GPU, and back. `None` where the
/// driver cannot.
pub(crate) fn with_host(memory: &GpuMemory) -> Option<[u64; 2]> {
    let bytes = usize::try_from(BYTES_MAX).unwrap_or(usize::MAX).min(memory.len()) / 8 * 8;
    let host = PinnedMemory::new(memory.context(), bytes).ok()?;
    let failed = |error: cuda::Error| EngineError { kind: ErrorKind::Gpu, message: error.to_string() };
    let to = fastest(bytes, || memory.write(0, host.words(), bytes).map_err(failed)).ok()?;
    let from = fastest(bytes, || memory.read(0, host.words(), bytes).map_err(failed)).ok()?;
    Some([to, from].map(|bytes_per_s| bytes_per_s.round() as u64))
}

fn fastest(bytes: usize, mut copy: impl FnMut() -> Result<(), EngineError>) -> Result<f64, EngineError> {
    let end = Instant::now() + TIME;
    let mut best = Duration::MAX;
    let mut copies = 0;
    while copies < COPIES_MIN || Instant::now() < end {
        let begin = Instant::now();
        copy()?;
        best = best.min(begin.elapsed());
        copies += 1;
    }
    Ok(bytes as f64 / best.as_secs_f64().max(1e-9))
}
