//! Taking a seat: pins the engine to its cores, and allocates its memory.

use std::fs;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use cuda::{Context, Device, Driver, GpuMemory};
use nixl::{HostMemory, Memory as _, Populate};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::copy_speed;
use super::protocol::{EngineError, ErrorKind};
use crate::memory::{AllocKind, GpuPool, GpuSeat, Pool, Seat, UCX_NET_DEVICES, chosen};
use crate::report::model::{GpuUsed, Placement};

/// GPUs that CUDA shows to this process.
///
/// # Errors
/// What was looked for, and what came back.
pub(crate) fn gpus() -> Result<Vec<Device>, EngineError> {
    Driver::open().and_then(|driver| driver.devices()).map_err(gpu_failed)
}

/// Pins this thread, and with it those that NIXL starts later. Returns the cores, as the kernel lists them afterwards;
/// `None` leaves it where it is.
pub(crate) fn pin(seat: &Seat) -> Option<String> {
    let list = fs::read_to_string(format!("/sys/devices/system/node/node{}/cpulist", seat.numa?)).ok()?;
    let allowed = sched_getaffinity(None).ok()?;
    let mut wanted = CpuSet::new();
    let cores: Vec<usize> = cores(&list).into_iter().filter(|core| allowed.is_set(*core)).collect();
    cores.iter().for_each(|core| wanted.set(*core));
    // A container may have no core of that node.
    if cores.is_empty() || sched_setaffinity(None, &wanted).is_err() {
        return None;
    }
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(cpus.trim().to_owned())
}

/// A pool that is being taken.
pub(crate) enum Taking {
    /// Memory of a GPU. Its context is this thread's before UCX makes its workers; the memory is taken after that, as
    /// engines do, because UCX may take what it did not see allocated for host memory.
    Gpu(OpenGpu, Placement),
    /// Host memory: the kernel clears its pages while NIXL makes its backend, which mostly waits.
    Host(JoinHandle<Result<HostMemory, EngineError>>, Placement),
}

impl Taking {
    /// Starts to allocate the pool, or makes its GPU this thread's.
    ///
    /// # Errors
    /// There is no such GPU, or it cannot be used.
    pub(crate) fn begin(seat: &Seat, bytes: u64, cpus: Option<String>) -> Result<Self, EngineError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let placement = Placement {
            instead_of_gpu: seat.instead_of_gpu.clone(),
            nics: seat.nics.clone(),
            nics_distance: seat.nics_distance.clone(),
            ucx_net_devices: std::env::var(UCX_NET_DEVICES).ok(),
            numa_wanted: seat.numa,
            cpus,
            ..Placement::default()
        };
        if let Some(gpu) = &seat.gpu {
            return Ok(Self::Gpu(OpenGpu::open(gpu, bytes)?, placement));
        }
        let huge_pages = seat.huge_pages;
        let memory = thread::spawn(move || on_host(huge_pages, bytes));
        Ok(Self::Host(memory, Placement { huge_pages, ..placement }))
    }

    /// Waits for the pool, or takes it. NIXL has made its backend.
    ///
    /// # Errors
    /// The host or the GPU has not enough memory.
    pub(crate) fn finish(self) -> Result<(Pool, Placement), EngineError> {
        match self {
            Self::Gpu(gpu, placement) => {
                let (pool, used) = gpu.take()?;
                Ok((Pool::Gpu(Rc::new(pool)), Placement { gpu: Some(used), ..placement }))
            }
            Self::Host(memory, placement) => {
                let memory =
                    memory.join().map_err(|_| refused("the thread that takes the pool ended early"))??;
                let maps = fs::read_to_string("/proc/self/numa_maps").unwrap_or_default();
                let numa_node = node_of(&maps, memory.address());
                Ok((Pool::Host(Arc::new(memory)), Placement { numa_node, ..placement }))
            }
        }
    }
}

fn on_host(huge: bool, bytes: usize) -> Result<HostMemory, EngineError> {
    if huge {
        return HostMemory::in_huge_pages(bytes).map_err(|error| {
            refused(format!(
                "{error}; --huge-pages takes what an administrator has set aside: sysctl vm.nr_hugepages=N, in a pod hugepages-2Mi"
            ))
        });
    }
    HostMemory::new(bytes, Populate::Now).map_err(|error| refused(error.to_string()))
}

fn refused(message: impl Into<String>) -> EngineError {
    EngineError { kind: ErrorKind::Memory, message: message.into() }
}

/// A GPU whose context is this thread's.
pub(crate) struct OpenGpu {
    context: Arc<Context>,
    alloc: AllocKind,
    bytes: usize,
}

impl OpenGpu {
    fn open(seat: &GpuSeat, bytes: usize) -> Result<Self, EngineError> {
        let driver = Driver::open().map_err(gpu_failed)?;
        let devices = driver.devices().map_err(gpu_failed)?;
        let named = chosen(&devices, std::slice::from_ref(&seat.uuid))
            .map_err(|error| EngineError { kind: ErrorKind::Gpu, message: error.to_string() })?;
        let device = named.first().ok_or_else(|| refused("no GPU was named"))?;
        let context = Arc::new(Context::open(&driver, device).map_err(gpu_failed)?);
        Ok(Self { context, alloc: seat.alloc, bytes })
    }

    fn take(self) -> Result<(GpuPool, GpuUsed), EngineError> {
        let memory = GpuMemory::new(&self.context, self.bytes, self.alloc.into()).map_err(gpu_failed)?;
        let exports = memory.exports().clone();
        let copies = copy_speed::with_host(&memory);
        let pool = GpuPool::new(Arc::new(memory))
            .map_err(|message| EngineError { kind: ErrorKind::Gpu, message })?;
        let (device, version) = (self.context.device(), self.context.driver().version());
        let used = GpuUsed {
            name: device.name.clone(),
            uuid: device.uuid.clone(),
            gpu_uuid: device.gpu_uuid.clone(),
            pci: device.pci.clone(),
            driver_cuda: format!("{}.{}", version / 1000, version % 1000 / 10),
            alloc: self.alloc,
            dma_buf: exports.dma_buf.to_string(),
            process_export: exports.process.to_string(),
            process_export_means: exports.means,
            without_kernels: pool.without_kernels().map(str::to_owned),
            from_host_bytes_per_s: copies.map(|[to, _]| to),
            to_host_bytes_per_s: copies.map(|[_, from]| from),
            pcie_bytes_per_s: None,
            pcie: None,
        };
        Ok((pool, used))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "an adapter for `map_err`")]
fn gpu_failed(error: cuda::Error) -> EngineError {
    EngineError { kind: ErrorKind::Gpu, message: error.to_string() }
}

/// Numbers of a kernel's list: `0-3,8`.
fn cores(list: &str) -> Vec<usize> {
    let mut cores = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            cores.extend((first..=last).take(CpuSet::MAX_CPU).filter(|core| *core < CpuSet::MAX_CPU));
        }
    }
    cores
}

/// The node that most pages of the mapping at `address` lie on (`man 5 numa`).
fn node_of(numa_maps: &str, address: usize) -> Option<u32> {
    let start = |line: &&str| usize::from_str_radix(line.split(' ').next()?, 16).ok();
    let line = numa_maps
        .lines()
        .filter(|line| start(line).is_some_and(|start| start <= address))
        .max_by_key(start)?;
    let pages = line.split(' ').filter_map(|word| {
        let (node, pages) = word.strip_prefix('N')?.split_once('=')?;
        Some((pages.parse::<u64>().ok()?, node.parse::<u32>().ok()?))
    });
    pages.max().map(|(_, node)| node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_cores_has_ranges_and_single_ones() {
        assert_eq!(cores("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(cores("x,5-4,1"), [1]);
        assert!(cores("0-99999999").len() <= CpuSet::MAX_CPU);
    }

    #[test]
    fn memory_lies_on_the_node_that_has_most_of_its_pages() {
        let maps = "7f00 default anon=3 dirty=3 N0=1 N1=2 kernelpagesize_kB=4\n7f10 default file=/x N0=9\n";
        assert_eq!(node_of(maps, 0x7f08), Some(1));
        assert_eq!(node_of(maps, 0x7f10), Some(0));
        assert_eq!(node_of(maps, 0x10), None);
        assert_eq!(node_of("", 0x7f00), None);
    }
}
