//! Traffic of GPUs over NVLink and PCIe.

use std::fmt;

use super::{Counter, DEVICES_MAX, Kind, Unit};

/// Bytes that one GPU has moved since the driver was loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GpuTraffic {
    /// The GPU's UUID.
    pub(crate) gpu: String,
    /// Sent and received over all NVLinks; `None` when it has none or does not tell.
    pub(crate) nvlink: Option<(u64, u64)>,
    /// Sent and received over PCIe; `None` when it does not tell.
    pub(crate) pcie: Option<(u64, u64)>,
}

/// Whoever knows the traffic of the GPUs of this host.
pub(crate) trait GpuLinks: fmt::Debug + Send + Sync {
    /// All GPUs that can be asked.
    fn traffic(&self) -> Vec<GpuTraffic>;
}

/// The GPUs of this host; `None` where no driver is installed.
pub(super) fn open() -> Option<Box<dyn GpuLinks>> {
    None
}

pub(super) fn counters(gpus: &dyn GpuLinks) -> Vec<Counter> {
    let counter = |gpu: &str, kind, (sent, received), what: &str| Counter {
        kind,
        device: gpu.to_owned(),
        unit: Unit::Bytes,
        sent,
        received,
        source: format!("NVML, {what} of {gpu}"),
        stacked: false,
        interface: None,
    };
    let both = |gpu: GpuTraffic| {
        let nvlink = gpu.nvlink.map(|values| counter(&gpu.gpu, Kind::Nvlink, values, "NVLink"));
        let pcie = gpu.pcie.map(|values| counter(&gpu.gpu, Kind::Pcie, values, "PCIe"));
        nvlink.into_iter().chain(pcie)
    };
    gpus.traffic().into_iter().take(DEVICES_MAX).flat_map(both).collect()
}
