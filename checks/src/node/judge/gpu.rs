//! GPU memory on the wire: GPUDirect by peermem or dma-buf, GDRCopy, NVLink, and IMEX channels.

use super::Subject;
use crate::finding::{Finding, Status};
use crate::node::device::RdmaDevice;
use crate::node::evidence::{Entry, Evidence};

/// How UCX would let a network card reach GPU memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DirectPath {
    /// Through a peer-memory module of this name.
    Peermem(&'static str),
    /// Through dma-buf; the verbs library was asked and agrees.
    DmaBuf,
    /// Kernel and driver can do dma-buf; the verbs library was not asked.
    DmaBufLikely,
    /// Neither.
    No(String),
    /// There is no GPU, or no driver.
    NoGpu,
}

impl DirectPath {
    pub(super) fn words(&self) -> &str {
        match self {
            Self::Peermem(module) => module,
            Self::DmaBuf => "dma-buf",
            Self::DmaBufLikely => "dma-buf (not asked)",
            Self::No(_) => "none",
            Self::NoGpu => "no GPU",
        }
    }
}

/// The peer-memory module that is loaded. UCX looks at the same three files.
pub(super) fn peermem(evidence: &Evidence) -> Option<&'static str> {
    let loaded = |path: &str| matches!(evidence.get(path), Some(Entry::Text(_)));
    let listed = |name: &str| evidence.names("/sys/module").iter().any(|module| module == name);
    if loaded("/sys/module/nvidia_peermem/version") || listed("nvidia_peermem") {
        Some("nvidia_peermem")
    } else if loaded("/sys/module/nv_peer_mem/version") || listed("nv_peer_mem") {
        Some("nv_peer_mem")
    } else if loaded("/sys/kernel/mm/memory_peers/nv_mem/version") {
        Some("nv_mem")
    } else {
        None
    }
}

/// The kernel's version as two numbers.
fn kernel(evidence: &Evidence) -> Option<(u32, u32)> {
    let release = evidence.text("/proc/sys/kernel/osrelease")?;
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

/// RDMA subsystems can import dma-buf from Linux 5.12 on.
const DMA_BUF_SINCE: (u32, u32) = (5, 12);

pub(super) fn direct_path(subject: &Subject<'_>) -> DirectPath {
    let Some(driver) = &subject.driver else { return DirectPath::NoGpu };
    if let Some(module) = peermem(subject.evidence) {
        return DirectPath::Peermem(module);
    }
    if !driver.is_open {
        return DirectPath::No("the proprietary NVIDIA kernel module cannot export dma-buf".to_owned());
    }
    match kernel(subject.evidence) {
        Some(version) if version < DMA_BUF_SINCE => {
            return DirectPath::No(format!(
                "kernel {}.{} is older than 5.12, the first with dma-buf for RDMA",
                version.0, version.1
            ));
        }
        _ => {}
    }
    let asked: Vec<&str> = subject
        .devices
        .iter()
        .filter_map(|device| subject.evidence.text(&format!("probe:verbs/{}/dmabuf", device.name)))
        .collect();
    if asked.is_empty() {
        DirectPath::DmaBufLikely
    } else if asked.iter().all(|answer| *answer == "supported") {
        DirectPath::DmaBuf
    } else {
        DirectPath::No("the verbs library or driver of an RDMA device does not take dma-buf".to_owned())
    }
}

pub(super) fn judge(subject: &Subject<'_>) -> Vec<Finding> {
    vec![
        direct(subject),
        gdrcopy_library(subject),
        nvlink(subject),
        super::fabric::judge(subject),
        imex(subject),
    ]
}

fn direct(subject: &Subject<'_>) -> Finding {
    let id = "gpudirect";
    let mut lines = Vec::new();
    lines.extend(subject.driver.as_ref().map(|driver| driver.line.clone()));
    lines.extend(
        subject.evidence.text("/proc/sys/kernel/osrelease").map(|release| format!("kernel {release}")),
    );
    if let Some(value) = subject.evidence.variable("UCX_IB_GPU_DIRECT_RDMA") {
        lines.push(format!("UCX_IB_GPU_DIRECT_RDMA={value}"));
    }
    let path = direct_path(subject);
    if path == DirectPath::NoGpu {
        let why = if subject.gpus.is_empty() {
            "no NVIDIA GPU here"
        } else {
            "a GPU without a loaded NVIDIA driver"
        };
        return Finding::new(id, Status::Skipped, why);
    }
    if !subject.devices.iter().any(RdmaDevice::is_usable) {
        return Finding::new(
            id,
            Status::Skipped,
            format!("GPUDirect path: {}; there is no usable RDMA device to use it", path.words()),
        );
    }
    let switched_off = subject
        .evidence
        .variable("UCX_IB_GPU_DIRECT_RDMA")
        .is_some_and(|value| matches!(value, "n" | "no" | "0"));
    if switched_off {
        return Finding::new(id, Status::Fail, "GPUDirect is switched off by UCX_IB_GPU_DIRECT_RDMA")
            .evidence(lines)
            .next_step("unset UCX_IB_GPU_DIRECT_RDMA");
    }
    let required = subject
        .evidence
        .variable("UCX_IB_GPU_DIRECT_RDMA")
        .is_some_and(|value| matches!(value, "y" | "yes" | "1" | "on"));
    match path {
        DirectPath::Peermem(module) => {
            Finding::new(id, Status::Ok, format!("UCX registers GPU memory through {module}")).evidence(lines)
        }
        DirectPath::DmaBuf => Finding::new(id, Status::Ok, "UCX registers GPU memory through dma-buf").evidence(lines),
        DirectPath::DmaBufLikely => Finding::new(id, Status::Unknown, "kernel and driver can do dma-buf; whether the verbs library can was not asked")
            .evidence(lines)
            .next_step("run `kvwire check node` where libibverbs.so.1 and the device are, that is in the worker's own image"),
        DirectPath::No(why) => Finding::new(id, Status::Fail, "no way for a network card to reach GPU memory")
            .detail(format!("no peer-memory module is loaded, and {why}; {}", if required { "UCX_IB_GPU_DIRECT_RDMA asks for one, so that UCX refuses the card" } else { "UCX then copies every byte through host memory and says nothing" }))
            .evidence(lines)
            .next_step("have an administrator load nvidia_peermem (modprobe nvidia_peermem; in the GPU operator: driver.rdma.enabled), or use the open NVIDIA modules with a kernel from 5.12 on"),
        DirectPath::NoGpu => Finding::new(id, Status::Skipped, "no NVIDIA GPU here"),
    }
}

fn gdrcopy_library(subject: &Subject<'_>) -> Finding {
    let id = "gdrcopy-library";
    if subject.driver.is_none() {
        return Finding::new(id, Status::Skipped, "no NVIDIA driver here");
    }
    let libraries: Vec<String> =
        super::libraries::real(subject.evidence, |path| path.contains("libgdrapi.so")).into_iter().collect();
    if libraries.is_empty() {
        Finding::new(id, Status::Skipped, "libgdrapi is not in this image: UCX has no gdr_copy")
    } else {
        Finding::new(id, Status::Ok, "libgdrapi is installed").evidence(libraries)
    }
}

/// One NVLink of a GPU.
pub(super) struct NvLink {
    pub(super) active: bool,
    pub(super) line: String,
    pub(super) errors: u64,
}

/// Links as NVML or `nvidia-smi nvlink -s` tell them; `None` when neither was asked.
pub(super) fn nvlinks(evidence: &Evidence) -> Option<Vec<NvLink>> {
    if let Some(Entry::Text(text)) = evidence.get("probe:nvml/links") {
        // `gpu 0 link 3 active, 26562 MB/s, errors 0`
        return Some(
            text.lines()
                .map(|line| NvLink {
                    active: line.contains(" active"),
                    line: line.to_owned(),
                    errors: line.rsplit(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0),
                })
                .collect(),
        );
    }
    let text = evidence.text("probe:nvidia-smi-nvlink")?;
    // `	 Link 3: 26.562 GB/s` or `	 Link 3: <inactive>`
    let lines = text.lines().filter(|line| line.trim_start().starts_with("Link "));
    Some(
        lines
            .map(|line| NvLink { active: line.contains("GB/s"), line: line.trim().to_owned(), errors: 0 })
            .collect(),
    )
}

pub(super) fn why_no_nvml(subject: &Subject<'_>) -> String {
    match subject.evidence.text("probe:nvml/error") {
        Some(error) => format!("NVML (libnvidia-ml.so.1) was not usable: {error}"),
        None if subject.driver.is_none() => "no NVIDIA driver here".to_owned(),
        None => "there is no nvidia-smi here".to_owned(),
    }
}

fn nvlink(subject: &Subject<'_>) -> Finding {
    let id = "nvlink";
    let Some(links) = nvlinks(subject.evidence) else {
        return Finding::new(id, Status::Skipped, why_no_nvml(subject));
    };
    let down = links.iter().filter(|link| !link.active).count();
    let errors: u64 = links.iter().map(|link| link.errors).sum();
    let lines = links.iter().filter(|link| !link.active || link.errors > 0).map(|link| link.line.clone());
    let lines: Vec<String> = lines.collect();
    if links.is_empty() {
        Finding::new(id, Status::Skipped, "the GPUs of this node have no NVLink")
    } else if down > 0 {
        Finding::new(id, Status::Warn, format!("{down} of {} NVLinks are down", links.len()))
            .evidence(lines)
            .next_step("have an administrator look at `nvidia-smi nvlink -s` and the fabric manager's log")
    } else if errors > 0 {
        Finding::new(id, Status::Warn, format!("{errors} NVLink errors were counted"))
            .evidence(lines)
            .next_step("read the counters again later (nvidia-smi nvlink -e): rising ones mean a bad link")
    } else {
        Finding::new(id, Status::Ok, format!("all {} NVLinks are up", links.len()))
            .evidence(links.iter().map(|link| link.line.clone()))
    }
}

fn imex(subject: &Subject<'_>) -> Finding {
    let id = "imex-channels";
    if subject.driver.is_none() {
        return Finding::new(id, Status::Skipped, "no NVIDIA driver here");
    }
    let folder = "/dev/nvidia-caps-imex-channels";
    let channels: Vec<(&str, bool)> = subject
        .evidence
        .below(folder)
        .filter_map(|(path, entry)| match entry {
            Entry::Node(access) => Some((path, access.usable())),
            _ => None,
        })
        .collect();
    let lines = channels
        .iter()
        .map(|(path, usable)| format!("{path}: {}", if *usable { "usable" } else { "not usable" }));
    let lines: Vec<String> = lines.collect();
    if channels.is_empty() {
        return Finding::new(id, Status::Skipped, "no IMEX channel here")
            .detail("only NVLink between nodes (MNNVL), and NVLink between containers with separate process ids, need one");
    }
    if channels.iter().any(|(_, usable)| *usable) {
        return Finding::new(id, Status::Ok, format!("{} IMEX channels", channels.len())).evidence(lines);
    }
    Finding::new(id, Status::Warn, "IMEX channels are here and none may be opened").evidence(lines).next_step(
        "give the pod a ComputeDomain claim, or the container read and write access to the channel",
    )
}
