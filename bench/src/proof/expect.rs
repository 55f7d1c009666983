//! What was expected, and whether the measured class is at least that.

use checks::Node;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ability::Ability;
use super::best::best;
use super::class::{Class, Expect};
use super::judge::Transport;
use crate::plan::Pair;

/// The wire that a run expects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Expected {
    /// As asked for with `--expect`.
    pub(crate) asked: Expect,
    /// The least class that meets it; null when anything does. Where the ranks could use different wires, that of the
    /// weakest.
    pub(crate) class: Option<Class>,
    /// Why this class, in one sentence.
    pub(crate) why: String,
    /// What each pair of ranks is held to, where they could use different wires; empty where all are held to the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ranks: Vec<ExpectedOfRank>,
}

/// The wire that a rank of the initiator is expected to exchange its bytes over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ExpectedOfRank {
    /// Rank on the initiator's side.
    pub(crate) rank: u32,
    /// The rank of the target that it exchanges with.
    pub(crate) target_rank: u32,
    /// The best that the two could use.
    pub(crate) class: Class,
    /// Why this class, in one sentence.
    pub(crate) why: String,
}

impl Expected {
    /// What a pair of ranks is held to.
    pub(crate) fn of(&self, pair: Pair) -> Self {
        let own = self.ranks.iter().find(|one| (one.rank, one.target_rank) == (pair.rank, pair.peer));
        match own {
            Some(own) => {
                Self { asked: self.asked, class: Some(own.class), why: own.why.clone(), ranks: Vec::new() }
            }
            None => Self { ranks: Vec::new(), ..self.clone() },
        }
    }
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

/// What the run expects, given what the two sides could use between the ranks that exchange bytes.
pub(crate) fn expected(
    asked: Expect,
    initiator: (&Node, &Ability),
    target: (&Node, &Ability),
    pairs: &[Pair],
) -> Expected {
    let plain = |class, why| Expected { asked, class, why, ranks: Vec::new() };
    let given = |class: Class| plain(Some(class), format!("asked for with --expect {}", asked.name()));
    match asked {
        Expect::Rdma => given(Class::Rdma),
        Expect::Nvlink => given(Class::Nvlink),
        Expect::Shm => given(Class::Shm),
        Expect::Tcp => given(Class::Tcp),
        Expect::Any => plain(None, "--expect any".to_owned()),
        Expect::Auto => {
            let of_rank = |pair: &Pair| {
                let (class, why) = best(initiator, target, *pair);
                ExpectedOfRank { rank: pair.rank, target_rank: pair.peer, class, why }
            };
            let ranks: Vec<ExpectedOfRank> = pairs.iter().map(of_rank).collect();
            let Some(weakest) = ranks.iter().min_by_key(|one| one.class.rank()) else {
                return plain(None, "no rank moves anything".to_owned());
            };
            if ranks.iter().all(|one| one.class == weakest.class) {
                return plain(Some(weakest.class), weakest.why.clone());
            }
            Expected { asked, class: Some(weakest.class), why: in_which_they_differ(&ranks, weakest), ranks }
        }
    }
}

/// Names the ranks that can do least, and what the others are held to.
fn in_which_they_differ(ranks: &[ExpectedOfRank], weakest: &ExpectedOfRank) -> String {
    let named = |class: Class| {
        let same = ranks.iter().filter(|one| one.class == class);
        Pair::named(&same.map(|one| Pair { rank: one.rank, peer: one.target_rank }).collect::<Vec<_>>())
    };
    let mut classes: Vec<Class> = ranks.iter().map(|one| one.class).collect();
    classes.sort_by_key(|class| class.rank());
    classes.dedup();
    let others: Vec<String> =
        classes.iter().skip(1).map(|class| format!("{} to {class}", named(*class))).collect();
    format!(
        "the least of what its ranks could use, that of {}: {}; held to more: {}",
        named(weakest.class),
        weakest.why,
        others.join(", ")
    )
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
    use super::super::gpu::GpuMeans;
    use super::*;
    use checks::Namespaces;

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
        let by = |asked| expected(asked, (&node, &none), (&node, &none), &[Pair { rank: 0, peer: 0 }]);
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

    /// One host whose ranks have these GPUs, by the names of the whole GPUs and their links that are up.
    fn host(gpus: &[(&str, u32)]) -> (Node, Ability) {
        let gpu = |(uuid, up): &(&str, u32)| {
            Some(GpuMeans {
                uuid: (*uuid).to_owned(),
                gpu_uuid: uuid.replace("MIG", "GPU"),
                links_up: Some(*up),
                exportable: true,
                ..GpuMeans::default()
            })
        };
        let namespaces = Namespaces { pid: Some(1), ..Namespaces::default() };
        let node = Node { boot_id: Some("a".to_owned()), namespaces, ..Node::default() };
        (node, Ability { gpus: gpus.iter().map(gpu).collect(), ..Ability::default() })
    }

    #[test]
    fn ranks_that_could_use_different_wires_are_held_to_their_own() {
        let (node, ours) = host(&[("GPU-a", 18), ("MIG-b", 18), ("GPU-c", 18)]);
        let (_, theirs) = host(&[("GPU-d", 18), ("GPU-e", 18), ("GPU-f", 0)]);
        let pairs = [0, 1, 2].map(|rank| Pair { rank, peer: rank });
        let by = |asked| expected(asked, (&node, &ours), (&node, &theirs), &pairs);
        let mixed = by(Expect::Auto);
        assert_eq!(mixed.class, Some(Class::Tcp));
        assert!(mixed.why.contains("that of rank 1: one host, but a GPU instance"), "{}", mixed.why);
        assert!(mixed.why.ends_with("held to more: rank 2 to pcie-p2p, rank 0 to nvlink"), "{}", mixed.why);
        let classes = pairs.map(|pair| mixed.of(pair).class);
        assert_eq!(classes, [Some(Class::Nvlink), Some(Class::Tcp), Some(Class::PcieP2p)]);
        let of_first = mixed.of(pairs[0]);
        assert!(of_first.ranks.is_empty() && of_first.why.contains("NVLinks that are up"), "{of_first:?}");
        assert_eq!(meets(&measured(Class::Tcp, None), &of_first), Meets::Below);
        assert_eq!(meets(&measured(Class::Tcp, None), &mixed.of(pairs[1])), Meets::Yes);
        // What a person asks for holds for every rank.
        let asked = by(Expect::Nvlink);
        assert!(asked.ranks.is_empty());
        assert_eq!(asked.of(pairs[1]).class, Some(Class::Nvlink));
    }

    #[test]
    fn the_rank_of_the_target_counts_and_not_the_number_alone() {
        let (node, ours) = host(&[("GPU-a", 18), ("GPU-b", 18)]);
        let (_, theirs) = host(&[("GPU-c", 18), ("MIG-d", 18)]);
        let to_first = [0, 1].map(|rank| Pair { rank, peer: 0 });
        let alike = expected(Expect::Auto, (&node, &ours), (&node, &theirs), &to_first);
        assert_eq!((alike.class, alike.ranks.len()), (Some(Class::Nvlink), 0), "rank 1 meets rank 0");
    }
}
