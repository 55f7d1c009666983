//! What the GPU of a side can reach, and why another GPU may be out of reach.

use checks::nvml::{self, Nvml};
use checks::{Finding, Node, Status};
use serde::{Deserialize, Serialize};

use super::ability::Ability;
use crate::plan::Pair;
use crate::report::model::Placement;

/// Pairs of ranks whose sides are described in one finding.
const PAIRS_SHOWN: usize = 8;

/// The GPU that a side's payload lies on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GpuMeans {
    /// `GPU-…`, or `MIG-…` of an instance.
    pub(crate) uuid: String,
    /// `GPU-…` of the whole GPU.
    pub(crate) gpu_uuid: String,
    /// NVLinks that are up; `None` where NVML does not tell.
    pub(crate) links_up: Option<u32>,
    /// Its memory can be exported to another process.
    pub(crate) exportable: bool,
    /// By a handle that also works between process-id namespaces.
    pub(crate) by_fabric_handle: bool,
    /// By a file descriptor alone, as memory of `cuMemCreate` without fabric handles.
    #[serde(default)]
    pub(crate) by_file_descriptor: bool,
    /// This process may use an IMEX channel.
    pub(crate) imex_channel: bool,
    /// The NVLink domain that it is part of, which may reach over several hosts; `None` without one.
    #[serde(default)]
    pub(crate) domain: Option<String>,
}

/// The GPUs of this host, as NVML sees them now; none where it does not answer.
pub(crate) fn gpus_here() -> Vec<nvml::Gpu> {
    nvml::shared().ok().and_then(|nvml| Nvml::gpus(nvml).ok()).unwrap_or_default()
}

impl GpuMeans {
    /// The GPU of a placement, with what NVML sees of it among `gpus`; `None` for host memory.
    pub(crate) fn of(placement: &Placement, gpus: &[nvml::Gpu]) -> Option<Self> {
        let gpu = placement.gpu.as_ref()?;
        let seen = gpus.iter().find(|one| one.uuid == gpu.gpu_uuid);
        let up = |one: &nvml::Gpu| one.links.iter().filter(|link| link.active).count() as u32;
        Some(Self {
            uuid: gpu.uuid.clone(),
            gpu_uuid: gpu.gpu_uuid.clone(),
            links_up: seen.map(up),
            exportable: gpu.is_exportable(),
            by_fabric_handle: gpu.process_export_means == "fabric handle",
            by_file_descriptor: gpu.process_export_means == "file descriptor",
            imex_channel: imex_channel(),
            domain: seen.and_then(|one| one.fabric.domain.clone()),
        })
    }

    /// NVLink joins the two, whatever hosts they are in.
    pub(crate) fn shares_domain(&self, other: &Self) -> bool {
        self.domain.is_some() && self.domain == other.domain
    }

    /// Part of a GPU: NVIDIA has no way from one instance to another, nor to another GPU.
    pub(crate) fn is_instance(&self) -> bool {
        self.uuid != self.gpu_uuid
    }
}

/// A channel of the NVLink domain's memory exchange service that this process may open.
fn imex_channel() -> bool {
    use rustix::fs::{Access, access};
    let channels = std::fs::read_dir("/dev/nvidia-caps-imex-channels").into_iter().flatten().flatten();
    channels.take(64).any(|entry| access(entry.path(), Access::READ_OK | Access::WRITE_OK).is_ok())
}

/// Why `cuda_ipc`, which carries bytes between two GPUs of one host or of one NVLink domain, cannot work between two ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// Part of a divided GPU on a side.
    Instance,
    /// Memory that no other process may import.
    NotExportable,
    /// Processes that do not see each other, without fabric handles on both sides.
    Namespaces,
    /// Two hosts of one NVLink domain, without fabric handles on both sides.
    Hosts,
}

impl Obstacle {
    /// In words.
    pub(crate) fn why(self) -> &'static str {
        match self {
            Self::Instance => "a GPU instance (MIG) cannot reach another GPU or instance",
            Self::NotExportable => "the memory of a side cannot be exported to another process",
            Self::Namespaces => "the two sides are in different process-id namespaces",
            Self::Hosts => {
                "between two hosts of an NVLink domain it takes fabric handles and an IMEX channel on both sides"
            }
        }
    }

    fn next_step(self) -> &'static str {
        match self {
            Self::Instance => {
                "give these ranks whole GPUs (--gpu, or another resource of the pod), or accept what carries bytes between instances: RDMA or TCP (--expect)"
            }
            Self::NotExportable => {
                "try another --alloc: malloc has legacy IPC handles, vmm file descriptors; fabric handles need an IMEX channel in the container"
            }
            Self::Namespaces => {
                "put both containers into one pod with shareProcessNamespace, or use hostPID; or give both an IMEX channel and measure --alloc fabric; or accept RDMA between pods of one node"
            }
            Self::Hosts => {
                "allocate the KV cache with fabric handles (here: --alloc fabric) and give both pods an IMEX channel (a ComputeDomain claim); or accept RDMA between the hosts of the domain"
            }
        }
    }

    /// What is in the way between the GPUs of two sides; `None` where nothing is.
    pub(crate) fn between(a: (&Node, &GpuMeans), b: (&Node, &GpuMeans)) -> Option<Self> {
        // CUDA shares memory between processes within an instance, and never across its border.
        let one_host = a.0.same_host(b.0);
        if (a.1.uuid != b.1.uuid || !one_host) && (a.1.is_instance() || b.1.is_instance()) {
            return Some(Self::Instance);
        }
        if !a.1.exportable || !b.1.exportable {
            return Some(Self::NotExportable);
        }
        let by_fabric = [a.1, b.1].iter().all(|gpu| gpu.by_fabric_handle && gpu.imex_channel);
        if !one_host {
            return (!by_fabric).then_some(Self::Hosts);
        }
        let one_namespace = a.0.namespaces.pid.is_some() && a.0.namespaces.pid == b.0.namespaces.pid;
        // UCX refuses file descriptors and legacy handles of a process that it cannot see.
        (!one_namespace && !by_fabric).then_some(Self::Namespaces)
    }
}

/// Explains that before a transfer is tried: one finding for each obstacle, with the ranks that have it.
pub(crate) fn out_of_reach(a: (&Node, &Ability), b: (&Node, &Ability), pairs: &[Pair]) -> Vec<Finding> {
    let one_host = a.0.same_host(b.0);
    let wires = if one_host { "NVLink and PCIe" } else { "NVLink" };
    let obstacle = |pair: &Pair| {
        let (ours, theirs) = (a.1.gpu(pair.rank)?, b.1.gpu(pair.peer)?);
        let joined = one_host || ours.shares_domain(theirs);
        joined.then(|| Obstacle::between((a.0, ours), (b.0, theirs))).flatten()
    };
    let blocked = |by: Obstacle| {
        let those: Vec<Pair> = pairs.iter().copied().filter(|pair| obstacle(pair) == Some(by)).collect();
        let whose = match (those.as_slice(), pairs.len()) {
            ([], _) => return None,
            (_, 1) => "the two GPUs".to_owned(),
            _ => format!("the GPUs of {}", Pair::named(&those)),
        };
        let lines = those.iter().take(PAIRS_SHOWN).flat_map(|pair| {
            let several = pairs.len() > 1;
            [("initiator", a, pair.rank), ("target", b, pair.peer)]
                .map(|(name, side, rank)| line(name, side, several.then_some(rank), side.1.gpu(rank)))
        });
        Some(
            Finding::new(
                "cuda-ipc-impossible",
                Status::Warn,
                format!("{wires} between {whose} cannot be used: {}", by.why()),
            )
            .detail("UCX's cuda_ipc imports the memory of the other process: within one process-id namespace by any handle, across namespaces and hosts by fabric handles alone, and those need an IMEX channel on both sides; never across the border of a GPU instance. Without it UCX takes RDMA or TCP and says nothing")
            .evidence(lines)
            .next_step(by.next_step()),
        )
    };
    [Obstacle::Instance, Obstacle::NotExportable, Obstacle::Namespaces, Obstacle::Hosts]
        .into_iter()
        .filter_map(blocked)
        .collect()
}

/// What a rank of a side has; its number stands where there are several.
fn line(side: &str, (node, _): (&Node, &Ability), rank: Option<u32>, gpu: Option<&GpuMeans>) -> String {
    let rank = rank.map_or(String::new(), |rank| format!(" rank {rank}"));
    let inode = node.namespaces.pid.map_or("unknown".to_owned(), |inode| inode.to_string());
    let gpu = gpu.map_or("host memory".to_owned(), |gpu| {
        format!(
            "{}, {}, {}, IMEX channel {}",
            gpu.uuid,
            if gpu.exportable { "memory can be exported" } else { "memory cannot be exported" },
            if gpu.by_fabric_handle { "fabric handles" } else { "no fabric handles" },
            if gpu.imex_channel { "usable" } else { "not usable" }
        )
    });
    format!("{side}{rank}: pid namespace {inode}, {gpu}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use checks::Namespaces;

    fn node(pid: u64) -> Node {
        let namespaces = Namespaces { pid: Some(pid), ..Namespaces::default() };
        Node { boot_id: Some("b".to_owned()), namespaces, ..Node::default() }
    }

    fn gpu(uuid: &str) -> GpuMeans {
        GpuMeans {
            uuid: uuid.to_owned(),
            gpu_uuid: uuid.to_owned(),
            links_up: Some(18),
            exportable: true,
            ..GpuMeans::default()
        }
    }

    #[test]
    fn two_pods_reach_each_other_s_gpus_by_fabric_handles_alone() {
        let (a, b) = (gpu("GPU-a"), gpu("GPU-b"));
        let fabric = GpuMeans { by_fabric_handle: true, imex_channel: true, ..gpu("GPU-a") };
        let no_channel = GpuMeans { imex_channel: false, ..fabric.clone() };
        let other_host = Node { boot_id: Some("c".to_owned()), ..node(1) };
        let instance = GpuMeans { uuid: "MIG-a".to_owned(), ..gpu("GPU-a") };
        let closed = GpuMeans { exportable: false, ..gpu("GPU-a") };
        let why = |pid, ours: &GpuMeans, theirs: &GpuMeans| {
            Obstacle::between((&node(1), ours), (&node(pid), theirs))
        };
        assert_eq!(why(1, &a, &b), None);
        assert_eq!(why(2, &a, &b), Some(Obstacle::Namespaces));
        assert_eq!(why(2, &fabric, &fabric), None);
        assert_eq!(why(2, &fabric, &no_channel), Some(Obstacle::Namespaces));
        let afar =
            |ours: &GpuMeans, theirs: &GpuMeans| Obstacle::between((&node(1), ours), (&other_host, theirs));
        assert_eq!(afar(&a, &b), Some(Obstacle::Hosts), "the same number of a namespace says nothing there");
        assert_eq!((afar(&fabric, &fabric), afar(&fabric, &no_channel)), (None, Some(Obstacle::Hosts)));
        assert_eq!(afar(&instance, &instance), Some(Obstacle::Instance));
        assert_eq!(why(1, &instance, &b), Some(Obstacle::Instance));
        assert_eq!(why(1, &instance, &instance), None, "within one instance");
        assert_eq!(why(1, &closed, &b), Some(Obstacle::NotExportable));
    }

    #[test]
    fn between_hosts_there_is_something_to_explain_within_one_domain_alone() {
        let of = |domain: &str| GpuMeans { domain: Some(domain.to_owned()), ..gpu("GPU-a") };
        let other_host = Node { boot_id: Some("c".to_owned()), ..node(1) };
        let found = |ours: GpuMeans, theirs: GpuMeans| {
            out_of_reach((&node(1), &side(&[Some(ours)])), (&other_host, &side(&[Some(theirs)])), &ONE)
        };
        let within = found(of("a"), of("a"));
        assert_eq!(within.len(), 1);
        assert!(within[0].title.starts_with("NVLink between the two GPUs cannot"), "{}", within[0].title);
        assert!(within[0].next_step.contains("--alloc fabric"));
        assert!(found(of("a"), of("b")).is_empty() && found(gpu("GPU-a"), gpu("GPU-b")).is_empty());
    }

    fn side(gpus: &[Option<GpuMeans>]) -> Ability {
        Ability { gpus: gpus.to_vec(), ..Ability::default() }
    }

    const ONE: [Pair; 1] = [Pair { rank: 0, peer: 0 }];

    #[test]
    fn the_explanation_names_namespaces_and_channels() {
        let (ours, theirs) = (side(&[Some(gpu("GPU-a"))]), side(&[Some(gpu("GPU-b"))]));
        let found = out_of_reach((&node(7), &ours), (&node(8), &theirs), &ONE);
        assert_eq!(found.len(), 1);
        assert!(found[0].title.contains("between the two GPUs cannot"), "{}", found[0].title);
        let evidence = &found[0].evidence;
        assert!(evidence[0].contains("initiator: pid namespace 7, GPU-a"), "{evidence:?}");
        assert!(evidence[1].contains("IMEX channel not usable"), "{evidence:?}");
        assert!(out_of_reach((&node(7), &ours), (&node(7), &theirs), &ONE).is_empty());
        assert!(out_of_reach((&node(7), &ours), (&node(8), &side(&[None])), &ONE).is_empty());
        assert!(out_of_reach((&node(7), &ours), (&node(8), &Ability::default()), &ONE).is_empty());
    }

    #[test]
    fn of_several_ranks_those_are_named_that_cannot_with_the_reason_of_each() {
        let instance = GpuMeans { uuid: "MIG-c".to_owned(), ..gpu("GPU-c") };
        let closed = GpuMeans { exportable: false, ..gpu("GPU-d") };
        let ours = side(&[Some(gpu("GPU-a")), Some(gpu("GPU-b")), Some(instance), Some(gpu("GPU-h"))]);
        let theirs = side(&[Some(gpu("GPU-e")), Some(closed), Some(gpu("GPU-f")), Some(gpu("GPU-g"))]);
        let pairs = [(0, 0), (1, 1), (2, 2), (3, 1)].map(|(rank, peer)| Pair { rank, peer });
        let found = out_of_reach((&node(7), &ours), (&node(7), &theirs), &pairs);
        let titles: Vec<&str> = found.iter().map(|finding| finding.title.as_str()).collect();
        assert_eq!(titles.len(), 2, "{titles:?}");
        assert!(titles[0].contains("GPUs of rank 2 cannot be used: a GPU instance (MIG)"), "{titles:?}");
        assert!(titles[1].contains("GPUs of ranks 1 and 3 (with the target's 1) cannot"), "{titles:?}");
        assert!(found[0].evidence[0].starts_with("initiator rank 2: ") && found[0].evidence.len() == 2);
        assert!(
            found[1].evidence[3].contains("target rank 1: ")
                && found[1].evidence[3].contains("cannot be exported")
        );
        assert!(found[0].next_step.contains("whole GPUs") && found[1].next_step.contains("--alloc"));
    }
}
