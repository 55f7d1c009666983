//! What stands between a GPU and a network card: IOMMU, Access Control Services, a hypervisor.

use super::Subject;
use crate::finding::{Finding, Status};
use crate::node::evidence::{Entry, Evidence};
use crate::node::pci::{Acs, Distance, acs};

pub(super) fn judge(subject: &Subject<'_>) -> Vec<Finding> {
    vec![virtual_machine(subject), access_control(subject), iommu(subject)]
}

/// The hypervisor's name, when this is a virtual machine.
pub(super) fn machine(evidence: &Evidence) -> Option<String> {
    const VENDORS: [&str; 9] =
        ["QEMU", "KVM", "VMware", "Xen", "Amazon EC2", "Google", "OpenStack", "innotek", "Virtual Machine"];
    let flags = evidence.field("/proc/cpuinfo", "flags").unwrap_or_default();
    let vendor = evidence.text("/sys/class/dmi/id/sys_vendor").unwrap_or_default();
    let product = evidence.text("/sys/class/dmi/id/product_name").unwrap_or_default();
    let told = format!("{vendor} {product}").trim().to_owned();
    if flags.split_whitespace().any(|flag| flag == "hypervisor") {
        return Some(if told.is_empty() { "yes".to_owned() } else { told });
    }
    // Bare-metal instances of a cloud carry its name and no hypervisor flag.
    let known = VENDORS.iter().any(|name| told.contains(name)) && !product.contains("metal");
    (known && flags.is_empty()).then_some(told)
}

fn virtual_machine(subject: &Subject<'_>) -> Finding {
    let id = "virtual-machine";
    if subject.evidence.text("/proc/cpuinfo").is_none() {
        return Finding::new(id, Status::Unknown, "/proc/cpuinfo could not be read");
    }
    let Some(name) = machine(subject.evidence) else {
        return Finding::new(id, Status::Ok, "no hypervisor shows itself");
    };
    let pairs = close_pairs(subject);
    if pairs.is_empty() {
        return Finding::new(id, Status::Ok, format!("a virtual machine: {name}"));
    }
    Finding::new(id, Status::Warn, format!("a virtual machine ({name}) with GPUs and network cards behind one PCIe switch"))
        .detail("passed-through devices that talk below the IOMMU may read wrong addresses: transfers have been seen to fail or to bring wrong data")
        .evidence(pairs)
        .next_step("run `kvwire run` with GPU memory: every byte is checked; when it fails, choose a network card that is not behind the GPU's switch")
}

fn close_pairs(subject: &Subject<'_>) -> Vec<String> {
    let cards = subject.devices.iter().filter_map(|device| Some((&device.name, device.pci.as_ref()?)));
    let pairs = cards.flat_map(|(name, pci)| {
        let near = |gpu: &&crate::node::gpu::Gpu| gpu.pci.distance(pci, subject.evidence) <= Distance::Pxb;
        subject
            .gpus
            .iter()
            .filter(near)
            .map(move |gpu| format!("{} and {name}", gpu.label()))
            .collect::<Vec<_>>()
    });
    pairs.collect()
}

fn access_control(subject: &Subject<'_>) -> Finding {
    let id = "pcie-acs";
    let mut bridges: Vec<String> = Vec::new();
    for card in subject.devices.iter().filter_map(|device| device.pci.as_ref()) {
        for gpu in subject.gpus.iter().filter(|gpu| gpu.pci.distance(card, subject.evidence) <= Distance::Pxb)
        {
            bridges.extend(gpu.pci.bridges_to(card));
        }
    }
    bridges.sort();
    bridges.dedup();
    if bridges.is_empty() {
        return Finding::new(id, Status::Skipped, "no GPU shares a PCIe switch with an RDMA device here");
    }
    let states: Vec<Acs> = bridges.iter().map(|bridge| acs(subject.evidence, bridge)).collect();
    let lines = bridges.iter().zip(&states).map(|(bridge, state)| {
        let address = bridge.rsplit('/').next().unwrap_or_default();
        let words = match state {
            Acs::Direct => "lets peers talk directly",
            Acs::Redirects => "redirects peers to the root complex",
            Acs::NotReadable => "not readable without root",
        };
        format!("bridge {address}: {words}")
    });
    let lines: Vec<String> = lines.collect();
    if states.contains(&Acs::Redirects) {
        let finding = Finding::new(
            id,
            Status::Warn,
            "Access Control Services redirect traffic between a GPU and a network card",
        )
        .evidence(lines);
        return if machine(subject.evidence).is_some() {
            finding.next_step("this is a virtual machine: leave it on, isolation depends on it; measure GPU memory to see what it costs")
        } else {
            finding.next_step("have an administrator switch ACS redirection off on these bridges (setpci, or in the firmware): it slows or breaks GPUDirect")
        };
    }
    if states.contains(&Acs::NotReadable) {
        return Finding::new(
            id,
            Status::Unknown,
            "the bridges between a GPU and a network card could not be read",
        )
        .evidence(lines)
        .next_step("run `sudo kvwire check node` on the node, or look at ACSCtl in `sudo lspci -vvv`");
    }
    Finding::new(id, Status::Ok, "no bridge redirects traffic between a GPU and a network card")
        .evidence(lines)
}

fn iommu(subject: &Subject<'_>) -> Finding {
    let id = "iommu";
    let evidence = subject.evidence;
    let options: Vec<&str> = evidence
        .text("/proc/cmdline")
        .unwrap_or_default()
        .split_whitespace()
        .filter(|word| word.contains("iommu"))
        .collect();
    let mut lines: Vec<String> =
        options.iter().map(|option| format!("kernel command line: {option}")).collect();
    let (mut translating, mut passing) = (0, 0);
    for (_, entry) in evidence.below("/sys/kernel/iommu_groups") {
        if let Entry::Text(text) = entry {
            if text.trim() == "identity" { passing += 1 } else { translating += 1 }
        }
    }
    if translating + passing > 0 {
        lines.push(format!("IOMMU groups: {translating} translate, {passing} pass addresses through"));
    }
    let units = match evidence.get("/sys/class/iommu") {
        Some(Entry::Names(names)) => names.len(),
        Some(Entry::Missing) => 0,
        _ => return Finding::new(id, Status::Unknown, "/sys/class/iommu could not be read").evidence(lines),
    };
    if units == 0 {
        return Finding::new(id, Status::Ok, "no IOMMU is in use").evidence(lines);
    }
    if translating == 0 && passing == 0 {
        return Finding::new(
            id,
            Status::Unknown,
            format!("{units} IOMMUs are in use and their groups could not be read"),
        )
        .evidence(lines);
    }
    if translating == 0 {
        return Finding::new(id, Status::Ok, "the IOMMU passes addresses through").evidence(lines);
    }
    if subject.gpus.is_empty() || subject.devices.is_empty() || machine(evidence).is_some() {
        return Finding::new(
            id,
            Status::Ok,
            "the IOMMU translates; there is no GPU and network card pair here that it would slow",
        )
        .evidence(lines);
    }
    Finding::new(id, Status::Warn, "the IOMMU translates addresses between GPU and network card")
        .detail("traffic between the two then takes the way through the CPU, or fails")
        .evidence(lines)
        .next_step("have an administrator boot with iommu=pt (and intel_iommu=on or amd_iommu=on), or with the IOMMU off")
}
