//! What the links have carried: a file that all processes of a run have mapped.

use std::fs::OpenOptions;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap};

use crate::{Gpu, Wire, folder, script};

/// Links of one GPU.
pub const LINKS_MAX: usize = 18;
const GPUS_MAX: usize = 64;
/// Sent and received of each link, then of PCIe.
const WORDS: usize = 2 * LINKS_MAX + 2;

/// Which of two counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Out of the GPU.
    Sent = 0,
    /// Into it.
    Received = 1,
}

/// Bytes that a link of a GPU has carried.
pub fn tell(gpu: usize, link: usize, way: Way) -> u64 {
    word(gpu, 2 * link + way as usize).map_or(0, |word| word.load(Ordering::Relaxed))
}

/// Bytes over a GPU's PCIe link.
pub fn pcie(gpu: usize, way: Way) -> u64 {
    tell(gpu, LINKS_MAX, way)
}

/// Counts bytes that went from a GPU to a GPU; `None` is host memory, which only PCIe reaches. Within one GPU nothing
/// is counted.
pub fn carried(from: Option<usize>, to: Option<usize>, bytes: u64) {
    let wire = match (from, to) {
        (Some(from), Some(to)) if from == to => Wire::None,
        (Some(from), Some(to)) => match (script().gpus.get(from), script().gpus.get(to)) {
            (Some(from), Some(to)) => script().between(from, to),
            _ => Wire::None,
        },
        _ => Wire::Pcie,
    };
    for (gpu, way) in [(from, Way::Sent), (to, Way::Received)] {
        let Some(gpu) = gpu else { continue };
        match wire {
            Wire::Nvlink => {
                let links = script().gpus.get(gpu).map_or(0, Gpu::links_up) as usize;
                let each = bytes / links.max(1) as u64;
                (0..links).for_each(|link| add(gpu, link, way, each));
            }
            Wire::Pcie => add(gpu, LINKS_MAX, way, bytes),
            Wire::None => {}
        }
    }
}

fn add(gpu: usize, link: usize, way: Way, bytes: u64) {
    if let Some(word) = word(gpu, 2 * link + way as usize) {
        word.fetch_add(bytes, Ordering::Relaxed);
    }
}

fn word(gpu: usize, index: usize) -> Option<&'static AtomicU64> {
    static MAPPED: OnceLock<Option<&'static [AtomicU64]>> = OnceLock::new();
    let words = (*MAPPED.get_or_init(map))?;
    words.get(gpu.checked_mul(WORDS)?.checked_add(index)?)
}

fn map() -> Option<&'static [AtomicU64]> {
    let path = folder()?.join("counters");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).ok()?;
    let bytes = GPUS_MAX * WORDS * size_of::<u64>();
    file.set_len(bytes as u64).ok()?;
    // SAFETY: a new mapping of a file that is that long, and that stays mapped.
    let start = unsafe {
        mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)
            .ok()?
    };
    // SAFETY: the mapping holds that many words, is page aligned, and only atomics touch it.
    Some(unsafe { std::slice::from_raw_parts(start.cast::<AtomicU64>(), GPUS_MAX * WORDS) })
}
