//! Traffic of GPUs over NVLink and PCIe.

use std::fmt;
use std::sync::Arc;

use checks::nvml::{self, Nvml, Traffic, Way};

use super::super::kernel_files::NAMES_MAX;
use super::{Counter, Kind, Unit};

/// Whoever knows the traffic of the GPUs of this host.
pub(crate) trait GpuLinks: fmt::Debug + Send + Sync {
    /// All GPUs that can be asked.
    fn traffic(&self) -> Vec<Traffic>;
    /// Bytes per second over the PCIe link of a GPU in a window that the call waits for; `None` where that is not told.
    fn pcie_rate(&self, uuid: &str, way: Way) -> Option<u64>;
}

impl GpuLinks for &'static Nvml {
    fn traffic(&self) -> Vec<Traffic> {
        // A driver that does not answer leaves no counter; the judgement then says that nothing counts the wire.
        Nvml::traffic(self).unwrap_or_default()
    }

    fn pcie_rate(&self, uuid: &str, way: Way) -> Option<u64> {
        Nvml::pcie_rate(self, uuid, way).ok()
    }
}

/// The GPUs of this host; `None` where no driver is installed.
pub(super) fn open() -> Option<Arc<dyn GpuLinks>> {
    Some(Arc::new(nvml::shared().ok()?))
}

/// One counter for each NVLink, `GPU-… link 3`, and one for the PCIe link of each GPU, `GPU-… pcie`.
pub(super) fn counters(gpus: &dyn GpuLinks) -> Vec<Counter> {
    let counter = |kind, device: String, (sent, received), source: String| Counter {
        kind,
        device,
        unit: Unit::Bytes,
        sent,
        received,
        source,
        stacked: false,
        interface: None,
    };
    let of_gpu = |gpu: Traffic| {
        let uuid = gpu.uuid.clone();
        let links = gpu.links.into_iter().map(move |link| {
            let source = format!("NVML, payload of NVLink {} of {uuid}", link.number);
            counter(Kind::Nvlink, format!("{uuid} link {}", link.number), (link.sent, link.received), source)
        });
        let pcie = gpu.pcie.map(|values| {
            let source = format!("NVML, PCIe bytes of {}", gpu.uuid);
            counter(Kind::Pcie, format!("{} pcie", gpu.uuid), values, source)
        });
        links.chain(pcie)
    };
    gpus.traffic().into_iter().flat_map(of_gpu).take(NAMES_MAX).collect()
}

/// The GPU whose counter this is.
pub(crate) fn owner(counter: &Counter) -> &str {
    counter.device.split(' ').next().unwrap_or_default()
}
