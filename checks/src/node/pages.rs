//! The page of each finding about a node, a pod or NIXL: what causes it, how to confirm it by hand, how to mend it, and
//! who can.

use serde::Serialize;

/// Who can mend something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Who {
    /// Whoever writes the manifest or starts the process.
    User,
    /// Whoever runs the cluster or the machine.
    Admin,
    /// Nobody has to: it informs.
    Nobody,
}

impl Who {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::User => "you, in the manifest or on the command line",
            Self::Admin => "a cluster administrator",
            Self::Nobody => "nobody has to",
        }
    }
}

/// What `kvwire explain` prints for a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Page {
    /// The finding's id.
    pub id: &'static str,
    /// What is looked at.
    pub title: &'static str,
    /// What causes it.
    pub cause: &'static str,
    /// How to see it without kvwire.
    pub confirm: &'static str,
    /// What to do.
    pub fix: &'static str,
    /// Who can.
    pub who: Who,
}

/// The page of a finding.
pub fn page(id: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.id == id)
}

/// The table as `id, title, cause, confirm, fix, who`, one page each.
#[macro_export]
macro_rules! pages {
    ($($id:literal, $title:literal, $cause:literal, $confirm:literal, $fix:literal, $who:ident;)*) => {
        &[$($crate::node::Page {
            id: $id, title: $title, cause: $cause, confirm: $confirm, fix: $fix, who: $crate::node::Who::$who,
        },)*]
    };
}

/// Every page, in the order in which findings are made.
pub const PAGES: &[Page] = pages! {
    "node:target", "What was looked at",
        "Says whether findings are of this machine, a pod or a capture, and who read the files.",
        "Compare the host name with the one you meant.", "Nothing.", Nobody;
    "pod-exec", "A pod could not be looked into",
        "kubectl is missing, the pod or container does not exist or does not run, you lack the right to run commands in it, or it did not answer in time.",
        "kubectl exec POD -- true", "Follow kubectl's own words, which are quoted; `kubectl auth can-i create pods/exec` tells about rights.", User;
    "ib-devices", "Device nodes in /dev/infiniband",
        "A container has the nodes only when its device plugin or claim gave them.",
        "ls -l /dev/infiniband", "Ask for an RDMA resource in the pod (rdma/…, nvidia.com/…), or a resource claim.", User;
    "ibv-devinfo", "RDMA devices that the kernel lists",
        "No driver is loaded, no adapter is there, or sysfs is hidden.",
        "ls /sys/class/infiniband; ibv_devinfo", "Schedule on a node with an adapter; have its driver loaded.", Admin;
    "ib-link", "Ports that are active",
        "A cable, switch port or subnet manager is missing, or a RoCE interface is down.",
        "cat /sys/class/infiniband/*/ports/*/state; ibstat", "See rdma-port.", Admin;
    "gpudirect-peermem", "The peer-memory module",
        "nvidia_peermem is not loaded on the node. dma-buf can take its place; the finding gpudirect says whether it does.",
        "ls -d /sys/module/nvidia_peermem", "modprobe nvidia_peermem; in the GPU operator driver.rdma.enabled=true.", Admin;
    "gdrcopy", "GDRCopy's device",
        "gdrdrv is not loaded, or /dev/gdrdrv is not in the container. Small GPU messages are slower without it; nothing is wrong.",
        "ls -l /dev/gdrdrv", "Have gdrdrv loaded and its device given to the container.", Admin;
    "gpu-topology", "NVLink between the GPUs of this node",
        "The GPUs have no NVLink, or it is not up, or NVML is not in the container.",
        "nvidia-smi topo -m", "Choose nodes with NVLink where the workload needs it.", Admin;
    "rdma-usable", "RDMA devices that can be used from here",
        "sysfs lists every device of the node, also in a container that has none of them. A process can use a device only when it may read and write its /dev/infiniband/uverbs node.",
        "cat /sys/class/infiniband_verbs/*/ibdev; ls -l /dev/infiniband", "Request the device in the pod's resources or by a claim; privileged pods need the host's /dev/infiniband mounted.", User;
    "rdma-port", "State of each port",
        "DOWN with Polling: no signal from the other end. DOWN with Disabled: the interface was switched off. INIT: no subnet manager.",
        "cat /sys/class/infiniband/*/ports/*/{state,phys_state}", "Cable, switch port or subnet manager; ip link set DEV up for RoCE. Until then leave the port out with UCX_NET_DEVICES.", Admin;
    "rdma-rate", "Rate of the active ports",
        "A link came up slower than its neighbours, or a management adapter stands beside the fast ones.",
        "cat /sys/class/infiniband/*/ports/*/rate", "Name the fast ports in UCX_NET_DEVICES; have a slow link looked at.", User;
    "rdma-lid", "InfiniBand addresses",
        "The subnet manager gave no LID: it does not run, or the port is a bond or virtual function.",
        "cat /sys/class/infiniband/*/ports/*/lid", "Run a subnet manager; with virtual functions set UCX_IB_IS_GLOBAL=y.", Admin;
    "rdma-pkey", "Partition membership",
        "The port is only a limited member of its partition; two limited members cannot talk.",
        "cat /sys/class/infiniband/*/ports/*/pkeys/0", "Ask for full membership, or choose another key with UCX_IB_PKEY.", Admin;
    "rdma-pcie", "PCIe link of the adapter",
        "The card sits in a slot with fewer lanes, was trained at a lower speed, or power saving lowered it.",
        "cat /sys/class/infiniband/*/device/{current,max}_link_{speed,width}", "Reseat or move the card; look at the firmware's power settings.", Admin;
    "rdma-fabrics", "Several fabrics on one node",
        "Ports of different subnets or link layers are active, and UCX may pair ports that cannot reach each other.",
        "cat /sys/class/infiniband/*/ports/*/gids/0", "Set UCX_NET_DEVICES to the ports of the fabric that both sides share.", User;
    "roce-congestion", "Retransmissions and congestion marks on RoCE",
        "The network loses or delays packets: PFC or ECN is not set up end to end. Pauses by priority (PFC) are normal; discards are not.",
        "cat /sys/class/infiniband/*/ports/*/hw_counters/out_of_sequence; ethtool -S DEV", "See whether the counters rise during a run; then have the switches' PFC and ECN looked at.", Admin;
    "efa-ucx", "UCX on Amazon EFA",
        "UCX uses EFA from 1.19 on and without emulation from 1.20 on; engines take the UCX backend unless told otherwise.",
        "ls /sys/class/infiniband; kvwire info", "Measure; where the bytes are emulated, use the libfabric backend or a newer UCX.", User;
    "roce-gid", "The RoCE address that UCX takes",
        "The port's interface has no IP address, lies in another network namespace, or has only a link-local or v1 address.",
        "grep . /sys/class/infiniband/*/ports/*/gids/? /sys/class/infiniband/*/ports/*/gid_attrs/types/? 2>/dev/null", "Give the interface a routable IP address; in a pod, move the interface with it (RDMA CNI, host networking).", Admin;
    "roce-gid-index", "UCX_IB_GID_INDEX",
        "Indexes differ between ports and hosts; the one named is empty, link-local or RoCE v1 here.",
        "cat /sys/class/infiniband/DEV/ports/1/gids/INDEX", "Unset UCX_IB_GID_INDEX: UCX finds the right one on each port.", User;
    "gpudirect", "How a network card reaches GPU memory",
        "UCX takes a peer-memory module, or dma-buf (kernel 5.12, open NVIDIA modules, a verbs library that knows it). With neither it copies through host memory and says nothing.",
        "ls -d /sys/module/nvidia_peermem; cat /proc/driver/nvidia/version; uname -r", "Load nvidia_peermem, or use the open modules with a newer kernel.", Admin;
    "gdrcopy-library", "GDRCopy's library",
        "libgdrapi is not in the image.", "ldconfig -p | grep gdrapi", "Add it to the image where small GPU messages matter.", User;
    "nvlink", "State and errors of NVLinks",
        "A link did not train, or has errors.", "nvidia-smi nvlink -s; nvidia-smi nvlink -e", "Have the node drained and the GPU or switch looked at.", Admin;
    "nvlink-fabric", "The NVLink fabric between nodes",
        "The fabric manager has not completed, a switch or route is degraded, or the two nodes are of different cliques. Without NVML or nvidia-smi it cannot be known.",
        "nvidia-smi -q | grep -A6 Fabric", "Have the fabric manager and IMEX looked at; place both sides in one clique.", Admin;
    "imex-channels", "IMEX channels",
        "NVLink between nodes, and between containers with separate process ids, needs a channel that may be opened.",
        "ls -l /dev/nvidia-caps-imex-channels", "Give the pod a ComputeDomain claim.", User;
    "gpu-nic-distance", "The network card nearest to each GPU",
        "The pod got a card of another NUMA node than its GPU: traffic crosses the CPUs.",
        "nvidia-smi topo -m", "Topology manager or the device plugin's affinity; name the near ports in UCX_NET_DEVICES.", Admin;
    "virtual-machine", "A virtual machine",
        "Passed-through devices behind one switch talk below the IOMMU and may read wrong addresses.",
        "grep -o hypervisor /proc/cpuinfo | head -1", "Measure GPU memory with verification; choose a card behind another switch if it fails.", Admin;
    "pcie-acs", "Access Control Services between GPU and card",
        "Bridges redirect peer traffic to the root complex: slower, or broken.",
        "sudo lspci -vvv | grep -i acsctl", "On bare metal switch the redirection off; in a virtual machine leave it.", Admin;
    "iommu", "The IOMMU",
        "It translates addresses between GPU and card, so that traffic takes the way through the CPU.",
        "cat /proc/cmdline; cat /sys/kernel/iommu_groups/*/type | sort | uniq -c", "Boot with iommu=pt, or without an IOMMU.", Admin;
    "memlock", "Locked memory",
        "RDMA locks the memory that it registers. The limit is too small, and the process lacks CAP_IPC_LOCK.",
        "ulimit -l; grep CapEff /proc/self/status", "Add IPC_LOCK to the container's capabilities.", User;
    "capabilities", "Capabilities of the process",
        "Linux grants single rights of root. IPC_LOCK lifts the limit of locked memory, SYS_PTRACE lets processes copy from each other where Yama forbids it.",
        "grep CapEff /proc/self/status; capsh --decode=HEX", "Add what is needed under securityContext.capabilities.add; IPC_LOCK is enough for RDMA.", User;
    "shm-size", "Shared memory",
        "Containers get 64 MiB in /dev/shm unless more is mounted; UCX needs 16 MiB free and engines far more.",
        "df -h /dev/shm", "Mount an emptyDir with medium: Memory at /dev/shm.", User;
    "cpu-limit", "CPU limit",
        "A transfer polls on one core and NIXL's progress thread on another; a limit throttles both.",
        "cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu.stat", "Raise the CPU limit or leave it out.", User;
    "namespaces", "Namespaces of the process",
        "Shared memory needs the ipc namespace in common; cross-memory attach and NVLink handles need pid.",
        "ls -l /proc/self/ns", "hostIPC, hostPID or shareProcessNamespace where both sides share a node on purpose.", Nobody;
    "libraries-nixl", "Copies of NIXL",
        "A wheel and a system install in one image: core and plugins may come from different ones.",
        "find / -name libnixl_capi.so 2>/dev/null", "Keep one, or name it (--nixl-lib, NIXL_PLUGIN_DIR).", User;
    "libraries-ucx", "Copies of UCX",
        "Two copies in one process crash or hang; HPC-X on LD_LIBRARY_PATH is the usual second one.",
        "grep -h libucp /proc/PID/maps | sort -u", "Keep other copies off LD_LIBRARY_PATH.", User;
    "libraries-rdma", "Provider libraries",
        "User space needs a library for each driver. NIXL's wheel has its own libibverbs with mlx5 alone: other adapters are passed over without a word.",
        "ls /usr/lib/*/libibverbs; cat /etc/libibverbs.d/*", "Install ibverbs-providers; for other adapters than mlx5 use a NIXL built against the system's libibverbs.", User;
    "libefa-crash", "Crash at the end of a process",
        "The wheel's EFA module pulls in the system's libefa and a second libnl; the process dies with SIGSEGV as it exits, after right transfers.",
        "ldconfig -p | grep libefa", "UCX_MODULES=^efa where there is no EFA.", User;
    "nixl:binary", "A NIXL to use",
        "No NIXL was found, or it cannot be loaded.", "kvwire info", "Install NIXL (pip install --no-deps nixl-cu12) or name its library.", User;
    "nixl-plugins", "The UCX plugin",
        "NIXL does not find its plugins: NIXL_PLUGIN_DIR is of another install.", "kvwire info", "Unset NIXL_PLUGIN_DIR, or point it to the plugins of the same install.", User;
    "nixl-backend", "The UCX backend",
        "UCX finds no usable transport: a device or transport list that leaves nothing, or a library that is missing.",
        "UCX_LOG_LEVEL=info kvwire check nixl --verbose", "Try without UCX_TLS and UCX_NET_DEVICES; the log names what is available.", User;
    "nixl-memory", "Registration of host memory",
        "The limit of locked memory is too small.", "ulimit -l", "See memlock.", User;
    "nixl-gpu-memory", "Registration of GPU memory",
        "UCX has no CUDA module, or UCX_TLS leaves cuda_copy out, or GPU and driver do not fit together. Skipped where there is no GPU to try with.",
        "UCX_LOG_LEVEL=info kvwire check nixl --verbose; ls *nixl_cu*.libs/ucx/libuct_cuda*", "Add cuda_copy to UCX_TLS, or use a NIXL whose UCX has its CUDA module.", User;
    "nixl-loopback", "A transfer within one process",
        "NIXL loads and starts and the bytes do not arrive, or kvwire is not in the pod to try.",
        "kvwire check nixl --verbose", "Read the UCX lines; copy kvwire into the pod with the command given.", User;
    "ucx-transports", "Transports that UCX offers",
        "The node has a usable RDMA device and UCX does not offer it: its IB module or the provider library is missing.",
        "ucx_info -d | grep Transport", "See libraries-rdma.", User;
    "process-environment", "Which process of a pod was judged",
        "A start script may change the environment between the pod's first process and the engine. Where the engine's may not be read, or no engine runs, only the first process was judged, or none.",
        "kubectl exec POD -- sh -c 'tr \"\\0\" \"\\n\" </proc/1/environ'", "Name the worker's container with --container, and look once the engine runs.", User;
    "process-unmatched", "A pod that fits several workers of the manifest",
        "Neither its name, its container nor its role says which worker of the manifest it runs.",
        "kubectl get pod POD --show-labels", "Give the manifest of that worker alone, or name its container with --container.", User;
    "declared-missing", "A variable that the manifest declares is not in the running process",
        "An operator or chart drops it on the way, the pod is older than the manifest, or a start script unsets it.",
        "kubectl get pod POD -o yaml; kubectl exec POD -- sh -c 'tr \"\\0\" \"\\n\" </proc/1/environ'", "Where the pod's YAML lacks it, state it at a level that the operator passes on; where it has it, mend the start script; else restart the pod.", User;
    "declared-changed", "A variable arrived with another value than the manifest declares",
        "Another level overrides it, the pod is older than the manifest, or a start script changes it.",
        "kubectl get pod POD -o yaml; kubectl exec POD -- sh -c 'tr \"\\0\" \"\\n\" </proc/1/environ'", "Restart the pod if the manifest is newer; else state the value at the level that wins.", User;
    "declared-arrived", "How much of what is declared arrived in the process",
        "Counts what is in the process as the manifest declares it; what is missing or changed has a finding of its own.",
        "kubectl exec POD -- sh -c 'tr \"\\0\" \"\\n\" </proc/1/environ'", "Nothing.", Nobody;
    "undeclared", "Variables that decide the wire and stand in no manifest",
        "The image, an operator or a start script sets them; they change when these do.",
        "docker image inspect IMAGE (Config.Env); kubectl get pod POD -o yaml", "Declare those that matter.", User;
    "nodes-differ", "Two nodes that are not alike",
        "The two sides run on nodes of different kind, driver, firmware or limits.",
        "kvwire check node  # on both", "Schedule both sides on one kind of node, or make sure that the difference is meant.", Admin;
    "rdma-expected", "RDMA is expected and one side cannot use it",
        "The run is to use RDMA (--expect rdma, or a UCX_TLS that allows nothing else), and one side has no usable device or no active port.",
        "kvwire check node  # on that side", "Mend the finding that is named, or allow another transport and expect no RDMA.", User;
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write as _;
    use std::{env, fs};

    use super::*;
    use crate::node::{Evidence, judge};

    const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/node-checks.md");

    fn reference() -> String {
        let mut out = String::from(
            "# Findings about nodes, pods and NIXL\n\nWhat `kvwire check node`, `kvwire check nixl` and `kvwire check` find. A finding is `ok`, `warn`, `fail`,\n\
             `skipped` (not looked at, with the reason) or `unknown` (looked at and not decided). This page is made from\n`checks/src/node/pages.rs` (`make docs`).\n",
        );
        for page in PAGES {
            // Writing to a String cannot fail.
            let _ = writeln!(
                out,
                "\n## {}\n\n{}.\n\n- **Cause:** {}\n- **Confirm by hand:** `{}`\n- **Fix:** {}\n- **Who:** {}",
                page.id,
                page.title,
                page.cause,
                page.confirm,
                page.fix,
                page.who.words()
            );
        }
        out
    }

    #[test]
    fn the_published_page_is_the_one_of_the_code() {
        let text = reference();
        if env::var_os("KVWIRE_UPDATE_DOCS").is_some_and(|value| value == "1") {
            fs::write(DOCS, &text).unwrap();
        }
        let published = fs::read_to_string(DOCS).unwrap_or_default();
        assert!(
            published == text,
            "docs/node-checks.md is stale; run: KVWIRE_UPDATE_DOCS=1 cargo test -p checks the_published_page"
        );
    }

    #[test]
    fn every_finding_has_one_page() {
        let ids: BTreeSet<&str> = PAGES.iter().map(|page| page.id).collect();
        assert_eq!(ids.len(), PAGES.len(), "an id has two pages");
        let sources = [
            include_str!("expectation.rs"),
            include_str!("judge/fabric.rs"),
            include_str!("judge/gid.rs"),
            include_str!("judge/gpu.rs"),
            include_str!("judge/libraries.rs"),
            include_str!("judge/platform.rs"),
            include_str!("judge/process.rs"),
            include_str!("judge/rdma.rs"),
            include_str!("judge/readonly.rs"),
            include_str!("judge/topology.rs"),
        ];
        let named = sources.iter().flat_map(|source| {
            let code = source.split("#[cfg(test)]").next().unwrap_or(source);
            let forms = ["let id = \"", "ID: &str = \"", "Finding::new(\"", "Finding::new(\n            \""];
            forms
                .into_iter()
                .flat_map(|form| code.split(form).skip(1).filter_map(|rest| rest.split('"').next()))
                .collect::<Vec<_>>()
        });
        let mut seen = 0;
        for id in named {
            assert!(page(id).is_some(), "{id} has no page");
            seen += 1;
        }
        assert!(seen > 20, "the sources were not understood");
        for finding in judge(&Evidence::new("test"), "x").findings {
            assert!(page(&finding.id).is_some(), "{} has no page", finding.id);
        }
    }
}
