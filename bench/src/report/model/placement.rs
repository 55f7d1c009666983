//! Where an engine sat.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::memory::AllocKind;

/// Where one side's engine sat: its memory, cores and network ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Placement {
    /// The GPU that the payload lay on; null for host memory.
    pub(crate) gpu: Option<GpuUsed>,
    /// Why host memory was used although GPU memory was wished for; null where it was not.
    pub(crate) instead_of_gpu: Option<String>,
    /// NUMA node that the engine was to be pinned to: that of `--numa`, or the GPU's; null where it was left free.
    #[serde(default)]
    pub(crate) numa_wanted: Option<u32>,
    /// NUMA node that most pages of host memory lie on, as the kernel tells; null where it does not.
    pub(crate) numa_node: Option<u32>,
    /// Processor cores that the engine was pinned to, as the kernel lists them; null where it was not.
    pub(crate) cpus: Option<String>,
    /// Host memory in huge pages that were set aside.
    pub(crate) huge_pages: bool,
    /// Network ports that were chosen for UCX: those nearest to the GPU, or those of `--nics`; empty where UCX chose.
    pub(crate) nics: Vec<String>,
    /// How near the nearest ports are to the GPU, in the words of `nvidia-smi topo`; null where they were not looked for.
    #[serde(default)]
    pub(crate) nics_distance: Option<String>,
    /// `UCX_NET_DEVICES` in the engine's own environment, with the network interfaces that stay allowed beside the ports;
    /// null where it is not set.
    #[serde(default)]
    pub(crate) ucx_net_devices: Option<String>,
}

/// A GPU and the memory on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct GpuUsed {
    /// Model.
    pub(crate) name: String,
    /// `GPU-…`, or `MIG-…` of an instance.
    pub(crate) uuid: String,
    /// `GPU-…` of the whole GPU, also for an instance.
    pub(crate) gpu_uuid: String,
    /// PCI address.
    pub(crate) pci: String,
    /// The newest CUDA that the driver supports, for example `12.8`.
    pub(crate) driver_cuda: String,
    /// How the memory was allocated.
    pub(crate) alloc: AllocKind,
    /// Whether the memory can be exported as dma-buf, for network cards without a peer-memory module: `yes`, or `no` with
    /// the reason.
    pub(crate) dma_buf: String,
    /// Whether the memory can be exported to other processes, for NVLink and PCIe between GPUs: `yes`, or `no` with the
    /// reason.
    pub(crate) process_export: String,
    /// By which kind of handle.
    pub(crate) process_export_means: String,
    /// Why the data was checked through a copy in host memory; null where kernels on the GPU checked it.
    pub(crate) without_kernels: Option<String>,
    /// Bytes per second of a copy from page-locked host memory to the GPU, of up to 64 MiB, the fastest of some when the
    /// memory was taken; null where it was not measured.
    #[serde(default)]
    pub(crate) from_host_bytes_per_s: Option<u64>,
    /// The same from the GPU to host memory.
    #[serde(default)]
    pub(crate) to_host_bytes_per_s: Option<u64>,
    /// Bytes per second that the GPU's PCIe link carries in one direction; null where it is not known.
    #[serde(default)]
    pub(crate) pcie_bytes_per_s: Option<u64>,
    /// Where that figure comes from.
    #[serde(default)]
    pub(crate) pcie: Option<String>,
}

/// How an export that works reads.
const YES: &str = "yes";

impl GpuUsed {
    /// The memory can be exported to another process.
    pub(crate) fn is_exportable(&self) -> bool {
        self.process_export == YES
    }

    /// Copies between host and GPU beside what the link can carry; `None` where they were not measured.
    pub(crate) fn copies(&self) -> Option<String> {
        let gb = |bytes_per_s: u64| format!("{:.1}", bytes_per_s as f64 / 1e9);
        let (from_host, to_host) = (self.from_host_bytes_per_s?, self.to_host_bytes_per_s?);
        let figures = format!("copies from host {} GB/s, to host {} GB/s", gb(from_host), gb(to_host));
        Some(match (self.pcie_bytes_per_s, &self.pcie) {
            (Some(limit), Some(source)) => {
                let [from, to] = [from_host, to_host].map(|rate| percent_of(rate, limit));
                format!("{figures}: {from} % and {to} % of {} GB/s ({source})", gb(limit))
            }
            _ => figures,
        })
    }

    /// Percent of the PCIe link that the slower of the two copies reached, rounded down.
    pub(crate) fn copies_percent(&self) -> Option<u64> {
        let slower = self.from_host_bytes_per_s?.min(self.to_host_bytes_per_s?);
        Some(percent_of(slower, self.pcie_bytes_per_s?))
    }
}

fn percent_of(rate: u64, limit: u64) -> u64 {
    rate.saturating_mul(100) / limit.max(1)
}

impl Placement {
    /// The memory of all ranks of a side in a few words, each kind once.
    pub(crate) fn memory_of(placements: &[Self]) -> String {
        let mut kinds: Vec<String> = placements.iter().map(Self::memory).collect();
        kinds.dedup();
        kinds.join(" and ")
    }

    /// The ports in a few words: `mlx5_0:1 (PIX)`; `None` where UCX chose.
    pub(crate) fn ports(&self) -> Option<String> {
        let names = (!self.nics.is_empty()).then(|| self.nics.join(", "))?;
        Some(match &self.nics_distance {
            Some(distance) => format!("{names} ({distance})"),
            None => names,
        })
    }

    /// Network interfaces that stand in `UCX_NET_DEVICES` only because kvwire left them allowed.
    pub(crate) fn interfaces_added(&self) -> impl Iterator<Item = &str> {
        let told = self.ucx_net_devices.as_deref().filter(|_| self.nics_distance.is_some());
        let told = told.into_iter().flat_map(|list| list.split(','));
        told.filter(|name| !self.nics.iter().any(|port| port == name))
    }

    /// The memory in a few words, the same from run to run: `host memory`, `GPU memory (malloc)`.
    pub(crate) fn memory(&self) -> String {
        match &self.gpu {
            Some(gpu) => format!("GPU memory ({})", cuda::Alloc::from(gpu.alloc)),
            None if self.huge_pages => "host memory in huge pages".to_owned(),
            None => "host memory".to_owned(),
        }
    }
}
