//! Ranks that exchange bytes, by their numbers.

use std::fmt;

use super::Plan;

/// Pairs named in one sentence; of more the number stands.
const NAMED: usize = 8;

/// A rank of the initiator and the rank of the target that it exchanges bytes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pair {
    /// Rank on the initiator's side.
    pub(crate) rank: u32,
    /// Rank on the target's side.
    pub(crate) peer: u32,
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { rank, peer } if rank == peer => write!(f, "{rank}"),
            Self { rank, peer } => write!(f, "{rank} (with the target's {peer})"),
        }
    }
}

impl Pair {
    /// `rank 1`, `ranks 0 and 3`, `ranks 0, 1 (with the target's 0) and 62 more`.
    pub(crate) fn named(pairs: &[Self]) -> String {
        let shown = if pairs.len() > NAMED { NAMED - 1 } else { pairs.len() };
        let mut words: Vec<String> = pairs.iter().take(shown).map(ToString::to_string).collect();
        words.extend((shown < pairs.len()).then(|| format!("{} more", pairs.len() - shown)));
        match words.as_slice() {
            [] => "no rank".to_owned(),
            [one] => format!("rank {one}"),
            [first @ .., last] => format!("ranks {} and {last}", first.join(", ")),
        }
    }
}

impl Plan {
    /// Every pair of ranks that moves something in a case, each once, by the initiator's rank.
    pub(crate) fn pairs(&self) -> Vec<Pair> {
        let parts = self.cases.iter().flat_map(|case| self.parts(case));
        let mut pairs: Vec<Pair> = parts.map(|part| part.pair()).collect();
        pairs.sort_unstable();
        pairs.dedup();
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::tests::request;
    use super::*;

    #[test]
    fn every_pair_of_a_plan_is_listed_once() {
        let request = super::super::Request { ranks: 3, bidirectional: true, ops: vec![], ..request() };
        let pairs = request.resolve().unwrap().pairs();
        assert_eq!(pairs, [0, 1, 2].map(|rank| Pair { rank, peer: rank }));
    }

    #[test]
    fn pairs_are_named_as_a_person_would() {
        let same = |rank| Pair { rank, peer: rank };
        let named = |ranks: &[u32]| Pair::named(&ranks.iter().copied().map(same).collect::<Vec<_>>());
        assert_eq!(named(&[1]), "rank 1");
        assert_eq!(named(&[0, 3]), "ranks 0 and 3");
        assert_eq!(named(&[0, 1, 2, 3, 4, 5, 6, 7]), "ranks 0, 1, 2, 3, 4, 5, 6 and 7");
        assert_eq!(named(&(0..64).collect::<Vec<_>>()), "ranks 0, 1, 2, 3, 4, 5, 6 and 57 more");
        assert_eq!(Pair::named(&[Pair { rank: 3, peer: 1 }]), "rank 3 (with the target's 1)");
    }
}
