//! One side of a comparison: the repetitions of every case and metric, run by run.

use std::collections::BTreeMap;

use super::metric::Metric;
use super::shift::median;
use super::slowest::slowest_ranks;
use crate::plan::Op;
use crate::report::model::{CaseResult, CaseStatus, ResultFile};

/// What is compared with one another: the case by its stable name and depth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CaseKey {
    pub(super) name: String,
    pub(super) depth: u32,
}

impl CaseKey {
    pub(super) fn of(case: &CaseResult) -> Self {
        Self { name: case.name.clone(), depth: case.depth }
    }

    /// The case in words: the depth only where it is not 1.
    pub(super) fn show(&self) -> String {
        if self.depth == 1 { self.name.clone() } else { format!("{} depth {}", self.name, self.depth) }
    }
}

/// What is known of a case, over all results of one side.
#[derive(Clone, Debug)]
pub(super) struct SideCase {
    pub(super) key: CaseKey,
    pub(super) op: Op,
    pub(super) shape: String,
    pub(super) block_bytes: u64,
    pub(super) batch: u32,
    /// The most that the path can reach, in bytes per second: the lowest of all results.
    pub(super) limit: Option<f64>,
    /// Results in which it did not pass, with how it ended.
    pub(super) troubles: Vec<(CaseStatus, String)>,
    /// Values of each metric in the order of [`Metric::ALL`]: one list for each result that has some.
    values: [Vec<Vec<f64>>; Metric::ALL.len()],
    /// How often each rank was the slowest of a timed loop.
    pub(super) slowest: BTreeMap<u32, usize>,
    /// Results in which it passed.
    passed: usize,
    /// Share of each timed loop in which the engine had no processor, where it is known.
    off_cpu: Vec<f64>,
}

impl SideCase {
    fn new(case: &CaseResult) -> Self {
        Self {
            key: CaseKey::of(case),
            op: case.op,
            shape: case.shape.clone(),
            block_bytes: case.block_bytes,
            batch: case.batch,
            limit: None,
            troubles: Vec::new(),
            values: Default::default(),
            slowest: BTreeMap::new(),
            passed: 0,
            off_cpu: Vec::new(),
        }
    }

    fn take(&mut self, case: &CaseResult) {
        if case.status != CaseStatus::Pass {
            self.troubles.push((case.status, case.reason.clone().unwrap_or_default()));
            return;
        }
        if let Some(limit) = &case.limit {
            self.limit = Some(self.limit.map_or(limit.bytes_per_s, |known| known.min(limit.bytes_per_s)));
        }
        self.passed += 1;
        let share = |off_cpu: Option<u64>, wall: u64| off_cpu.map(|off| off as f64 / wall.max(1) as f64);
        if case.repetitions.is_empty() {
            self.off_cpu.extend(share(case.off_cpu_ns, case.wall_ns));
        }
        self.off_cpu.extend(case.repetitions.iter().filter_map(|one| share(one.off_cpu_ns, one.wall_ns)));
        for (rank, _) in slowest_ranks(case) {
            *self.slowest.entry(rank).or_default() += 1;
        }
        for (metric, runs) in Metric::ALL.into_iter().zip(&mut self.values) {
            let values = metric.values(case);
            // A figure that only the repetitions with many samples have would be one of the fast repetitions.
            if !values.is_empty() && values.len() == case.repetitions.len().max(1) {
                runs.push(values);
            }
        }
    }

    /// Values of a metric: one list for each result; none unless every repetition of every result has one.
    pub(super) fn values(&self, metric: Metric) -> &[Vec<f64>] {
        let place = Metric::ALL.iter().position(|one| *one == metric).unwrap_or(0);
        let runs = &self.values[place];
        if runs.len() == self.passed { runs } else { &[] }
    }

    /// Median share of the timed loops in which the engine had no processor; 0 where it is not known.
    pub(super) fn off_cpu(&self) -> f64 {
        median(&mut self.off_cpu.clone()).unwrap_or(0.0)
    }

    /// The same on the scale on which up is worse.
    pub(super) fn worse(&self, metric: Metric) -> Vec<Vec<f64>> {
        let run = |run: &Vec<f64>| run.iter().map(|value| metric.worse(*value)).collect();
        self.values(metric).iter().map(run).collect()
    }
}

/// All cases of one side, in the order in which they were first seen.
pub(super) fn collect<'a>(results: impl IntoIterator<Item = &'a ResultFile>) -> Vec<SideCase> {
    gather(results.into_iter().flat_map(|result| &result.cases))
}

/// The same from cases, run by run.
pub(super) fn gather<'a>(all: impl IntoIterator<Item = &'a CaseResult>) -> Vec<SideCase> {
    let mut cases: Vec<SideCase> = Vec::new();
    for case in all {
        let key = CaseKey::of(case);
        let place = cases.iter().position(|known| known.key == key).unwrap_or_else(|| {
            cases.push(SideCase::new(case));
            cases.len() - 1
        });
        cases[place].take(case);
    }
    cases
}
