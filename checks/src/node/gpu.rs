//! NVIDIA GPUs and their driver, as the evidence shows them.

use super::evidence::{Entry, Evidence};
use super::pci::PciPath;

/// One GPU on the PCI bus.
#[derive(Debug, Clone)]
pub(super) struct Gpu {
    pub(super) pci: PciPath,
    /// Model name, where the driver tells.
    pub(super) model: Option<String>,
}

/// The NVIDIA kernel driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Driver {
    /// Its version line.
    pub(super) line: String,
    /// The open kernel modules, which can export GPU memory as dma-buf.
    pub(super) is_open: bool,
}

impl Gpu {
    /// Every GPU of this node that the PCI bus shows.
    pub(super) fn all(evidence: &Evidence) -> Vec<Self> {
        let devices = evidence.below("/sys/bus/pci/devices").filter_map(|(_, entry)| match entry {
            Entry::Real(real) => PciPath::new(real),
            _ => None,
        });
        devices
            .map(|pci| {
                let information = format!("/proc/driver/nvidia/gpus/{}/information", pci.address());
                let model = evidence.field(&information, "Model").map(str::to_owned);
                Self { pci, model }
            })
            .collect()
    }

    pub(super) fn label(&self) -> String {
        match &self.model {
            Some(model) => format!("{} ({model})", self.pci.address()),
            None => self.pci.address().to_owned(),
        }
    }
}

impl Driver {
    /// `None` when no driver is loaded. NVML tells its version where `/proc` does not.
    pub(super) fn read(evidence: &Evidence) -> Option<Self> {
        let of_nvml =
            || Some(format!("NVIDIA driver {}, by NVML", evidence.text("probe:nvml/driver")?.trim()));
        let of_proc = evidence.text("/proc/driver/nvidia/version").and_then(|text| text.lines().next());
        let line = of_proc.map(str::to_owned).or_else(of_nvml)?;
        let is_open = line.contains("Open Kernel Module");
        Some(Self { line, is_open })
    }
}
