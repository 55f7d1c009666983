//! The slowest of several ranks: one slow rank of eight hides in what all of them moved.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use checks::{Finding, Status};

use super::compare::Comparison;
use super::metric::Metric;
use super::side::SideCase;
use crate::report::model::CaseResult;

/// Ranks that are named as the slowest ones.
const NAMED: usize = 4;

/// The slowest rank of each timed loop of a case and its payload bytes per second, both directions together. Empty unless
/// several ranks have figures of every loop: results of older versions do not.
///
/// Not each rank by itself: which one has the better place is chance where ranks share a machine, and differs from run to
/// run when nothing has changed.
pub(super) fn slowest_ranks(case: &CaseResult) -> Vec<(u32, f64)> {
    let rounds = case.repetitions.len().max(1);
    let whole = case.parts.iter().all(|part| part.repetitions.len() == rounds);
    let ranks: BTreeSet<u32> = case.parts.iter().map(|part| part.rank).collect();
    if !whole || ranks.len() < 2 {
        return Vec::new();
    }
    let of_rank = |rank: u32, round: usize| -> Option<f64> {
        let own = case.parts.iter().filter(|part| part.rank == rank);
        own.map(|part| part.repetitions.get(round)?.bandwidth_bytes_per_s).sum()
    };
    let slowest = |round: usize| {
        let all =
            ranks.iter().map(|rank| Some((*rank, of_rank(*rank, round)?))).collect::<Option<Vec<_>>>()?;
        all.into_iter().min_by(|a, b| a.1.total_cmp(&b.1))
    };
    (0..rounds).filter_map(slowest).collect()
}

/// Which ranks the slowest ones were, where that is what got worse.
pub(super) fn named(comparison: &Comparison, cases: &[SideCase]) -> Option<String> {
    let case = cases.iter().find(|case| case.key.show() == comparison.case)?;
    let rounds: usize = case.slowest.values().sum();
    let mut ranks: Vec<(u32, usize)> = case.slowest.iter().map(|(rank, times)| (*rank, *times)).collect();
    ranks.sort_by_key(|(_, times)| Reverse(*times));
    let named: Vec<String> =
        ranks.iter().take(NAMED).map(|(rank, times)| format!("rank {rank} in {times}")).collect();
    (comparison.metric == Metric::SlowestRank)
        .then(|| format!("the slowest of {rounds} timed loops: {}", named.join(", ")))
}

/// Cases whose ranks only one side tells apart.
pub(super) fn unseen(old: &[SideCase], new: &[SideCase]) -> Option<Finding> {
    let has = |case: &SideCase| !case.slowest.is_empty();
    let unseen = |case: &&SideCase| old.iter().any(|other| other.key == case.key && has(other) != has(case));
    let cases = new.iter().filter(unseen).count();
    (cases > 0).then(|| {
        let title =
            format!("the slowest rank of {cases} cases is not compared: one side has no figures of it");
        Finding::new("gate-difference", Status::Warn, title)
            .next_step("measure the baseline again with this kvwire")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::example;

    #[test]
    fn the_slowest_rank_is_that_of_each_round_with_both_directions() {
        let mut case = example::ranks().cases.remove(0);
        case.begin_repetitions(1);
        let round = case.clone();
        case.absorb(round, 2);
        let set = |case: &mut CaseResult, part: usize, rates: [f64; 2]| {
            let rounds = &mut case.parts[part].repetitions;
            rounds.iter_mut().zip(rates).for_each(|(one, rate)| one.bandwidth_bytes_per_s = Some(rate));
        };
        set(&mut case, 0, [5.0, 2.0]);
        set(&mut case, 1, [3.0, 4.0]);
        assert_eq!(slowest_ranks(&case), [(1, 3.0), (0, 2.0)]);
        assert_eq!(Metric::SlowestRank.values(&case), [3.0, 2.0]);
        let other_way = case.parts[1].clone();
        case.parts.push(other_way);
        assert_eq!(Metric::SlowestRank.values(&case), [5.0, 2.0]);
        case.parts[1].repetitions.pop();
        assert!(Metric::SlowestRank.values(&case).is_empty(), "a round is missing");
        assert!(
            Metric::SlowestRank.values(&example::passed().cases[0]).is_empty(),
            "one rank is the case itself"
        );
    }
}
