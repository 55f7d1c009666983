//! By how much one sample lies above another: the Hodges-Lehmann estimate and an interval around it.

use super::random::Random;

/// Resamples for an interval that people read.
pub(super) const RESAMPLES: usize = 400;
/// Pairs up to which the estimate takes all of them; above it evenly spaced quantiles stand for a sample.
const PAIRS: usize = 4_000;
/// Share of resamples that the interval leaves out on each side.
const TAIL: f64 = 0.025;

/// A shift with the interval that holds it with 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shift {
    pub(super) estimate: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// The shift from `reference` to `sample`, each a list of series (the repetitions of one run).
///
/// The estimate is the median of all pairwise differences (Hodges and Lehmann, 1963). The interval is a
/// bootstrap: with several runs on a side whole runs are drawn, and within a run blocks of `block` neighbours,
/// so that what hangs together stays together. `seed` makes it the same each time; without any of the `resamples` the
/// interval is the estimate alone. `None` when a side is empty.
pub(super) fn shift(
    reference: &[Vec<f64>],
    sample: &[Vec<f64>],
    block: usize,
    seed: u64,
    resamples: usize,
) -> Option<Shift> {
    let all = |runs: &[Vec<f64>]| runs.concat();
    let estimate = median_difference(&mut all(reference), &mut all(sample))?;
    let mut random = Random::seeded(seed);
    let mut drawn: Vec<f64> = (0..resamples)
        .filter_map(|_| {
            let mut left = resample(reference, block, &mut random);
            let mut right = resample(sample, block, &mut random);
            median_difference(&mut left, &mut right)
        })
        .collect();
    drawn.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let place = (drawn.len().saturating_sub(1) as f64 * share).round() as usize;
        drawn.get(place).copied().unwrap_or(estimate)
    };
    let (low, high) = (at(TAIL).min(estimate), at(1.0 - TAIL).max(estimate));
    Some(Shift { estimate, low, high })
}

/// Median of `b - a` over all pairs.
pub(super) fn median_difference(reference: &mut [f64], sample: &mut [f64]) -> Option<f64> {
    reference.sort_by(f64::total_cmp);
    sample.sort_by(f64::total_cmp);
    let (left, right) = (thinned(reference), thinned(sample));
    let mut differences: Vec<f64> = left.iter().flat_map(|a| right.iter().map(move |b| b - a)).collect();
    median(&mut differences)
}

/// Evenly spaced values of a long sorted sample; all of a short one.
fn thinned(sorted: &[f64]) -> Vec<f64> {
    let most = (PAIRS as f64).sqrt() as usize;
    if sorted.len() <= most {
        return sorted.to_vec();
    }
    (0..most).map(|i| sorted[(2 * i + 1) * sorted.len() / (2 * most)]).collect()
}

/// The median; `None` of nothing. Reorders the values.
pub(super) fn median(values: &mut [f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let middle = values.len() / 2;
    let odd = values.len() % 2 == 1;
    let (below, high, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    if odd {
        return Some(*high);
    }
    let low = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Some(f64::midpoint(low, *high))
}

fn resample(runs: &[Vec<f64>], block: usize, random: &mut Random) -> Vec<f64> {
    let mut drawn = Vec::new();
    for run in runs {
        let from = if runs.len() > 1 { &runs[random.below(runs.len())] } else { run };
        let wanted = drawn.len() + from.len();
        let block = block.clamp(1, from.len().max(1));
        while drawn.len() < wanted {
            let start = random.below(from.len() - block + 1);
            let room = (wanted - drawn.len()).min(block);
            drawn.extend_from_slice(&from[start..start + room]);
        }
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shift_is_the_median_of_all_differences() {
        let found = median_difference(&mut [1.0, 2.0, 3.0], &mut [4.0, 6.0, 11.0]).unwrap();
        assert!((found - 4.0).abs() < 1e-12, "{found}");
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&mut []), None);
    }

    #[test]
    fn one_wild_value_does_not_move_it() {
        let calm = [10.0, 10.1, 9.9, 10.05, 9.95];
        let wild = [11.0, 11.1, 10.9, 11.05, 9_000.0];
        let found = shift(&[calm.to_vec()], &[wild.to_vec()], 1, 7, RESAMPLES).unwrap();
        assert!((found.estimate - 1.05).abs() < 0.06, "{found:?}");
        assert!(found.low > 0.8, "{found:?}");
    }

    #[test]
    fn the_interval_is_the_same_each_time_and_holds_the_estimate() {
        let (a, b) = (vec![vec![1.0, 2.0, 4.0, 3.0]], vec![vec![2.0, 5.0, 3.0, 4.0]]);
        let first = shift(&a, &b, 1, 42, RESAMPLES).unwrap();
        assert_eq!(first, shift(&a, &b, 1, 42, RESAMPLES).unwrap());
        assert!(first.low <= first.estimate && first.estimate <= first.high);
        assert!(first.low < first.high);
    }

    #[test]
    fn runs_that_differ_widen_the_interval() {
        let one = vec![vec![0.0, 1.0, 0.5, 0.2, 10.0, 11.0, 10.5, 10.2]];
        let two = vec![vec![0.0, 1.0, 0.5, 0.2], vec![10.0, 11.0, 10.5, 10.2]];
        let sample = vec![vec![5.0, 5.1, 5.2, 5.3]];
        let width = |reference: &[Vec<f64>]| {
            let found = shift(reference, &sample, 1, 3, RESAMPLES).unwrap();
            found.high - found.low
        };
        assert!(width(&two) >= width(&one));
    }

    #[test]
    fn an_empty_side_has_no_shift() {
        assert_eq!(shift(&[vec![]], &[vec![1.0]], 1, 1, RESAMPLES), None);
        assert_eq!(shift(&[], &[vec![1.0]], 1, 1, RESAMPLES), None);
    }
}
