//! The first result against each other one, as reports of several results show it.

use super::read::Stored;
use crate::gate::{self, Comparison, Judgement};

/// What changed from the first result to another one.
pub(super) struct Compared<'a> {
    /// The other result.
    pub(super) other: &'a Stored,
    /// What stands between the two: versions, settings, machines.
    pub(super) differences: Vec<String>,
    /// Every metric of every case that both have.
    pub(super) comparisons: Vec<Comparison>,
}

/// All comparisons with the first result.
pub(super) fn compared(results: &[Stored]) -> Vec<Compared<'_>> {
    let Some((first, others)) = results.split_first() else { return Vec::new() };
    let one = |other| Compared {
        other,
        differences: gate::differences(first, other),
        comparisons: gate::changes(first, other),
    };
    others.iter().map(one).collect()
}

/// What a comparison says, in a word.
pub(super) fn word(judgement: Judgement) -> &'static str {
    match judgement {
        Judgement::Worse => "worse",
        Judgement::Better => "better",
        Judgement::Unchanged => "no change shown",
        Judgement::TooFew => "too few repetitions",
        Judgement::Starved => "slower, without a processor",
    }
}

/// A share as a change in percent.
pub(super) fn percent(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

/// The change and its interval: `-3.1 % (-4.0 % to -2.2 %)`.
pub(super) fn change(comparison: &Comparison) -> String {
    let [low, high] = comparison.change_interval;
    format!("{} ({} to {})", percent(comparison.change), percent(low), percent(high))
}
