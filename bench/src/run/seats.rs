//! Where the engine of a side is to sit: looks for GPUs where the plan wishes for one, and for what is near them.

use std::collections::BTreeMap;
use std::time::Duration;

use checks::node::{Near, gather_machine, near};
use checks::{Finding, Status};
use coordinator::Role;

use super::stop::Stop;
use super::supervisor::Supervisor;
use super::target::wrong_event;
use crate::engine::protocol::{Command, ErrorKind, Event};
use crate::engine::{Engine, EngineFailure, Phase};
use crate::memory::{
    GpuSeat, MemoryKind, MemoryWish, Nics, Numa, Seat, UCX_NET_DEVICES, chosen, first_of_target,
};
use crate::proof::counters::interfaces;
use crate::report::model::Placement;
use crate::terminal::Terminal;

/// A driver that has to wake its GPUs takes seconds.
const LOOK_DEADLINE: Duration = Duration::from_secs(30);
/// Percent of the PCIe link below which copies between host and GPU are told of. Protocol takes 10 to 15 %.
const COPIES_PERCENT: u64 = 70;

/// What a side knows when it chooses.
#[derive(Debug)]
pub(super) struct Chooser<'a> {
    pub(super) role: Role,
    pub(super) wish: &'a MemoryWish,
    /// GPUs that this side's own user names; none leaves it to the plan.
    pub(super) own_gpus: &'a [String],
    /// Environment of this side's engines on top of its own.
    pub(super) environment: &'a BTreeMap<String, String>,
    /// How many engines this side has.
    pub(super) ranks: usize,
    /// The other side takes GPUs of the same host, and takes them first.
    pub(super) after_the_other: bool,
    pub(super) terminal: &'a Terminal,
}

struct Gpu {
    uuid: String,
    pci: String,
}

impl Chooser<'_> {
    /// Chooses for each rank, with an engine that only looks for GPUs and ends.
    ///
    /// # Errors
    /// GPU memory is wanted and no GPU can be used, or the run ended meanwhile.
    pub(super) async fn choose(&self, supervisor: &mut Supervisor) -> Result<Vec<Seat>, Stop> {
        let kind = match self.role {
            Role::Initiator => self.wish.initiator,
            Role::Target => self.wish.target,
        };
        let seat = Seat { huge_pages: self.wish.huge_pages, ..Seat::default() };
        if !kind.wants_gpu() {
            return Ok(self.each(&self.near(seat, None)));
        }
        match self.look(supervisor).await? {
            Ok(gpus) => {
                let machine = gather_machine();
                let seat = |Gpu { uuid, pci }| {
                    let gpu = GpuSeat { uuid, alloc: self.wish.alloc };
                    self.near(Seat { gpu: Some(gpu), ..seat.clone() }, Some(&near(&machine, &pci)))
                };
                Ok(gpus.into_iter().map(seat).collect())
            }
            Err(why) => Ok(self.each(&self.without(kind, seat, why)?)),
        }
    }

    fn each(&self, seat: &Seat) -> Vec<Seat> {
        vec![seat.clone(); self.ranks]
    }

    /// The GPU of each rank, or why there is none.
    async fn look(&self, supervisor: &mut Supervisor) -> Result<Result<Vec<Gpu>, String>, Stop> {
        let engine = Engine::spawn(self.role, self.environment, self.terminal).map_err(Stop::Engine)?;
        supervisor.engines = vec![engine];
        let answer = supervisor.work_all(&Command::LookForGpus, Phase::Opening, LOOK_DEADLINE).await;
        supervisor.end_engines(answer.is_ok()).await;
        let devices = match answer.map(|events| events.into_iter().next()) {
            Ok(Some(Event::Gpus(devices))) => devices,
            Ok(Some(other)) => return Err(wrong_event(&other)),
            Ok(None) => return Err(Stop::Confused("no engine looked for GPUs".to_owned())),
            Err(Stop::Engine(failure)) => match no_gpu(&failure) {
                Some(why) => return Ok(Err(why)),
                None => return Err(Stop::Engine(failure)),
            },
            Err(stop) => return Err(stop),
        };
        let wanted = if self.own_gpus.is_empty() { &self.wish.gpus } else { self.own_gpus };
        let chosen = match chosen(&devices, wanted) {
            Ok(chosen) => chosen,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let first = if self.after_the_other { first_of_target(self.ranks, chosen.len()) } else { 0 };
        let in_turn = chosen.into_iter().cycle().skip(first).take(self.ranks);
        Ok(Ok(in_turn.map(|device| Gpu { uuid: device.uuid.clone(), pci: device.pci.clone() }).collect()))
    }

    fn without(&self, kind: MemoryKind, seat: Seat, why: String) -> Result<Seat, Stop> {
        if kind == MemoryKind::Auto {
            return Ok(self.near(Seat { instead_of_gpu: Some(why), ..seat }, None));
        }
        let title = format!("{} has no GPU for --memory vram: {why}", self.role);
        Err(Stop::Refused(Box::new(Finding::new("gpu-missing", Status::Fail, title).next_step(
            "run `kvwire check node` and `nvidia-smi` where this side runs; in a pod, request nvidia.com/gpu; or measure host memory with --memory dram",
        ))))
    }

    /// Cores and network ports for a seat; `around` is what is near its GPU.
    fn near(&self, seat: Seat, around: Option<&Near>) -> Seat {
        let set =
            self.environment.contains_key(UCX_NET_DEVICES) || std::env::var_os(UCX_NET_DEVICES).is_some();
        let numa = match self.wish.numa {
            Numa::Node(node) => Some(node),
            Numa::Auto => around.and_then(|around| around.numa_node),
            Numa::Off => None,
        };
        let seat = Seat { numa, ..seat };
        match (&self.wish.nics, around) {
            (Nics::List(names), _) => Seat { nics: names.clone(), ..seat },
            // A choice of the user's own stands, and one distance leaves nothing to choose.
            (Nics::Auto, Some(around)) if !set && around.farther_ports => Seat {
                nics: around.ports.clone(),
                nics_distance: around.distance.clone(),
                // They stay allowed: whether UCX falls back to TCP is what the run is to show.
                interfaces: interfaces(),
                ..seat
            },
            _ => seat,
        }
    }
}

/// Environment of an engine that sits there.
pub(super) fn environment(
    seat: &Seat,
    mut environment: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    if !seat.nics.is_empty() {
        let names: Vec<&str> = seat.nics.iter().chain(&seat.interfaces).map(String::as_str).collect();
        environment.insert(UCX_NET_DEVICES.to_owned(), names.join(","));
    }
    environment
}

/// What an engine that looked for GPUs did not find.
fn no_gpu(failure: &EngineFailure) -> Option<String> {
    failure.reported().filter(|error| error.kind == ErrorKind::Gpu).map(|error| error.message.clone())
}

/// What a reader should know about where a side's payload lies. What is so for several ranks is told once, with the ranks
/// where it is not so for all.
pub(super) fn judge(side: &str, placements: &[Placement]) -> Vec<Finding> {
    let mut found: Vec<(Finding, Vec<String>)> = Vec::new();
    for (rank, placement) in placements.iter().enumerate() {
        for finding in of_one(side, placement) {
            match found.iter_mut().find(|(known, _)| known.title == finding.title) {
                Some((_, ranks)) => ranks.push(rank.to_string()),
                None => found.push((finding, vec![rank.to_string()])),
            }
        }
    }
    let named =
        |(finding, ranks): (Finding, Vec<String>)| {
            let some = ranks.len() < placements.len();
            finding.evidence(some.then(|| {
                format!("so for {} of {} ranks: {}", ranks.len(), placements.len(), ranks.join(", "))
            }))
        };
    found.into_iter().map(named).collect()
}

fn of_one(side: &str, placement: &Placement) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(why) = &placement.instead_of_gpu {
        found.push(
            Finding::new(
                "memory-fallback",
                Status::Warn,
                format!("{side}: host memory was measured, since no GPU could be used"),
            )
            .detail("--memory auto takes host memory where there is no GPU; nothing is said about GPU memory of this side")
            .evidence([why.clone()])
            .next_step("run `kvwire check node` where this side runs, or ask for --memory vram so that a missing GPU fails the run"),
        );
    }
    found.extend(elsewhere(side, placement));
    let Some(gpu) = &placement.gpu else { return found };
    if let Some(why) = &gpu.without_kernels {
        found.push(
            Finding::new(
                "gpu-kernels-unused",
                Status::Warn,
                format!("{side}: the data in GPU memory is checked through a copy in host memory"),
            )
            .detail("filling and checking take longer; the figures of the transfers are not touched by that")
            .evidence([why.clone()])
            .next_step("update the NVIDIA driver; kernels need a GPU of the Turing generation or newer"),
        );
    }
    if let (Some(percent), Some(copies)) = (gpu.copies_percent(), gpu.copies())
        && percent < COPIES_PERCENT
    {
        found.push(
            Finding::new(
                "gpu-copies-slow",
                Status::Warn,
                format!("{side}: copies between host and GPU reach {percent} % of the GPU's PCIe link, less than {COPIES_PERCENT} %"),
            )
            .detail("what UCX stages through host memory is no faster than that")
            .evidence([copies])
            .next_step("run the engine on the GPU's NUMA node (--numa), see that nothing else uses the GPU, and look at its link with `nvidia-smi -q -d PERFORMANCE` and `kvwire check node`"),
        );
    }
    let lines = [
        format!("dma-buf: {}", gpu.dma_buf),
        format!("to other processes, by {}: {}", gpu.process_export_means, gpu.process_export),
    ];
    if !gpu.is_exportable() {
        found.push(
            Finding::new(
                "gpu-memory-not-exportable",
                Status::Warn,
                format!("{side}: this GPU memory cannot be exported to another process, so that NVLink cannot reach it"),
            )
            .evidence(lines)
            .next_step("try another --alloc: malloc has legacy IPC handles, vmm file descriptors; fabric handles need an IMEX channel in the container"),
        );
    }
    found
}

/// A NUMA node that was wanted and is not the one that was had.
fn elsewhere(side: &str, placement: &Placement) -> Option<Finding> {
    let wanted = placement.numa_wanted?;
    let finding = |id, title| Finding::new(id, Status::Warn, title);
    if placement.cpus.is_none() {
        let title =
            format!("{side}: the engine may run on no core of NUMA node {wanted}, and was left where it was");
        return Some(finding("numa-not-pinned", title).next_step(
            "give the container cores of that node (static CPU manager and topology manager, or cpuset), or take another node with --numa",
        ));
    }
    let node = placement.numa_node.filter(|node| *node != wanted)?;
    let title =
        format!("{side}: host memory lies on NUMA node {node} although the engine runs on node {wanted}");
    Some(
        finding("numa-memory-elsewhere", title)
            .evidence(["most pages of the pool in /proc/self/numa_maps".to_owned()])
            .next_step("see that the node has free memory (numactl --hardware), and that the container may use it (cpuset.mems)"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::AllocKind;
    use crate::report::model::GpuUsed;

    fn placement(process_export: &str) -> Placement {
        let gpu = GpuUsed {
            name: "GPU".to_owned(),
            uuid: "GPU-a".to_owned(),
            gpu_uuid: "GPU-a".to_owned(),
            pci: "0000:17:00.0".to_owned(),
            driver_cuda: "12.8".to_owned(),
            alloc: AllocKind::Malloc,
            dma_buf: "yes".to_owned(),
            process_export: process_export.to_owned(),
            process_export_means: "legacy IPC handle".to_owned(),
            without_kernels: None,
            from_host_bytes_per_s: None,
            to_host_bytes_per_s: None,
            pcie_bytes_per_s: None,
            pcie: None,
        };
        Placement { gpu: Some(gpu), ..Placement::default() }
    }

    #[test]
    fn slow_copies_between_host_and_gpu_are_told_beside_the_link() {
        let with = |from_host: u64| {
            let mut placement = placement("yes");
            let gpu = placement.gpu.as_mut().unwrap();
            (gpu.from_host_bytes_per_s, gpu.to_host_bytes_per_s) = (Some(from_host), Some(55_000_000_000));
            (gpu.pcie_bytes_per_s, gpu.pcie) = (Some(63_000_000_000), Some("PCIe 5 x16".to_owned()));
            placement
        };
        assert!(judge("target", &[with(54_000_000_000)]).is_empty());
        let found = judge("target", &[with(12_000_000_000)]);
        assert_eq!(found[0].id, "gpu-copies-slow");
        let line = "copies from host 12.0 GB/s, to host 55.0 GB/s: 19 % and 87 % of 63.0 GB/s (PCIe 5 x16)";
        assert_eq!(found[0].evidence[0], line);
    }

    #[test]
    fn what_is_so_for_some_ranks_names_them() {
        let (good, bad) = (placement("yes"), placement("no: refused"));
        let found = judge("target", &[good.clone(), bad.clone(), bad.clone()]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].evidence.last().map(String::as_str), Some("so for 2 of 3 ranks: 1, 2"));
        let all = judge("target", &[bad.clone(), bad]);
        assert!(!all[0].evidence.iter().any(|line| line.contains("ranks")), "{all:?}");
        assert!(judge("target", &[good]).is_empty());
    }
}
