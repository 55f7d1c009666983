//! The most that the path of a case can reach, and how near it came.

use std::fmt;

use checks::{Finding, Status};

use super::ability::Ability;
use super::class::Class;
use super::judge::Transport;
use super::rate::{Rate, nvlinks, pcie};
use crate::measure::units::ByteSize;
use crate::plan::{Op, Part};
use crate::report::model::{CaseResult, Limit};

/// Below this a path is worth a word where nothing else was asked for, in percent.
const WARN_BELOW: u32 = 80;

/// The limit of the path that carried a part of a case, between the `sides` of initiator and target. `copied` is the speed
/// of a copy in memory, in bytes per second, where that was measured. `None` where nothing is known: an interface without a
/// speed, a software adapter, an unknown wire.
pub(crate) fn limit(
    transport: &Transport,
    part: &Part,
    sides: (&Ability, &Ability),
    copied: Option<f64>,
) -> Option<Limit> {
    let gpus = [sides.0.gpu(part.rank), sides.1.gpu(part.peer)];
    let slower = |name: fn(&str) -> String| {
        let [ours, theirs] = [(sides.0, gpus[0]), (sides.1, gpus[1])]
            .map(|(side, gpu)| side.rates.get(&name(&gpu?.gpu_uuid)).cloned());
        Some(ours?.or_slower(Some(theirs?)))
    };
    let rate = match transport.class {
        Class::Rdma => {
            let links = [(sides.0, gpus[0]), (sides.1, gpus[1])]
                .map(|(side, gpu)| side.rates.get(&pcie(&gpu?.gpu_uuid)).cloned());
            // What goes to or comes from a GPU crosses its PCIe link too.
            links.into_iter().fold(network(transport, sides)?, Rate::or_slower)
        }
        Class::Tcp => network(transport, sides)?,
        Class::Nvlink => slower(nvlinks)?,
        Class::PcieP2p => slower(pcie)?,
        Class::Shm => {
            let memory =
                if gpus[0].is_some() { "within the GPU's memory" } else { "in host memory by one core" };
            Rate {
                bytes_per_s: copied?,
                source: format!("a copy {memory}, of the same size up to 64 MiB, measured on the spot"),
            }
        }
        Class::Emulated | Class::Unknown => return None,
    };
    Some(Limit { bytes_per_s: rate.bytes_per_s, source: rate.source })
}

/// The slower side's network devices together.
fn network(transport: &Transport, sides: (&Ability, &Ability)) -> Option<Rate> {
    let of_side = |side: &str, ability: &Ability| {
        let carried = transport.devices.iter().filter(|device| device.side == side && device.bytes.is_some());
        together(ability, &carried.map(|device| device.device.as_str()).collect::<Vec<_>>())
    };
    let both = [of_side("initiator", sides.0)?, of_side("target", sides.1)?];
    both.into_iter().flatten().min_by(|a, b| a.bytes_per_s.total_cmp(&b.bytes_per_s))
}

/// The limit of all parts of a case together; `None` where that of a part is not known, or where they went different
/// ways. What parts share counts once: the ports of a host and the links of a GPU in one direction, the core of a rank, and
/// the `cores` of the initiator where it has fewer of them than ranks.
pub(crate) fn limit_of_all(
    parts: &[(&Part, &CaseResult)],
    sides: (&Ability, &Ability),
    cores: u32,
) -> Option<Limit> {
    let first = parts.first()?.1.transport.as_ref()?;
    let alike = |(_, result): &(&Part, &CaseResult)| {
        result.limit.is_some() && result.transport.as_ref().map(|t| t.class) == Some(first.class)
    };
    if !parts.iter().all(alike) {
        return None;
    }
    let mut directions: Vec<Rate> = Vec::new();
    for op in [Op::Read, Op::Write] {
        let same: Vec<&(&Part, &CaseResult)> = parts.iter().filter(|(part, _)| part.case.op == op).collect();
        if !same.is_empty() {
            directions.push(one_way(&same, first.class, sides, cores)?);
        }
    }
    // One core copies both ways.
    if first.class == Class::Shm {
        directions.truncate(1);
    }
    let bytes_per_s = directions.iter().map(|rate| rate.bytes_per_s).sum();
    let mut sources: Vec<String> = directions.into_iter().map(|rate| rate.source).collect();
    let both = if sources.len() > 1 { " in each direction" } else { "" };
    sources.dedup();
    Some(Limit { bytes_per_s, source: format!("{}{both}", sources.join(" and ")) })
}

/// The limit of parts in one direction.
fn one_way(
    parts: &[&(&Part, &CaseResult)],
    class: Class,
    sides: (&Ability, &Ability),
    cores: u32,
) -> Option<Rate> {
    if class == Class::Shm {
        let known = |of: &Limit| Rate { bytes_per_s: of.bytes_per_s, source: of.source.clone() };
        let each = parts.iter().filter_map(|(_, result)| result.limit.as_ref().map(known));
        let source = each.clone().next()?.source;
        let (ranks, cores) = (parts.len(), cores as usize);
        let whose = match ranks {
            1 => String::new(),
            _ if cores < ranks => format!(", by {ranks} ranks on {cores} cores"),
            _ => format!(", by {ranks} ranks at once"),
        };
        let sum: f64 = each.map(|rate| rate.bytes_per_s).sum();
        return Some(Rate {
            bytes_per_s: sum * cores.min(ranks) as f64 / ranks as f64,
            source: format!("{source}{whose}"),
        });
    }
    let links = |ability: &Ability, rank: fn(&Part) -> u32| -> Option<Rate> {
        let mut names: Vec<String> = Vec::new();
        for (part, _) in parts {
            let gpu = &ability.gpu(rank(part))?.gpu_uuid;
            let name = if class == Class::Nvlink { nvlinks(gpu) } else { pcie(gpu) };
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let rates: Vec<&Rate> = names.iter().map(|name| ability.rates.get(name)).collect::<Option<_>>()?;
        let sources: Vec<&str> = rates.iter().map(|rate| rate.source.as_str()).collect();
        let bytes_per_s = rates.iter().map(|rate| rate.bytes_per_s).sum();
        Some(Rate { bytes_per_s, source: sources.join(" and ") })
    };
    let of_gpus = [links(sides.0, |part| part.rank), links(sides.1, |part| part.peer)];
    match class {
        Class::Nvlink | Class::PcieP2p => {
            let [ours, theirs] = of_gpus;
            Some(ours?.or_slower(theirs?.into()))
        }
        _ => {
            let network = network(parts.first()?.1.transport.as_ref()?, sides)?;
            let gpus = if class == Class::Rdma { of_gpus } else { [None, None] };
            Some(gpus.into_iter().fold(network, Rate::or_slower))
        }
    }
}

/// Devices of one side together; the inner `None` when no device of it is listed, the outer when a rate is not known.
fn together(ability: &Ability, devices: &[&str]) -> Option<Option<Rate>> {
    let rates: Vec<&Rate> = devices.iter().map(|device| ability.rates.get(*device)).collect::<Option<_>>()?;
    if rates.is_empty() {
        return Some(None);
    }
    let sources: Vec<&str> = rates.iter().map(|rate| rate.source.as_str()).collect();
    let bytes_per_s = rates.iter().map(|rate| rate.bytes_per_s).sum();
    Some(Some(Rate { bytes_per_s, source: sources.join(" and ") }))
}

/// Whole percent, rounded down: what lies below a floor is not to look as if it reached it.
fn whole(percent: f64) -> f64 {
    // A share that is whole may have come out a hair below.
    (percent + 1e-9).floor()
}

/// What part of its limit a case reached, in percent.
fn efficiency(case: &CaseResult) -> Option<f64> {
    let limit = case.limit.as_ref().filter(|limit| limit.bytes_per_s > 0.0)?;
    Some(case.bandwidth_bytes_per_s? / limit.bytes_per_s * 100.0)
}

/// One path: the cases of one direction that one wire carried, and the case that came nearest to the limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path<'a> {
    pub(crate) best: &'a CaseResult,
    pub(crate) class: Class,
    /// Percent of the limit.
    pub(crate) efficiency: f64,
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { best, class, efficiency } = self;
        let gb = |bytes_per_s: Option<f64>| bytes_per_s.unwrap_or_default() / 1e9;
        write!(
            f,
            "{} over {class}: {:.3} GB/s at {} x{} is {} % of {:.3} GB/s",
            best.op,
            gb(best.bandwidth_bytes_per_s),
            ByteSize(best.block_bytes),
            best.batch,
            whole(*efficiency),
            gb(best.limit.as_ref().map(|limit| limit.bytes_per_s)),
        )?;
        best.limit.as_ref().map_or(Ok(()), |limit| write!(f, " ({})", limit.source))
    }
}

/// Every path of which a limit is known. Small transfers are bound by the time of one and not by the wire, so that a path
/// is judged by its best case.
pub(crate) fn paths(cases: &[CaseResult]) -> Vec<Path<'_>> {
    let mut paths: Vec<Path<'_>> = Vec::new();
    for case in cases {
        let Some((transport, efficiency)) = case.transport.as_ref().zip(efficiency(case)) else { continue };
        let path = Path { best: case, class: transport.class, efficiency };
        match paths.iter_mut().find(|known| known.best.op == case.op && known.class == path.class) {
            Some(known) if known.efficiency >= efficiency => {}
            Some(known) => *known = path,
            None => paths.push(path),
        }
    }
    paths
}

/// The paths that stayed below what is wanted of them: a failure where somebody said how much, else a warning.
pub(crate) fn too_slow(cases: &[CaseResult], wanted: Option<u32>) -> Vec<Finding> {
    let least = f64::from(wanted.unwrap_or(WARN_BELOW));
    let status = if wanted.is_some() { Status::Fail } else { Status::Warn };
    let finding = |path: Path<'_>| {
        let (bandwidth, limit) = (path.best.bandwidth_bytes_per_s?, path.best.limit.as_ref()?);
        let title = format!(
            "{} over {} reached {} % of what the path can carry, less than {least:.0} %",
            path.best.op,
            path.class,
            whole(path.efficiency)
        );
        Some(
            Finding::new("efficiency-low", status, title)
                .evidence([
                    format!("best case {}: {:.3} GB/s", path.best.name, bandwidth / 1e9),
                    format!("limit {:.3} GB/s: {}", limit.bytes_per_s / 1e9, limit.source),
                ])
                .next_step("measure larger blocks and more of them at once (--sizes, --batch, --depth); then look at rails, PCIe links and NUMA nodes with `kvwire check node`; --min-efficiency says what is enough"),
        )
    };
    paths(cases).into_iter().filter(|path| path.efficiency < least).filter_map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::super::gpu::GpuMeans;
    use super::super::judge::DeviceShare;
    use super::*;
    use crate::plan::Case;
    use crate::report::model::example;

    fn carried(class: Class, devices: &[(&str, &str)]) -> Transport {
        let device = |(side, device): &(&str, &str)| DeviceShare {
            side: (*side).to_owned(),
            device: (*device).to_owned(),
            transport: None,
            bytes: Some(1),
            share_percent: None,
        };
        Transport {
            class,
            over: None,
            devices: devices.iter().map(device).collect(),
            evidence: Vec::new(),
            doubt: None,
            meets_expectation: None,
        }
    }

    fn node(rates: &[(&str, f64)], gpu: bool) -> Ability {
        let rate = |(name, gb): &(&str, f64)| {
            ((*name).to_owned(), Rate { bytes_per_s: gb * 1e9, source: format!("rate of {name}") })
        };
        let gpu = gpu.then(|| GpuMeans { gpu_uuid: "GPU-a".to_owned(), ..GpuMeans::default() });
        Ability { rates: rates.iter().map(rate).collect(), gpus: vec![gpu], ..Ability::default() }
    }

    fn part(rank: u32, op: Op) -> Part {
        let case = Case { op, block_bytes: 4096, batch: 1, kv: None };
        Part { rank, peer: rank, case, base: 0 }
    }

    fn of_first(transport: &Transport, sides: (&Ability, &Ability), copied: Option<f64>) -> Option<Limit> {
        limit(transport, &part(0, Op::Read), sides, copied)
    }

    fn gb(transport: &Transport, initiator: &Ability, target: &Ability) -> Option<f64> {
        of_first(transport, (initiator, target), Some(10e9)).map(|limit| limit.bytes_per_s / 1e9)
    }

    #[test]
    fn a_share_below_a_floor_does_not_look_as_if_it_reached_it() {
        assert_eq!([79.57, 80.0, 80.0 - 1e-12, 122.1].map(whole), [79.0, 80.0, 80.0, 122.0]);
    }

    #[test]
    fn a_path_is_as_fast_as_its_slowest_part() {
        let (two, one) = (node(&[("a:1", 50.0), ("b:1", 50.0)], false), node(&[("c:1", 25.0)], false));
        let rails = carried(Class::Rdma, &[("initiator", "a:1"), ("initiator", "b:1"), ("target", "c:1")]);
        assert_eq!(gb(&rails, &two, &one), Some(25.0));
        let rail = carried(Class::Rdma, &[("initiator", "a:1"), ("initiator", "b:1")]);
        assert_eq!(gb(&rail, &two, &one), Some(100.0), "one host: its ports are listed once");
        let slow_gpu = node(&[("a:1", 50.0), ("b:1", 50.0), ("GPU-a pcie", 31.5)], true);
        assert_eq!(gb(&rail, &slow_gpu, &one), Some(31.5));
        let unknown = carried(Class::Rdma, &[("initiator", "rxe0:1")]);
        assert_eq!(gb(&unknown, &two, &one), None);
    }

    #[test]
    fn links_of_gpus_and_copies_are_limits_too() {
        let fast = node(&[("GPU-a nvlink", 478.0), ("GPU-a pcie", 63.0)], true);
        let slow = node(&[("GPU-a nvlink", 53.0), ("GPU-a pcie", 31.5)], true);
        assert_eq!(gb(&carried(Class::Nvlink, &[]), &fast, &slow), Some(53.0));
        assert_eq!(gb(&carried(Class::PcieP2p, &[]), &fast, &slow), Some(31.5));
        let bare = node(&[], false);
        let shm = of_first(&carried(Class::Shm, &[]), (&bare, &bare), Some(10e9)).unwrap();
        assert!(shm.bytes_per_s == 10e9 && shm.source.contains("host memory"));
        assert!(
            of_first(&carried(Class::Shm, &[]), (&fast, &fast), Some(1e12))
                .unwrap()
                .source
                .contains("the GPU's memory")
        );
        assert_eq!(of_first(&carried(Class::Shm, &[]), (&fast, &fast), None), None);
        assert_eq!(gb(&carried(Class::Unknown, &[]), &fast, &slow), None);
    }

    #[test]
    fn each_rank_has_the_limit_of_its_own_gpus() {
        let gpu = |uuid: &str| Some(GpuMeans { gpu_uuid: uuid.to_owned(), ..GpuMeans::default() });
        let rates = [("GPU-a pcie", 63.0), ("GPU-b pcie", 31.5), ("a:1", 50.0)];
        let side = |gpus: [&str; 2]| Ability { gpus: gpus.map(gpu).to_vec(), ..node(&rates, false) };
        let (ours, theirs) = (side(["GPU-a", "GPU-b"]), side(["GPU-a", "GPU-a"]));
        let of = |transport: &Transport, rank, peer| {
            let part = Part { peer, ..part(rank, Op::Read) };
            limit(transport, &part, (&ours, &theirs), None).map(|limit| limit.bytes_per_s / 1e9)
        };
        let (rail, pcie) = (carried(Class::Rdma, &[("initiator", "a:1")]), carried(Class::PcieP2p, &[]));
        assert_eq!((of(&rail, 0, 0), of(&rail, 1, 1)), (Some(50.0), Some(31.5)));
        assert_eq!((of(&pcie, 0, 1), of(&pcie, 1, 0)), (Some(63.0), Some(31.5)));
        assert_eq!(of(&pcie, 2, 0), None, "a rank without a GPU");
    }

    #[test]
    fn parts_together_reach_what_they_do_not_share() {
        let with = |gpus: [&str; 2]| {
            let gpu = |uuid: &str| Some(GpuMeans { gpu_uuid: uuid.to_owned(), ..GpuMeans::default() });
            let rates = [("GPU-a nvlink", 50.0), ("GPU-b nvlink", 50.0), ("GPU-a pcie", 31.5), ("a:1", 40.0)];
            Ability { gpus: gpus.map(gpu).to_vec(), ..node(&rates, false) }
        };
        let together = |class, parts: &[Part], gpus: [&str; 2]| {
            let one = |op| {
                let limit = Some(Limit { bytes_per_s: 10e9, source: "one".to_owned() });
                let transport = Some(carried(class, &[("initiator", "a:1")]));
                CaseResult { limit, transport, ..example::case(op, "x", 4096, 100, 1000) }
            };
            let results: Vec<CaseResult> = parts.iter().map(|part| one(part.case.op)).collect();
            let side = with(gpus);
            let all: Vec<(&Part, &CaseResult)> = parts.iter().zip(&results).collect();
            limit_of_all(&all, (&side, &side), 2).map(|limit| limit.bytes_per_s / 1e9)
        };
        let reads = [part(0, Op::Read), part(1, Op::Read)];
        let both = [part(0, Op::Read), part(0, Op::Write)];
        assert_eq!(together(Class::Nvlink, &reads, ["GPU-a", "GPU-b"]), Some(100.0));
        assert_eq!(
            together(Class::Nvlink, &reads, ["GPU-a", "GPU-a"]),
            Some(50.0),
            "one GPU has its links once"
        );
        assert_eq!(together(Class::Nvlink, &both, ["GPU-a", "GPU-b"]), Some(100.0), "links carry both ways");
        assert_eq!(
            together(Class::PcieP2p, &reads, ["GPU-a", "GPU-b"]),
            None,
            "the rate of one is not known"
        );
        assert_eq!(together(Class::Rdma, &reads, ["GPU-a", "GPU-b"]), Some(40.0), "ranks share the ports");
        assert_eq!(
            together(Class::Rdma, &both, ["GPU-a", "GPU-a"]),
            Some(63.0),
            "both ways over one GPU's link"
        );
        assert_eq!(together(Class::Shm, &reads, ["GPU-a", "GPU-b"]), Some(20.0));
        let three = [part(0, Op::Read), part(1, Op::Read), part(2, Op::Read)];
        assert_eq!(together(Class::Shm, &three, ["GPU-a", "GPU-b"]), Some(20.0), "ranks share two cores");
        assert_eq!(together(Class::Shm, &both, ["GPU-a", "GPU-b"]), Some(10.0), "one core copies both ways");
    }

    #[test]
    fn a_path_is_judged_by_its_best_case_and_fails_only_where_that_was_asked_for() {
        let case = |size: u64, gb: f64| {
            let mut case = example::case(Op::Read, "x", size, 100, 1000);
            case.transport = Some(carried(Class::Rdma, &[]));
            case.bandwidth_bytes_per_s = Some(gb * 1e9);
            case.limit = Some(Limit { bytes_per_s: 50e9, source: "a port".to_owned() });
            case
        };
        let cases = [case(4096, 1.0), case(1 << 26, 35.0)];
        let found = too_slow(&cases, None);
        assert!(
            found.len() == 1 && found[0].status == Status::Warn && found[0].title.contains("70 %"),
            "{found:?}"
        );
        assert_eq!(too_slow(&cases, Some(90))[0].status, Status::Fail);
        assert!(too_slow(&cases, Some(70)).is_empty());
        assert!(too_slow(&[case(1 << 26, 45.0)], None).is_empty());
        let unknown = CaseResult { limit: None, ..case(1 << 26, 1.0) };
        assert!(too_slow(&[unknown], Some(100)).is_empty(), "only where a limit is known");
    }
}
