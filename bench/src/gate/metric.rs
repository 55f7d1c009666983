//! The figures that a gate looks at, and which direction of each is worse.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::slowest::slowest_ranks;
use crate::measure::units::{gigabytes_per_s, time};
use crate::report::model::{CaseResult, Repetition};

/// A figure of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Metric {
    /// Payload bytes per second of the timed loop.
    Bandwidth,
    /// The same of the rank that has least of it, in both directions together; only where there are several ranks.
    SlowestRank,
    /// Median of the total time of a transfer.
    P50,
    /// 99th percentile of the total time of a transfer.
    P99,
}

impl Metric {
    /// All of them, in the order in which they are shown.
    pub(crate) const ALL: [Self; 4] = [Self::Bandwidth, Self::SlowestRank, Self::P50, Self::P99];

    /// Whether more of it is better.
    pub(crate) fn more_is_better(self) -> bool {
        matches!(self, Self::Bandwidth | Self::SlowestRank)
    }

    /// The value of a case as a whole in bytes per second or ns; `None` where it is not known or not above zero.
    fn of(self, repetition: &Repetition) -> Option<f64> {
        let value = match self {
            Self::Bandwidth => repetition.bandwidth_bytes_per_s?,
            Self::SlowestRank => return None,
            Self::P50 => repetition.total_p50_ns? as f64,
            Self::P99 => repetition.total_p99_ns? as f64,
        };
        known(value)
    }

    /// Its values in a case, one for each repetition; a case that was not repeated has one.
    pub(crate) fn values(self, case: &CaseResult) -> Vec<f64> {
        if self == Self::SlowestRank {
            return slowest_ranks(case).into_iter().filter_map(|(_, value)| known(value)).collect();
        }
        if case.repetitions.is_empty() {
            return self.of(&case.repetition(0)).into_iter().collect();
        }
        case.repetitions.iter().filter_map(|repetition| self.of(repetition)).collect()
    }

    /// Whether it suffers when the engine has to share its processor. A median does not, as long as most transfers do not.
    pub(super) fn feels_load(self) -> bool {
        !matches!(self, Self::P50)
    }

    /// On a scale where equal steps are equal shares, and up is worse.
    pub(super) fn worse(self, value: f64) -> f64 {
        if self.more_is_better() { -value.ln() } else { value.ln() }
    }

    /// A step on that scale as a change of the value: 0.1 is 10 % more.
    pub(super) fn change(self, step: f64) -> f64 {
        if self.more_is_better() { (-step).exp_m1() } else { step.exp_m1() }
    }

    /// A share that the value may worsen by, as a step on that scale.
    pub(super) fn step(self, share: f64) -> f64 {
        // A bandwidth cannot fall by more than all of it.
        if self.more_is_better() { -(-share.min(0.999)).ln_1p() } else { share.ln_1p() }
    }

    /// The value with its unit, for people.
    pub(crate) fn show(self, value: f64) -> String {
        if self.more_is_better() {
            format!("{} GB/s", gigabytes_per_s(value))
        } else {
            time(value.round() as u64)
        }
    }
}

fn known(value: f64) -> Option<f64> {
    (value.is_finite() && value > 0.0).then_some(value)
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Bandwidth => "bandwidth",
            Self::SlowestRank => "slowest rank",
            Self::P50 => "p50",
            Self::P99 => "p99",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up_on_the_scale_is_worse_for_every_metric() {
        assert!(Metric::Bandwidth.worse(9.0) > Metric::Bandwidth.worse(10.0));
        assert!(Metric::P50.worse(10.0) > Metric::P50.worse(9.0));
    }

    #[test]
    fn a_share_and_its_step_are_one_thing() {
        for metric in Metric::ALL {
            let change = metric.change(metric.step(0.2));
            let expected = if metric.more_is_better() { -0.2 } else { 0.2 };
            assert!((change - expected).abs() < 1e-12, "{metric}: {change}");
        }
        assert!(Metric::Bandwidth.step(5.0).is_finite());
    }
}
