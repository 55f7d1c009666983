//! Who a node is: host, kernel, CPU, namespaces, and the NIXL that its engine loaded.

use std::fs;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::report::NodeReport;

/// One side of a run: the host it is on and the software that it uses.
///
/// Every text is as the kernel gives it; what could not be read is `None`, never guessed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Node {
    /// Host name of this UTS namespace (in a pod: the pod's name).
    pub hostname: String,
    /// `/etc/machine-id`: the installation.
    pub machine_id: Option<String>,
    /// `/proc/sys/kernel/random/boot_id`: this boot of the kernel; equal on two sides means one host.
    pub boot_id: Option<String>,
    /// Kernel release, as `uname -r`.
    pub kernel: String,
    /// Machine architecture, as `uname -m`.
    pub architecture: String,
    /// `PRETTY_NAME` of `/etc/os-release`.
    pub os: Option<String>,
    /// Processor model of the first CPU in `/proc/cpuinfo`.
    pub cpu: Option<String>,
    /// CPUs that this process may run on.
    pub cpus_usable: u32,
    /// Memory of the host in bytes.
    pub memory_bytes: Option<u64>,
    /// Kubernetes node name, when the pod passes it in `NODE_NAME`.
    pub kubernetes_node: Option<String>,
    /// Inode numbers of the namespaces that decide what UCX can use between two processes.
    pub namespaces: Namespaces,
    /// Devices that could carry a KV cache.
    pub fabric: Fabric,
    /// Version of kvwire on this side.
    pub kvwire: String,
    /// Process id of the supervisor.
    pub pid: u32,
    /// What the engine of this side loaded; `None` until it has.
    pub nixl: Option<NixlIdentity>,
    /// What `kvwire check node` says of this side: facts and findings. `None` in results of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<NodeReport>,
}

/// Namespace inodes, from `/proc/self/ns`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Namespaces {
    /// Network namespace.
    pub net: Option<u64>,
    /// Process-id namespace (cross-memory attach needs one in common).
    pub pid: Option<u64>,
    /// IPC namespace (System V shared memory needs one in common).
    pub ipc: Option<u64>,
    /// User namespace.
    pub user: Option<u64>,
}

/// Devices listed by sysfs. Listed is not usable: this only tells two nodes apart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fabric {
    /// Names in `/sys/class/infiniband`.
    pub rdma_devices: Vec<String>,
    /// Names in `/sys/class/net`.
    pub net_devices: Vec<String>,
    /// NVIDIA GPUs, as directory names in `/proc/driver/nvidia/gpus` (PCI addresses).
    pub gpus: Vec<String>,
}

/// The NIXL that an engine loaded, and the UCX below it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NixlIdentity {
    /// `libnixl_capi.so` as it was opened.
    pub library: String,
    /// How it was found, for example `--nixl-lib` or `Python wheel`.
    pub origin: String,
    /// NIXL's version; `None` when nothing beside the library states it.
    pub version: Option<String>,
    /// The UCX library that NIXL's backend bound; `None` when it could not be seen.
    pub ucx_library: Option<String>,
    /// UCX's version as that library reports it.
    pub ucx_version: Option<String>,
    /// The CUDA runtime that the wheel's UCX needs to tell GPU memory from host memory: where it was opened from, or the
    /// places where it was not found. `None` for a NIXL that is not from a wheel.
    #[serde(default)]
    pub cuda_runtime: Option<String>,
}

impl NixlIdentity {
    /// `NIXL 1.5.1, UCX 1.23.0`, with `?` for what is not known.
    pub fn versions(&self) -> String {
        let known = |v: &Option<String>| v.clone().unwrap_or_else(|| "?".to_owned());
        format!("NIXL {}, UCX {}", known(&self.version), known(&self.ucx_version))
    }
}

impl Node {
    /// Reads this host. `kvwire` is the caller's version. Nothing here fails: gaps stay `None`.
    pub fn probe(kvwire: &str) -> Self {
        let uname = rustix::system::uname();
        Self {
            hostname: uname.nodename().to_string_lossy().into_owned(),
            machine_id: read_line("/etc/machine-id"),
            boot_id: read_line("/proc/sys/kernel/random/boot_id"),
            kernel: uname.release().to_string_lossy().into_owned(),
            architecture: uname.machine().to_string_lossy().into_owned(),
            os: field("/etc/os-release", "PRETTY_NAME=").map(|v| v.trim_matches('"').to_owned()),
            cpu: field("/proc/cpuinfo", "model name")
                .map(|v| v.trim_start_matches([':', ' ', '\t']).to_owned()),
            cpus_usable: std::thread::available_parallelism()
                .map_or(0, |n| u32::try_from(n.get()).unwrap_or(u32::MAX)),
            memory_bytes: memory_bytes("MemTotal:"),
            kubernetes_node: std::env::var("NODE_NAME").ok().filter(|v| !v.is_empty()),
            namespaces: Namespaces {
                net: namespace("net"),
                pid: namespace("pid"),
                ipc: namespace("ipc"),
                user: namespace("user"),
            },
            fabric: Fabric {
                rdma_devices: entries("/sys/class/infiniband"),
                net_devices: entries("/sys/class/net"),
                gpus: entries("/proc/driver/nvidia/gpus"),
            },
            kvwire: kvwire.to_owned(),
            pid: std::process::id(),
            nixl: None,
            report: Some(super::judge(&super::gather(kvwire), "this side")),
        }
    }

    /// Memory that can be had without swapping, in bytes: `MemAvailable`, or less where a cgroup limits it.
    pub fn available_memory_bytes() -> Option<u64> {
        let host = memory_bytes("MemAvailable:")?;
        let cgroup =
            read_line("/sys/fs/cgroup/memory.max").and_then(|v| v.parse::<u64>().ok()).map(|limit| {
                let used =
                    read_line("/sys/fs/cgroup/memory.current").and_then(|v| v.parse().ok()).unwrap_or(0);
                limit.saturating_sub(used)
            });
        Some(cgroup.map_or(host, |left| left.min(host)))
    }

    /// True when both are processes under one running kernel.
    pub fn same_host(&self, other: &Self) -> bool {
        self.boot_id.is_some() && self.boot_id == other.boot_id
    }
}

fn read_line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

fn field(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|l| l.strip_prefix(key))?.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

fn memory_bytes(key: &str) -> Option<u64> {
    let kib: u64 = field("/proc/meminfo", key)?.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

fn namespace(kind: &str) -> Option<u64> {
    // The link reads like `net:[4026531840]`.
    let link = fs::read_link(Path::new("/proc/self/ns").join(kind)).ok()?;
    link.to_str()?.split_once('[')?.1.strip_suffix(']')?.parse().ok()
}

fn entries(directory: &str) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_of_this_host_names_its_kernel_and_namespaces() {
        let node = Node::probe("0.0.0");
        assert!(!node.kernel.is_empty());
        assert!(node.namespaces.net.is_some());
        assert!(node.cpus_usable > 0);
        assert!(node.same_host(&Node::probe("0.0.0")));
    }

    #[test]
    fn two_hosts_without_a_boot_id_are_not_called_the_same() {
        assert!(!Node::default().same_host(&Node::default()));
    }
}
