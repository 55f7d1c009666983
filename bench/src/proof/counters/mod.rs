//! What counters of the node say: RDMA ports, network interfaces, GPU links, and the engine's own TCP sockets.
//!
//! Every source may be missing and has a root that tests replace. Nothing is written anywhere.

mod gpu;
mod infiniband;
mod net;
mod sampler;
mod sockets;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::measure::clock::now_ns;
pub(crate) use gpu::{GpuLinks, owner};
pub(crate) use net::interfaces;
pub(crate) use sampler::{Sampled, Sampler, WINDOW, Ways, Windows};

/// What kind of wire a counter belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// A port of an RDMA adapter.
    Rdma,
    /// A network interface.
    Net,
    /// The NVLinks of a GPU.
    Nvlink,
    /// The PCIe link of a GPU.
    Pcie,
}

/// What a counter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Unit {
    /// Bytes, headers more or less included.
    Bytes,
    /// Packets, each with at most so many bytes of payload.
    Packets { payload_max: u64 },
}

/// The two counters of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counter {
    pub(crate) kind: Kind,
    /// As UCX names it: `mlx5_0:1`, `eth0`.
    pub(crate) device: String,
    pub(crate) unit: Unit,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Where it was read.
    pub(crate) source: String,
    /// A device that passes everything on to others which are counted too: a bond, bridge or VLAN.
    pub(crate) stacked: bool,
    /// The network interface below an RDMA port: where the adapter is software, it counts the same bytes again.
    pub(crate) interface: Option<String>,
}

/// Bytes of the engine's own TCP connections, without headers and retransmissions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SocketBytes {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// The part of connections within this host: whatever interface owns the address, they run over `lo`.
    pub(crate) local_sent: u64,
    pub(crate) local_received: u64,
    /// Connections counted.
    pub(crate) connections: u32,
}

impl SocketBytes {
    /// Both together.
    fn and(self, other: Self) -> Self {
        Self {
            sent: self.sent.saturating_add(other.sent),
            received: self.received.saturating_add(other.received),
            local_sent: self.local_sent.saturating_add(other.local_sent),
            local_received: self.local_received.saturating_add(other.local_received),
            connections: self.connections.saturating_add(other.connections),
        }
    }
}

/// Everything that was read at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reading {
    /// By this host's monotonic clock, in ns.
    pub(crate) at_ns: u64,
    pub(crate) counters: Vec<Counter>,
    /// `None` where the kernel does not tell.
    pub(crate) sockets: Option<SocketBytes>,
    /// The same of each engine by itself, in their order; empty where the kernel does not tell.
    #[serde(default)]
    pub(crate) engines: Vec<SocketBytes>,
    /// Rates since the reading before, of links that nothing counts; only where they were asked for.
    #[serde(default)]
    pub(crate) sampled: Vec<Sampled>,
    /// The longest time for which a device repeats an old value, in ms.
    pub(crate) cached_ms: u64,
}

/// Where counters are read.
#[derive(Debug)]
pub(crate) struct Sources {
    sys: PathBuf,
    proc: PathBuf,
    gpus: Option<Arc<dyn GpuLinks>>,
}

impl Sources {
    /// This host's.
    pub(crate) fn of_this_host() -> Self {
        Self { sys: PathBuf::from("/sys"), proc: PathBuf::from("/proc"), gpus: gpu::open() }
    }

    /// Other roots, for tests.
    #[cfg(test)]
    pub(crate) fn at(sys: &std::path::Path, proc: &std::path::Path, gpus: Option<Arc<dyn GpuLinks>>) -> Self {
        Self { sys: sys.to_owned(), proc: proc.to_owned(), gpus }
    }

    /// Reads everything that is there. `engines` are the processes whose sockets are counted.
    pub(crate) fn read(&self, engines: &[u32]) -> Reading {
        let (mut counters, cached_ms) = infiniband::read(&self.sys);
        counters.extend(net::read(&self.sys, &self.proc));
        if let Some(gpus) = &self.gpus {
            counters.extend(gpu::counters(gpus.as_ref()));
        }
        let of_each = sockets::read(&self.proc, engines).unwrap_or_default();
        let sockets = of_each.iter().copied().reduce(SocketBytes::and);
        Reading { at_ns: now_ns(), counters, sockets, engines: of_each, sampled: Vec::new(), cached_ms }
    }

    /// Begins to watch the PCIe links of these GPUs, less those that `reading` has counters of.
    pub(crate) fn sample(&self, gpus: &[String], ways: Ways, reading: &Reading) -> Option<Sampler> {
        let counts = |uuid: &str| reading.counters.iter().any(|c| c.kind == Kind::Pcie && owner(c) == uuid);
        let uncounted = gpus.iter().filter(|uuid| !counts(uuid)).cloned().collect();
        Sampler::start(Arc::clone(self.gpus.as_ref()?), uncounted, ways)
    }
}

impl Reading {
    /// The connections of the engine of a rank; those of all engines where they are not told apart.
    pub(crate) fn sockets_of(&self, rank: u32) -> Option<SocketBytes> {
        self.engines.get(rank as usize).copied().or(self.sockets)
    }

    /// How long to wait after this reading so that the next one is no repetition.
    pub(crate) fn settle_time(&self) -> Duration {
        let age = Duration::from_nanos(now_ns().saturating_sub(self.at_ns));
        Duration::from_millis(self.cached_ms).saturating_sub(age)
    }
}

#[cfg(test)]
mod tests;
