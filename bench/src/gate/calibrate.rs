//! From runs in which nothing changed to thresholds that lie above their noise.

use serde::Serialize;

use super::compare::{FALSE_ALARMS, REPETITIONS_MIN, too_few};
use super::metric::Metric;
use super::noise::noise;
use super::rank::p_above;
use super::series::inefficiency;
use super::side::SideCase;
use super::thresholds::{FORMAT, Rule, Thresholds};

/// Runs below which a threshold would be guesswork.
pub(super) const RUNS_WANTED: usize = 5;
/// Steps below this are not worth an alarm, however quiet the machine was.
const LEAST_TOLERANCE: f64 = 0.01;
/// A threshold above this hides what people look for.
const COARSE: f64 = 0.5;
/// Halvings of the range in which the smallest visible step is sought: to a thousandth of it.
const HALVINGS: u32 = 10;

/// One calibrated threshold.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Calibrated {
    /// The case.
    pub(crate) case: String,
    /// The metric.
    pub(crate) metric: Metric,
    /// Share that the value may worsen by.
    pub(crate) tolerance: f64,
    /// Smallest worsening that a gate against these runs shows with 95 % probability.
    pub(crate) detectable: f64,
    /// Runs that it rests on.
    pub(crate) runs: usize,
    /// Repetitions of the shortest run.
    pub(crate) repetitions: usize,
}

/// The outcome of a calibration.
#[derive(Debug)]
pub(super) struct Calibration {
    pub(super) thresholds: Thresholds,
    pub(super) calibrated: Vec<Calibrated>,
    /// What the data are too few for, in sentences. Not empty: the thresholds cannot be relied on.
    pub(super) too_few: Vec<String>,
    /// What a reader should know.
    pub(super) notes: Vec<String>,
}

/// Calibrates every metric of every case that has enough runs.
pub(super) fn calibrate(cases: &[SideCase]) -> Calibration {
    let all: Vec<(&SideCase, Metric)> =
        cases.iter().flat_map(|case| Metric::ALL.into_iter().map(move |metric| (case, metric))).collect();
    let measured: Vec<(&SideCase, Metric)> =
        all.into_iter().filter(|(case, metric)| !case.values(*metric).is_empty()).collect();
    let chance = FALSE_ALARMS / measured.len().max(1) as f64;
    let mut found = Calibration {
        thresholds: Thresholds { format: FORMAT.to_owned(), rule: Vec::new() },
        calibrated: Vec::new(),
        too_few: Vec::new(),
        notes: Vec::new(),
    };
    let mut fewest_runs = usize::MAX;
    let mut fewest = [usize::MAX; 2];
    for (case, metric) in &measured {
        let runs = case.values(*metric);
        let shortest = runs.iter().map(Vec::len).min().unwrap_or(0);
        fewest_runs = fewest_runs.min(runs.len());
        let all: usize = runs.iter().map(Vec::len).sum();
        if all < fewest[0] {
            fewest = [all, shortest];
        }
        let worse = case.worse(*metric);
        let Some(noise) = noise(&worse, chance) else { continue };
        // A shift of twice the threshold is to be seen: so far up that the rank test shows it.
        let seen = seen_from(&worse, chance);
        let step =
            noise.reach.max(metric.step(LEAST_TOLERANCE)).max(metric.step(metric.change(seen).abs() / 2.0));
        let tolerance = metric.change(step).abs();
        let detectable = metric.change((step + noise.usual).max(seen)).abs();
        let [tolerance, detectable] = [tolerance, detectable].map(rounded_up);
        found.thresholds.rule.push(Rule::tolerance(case, *metric, tolerance, detectable));
        found.calibrated.push(Calibrated {
            case: case.key.show(),
            metric: *metric,
            tolerance,
            detectable,
            runs: runs.len(),
            repetitions: shortest,
        });
    }
    say_what_is_missing(&mut found, measured.len(), fewest_runs, fewest, chance);
    found
}

/// The smallest step by which each run could be shifted and be significantly above all the others, with the
/// probability asked for. Drift within the runs, or few repetitions, put it above the noise between them.
fn seen_from(runs: &[Vec<f64>], chance: f64) -> f64 {
    let series: Vec<&[f64]> = runs.iter().map(Vec::as_slice).collect();
    let dependence = inefficiency(&series);
    let shows = |number: usize, step: f64| {
        let others: Vec<f64> =
            runs.iter().enumerate().filter(|(n, _)| *n != number).flat_map(|(_, run)| run).copied().collect();
        let shifted: Vec<f64> = runs[number].iter().map(|value| value + step).collect();
        p_above(&others, &shifted, dependence) <= chance
    };
    // Above everything there is, nothing more can be shown.
    let flat = runs.concat();
    let (low, high) =
        flat.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
    let highest = (high - low).max(0.0) * (1.0 + f64::EPSILON);
    let mut found = 0.0;
    for number in 0..runs.len() {
        if shows(number, found) || !shows(number, highest) {
            continue;
        }
        let (mut below, mut above) = (found, highest);
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(below, above);
            if shows(number, middle) { above = middle } else { below = middle }
        }
        found = above;
    }
    found
}

fn say_what_is_missing(
    found: &mut Calibration,
    measured: usize,
    fewest_runs: usize,
    fewest: [usize; 2],
    chance: f64,
) {
    if measured == 0 {
        found.too_few.push("no case passed in any of the results".to_owned());
        return;
    }
    if fewest_runs < RUNS_WANTED {
        found.too_few.push(format!(
            "a case has {fewest_runs} runs, and the difference from run to run needs {RUNS_WANTED} at least, better 10"
        ));
    }
    if too_few(fewest, chance) {
        let enough =
            (REPETITIONS_MIN..100).find(|n| !too_few([*n * fewest_runs.max(1), *n], chance)).unwrap_or(100);
        found.too_few.push(format!(
            "a run has {} repetitions of a case, and a change in one of {measured} comparisons needs {enough}: measure \
             with --repeat {enough}",
            fewest[1]
        ));
    }
    let coarse = found.calibrated.iter().filter(|one| one.tolerance > COARSE).count();
    if coarse > 0 {
        found.notes.push(format!(
            "{coarse} of {} thresholds lie above {:.0} %: the machine was too noisy, or the runs are too few, for a \
             sharper one",
            found.calibrated.len(),
            COARSE * 100.0
        ));
    }
}

/// To a tenth of a percent, upwards: a threshold must not fall below the noise by rounding.
fn rounded_up(share: f64) -> f64 {
    (share * 1_000.0).ceil() / 1_000.0
}
