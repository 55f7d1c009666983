//! The best wire that two ranks could use, given their hosts and where their payload lies.

use checks::Node;

use super::ability::Ability;
use super::class::Class;
use super::gpu::{GpuMeans, Obstacle};
use crate::plan::Pair;

/// The best wire between two ranks, and why.
pub(super) fn best(
    (initiator, its): (&Node, &Ability),
    (target, theirs): (&Node, &Ability),
    pair: Pair,
) -> (Class, String) {
    let rdma = its.has_rdma() && theirs.has_rdma();
    if !initiator.same_host(target) {
        let gpus = its.gpu(pair.rank).zip(theirs.gpu(pair.peer));
        let joined = |(ours, other): (&GpuMeans, &GpuMeans)| {
            ours.shares_domain(other) && Obstacle::between((initiator, ours), (target, other)).is_none()
        };
        return if gpus.is_some_and(joined) {
            let why =
                "two hosts, and both GPUs are in one NVLink domain, with fabric handles and an IMEX channel";
            (Class::Nvlink, why.to_owned())
        } else if rdma {
            (Class::Rdma, "two hosts, and both have an RDMA port that is up and can be opened".to_owned())
        } else {
            (Class::Tcp, format!("two hosts, and {}", without_rdma(its, theirs)))
        };
    }
    match (its.gpu(pair.rank), theirs.gpu(pair.peer)) {
        (Some(ours), Some(other)) => {
            return between_gpus((initiator, ours), (target, other), rdma, (its, theirs));
        }
        (None, None) => {}
        _ => {
            return without_memory(
                "one host, with GPU memory on one side and host memory on the other, between which UCX has no wire of its own",
                rdma,
                (its, theirs),
            );
        }
    }
    let same = |of: fn(&checks::Namespaces) -> Option<u64>| {
        of(&initiator.namespaces) == of(&target.namespaces) && of(&initiator.namespaces).is_some()
    };
    let reason = if !same(|n| n.pid) {
        "the two sides are in different process-id namespaces"
    } else if !same(|n| n.user) {
        "the two sides are in different user namespaces"
    } else if !its.cross_memory_attach || !theirs.cross_memory_attach {
        "the kernel forbids cross-memory attach (kernel.yama.ptrace_scope)"
    } else {
        let why = "one host, and the kernel lets the two sides copy from each other's memory";
        return (Class::Shm, why.to_owned());
    };
    without_memory(&format!("one host, {reason}"), rdma, (its, theirs))
}

/// Two processes that cannot reach each other's memory: RDMA where there is any, else TCP.
fn without_memory(why: &str, rdma: bool, (its, theirs): (&Ability, &Ability)) -> (Class, String) {
    if rdma {
        (Class::Rdma, format!("{why}, and it has an RDMA port that is up and can be opened"))
    } else {
        (Class::Tcp, format!("{why}, and {}", without_rdma(its, theirs)))
    }
}

/// The best between two GPUs of one host.
fn between_gpus(
    (initiator, ours): (&Node, &GpuMeans),
    (target, theirs): (&Node, &GpuMeans),
    rdma: bool,
    abilities: (&Ability, &Ability),
) -> (Class, String) {
    if let Some(obstacle) = Obstacle::between((initiator, ours), (target, theirs)) {
        return without_memory(&format!("one host, but {}", obstacle.why()), rdma, abilities);
    }
    if ours.gpu_uuid == theirs.gpu_uuid {
        return (Class::Shm, "both sides' memory is on one GPU".to_owned());
    }
    match (ours.links_up, theirs.links_up) {
        (Some(1..), Some(1..)) => {
            (Class::Nvlink, "two GPUs of one host, both with NVLinks that are up".to_owned())
        }
        (None, _) | (_, None) => {
            (Class::PcieP2p, "two GPUs of one host; NVML does not tell whether NVLink joins them".to_owned())
        }
        _ => (Class::PcieP2p, "two GPUs of one host, without NVLinks that are up on both".to_owned()),
    }
}

fn without_rdma(its: &Ability, theirs: &Ability) -> &'static str {
    match (its.has_rdma(), theirs.has_rdma()) {
        (false, false) => "neither side has an RDMA port that can be used",
        (true, _) => "the target has no RDMA port that can be used",
        (false, true) => "the initiator has no RDMA port that can be used",
    }
}

#[cfg(test)]
mod tests {
    use checks::Namespaces;

    use super::super::ability::Port;
    use super::*;

    fn node(boot: &str, pid: u64) -> Node {
        let namespaces = Namespaces { net: Some(1), pid: Some(pid), ipc: Some(3), user: Some(4) };
        Node { boot_id: Some(boot.to_owned()), namespaces, ..Node::default() }
    }

    fn ability(ports: &[(&str, bool)], cross_memory_attach: bool) -> Ability {
        let port = |(state, opens): &(&str, bool)| Port {
            name: "mlx5_0:1".to_owned(),
            state: (*state).to_owned(),
            opens: *opens,
        };
        Ability { ports: ports.iter().map(port).collect(), cross_memory_attach, ..Ability::default() }
    }

    fn auto(a: (&Node, &Ability), b: (&Node, &Ability)) -> Class {
        best(a, b, Pair { rank: 0, peer: 0 }).0
    }

    #[test]
    fn auto_is_the_best_that_both_nodes_could_use() {
        let (here, there, other_pod) = (node("a", 1), node("b", 1), node("a", 2));
        let up = ability(&[("1: DOWN", true), ("4: ACTIVE", true)], true);
        let (down, closed) = (ability(&[("1: DOWN", true)], true), ability(&[("4: ACTIVE", false)], true));
        let forbidden = ability(&[], false);
        for (other, ours, theirs, class) in [
            (&there, &up, &up, Class::Rdma),
            (&there, &up, &down, Class::Tcp),
            (&there, &closed, &up, Class::Tcp),
            (&here, &down, &down, Class::Shm),
            (&here, &up, &up, Class::Shm),
            (&here, &forbidden, &forbidden, Class::Tcp),
            (&other_pod, &up, &up, Class::Rdma),
            (&other_pod, &down, &down, Class::Tcp),
        ] {
            assert_eq!(auto((&here, ours), (other, theirs)), class, "{ours:?} {theirs:?}");
        }
        let unknown_host = Node::default();
        assert_eq!(auto((&unknown_host, &down), (&unknown_host, &down)), Class::Tcp);
    }

    #[test]
    fn between_two_gpus_nvlink_is_expected_where_links_are_up() {
        let on = |uuid: &str, links_up| {
            let gpu = GpuMeans {
                uuid: uuid.to_owned(),
                gpu_uuid: uuid.to_owned(),
                links_up,
                exportable: true,
                ..GpuMeans::default()
            };
            Ability { gpus: vec![Some(gpu)], ..ability(&[("4: ACTIVE", true)], true) }
        };
        let (here, pod, there) = (node("a", 1), node("a", 2), node("b", 1));
        let (linked, other, bare) = (on("GPU-a", Some(18)), on("GPU-b", Some(18)), on("GPU-c", Some(0)));
        assert_eq!(auto((&here, &linked), (&here, &other)), Class::Nvlink);
        assert_eq!(auto((&here, &linked), (&here, &bare)), Class::PcieP2p);
        assert_eq!(auto((&here, &linked), (&here, &on("GPU-d", None))), Class::PcieP2p);
        assert_eq!(auto((&here, &linked), (&here, &linked)), Class::Shm);
        assert_eq!(auto((&here, &linked), (&pod, &other)), Class::Rdma);
        assert_eq!(auto((&here, &linked), (&there, &other)), Class::Rdma);
        assert_eq!(auto((&here, &linked), (&here, &ability(&[], true))), Class::Tcp);
        let in_domain = |domain: &str, by_fabric_handle| {
            let mut side = on("GPU-a", Some(18));
            if let Some(Some(gpu)) = side.gpus.first_mut() {
                *gpu = GpuMeans {
                    domain: Some(domain.to_owned()),
                    by_fabric_handle,
                    imex_channel: true,
                    ..gpu.clone()
                };
            }
            side
        };
        let one = in_domain("1", true);
        assert_eq!(auto((&here, &one), (&there, &one)), Class::Nvlink);
        assert_eq!(auto((&here, &one), (&there, &in_domain("2", true))), Class::Rdma);
        assert_eq!(
            auto((&here, &one), (&there, &in_domain("1", false))),
            Class::Rdma,
            "as cudaMalloc allocates"
        );
    }
}
