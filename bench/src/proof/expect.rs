//! What was expected, and whether the measured class is at least that.

use checks::Node;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ability::Ability;
use super::class::{Class, Expect};
use super::gpu::{GpuMeans, no_cuda_ipc};
use super::judge::Transport;

/// The wire that a run expects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Expected {
    /// As asked for with `--expect`.
    pub(crate) asked: Expect,
    /// The least class that meets it; null when anything does.
    pub(crate) class: Option<Class>,
    /// Why this class, in one sentence.
    pub(crate) why: String,
}

/// How a measured class compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meets {
    /// Nothing was expected.
    Anything,
    /// The expected class, or a better one.
    Yes,
    /// Less than expected.
    Below,
    /// The class is not known.
    Unknown,
}

impl Meets {
    /// As it stands in the result.
    pub(crate) fn stated(self) -> Option<bool> {
        match self {
            Self::Yes => Some(true),
            Self::Below => Some(false),
            Self::Anything | Self::Unknown => None,
        }
    }
}

/// What the run expects, given where each side's payload lies.
pub(crate) fn expected(
    asked: Expect,
    (initiator, its): (&Node, &Ability),
    (target, theirs): (&Node, &Ability),
) -> Expected {
    let given = |class: Class| Expected {
        asked,
        class: Some(class),
        why: format!("asked for with --expect {}", asked.name()),
    };
    match asked {
        Expect::Rdma => given(Class::Rdma),
        Expect::Nvlink => given(Class::Nvlink),
        Expect::Shm => given(Class::Shm),
        Expect::Tcp => given(Class::Tcp),
        Expect::Any => Expected { asked, class: None, why: "--expect any".to_owned() },
        Expect::Auto => {
            let (class, why) = best((initiator, its), (target, theirs));
            Expected { asked, class: Some(class), why }
        }
    }
}

/// The best that two nodes could use.
fn best((initiator, its): (&Node, &Ability), (target, theirs): (&Node, &Ability)) -> (Class, String) {
    let rdma = its.has_rdma() && theirs.has_rdma();
    if !initiator.same_host(target) {
        return if rdma {
            (Class::Rdma, "two hosts, and both have an RDMA port that is up and can be opened".to_owned())
        } else {
            (Class::Tcp, format!("two hosts, and {}", without_rdma(its, theirs)))
        };
    }
    match (&its.gpu, &theirs.gpu) {
        (Some(ours), Some(other)) => {
            return between_gpus((initiator, ours), (target, other), rdma, (its, theirs));
        }
        (None, None) => {}
        _ => {
            return without_memory(
                "one host, with GPU memory on one side and host memory on the other",
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
    if let Some(why) = no_cuda_ipc((initiator, ours), (target, theirs)) {
        return without_memory(&format!("one host, but {why}"), rdma, abilities);
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

/// Compares a measured class with the expectation.
///
/// UCX can READ over TCP only by software emulation, so that this is what an expectation of TCP gets.
pub(crate) fn meets(transport: &Transport, expected: &Expected) -> Meets {
    let Some(class) = expected.class else { return Meets::Anything };
    let enough = match (transport.class, transport.over) {
        (Class::Unknown, _) => return Meets::Unknown,
        (Class::Emulated, Some(over)) => class == Class::Tcp && over.rank() >= Class::Tcp.rank(),
        (measured, _) => measured.rank() >= class.rank(),
    };
    if enough { Meets::Yes } else { Meets::Below }
}

#[cfg(test)]
mod tests {
    use super::super::ability::Port;
    use super::*;
    use checks::Namespaces;

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

    fn auto(a: (&Node, &Ability), b: (&Node, &Ability)) -> Option<Class> {
        expected(Expect::Auto, a, b).class
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
            assert_eq!(auto((&here, ours), (other, theirs)), Some(class), "{ours:?} {theirs:?}");
        }
        let unknown_host = Node::default();
        assert_eq!(auto((&unknown_host, &down), (&unknown_host, &down)), Some(Class::Tcp));
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
            Ability { gpu: Some(gpu), ..ability(&[("4: ACTIVE", true)], true) }
        };
        let (here, pod, there) = (node("a", 1), node("a", 2), node("b", 1));
        let (linked, other, bare) = (on("GPU-a", Some(18)), on("GPU-b", Some(18)), on("GPU-c", Some(0)));
        assert_eq!(auto((&here, &linked), (&here, &other)), Some(Class::Nvlink));
        assert_eq!(auto((&here, &linked), (&here, &bare)), Some(Class::PcieP2p));
        assert_eq!(auto((&here, &linked), (&here, &on("GPU-d", None))), Some(Class::PcieP2p));
        assert_eq!(auto((&here, &linked), (&here, &linked)), Some(Class::Shm));
        assert_eq!(auto((&here, &linked), (&pod, &other)), Some(Class::Rdma));
        assert_eq!(auto((&here, &linked), (&there, &other)), Some(Class::Rdma));
        assert_eq!(auto((&here, &linked), (&here, &ability(&[], true))), Some(Class::Tcp));
    }

    fn measured(class: Class, over: Option<Class>) -> Transport {
        Transport {
            class,
            over,
            devices: Vec::new(),
            evidence: Vec::new(),
            doubt: None,
            meets_expectation: None,
        }
    }

    #[test]
    fn less_is_below_and_more_is_enough() {
        let (node, none) = (Node::default(), Ability::default());
        let by = |asked| expected(asked, (&node, &none), (&node, &none));
        for (asked, class, over, meets_it) in [
            (Expect::Rdma, Class::Rdma, None, Meets::Yes),
            (Expect::Rdma, Class::Nvlink, None, Meets::Yes),
            (Expect::Rdma, Class::Tcp, None, Meets::Below),
            (Expect::Rdma, Class::Shm, None, Meets::Below),
            (Expect::Rdma, Class::Emulated, Some(Class::Rdma), Meets::Below),
            (Expect::Rdma, Class::Unknown, None, Meets::Unknown),
            (Expect::Nvlink, Class::Rdma, None, Meets::Below),
            (Expect::Shm, Class::Shm, None, Meets::Yes),
            (Expect::Shm, Class::Tcp, None, Meets::Below),
            (Expect::Tcp, Class::Tcp, None, Meets::Yes),
            (Expect::Tcp, Class::Emulated, Some(Class::Tcp), Meets::Yes),
            (Expect::Shm, Class::Emulated, Some(Class::Tcp), Meets::Below),
            (Expect::Any, Class::Unknown, None, Meets::Anything),
        ] {
            assert_eq!(meets(&measured(class, over), &by(asked)), meets_it, "{asked:?} {class:?} {over:?}");
        }
    }
}
