//! The checks of the read-only interconnect check that operators run today, by its names and with its statuses.

use super::Subject;
use crate::finding::{Finding, Status};
use crate::node::evidence::{Entry, Evidence};

/// What was looked at.
pub(super) fn target(evidence: &Evidence, place: &str) -> Finding {
    let by = if evidence.gathered_by.is_empty() { "an unnamed reader" } else { &evidence.gathered_by };
    Finding::new("node:target", Status::Ok, place).evidence([format!("read by {by}")])
}

pub(super) fn judge(subject: &Subject<'_>) -> Vec<Finding> {
    vec![
        ib_devices(subject),
        devinfo(subject),
        link(subject),
        peermem(subject),
        gdrcopy(subject),
        topology(subject),
    ]
}

fn ib_devices(subject: &Subject<'_>) -> Finding {
    let id = "ib-devices";
    match subject.evidence.get("/dev/infiniband") {
        Some(Entry::Names(names)) => {
            Finding::new(id, Status::Ok, format!("/dev/infiniband has {}", names.join(", ")))
        }
        Some(Entry::Denied) => {
            Finding::new(id, Status::Warn, "/dev/infiniband may not be listed by this user")
        }
        Some(Entry::Missing) => Finding::new(id, Status::Skipped, "there is no /dev/infiniband here"),
        _ => Finding::new(id, Status::Skipped, "/dev/infiniband was not looked at"),
    }
}

fn devinfo(subject: &Subject<'_>) -> Finding {
    let id = "ibv-devinfo";
    match subject.evidence.get("/sys/class/infiniband") {
        Some(Entry::Names(names)) if names.is_empty() => {
            Finding::new(id, Status::Warn, "the kernel has RDMA support and no device")
        }
        Some(Entry::Names(_)) => {
            let lines = subject.devices.iter().map(|device| {
                let firmware = device.firmware.as_deref().unwrap_or("not known");
                let driver = device.driver.as_deref().unwrap_or("no hardware driver");
                let function = if device.is_virtual_function { ", virtual function (SR-IOV)" } else { "" };
                format!("{}: {driver}, firmware {firmware}{function}", device.name)
            });
            Finding::new(id, Status::Ok, super::names(&subject.devices)).evidence(lines)
        }
        Some(Entry::Denied) => {
            Finding::new(id, Status::Warn, "/sys/class/infiniband may not be listed by this user")
        }
        _ => {
            Finding::new(id, Status::Skipped, "this kernel shows no RDMA devices (no /sys/class/infiniband)")
        }
    }
}

fn link(subject: &Subject<'_>) -> Finding {
    let id = "ib-link";
    if subject.devices.is_empty() {
        return Finding::new(id, Status::Skipped, "no RDMA device, so no port");
    }
    let up: Vec<String> = subject
        .devices
        .iter()
        .flat_map(|device| device.ports.iter().map(move |port| (device, port)))
        .filter(|(_, port)| port.is_active())
        .map(|(device, port)| format!("{}:{}", device.name, port.number))
        .collect();
    if up.is_empty() {
        Finding::new(id, Status::Warn, "no port is active").next_step("see rdma-port for each port's state")
    } else {
        Finding::new(id, Status::Ok, format!("active: {}", up.join(", ")))
    }
}

fn peermem(subject: &Subject<'_>) -> Finding {
    let id = "gpudirect-peermem";
    if let Some(module) = super::gpu::peermem(subject.evidence) {
        return Finding::new(id, Status::Ok, format!("{module} is loaded"));
    }
    match subject.evidence.get("/sys/module") {
        Some(Entry::Names(_)) if subject.driver.is_none() => {
            Finding::new(id, Status::Skipped, "no NVIDIA driver on this node, so no GPU memory to register")
        }
        Some(Entry::Names(_)) => {
            Finding::new(id, Status::Warn, "neither nvidia_peermem nor nv_peer_mem is loaded")
                .next_step("see gpudirect: dma-buf may take its place")
        }
        _ => Finding::new(id, Status::Unknown, "the list of kernel modules (/sys/module) could not be read"),
    }
}

fn gdrcopy(subject: &Subject<'_>) -> Finding {
    let id = "gdrcopy";
    match subject.evidence.get("/dev/gdrdrv") {
        Some(Entry::Node(access)) if access.usable() => Finding::new(id, Status::Ok, "/dev/gdrdrv is usable"),
        Some(Entry::Node(access)) => {
            Finding::new(id, Status::Warn, format!("/dev/gdrdrv is {}", access.words()))
                .next_step("give this container or user the device; without it small GPU messages are slower")
        }
        Some(Entry::Denied) => {
            Finding::new(id, Status::Warn, "/dev/gdrdrv may not be looked at by this user")
        }
        _ => {
            let loaded = subject.evidence.names("/sys/module").iter().any(|name| name == "gdrdrv");
            let why = if loaded {
                "gdrdrv is loaded on the node and /dev/gdrdrv is not here"
            } else {
                "there is no /dev/gdrdrv"
            };
            Finding::new(id, Status::Skipped, why)
                .detail("UCX then copies small GPU messages another way: slower, not wrong")
        }
    }
}

fn topology(subject: &Subject<'_>) -> Finding {
    let id = "gpu-topology";
    match super::gpu::nvlinks(subject.evidence) {
        Some(links) => {
            let active = links.iter().filter(|link| link.active).count();
            if active > 0 {
                Finding::new(id, Status::Ok, format!("{active} NVLinks are active"))
            } else {
                Finding::new(id, Status::Warn, "no NVLink between the GPUs of this node")
            }
        }
        None => Finding::new(id, Status::Skipped, super::gpu::why_no_nvml(subject)),
    }
}
