//! The comparison of two sides, case by case and metric by metric.

use serde::Serialize;

use super::correct::significant;
use super::metric::Metric;
use super::noise::noise;
use super::rank::{p_above, smallest_p};
use super::series::{block, inefficiency};
use super::shift::{RESAMPLES, median, shift};
use super::side::SideCase;
use super::thresholds::Thresholds;

/// Share of gates over unchanged things that may raise an alarm.
pub(super) const FALSE_ALARMS: f64 = 0.05;
/// Repetitions of a side below which nothing is said.
pub(super) const REPETITIONS_MIN: usize = 5;
/// Share of its time by which a loop may lack a processor more than the baseline's before a change says nothing.
const MORE_OFF_CPU: f64 = 0.1;
/// Seed of the bootstrap: the same files give the same interval.
const SEED: u64 = 0x6b76_7769_7265;

/// What a comparison says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Judgement {
    /// Worse: significantly, and by more than the tolerance.
    Worse,
    /// Better in the same sense.
    Better,
    /// Neither.
    Unchanged,
    /// Too few repetitions to see a change.
    TooFew,
    /// Looks worse, and the engine had no processor for much more of its time than in the baseline.
    Starved,
}

/// One metric of one case, baseline against candidate.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    /// The case.
    pub(crate) case: String,
    /// The metric: bandwidth in bytes per second, times in ns.
    pub(crate) metric: Metric,
    /// Median over all repetitions of the baseline.
    pub(crate) baseline: f64,
    /// Median over all repetitions of the candidate.
    pub(crate) candidate: f64,
    /// Change of the value as a share of the baseline: -0.1 is 10 % less.
    pub(crate) change: f64,
    /// The interval that holds the change with 95 % confidence.
    pub(crate) change_interval: [f64; 2],
    /// Share that it may worsen by.
    pub(crate) tolerance: f64,
    /// Probability of such a worsening, or improvement where it got better, if nothing had changed.
    pub(crate) p: f64,
    /// Repetitions of the baseline and of the candidate.
    pub(crate) repetitions: [usize; 2],
    /// What it says.
    pub(crate) judgement: Judgement,
}

/// A comparison before it is known how many others there are.
struct Open {
    comparison: Comparison,
    step: f64,
    tolerance: f64,
    worse: f64,
    better: f64,
    starved: bool,
}

/// Compares every metric that both sides have, with the correction over all of them.
///
/// `tolerance` is the share that holds where `thresholds` say nothing; a spread between several baseline runs
/// that is larger takes its place.
pub(super) fn compare(
    baseline: &[SideCase],
    candidate: &[SideCase],
    thresholds: Option<&Thresholds>,
    tolerance: f64,
) -> Vec<Comparison> {
    compare_with(baseline, candidate, thresholds, tolerance, RESAMPLES)
}

/// The same with intervals from this many resamples. They are for readers: no judgement rests on them.
pub(super) fn compare_with(
    baseline: &[SideCase],
    candidate: &[SideCase],
    thresholds: Option<&Thresholds>,
    tolerance: f64,
    resamples: usize,
) -> Vec<Comparison> {
    let pairs = pairs(baseline, candidate);
    let chance = FALSE_ALARMS / pairs.len().max(1) as f64;
    let open: Vec<Open> = pairs
        .into_iter()
        .filter_map(|(old, new, metric)| {
            let rule = thresholds.and_then(|t| t.last(new, metric, |rule| rule.tolerance));
            let step = rule.map_or_else(
                || {
                    let reach = noise(&old.worse(metric), chance).map_or(0.0, |noise| noise.reach);
                    metric.step(tolerance).max(reach)
                },
                |share| metric.step(share),
            );
            one(old, new, metric, step, resamples)
        })
        .collect();
    judge(open, chance)
}

/// What both sides have values of.
fn pairs<'a>(old: &'a [SideCase], new: &'a [SideCase]) -> Vec<(&'a SideCase, &'a SideCase, Metric)> {
    let mut pairs = Vec::new();
    for candidate in new {
        let Some(baseline) = old.iter().find(|case| case.key == candidate.key) else { continue };
        let has =
            |metric: &Metric| !baseline.values(*metric).is_empty() && !candidate.values(*metric).is_empty();
        pairs.extend(Metric::ALL.into_iter().filter(has).map(|metric| (baseline, candidate, metric)));
    }
    pairs
}

fn one(old: &SideCase, new: &SideCase, metric: Metric, tolerance: f64, resamples: usize) -> Option<Open> {
    let (reference, sample) = (old.worse(metric), new.worse(metric));
    let series: Vec<&[f64]> = reference.iter().chain(&sample).map(Vec::as_slice).collect();
    let dependence = inefficiency(&series);
    let (flat_reference, flat_sample) = (reference.concat(), sample.concat());
    let found = shift(&reference, &sample, block(dependence), SEED, resamples)?;
    let mut interval = [metric.change(found.low), metric.change(found.high)];
    interval.sort_by(f64::total_cmp);
    let p = [(&flat_reference, &flat_sample), (&flat_sample, &flat_reference)];
    let [worse, better] = p.map(|(below, above)| p_above(below, above, dependence));
    let middle = |runs: &[Vec<f64>]| median(&mut runs.concat());
    Some(Open {
        comparison: Comparison {
            case: new.key.show(),
            metric,
            baseline: middle(old.values(metric))?,
            candidate: middle(new.values(metric))?,
            change: metric.change(found.estimate),
            change_interval: interval,
            tolerance: metric.change(tolerance).abs(),
            p: worse.min(better),
            repetitions: [flat_reference.len(), flat_sample.len()],
            judgement: Judgement::Unchanged,
        },
        step: found.estimate,
        tolerance,
        worse,
        better,
        starved: metric.feels_load() && new.off_cpu() > old.off_cpu() + MORE_OFF_CPU,
    })
}

/// Both directions are questions of their own, each with its own correction.
fn judge(open: Vec<Open>, chance: f64) -> Vec<Comparison> {
    let of = |p: fn(&Open) -> f64| significant(&open.iter().map(p).collect::<Vec<_>>(), FALSE_ALARMS);
    let (worse, better) = (of(|open| open.worse), of(|open| open.better));
    let judged = open.into_iter().zip(worse).zip(better).map(|((open, worse), better)| {
        let Open { mut comparison, step, tolerance, starved, .. } = open;
        comparison.judgement = if too_few(comparison.repetitions, chance) {
            Judgement::TooFew
        } else if worse && step > tolerance {
            if starved { Judgement::Starved } else { Judgement::Worse }
        } else if better && step < -tolerance {
            Judgement::Better
        } else {
            Judgement::Unchanged
        };
        comparison
    });
    judged.collect()
}

/// Whether even the clearest change of a single comparison could not be seen.
pub(super) fn too_few([reference, sample]: [usize; 2], chance: f64) -> bool {
    reference < REPETITIONS_MIN || sample < REPETITIONS_MIN || smallest_p(reference, sample, 1.0) > chance
}
