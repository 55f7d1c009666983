//! What a descriptor costs: from cases that move the same bytes in more or fewer of them.
//!
//! The time of a transfer is taken as `n x c + B / r`: `n` posted descriptors of cost `c`, and `B` bytes over a wire of
//! rate `r`. With `B` constant that is a line over `n`, fitted to the mean times by least squares. Each mean is weighted
//! by how exactly it is known (`docs/measuring.md` has the formulas).

use super::histogram::Distribution;
use crate::plan::Op;
use crate::report::model::{CaseResult, CaseStatus, DescriptorCost};

/// Points that a line and an idea of its error need.
const CASES_MIN: usize = 3;
/// Standard errors on each side of a 95 % confidence interval.
const STANDARD_ERRORS: f64 = 1.96;
/// No mean is trusted to be more exact than this share of itself: drift of the machine is not in its samples.
const RELATIVE_ERROR_MIN: f64 = 0.005;

/// The costs of all operations of which enough cases of the sweep passed.
pub(crate) fn descriptor_costs(cases: &[CaseResult]) -> Vec<DescriptorCost> {
    [Op::Read, Op::Write].into_iter().filter_map(|op| cost_of(op, cases)).collect()
}

fn cost_of(op: Op, cases: &[CaseResult]) -> Option<DescriptorCost> {
    let sweep =
        |case: &&CaseResult| case.op == op && case.shape == "sweep" && case.status == CaseStatus::Pass;
    let points: Vec<Point> = cases.iter().filter(sweep).filter_map(Point::of).collect();
    let bytes = cases.iter().find(|case| sweep(case)).map(|case| case.block_bytes * u64::from(case.batch))?;
    let line = Line::through(&points)?;
    let wire_bytes_per_s = (line.at_zero > 0.0).then(|| bytes as f64 * 1e9 / line.at_zero);
    Some(DescriptorCost {
        op,
        ns: line.slope,
        ns_within: STANDARD_ERRORS * line.slope_error,
        wire_bytes_per_s,
        crossover_bytes: wire_bytes_per_s.filter(|_| line.slope > 0.0).map(|rate| line.slope * rate / 1e9),
        cases: points.len() as u64,
    })
}

/// One case of the sweep.
#[derive(Debug, Clone, Copy)]
struct Point {
    descriptors: f64,
    mean_ns: f64,
    error_ns: f64,
}

impl Point {
    fn of(case: &CaseResult) -> Option<Self> {
        let total: &Distribution = case.total.as_ref()?;
        let posted = case.descriptors.posted.unwrap_or(case.descriptors.requested);
        let error = total.stdev / (total.count.max(1) as f64).sqrt();
        let error_ns = error.max(total.mean * RELATIVE_ERROR_MIN).max(1.0);
        Some(Self { descriptors: posted as f64, mean_ns: total.mean, error_ns })
    }
}

struct Line {
    slope: f64,
    slope_error: f64,
    at_zero: f64,
}

impl Line {
    /// Weighted least squares. `None` with too few points, or where all have the same number of descriptors.
    fn through(points: &[Point]) -> Option<Self> {
        if points.len() < CASES_MIN {
            return None;
        }
        let weighted = |of: &dyn Fn(&Point) -> f64| {
            points.iter().map(|p| of(p) / (p.error_ns * p.error_ns)).sum::<f64>()
        };
        let weight = weighted(&|_| 1.0);
        let (x_mean, y_mean) = (weighted(&|p| p.descriptors) / weight, weighted(&|p| p.mean_ns) / weight);
        let spread = weighted(&|p| (p.descriptors - x_mean).powi(2));
        if spread <= 0.0 {
            return None;
        }
        let slope = weighted(&|p| (p.descriptors - x_mean) * (p.mean_ns - y_mean)) / spread;
        let at_zero = y_mean - slope * x_mean;
        let misfit = weighted(&|p| (p.mean_ns - at_zero - slope * p.descriptors).powi(2));
        // Points that lie farther from the line than their errors say widen the interval.
        let scale = (misfit / (points.len() - 2) as f64).max(1.0);
        Some(Self { slope, slope_error: (scale / spread).sqrt(), at_zero })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::histogram::Recorder;
    use crate::report::model::example;

    const BYTES: u64 = 32 << 20;

    fn sweep(cost_ns: f64, rate: f64, wobble: f64) -> Vec<CaseResult> {
        let sizes = [2u64 << 10, 8 << 10, 32 << 10, 128 << 10, 512 << 10];
        let case = |(at, size): (usize, &u64)| {
            let count = BYTES / size;
            let ns = cost_ns * count as f64 + BYTES as f64 * 1e9 / rate;
            let off = if at % 2 == 0 { 1.0 + wobble } else { 1.0 - wobble };
            let mut case = example::case(Op::Read, "", *size, 1, 1);
            let mut recorder = Recorder::new();
            (0..50).for_each(|_| recorder.record_ns((ns * off) as u64));
            case.total = recorder.distribution();
            case.shape = "sweep".to_owned();
            case.batch = count as u32;
            case.descriptors.requested = count;
            case.descriptors.posted = Some(count);
            case
        };
        sizes.iter().enumerate().map(case).collect()
    }

    #[test]
    fn cost_rate_and_crossover_are_found_again() {
        let cost = descriptor_costs(&sweep(250.0, 10e9, 0.0)).remove(0);
        assert!((cost.ns - 250.0).abs() < 5.0, "{cost:?}");
        assert!((cost.wire_bytes_per_s.unwrap() - 10e9).abs() < 0.3e9, "{cost:?}");
        assert!((cost.crossover_bytes.unwrap() - 2_500.0).abs() < 100.0, "{cost:?}");
        assert_eq!((cost.op, cost.cases), (Op::Read, 5));
    }

    #[test]
    fn the_interval_widens_with_the_misfit_and_holds_the_truth() {
        let exact = descriptor_costs(&sweep(250.0, 10e9, 0.0)).remove(0);
        let rough = descriptor_costs(&sweep(250.0, 10e9, 0.1)).remove(0);
        assert!(rough.ns_within > 2.0 * exact.ns_within, "{exact:?} {rough:?}");
        assert!((rough.ns - 250.0).abs() < rough.ns_within, "{rough:?}");
    }

    #[test]
    fn a_cost_of_nothing_has_no_crossover_and_too_few_cases_give_no_cost() {
        let free = descriptor_costs(&sweep(0.0, 10e9, 0.0)).remove(0);
        assert!(free.ns.abs() <= free.ns_within, "{free:?}");
        assert!(descriptor_costs(&sweep(250.0, 10e9, 0.0)[..2]).is_empty());
        let mut failed = sweep(250.0, 10e9, 0.0);
        failed.iter_mut().skip(2).for_each(|case| case.status = CaseStatus::Fail);
        assert!(descriptor_costs(&failed).is_empty());
        assert!(descriptor_costs(&example::passed().cases).is_empty(), "uniform blocks are no sweep");
    }
}
