//! Floors, ceilings and shares of the measured limit: what a result must reach by itself.

use serde::Serialize;

use super::metric::Metric;
use super::shift::median;
use super::side::SideCase;
use super::thresholds::{Rule, Thresholds, quantity};

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CheckOutcome {
    /// It holds.
    Pass,
    /// It does not.
    Fail,
    /// It cannot be decided.
    Unknown,
}

/// One floor, ceiling or share, on one case.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Check {
    /// The case, or the rule where no case is meant.
    pub(crate) case: String,
    /// The metric.
    pub(crate) metric: Metric,
    /// How it came out.
    pub(crate) outcome: CheckOutcome,
    /// In words, with both values.
    pub(crate) text: String,
}

/// Checks all cases against the thresholds. A rule that is for no case cannot be decided: it may be misspelt, or its
/// case was not measured. `compared` tells whether there is a baseline, without which a tolerance says nothing.
pub(super) fn check(cases: &[SideCase], thresholds: &Thresholds, compared: bool) -> Vec<Check> {
    let mut checks = Vec::new();
    for case in cases {
        for metric in Metric::ALL {
            checks.extend(bounds(case, metric, thresholds));
        }
    }
    let unknown = |rule: &Rule, why: &str| Check {
        case: rule.show(),
        metric: rule.metric,
        outcome: CheckOutcome::Unknown,
        text: why.to_owned(),
    };
    for rule in &thresholds.rule {
        if !cases.iter().any(|case| rule.is_for(case)) {
            checks.push(unknown(rule, "no measured case is meant by this rule"));
        } else if !compared && rule.tolerance.is_some() {
            checks.push(unknown(rule, "its tolerance needs a --baseline"));
        }
    }
    checks
}

fn bounds(case: &SideCase, metric: Metric, thresholds: &Thresholds) -> Vec<Check> {
    let bound = |of: fn(&Rule) -> Option<&String>| {
        let text = thresholds.last(case, metric, |rule| of(rule).cloned())?;
        quantity(metric, &text).ok()
    };
    let value = median(&mut case.values(metric).concat());
    let one = |word: &str, limit: Option<f64>, holds: fn(f64, f64) -> bool| {
        let limit = limit?;
        let (outcome, text) = match value {
            Some(value) if holds(value, limit) => {
                (CheckOutcome::Pass, format!("{}, {word} {}", metric.show(value), metric.show(limit)))
            }
            Some(value) => {
                (CheckOutcome::Fail, format!("{}, {word} {}", metric.show(value), metric.show(limit)))
            }
            None => (CheckOutcome::Unknown, format!("not measured, {word} {}", metric.show(limit))),
        };
        Some(Check { case: case.key.show(), metric, outcome, text })
    };
    let floor = one("at least", bound(|rule| rule.floor.as_ref()), |value, limit| value >= limit);
    let ceiling = one("at most", bound(|rule| rule.ceiling.as_ref()), |value, limit| value <= limit);
    let share =
        thresholds.last(case, metric, |rule| rule.of_limit).map(|share| of_limit(case, metric, share, value));
    [floor, ceiling, share].into_iter().flatten().collect()
}

fn of_limit(case: &SideCase, metric: Metric, share: f64, value: Option<f64>) -> Check {
    let wanted = share * 100.0;
    let (outcome, text) = match (value, case.limit) {
        (Some(value), Some(limit)) if limit > 0.0 => {
            let reached = value / limit * 100.0;
            let outcome = if value >= share * limit { CheckOutcome::Pass } else { CheckOutcome::Fail };
            (outcome, format!("{reached:.1} % of {}, at least {wanted:.1} %", metric.show(limit)))
        }
        _ => (
            CheckOutcome::Unknown,
            format!("at least {wanted:.1} % of a limit that the result does not have"),
        ),
    };
    Check { case: case.key.show(), metric, outcome, text }
}

#[cfg(test)]
mod tests {
    use super::super::side::collect;
    use super::super::thresholds::parse;
    use super::*;
    use crate::report::model::{Limit, example};

    fn outcomes(rules: &str, limit: Option<f64>) -> Vec<(CheckOutcome, String)> {
        let mut result = example::passed();
        for case in &mut result.cases {
            case.limit = limit.map(|bytes_per_s| Limit { bytes_per_s, source: "a port".to_owned() });
        }
        let thresholds = parse("t", &format!("format = \"kvwire.thresholds/1\"\n{rules}")).unwrap();
        check(&collect([&result]), &thresholds, false).into_iter().map(|c| (c.outcome, c.text)).collect()
    }

    #[test]
    fn floors_ceilings_and_shares_are_held_against_the_median() {
        let rule = |what: &str| format!("[[rule]]\ncase = \"READ 4 KiB x1\"\nmetric = {what}");
        let one = |what: &str, limit| outcomes(&rule(what), limit)[0].0;
        assert_eq!(one("\"bandwidth\"\nfloor = \"0.1GB/s\"", None), CheckOutcome::Pass);
        assert_eq!(one("\"bandwidth\"\nfloor = \"9GB/s\"", None), CheckOutcome::Fail);
        assert_eq!(one("\"p50\"\nceiling = \"30us\"", None), CheckOutcome::Pass);
        assert_eq!(one("\"p50\"\nceiling = \"10us\"", None), CheckOutcome::Fail);
        assert_eq!(one("\"bandwidth\"\nof_limit = 0.5", Some(0.3e9)), CheckOutcome::Pass);
        assert_eq!(one("\"bandwidth\"\nof_limit = 0.5", Some(9e9)), CheckOutcome::Fail);
    }

    #[test]
    fn what_cannot_be_decided_is_unknown_and_not_passed_over() {
        for (rules, part) in [
            ("[[rule]]\ncase = \"READ 5 KiB x1\"\nmetric = \"p50\"\nceiling = \"1s\"", "no measured case"),
            (
                "[[rule]]\nop = \"READ\"\nmetric = \"bandwidth\"\nof_limit = 0.8",
                "limit that the result does not have",
            ),
            ("[[rule]]\nop = \"READ\"\nmetric = \"p50\"\ntolerance = 0.1", "needs a --baseline"),
            ("[[rule]]\nmin_block = \"64MiB\"\nmetric = \"p99\"\nceiling = \"1s\"", "not measured"),
        ] {
            let found = outcomes(rules, None);
            assert_eq!(found.len(), 1, "{rules}: {found:?}");
            assert!(found[0].0 == CheckOutcome::Unknown && found[0].1.contains(part), "{found:?}");
        }
    }
}
