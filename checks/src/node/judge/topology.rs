//! Which network card is near which GPU.

use super::Subject;
use crate::finding::{Finding, Status};
use crate::node::device::RdmaDevice;
use crate::node::gpu::Gpu;
use crate::node::pci::{Distance, PciPath};

pub(super) fn judge(subject: &Subject<'_>) -> Vec<Finding> {
    let id = "gpu-nic-distance";
    let cards: Vec<(&RdmaDevice, &PciPath)> =
        subject.devices.iter().filter_map(|device| Some((device, device.pci.as_ref()?))).collect();
    if subject.gpus.is_empty() || cards.is_empty() {
        let why = if subject.gpus.is_empty() {
            "no NVIDIA GPU on the PCI bus here"
        } else {
            "no RDMA device on the PCI bus here"
        };
        return vec![Finding::new(id, Status::Skipped, why)];
    }
    let mut lines = vec![header(&cards)];
    let mut far = Vec::new();
    for gpu in &subject.gpus {
        let distances: Vec<Distance> =
            cards.iter().map(|(_, pci)| gpu.pci.distance(pci, subject.evidence)).collect();
        let usable = cards
            .iter()
            .zip(&distances)
            .filter(|((device, _), _)| device.is_usable() && device.has_active_port());
        let nearest = usable.clone().map(|(_, distance)| *distance).min();
        let best: Vec<&str> = usable
            .filter(|(_, distance)| Some(**distance) == nearest)
            .map(|((device, _), _)| device.name.as_str())
            .collect();
        if nearest == Some(Distance::Sys) {
            far.push(gpu.label());
        }
        let best = if best.is_empty() { "none usable".to_owned() } else { best.join(", ") };
        lines.push(row(gpu, subject, &cards, &distances, &best));
    }
    let finding = if far.is_empty() {
        Finding::new(id, Status::Ok, "every GPU has a network card on its own side of the CPUs")
    } else {
        Finding::new(id, Status::Warn, format!("the nearest usable network card is across CPUs for {}", far.join(", ")))
            .next_step("give the pod a network card of the GPU's NUMA node (topology manager, or the device plugin's affinity)")
    };
    vec![finding.evidence(lines)]
}

fn header(cards: &[(&RdmaDevice, &PciPath)]) -> String {
    let mut line = format!("{:<14}", "GPU");
    for (device, _) in cards {
        line.push_str(&format!("{:<10}", device.name));
    }
    line + "NUMA  best"
}

fn row(
    gpu: &Gpu,
    subject: &Subject<'_>,
    cards: &[(&RdmaDevice, &PciPath)],
    distances: &[Distance],
    best: &str,
) -> String {
    let mut line = format!("{:<14}", gpu.pci.address());
    for ((device, _), distance) in cards.iter().zip(distances) {
        let width = device.name.len().max(9) + 1;
        line.push_str(&format!("{distance:<width$}"));
    }
    let numa = gpu.pci.numa(subject.evidence).map_or("?".to_owned(), |node| node.to_string());
    format!("{line}{numa:<6}{best}")
}
