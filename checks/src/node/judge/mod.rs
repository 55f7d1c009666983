//! What the evidence of one node means. One file a subject; each gives findings, and what cannot be read is said to be
//! unknown or skipped, with the reason.

mod fabric;
mod gid;
mod gpu;
mod libraries;
mod platform;
mod process;
mod rdma;
mod readonly;
#[cfg(test)]
mod tests;
mod topology;

use super::device::RdmaDevice;
use super::evidence::Evidence;
use super::gpu::{Driver, Gpu};
use super::report::{Fact, NodeReport};

/// What several judgements look at, read once.
pub(super) struct Subject<'a> {
    pub(super) evidence: &'a Evidence,
    pub(super) devices: Vec<RdmaDevice>,
    pub(super) gpus: Vec<Gpu>,
    pub(super) driver: Option<Driver>,
}

/// Judges a node by its evidence alone. `place` says what was looked at: `local host` or `pod NAME`.
pub fn judge(evidence: &Evidence, place: &str) -> NodeReport {
    let subject = Subject {
        evidence,
        devices: RdmaDevice::all(evidence),
        gpus: Gpu::all(evidence),
        driver: Driver::read(evidence),
    };
    let judgements = [
        readonly::judge,
        rdma::judge,
        gid::judge,
        gpu::judge,
        topology::judge,
        platform::judge,
        process::judge,
        libraries::judge,
    ];
    let mut findings = vec![readonly::target(evidence, place)];
    findings.extend(judgements.iter().flat_map(|judge| judge(&subject)));
    NodeReport {
        place: place.to_owned(),
        gathered_by: evidence.gathered_by.clone(),
        facts: facts(&subject),
        findings,
    }
}

/// What two nodes are compared by. A value holds nothing that differs between two good nodes.
fn facts(subject: &Subject<'_>) -> Vec<Fact> {
    let evidence = subject.evidence;
    let usable: Vec<&RdmaDevice> = subject.devices.iter().filter(|device| device.is_usable()).collect();
    let active = usable.iter().filter(|device| device.has_active_port()).count();
    let ports = || usable.iter().flat_map(|device| &device.ports).filter(|port| port.is_active());
    let set = |values: Vec<String>| {
        let mut values = values;
        values.sort();
        values.dedup();
        if values.is_empty() { "none".to_owned() } else { values.join(", ") }
    };
    let mut facts = Vec::new();
    let mut fact = |name: &str, value: String| facts.push(Fact { name: name.to_owned(), value });
    fact(
        "RDMA devices",
        format!("{} listed, {} usable, {active} with an active port", subject.devices.len(), usable.len()),
    );
    fact("link", set(ports().filter_map(|port| port.link_layer.clone()).collect()));
    fact("port rate", set(ports().filter_map(|port| port.rate.clone()).collect()));
    fact("RDMA firmware", set(usable.iter().filter_map(|device| device.firmware.clone()).collect()));
    fact(
        "GID",
        set(ports()
            .filter(|port| port.is_roce())
            .filter_map(|port| {
                let gid = port.gid_of_ucx()?;
                let family = if gid.ipv4().is_some() { "IPv4" } else { "IPv6" };
                Some(format!(
                    "index {}, {}, {family}",
                    gid.index,
                    gid.kind.as_deref().unwrap_or("type not known")
                ))
            })
            .collect()),
    );
    fact(
        "GPUs",
        match subject.gpus.len() {
            0 => "none".to_owned(),
            n => {
                let model = |gpu: &Gpu| gpu.model.clone().unwrap_or_else(|| "model not known".to_owned());
                format!("{n} x {}", set(subject.gpus.iter().map(model).collect()))
            }
        },
    );
    fact("NVIDIA driver", subject.driver.as_ref().map_or("none".to_owned(), |driver| driver.line.clone()));
    fact("NVLink fabric", if subject.driver.is_some() { fabric::words(evidence) } else { "none".to_owned() });
    fact("GPUDirect", gpu::direct_path(subject).words().to_owned());
    fact("memlock", process::memlock(evidence).words());
    fact("/dev/shm", process::shm_words(evidence));
    fact("CPU limit", process::cpu_words(evidence));
    fact("kernel", evidence.text("/proc/sys/kernel/osrelease").unwrap_or("not known").to_owned());
    fact("virtual machine", platform::machine(evidence).unwrap_or_else(|| "no".to_owned()));
    facts
}

/// `mlx5_0, mlx5_1`.
fn names<'a>(devices: impl IntoIterator<Item = &'a RdmaDevice>) -> String {
    devices.into_iter().map(|device| device.name.as_str()).collect::<Vec<_>>().join(", ")
}
