//! What is near a GPU: RDMA ports, and the NUMA node.

use super::device::{Port, RdmaDevice};
use super::evidence::Evidence;
use super::gpu::Gpu;
use super::pci::Distance;

/// The surroundings of a GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Near {
    /// Active ports of the usable RDMA devices nearest to it, as UCX names them.
    pub ports: Vec<String>,
    /// There are active ports that are farther away.
    pub farther_ports: bool,
    /// How near, in the words of `nvidia-smi topo`; `None` without such a port.
    pub distance: Option<String>,
    /// Its NUMA node; `None` where the firmware does not say.
    pub numa_node: Option<u32>,
}

/// What is near the GPU at this PCI address. Nothing is where sysfs does not show the GPU.
#[must_use]
pub fn near(evidence: &Evidence, pci: &str) -> Near {
    let Some(gpu) = Gpu::all(evidence).into_iter().find(|gpu| gpu.pci.address() == pci) else {
        return Near::default();
    };
    let numa_node = gpu.pci.numa(evidence).and_then(|node| u32::try_from(node).ok());
    let mut ports: Vec<(Distance, String)> = Vec::new();
    for device in RdmaDevice::all(evidence).iter().filter(|device| device.is_usable()) {
        let Some(at) = &device.pci else { continue };
        let distance = gpu.pci.distance(at, evidence);
        let active = device.ports.iter().filter(|port| port.is_active());
        ports.extend(active.map(|port: &Port| (distance, format!("{}:{}", device.name, port.number))));
    }
    let nearest = ports.iter().map(|(distance, _)| *distance).min();
    let (here, away): (Vec<_>, Vec<_>) =
        ports.into_iter().partition(|(distance, _)| Some(*distance) == nearest);
    Near {
        ports: here.into_iter().map(|(_, port)| port).collect(),
        farther_ports: !away.is_empty(),
        distance: nearest.map(|distance| distance.to_string()),
        numa_node,
    }
}
