//! What the GPU of a side can reach, and why another GPU may be out of reach.

use checks::nvml::{self, Nvml};
use checks::{Finding, Node, Status};
use serde::{Deserialize, Serialize};

use super::ability::Ability;
use crate::report::model::Placement;

/// How an export that works reads.
const YES: &str = "yes";

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
    /// This process may use an IMEX channel.
    pub(crate) imex_channel: bool,
}

impl GpuMeans {
    /// The GPU of a placement; `None` for host memory.
    pub(crate) fn of(placement: &Placement) -> Option<Self> {
        let gpu = placement.gpu.as_ref()?;
        let seen = nvml::shared().ok().and_then(|nvml| Nvml::gpus(nvml).ok()).unwrap_or_default();
        let seen = seen.into_iter().find(|one| one.uuid == gpu.gpu_uuid);
        let up = |one: &nvml::Gpu| one.links.iter().filter(|link| link.active).count() as u32;
        Some(Self {
            uuid: gpu.uuid.clone(),
            gpu_uuid: gpu.gpu_uuid.clone(),
            links_up: seen.as_ref().map(up),
            exportable: gpu.process_export == YES,
            by_fabric_handle: gpu.process_export_means == "fabric handle",
            imex_channel: imex_channel(),
        })
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

/// Why `cuda_ipc`, which carries bytes between two GPUs of one host, cannot work between these two sides.
pub(crate) fn no_cuda_ipc(a: (&Node, &GpuMeans), b: (&Node, &GpuMeans)) -> Option<&'static str> {
    if a.1.is_instance() || b.1.is_instance() {
        return Some("a GPU instance (MIG) cannot reach another GPU or instance");
    }
    if !a.1.exportable || !b.1.exportable {
        return Some("the memory of a side cannot be exported to another process");
    }
    let one_namespace = a.0.namespaces.pid.is_some() && a.0.namespaces.pid == b.0.namespaces.pid;
    let by_fabric = [a.1, b.1].iter().all(|gpu| gpu.by_fabric_handle && gpu.imex_channel);
    // UCX refuses file descriptors and legacy handles of a process that it cannot see.
    (!one_namespace && !by_fabric).then_some("the two sides are in different process-id namespaces")
}

/// Explains that before a transfer is tried.
pub(crate) fn out_of_reach(a: (&Node, &Ability), b: (&Node, &Ability)) -> Option<Finding> {
    let (ours, theirs) = (a.1.gpu.as_ref()?, b.1.gpu.as_ref()?);
    if !a.0.same_host(b.0) {
        return None;
    }
    let why = no_cuda_ipc((a.0, ours), (b.0, theirs))?;
    let inode = |node: &Node| node.namespaces.pid.map_or("unknown".to_owned(), |inode| inode.to_string());
    let side = |name: &str, node: &Node, gpu: &GpuMeans| {
        format!(
            "{name}: pid namespace {}, {}, IMEX channel {}",
            inode(node),
            if gpu.by_fabric_handle { "fabric handles" } else { "no fabric handles" },
            if gpu.imex_channel { "usable" } else { "not usable" }
        )
    };
    Some(
        Finding::new(
            "cuda-ipc-impossible",
            Status::Warn,
            format!("NVLink and PCIe between the two GPUs cannot be used: {why}"),
        )
        .detail("UCX's cuda_ipc imports the memory of the other process: within one process-id namespace by any handle, across namespaces by fabric handles alone, and those need an IMEX channel on both sides. Without it UCX takes RDMA or TCP and says nothing")
        .evidence([side("initiator", a.0, ours), side("target", b.0, theirs)])
        .next_step("put both containers into one pod with shareProcessNamespace, or use hostPID; or give both an IMEX channel and measure --alloc fabric; or accept RDMA between pods of one node"),
    )
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
        let instance = GpuMeans { uuid: "MIG-a".to_owned(), ..gpu("GPU-a") };
        let closed = GpuMeans { exportable: false, ..gpu("GPU-a") };
        let why =
            |pid, ours: &GpuMeans, theirs: &GpuMeans| no_cuda_ipc((&node(1), ours), (&node(pid), theirs));
        assert_eq!(why(1, &a, &b), None);
        assert!(why(2, &a, &b).unwrap().contains("process-id namespaces"));
        assert_eq!(why(2, &fabric, &fabric), None);
        assert!(why(2, &fabric, &no_channel).is_some());
        assert!(why(1, &instance, &b).unwrap().contains("MIG"));
        assert!(why(1, &closed, &b).unwrap().contains("exported"));
    }

    #[test]
    fn the_explanation_names_namespaces_and_channels() {
        let side = |gpu: GpuMeans| Ability { gpu: Some(gpu), ..Ability::default() };
        let (ours, theirs) = (side(gpu("GPU-a")), side(gpu("GPU-b")));
        let found = out_of_reach((&node(7), &ours), (&node(8), &theirs)).unwrap();
        assert!(
            found.evidence[0].contains("pid namespace 7")
                && found.evidence[1].contains("IMEX channel not usable")
        );
        assert!(out_of_reach((&node(7), &ours), (&node(7), &theirs)).is_none());
        assert!(out_of_reach((&node(7), &ours), (&node(8), &Ability::default())).is_none());
    }
}
