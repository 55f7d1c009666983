//! What a node could use for a transfer, and what its environment tells UCX.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::Path;

use rustix::fs::{Access, access};
use serde::{Deserialize, Serialize};

use super::gpu::{GpuMeans, gpus_here};
use super::kernel_files::{line, names};
use super::rate::{Rate, rates};
use crate::memory::UCX_NET_DEVICES;
use crate::report::model::Placement;

/// Things of one kind that are looked at.
const MOST: usize = 512;
/// Characters of a value that are kept.
const TEXT_MAX: usize = 512;
/// Bytes of `/proc/<pid>/maps` that are read.
const MAPS_MAX: u64 = 16 << 20;
/// `CAP_SYS_PTRACE` in a capability mask.
const CAP_SYS_PTRACE: u64 = 1 << 19;

/// Where UCX looks for such a module, below `/sys`.
pub(crate) const PEER_MEMORY: [&str; 3] =
    ["kernel/mm/memory_peers/nv_mem/version", "module/nvidia_peermem/version", "module/nv_peer_mem/version"];

/// One side's means.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ability {
    /// Ports of RDMA adapters.
    pub(crate) ports: Vec<Port>,
    /// The kernel lets processes of one user copy from each other's memory (`process_vm_readv`).
    pub(crate) cross_memory_attach: bool,
    /// What shows that a kernel module lets RDMA adapters reach GPU memory; `None` without one.
    #[serde(default)]
    pub(crate) peer_memory: Option<String>,
    /// Variables that begin with `UCX_`, as the engine inherits them.
    pub(crate) environment: BTreeMap<String, String>,
    /// UCX libraries in the engine's memory map, one file each.
    pub(crate) ucx_copies: Vec<String>,
    /// The UCX that the engines loaded, where it is known. It does not travel: who judges takes it from the node.
    #[serde(skip)]
    pub(crate) ucx_version: Option<String>,
    /// Process id of each rank's engine, in its own namespace.
    #[serde(default)]
    pub(crate) processes: Vec<u32>,
    /// The GPU that the payload of each rank lies on, rank by rank; none for host memory.
    #[serde(default)]
    pub(crate) gpus: Vec<Option<GpuMeans>>,
    /// What `UCX_NET_DEVICES` is in the engine of each rank.
    #[serde(default)]
    pub(crate) net_devices: Vec<Option<String>>,
    /// How fast its links are, by name.
    pub(crate) rates: BTreeMap<String, Rate>,
}

/// A port of an RDMA adapter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Port {
    /// As UCX names it: `mlx5_0:1`.
    pub(crate) name: String,
    /// As the kernel says: `4: ACTIVE`.
    pub(crate) state: String,
    /// The user may open the adapter (`/dev/infiniband/uverbs…`). UCX drops one that it may not.
    pub(crate) opens: bool,
}

impl Port {
    /// Link up, and the adapter can be opened.
    pub(crate) fn is_usable(&self) -> bool {
        self.is_active() && self.opens
    }

    /// Link up.
    pub(crate) fn is_active(&self) -> bool {
        self.state.contains("ACTIVE")
    }
}

impl Ability {
    /// Reads this host. `engines` are the processes of the ranks, of which the first one's libraries are listed, `placements`
    /// where each rank sits.
    pub(crate) fn of_this_host(engines: Vec<u32>, placements: &[Placement]) -> Self {
        let environment = std::env::vars_os()
            .filter_map(|(key, value)| Some((key.into_string().ok()?, value.to_string_lossy().into_owned())))
            .filter(|(key, _)| key.starts_with("UCX_"))
            .map(|(key, value)| (key, value.chars().take(TEXT_MAX).collect()))
            .take(MOST)
            .collect();
        let gpus = gpus_here();
        Self {
            gpus: placements.iter().map(|placement| GpuMeans::of(placement, &gpus)).collect(),
            net_devices: placements.iter().map(|placement| placement.ucx_net_devices.clone()).collect(),
            rates: rates(Path::new("/sys"), &gpus),
            ..Self::at(Path::new("/sys"), Path::new("/proc"), Path::new("/dev"), engines, environment)
        }
    }

    fn at(
        sys: &Path,
        proc: &Path,
        dev: &Path,
        engines: Vec<u32>,
        environment: BTreeMap<String, String>,
    ) -> Self {
        Self {
            ports: ports(sys, dev),
            cross_memory_attach: cross_memory_attach(proc),
            peer_memory: PEER_MEMORY
                .iter()
                .find(|sign| sys.join(sign).exists())
                .map(|sign| format!("/sys/{sign}")),
            environment,
            ucx_copies: engines.first().map(|pid| ucx_copies(proc, *pid)).unwrap_or_default(),
            ucx_version: None,
            processes: engines,
            gpus: Vec::new(),
            net_devices: Vec::new(),
            rates: BTreeMap::new(),
        }
    }

    /// The same for one rank: with the network devices that its UCX was told, and with its engine alone.
    pub(crate) fn of_rank(&self, rank: u32) -> Self {
        let mut of_rank = self.clone();
        of_rank.processes = self.processes.get(rank as usize).copied().into_iter().collect();
        if let Some(devices) = self.net_devices.get(rank as usize).cloned().flatten() {
            of_rank.environment.insert(UCX_NET_DEVICES.to_owned(), devices);
        }
        of_rank
    }

    /// The GPU that the payload of a rank lies on; `None` for host memory.
    pub(crate) fn gpu(&self, rank: u32) -> Option<&GpuMeans> {
        self.gpus.get(rank as usize)?.as_ref()
    }

    /// At least one port of an RDMA adapter can be used.
    pub(crate) fn has_rdma(&self) -> bool {
        self.ports.iter().any(Port::is_usable)
    }
}

fn ports(sys: &Path, dev: &Path) -> Vec<Port> {
    let class = sys.join("class/infiniband");
    let mut ports = Vec::new();
    for device in names(&class) {
        let opens = opens(sys, dev, &device);
        let folder = class.join(&device).join("ports");
        for port in names(&folder) {
            let state = line(&folder.join(&port).join("state")).unwrap_or_else(|| "unknown".to_owned());
            ports.push(Port { name: format!("{device}:{port}"), state, opens });
        }
    }
    ports.truncate(MOST);
    ports
}

/// The number of a `uverbs` file is not that of its adapter: `ibdev` says whose it is.
fn opens(sys: &Path, dev: &Path, device: &str) -> bool {
    let class = sys.join("class/infiniband_verbs");
    names(&class)
        .iter()
        .filter(|uverbs| line(&class.join(uverbs).join("ibdev")).as_deref() == Some(device))
        .any(|uverbs| access(dev.join("infiniband").join(uverbs), Access::READ_OK | Access::WRITE_OK).is_ok())
}

/// Yama's scopes 0 and 1 let UCX in (for 1 it declares itself traceable), 2 asks for a capability, 3 forbids.
fn cross_memory_attach(proc: &Path) -> bool {
    match line(&proc.join("sys/kernel/yama/ptrace_scope")).as_deref() {
        Some("2") => capabilities(proc) & CAP_SYS_PTRACE != 0,
        Some("3") => false,
        _ => true,
    }
}

fn capabilities(proc: &Path) -> u64 {
    let status = fs::read_to_string(proc.join("self/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Different files named `libucs…` in the memory map of a process.
fn ucx_copies(proc: &Path, pid: u32) -> Vec<String> {
    let mut text = String::new();
    let Ok(file) = fs::File::open(proc.join(pid.to_string()).join("maps")) else { return Vec::new() };
    if file.take(MAPS_MAX).read_to_string(&mut text).is_err() {
        return Vec::new();
    }
    let path = |line: &str| {
        let path = line.get(line.find('/')?..)?.trim_end_matches(" (deleted)");
        let name = path.rsplit('/').next()?;
        let is_ucs = name.strip_prefix("libucs").is_some_and(|rest| rest.starts_with(['.', '-']));
        is_ucs.then(|| path.to_owned())
    };
    text.lines().filter_map(path).collect::<BTreeSet<_>>().into_iter().take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::super::kernel_files::write;
    use super::*;

    fn read(root: &Path) -> Ability {
        Ability::at(&root.join("sys"), &root.join("proc"), &root.join("dev"), vec![7], BTreeMap::new())
    }

    #[test]
    fn a_port_is_usable_when_it_is_up_and_its_adapter_can_be_opened() {
        let root = tempfile::tempdir().unwrap();
        for (device, state) in [("mlx5_0", "4: ACTIVE"), ("mlx5_1", "1: DOWN"), ("mlx5_2", "4: ACTIVE")] {
            write(root.path(), &format!("sys/class/infiniband/{device}/ports/1/state"), state);
        }
        for (uverbs, device) in [("uverbs5", "mlx5_0"), ("uverbs6", "mlx5_1")] {
            write(root.path(), &format!("sys/class/infiniband_verbs/{uverbs}/ibdev"), device);
            write(root.path(), &format!("dev/infiniband/{uverbs}"), "");
        }
        let usable: Vec<bool> = read(root.path()).ports.iter().map(Port::is_usable).collect();
        assert_eq!(usable, [true, false, false]);
        assert!(read(root.path()).has_rdma());
    }

    #[test]
    fn yama_decides_whether_processes_may_copy_from_each_other() {
        for (scope, capabilities, expected) in [
            ("0", "0", true),
            ("1", "0", true),
            ("2", "0", false),
            ("2", "000001fffeffffff", true),
            ("3", "000001fffeffffff", false),
        ] {
            let root = tempfile::tempdir().unwrap();
            write(root.path(), "proc/sys/kernel/yama/ptrace_scope", &format!("{scope}\n"));
            write(root.path(), "proc/self/status", &format!("Name: x\nCapEff:\t{capabilities}\n"));
            assert_eq!(read(root.path()).cross_memory_attach, expected, "{scope} {capabilities}");
        }
        assert!(read(tempfile::tempdir().unwrap().path()).cross_memory_attach);
    }

    #[test]
    fn two_copies_of_ucx_are_two_files() {
        let root = tempfile::tempdir().unwrap();
        let maps = "\
7f0-7f1 r-xp 00000000 08:01 1 /opt/a/libucs-1b.so.0.0.0
7f1-7f2 r--p 00001000 08:01 1 /opt/a/libucs-1b.so.0.0.0
7f2-7f3 r-xp 00000000 08:01 2 /opt/hpcx/lib/libucs.so.0 (deleted)
7f3-7f4 r-xp 00000000 08:01 3 /opt/a/libucsignal.so
7f4-7f5 rw-p 00000000 00:00 0 [heap]\n";
        write(root.path(), "proc/7/maps", maps);
        assert_eq!(read(root.path()).ucx_copies, ["/opt/a/libucs-1b.so.0.0.0", "/opt/hpcx/lib/libucs.so.0"]);
    }

    #[test]
    fn a_host_without_adapters_has_no_rdma() {
        assert!(!read(tempfile::tempdir().unwrap().path()).has_rdma());
    }
}
