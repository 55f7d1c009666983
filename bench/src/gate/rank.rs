//! The rank test of two samples (Wilcoxon, Mann and Whitney): whether one lies above the other, whatever the
//! shape of their distributions.

use statrs::distribution::{ContinuousCDF, Normal};

/// Work (observations x smaller sample x rank sum) up to which the exact distribution is counted out; above it
/// the normal approximation is as good.
const EXACT_WORK: usize = 600_000;

/// Probability that `sample` would lie as far above `reference` as it does, if both came from one distribution.
///
/// Ties share their ranks. Small samples are counted out exactly, given the ties; large ones use the normal
/// approximation with the correction for ties. `inefficiency` is how many observations are worth one
/// independent one (see [`super::series::inefficiency`]); above 1 it weakens the result accordingly.
/// 1 when one of the samples is empty.
pub(super) fn p_above(reference: &[f64], sample: &[f64], inefficiency: f64) -> f64 {
    if reference.is_empty() || sample.is_empty() {
        return 1.0;
    }
    let ranks = doubled_ranks(reference, sample);
    let of_sample: usize = ranks[reference.len()..].iter().sum();
    let highest: usize = 2 * sample.len() * ranks.len();
    let p = if ranks.len() * sample.len() * highest <= EXACT_WORK {
        exact(&ranks, sample.len(), of_sample)
    } else {
        approximate(&ranks, reference.len(), sample.len(), of_sample)
    };
    weakened(p, inefficiency)
}

/// The smallest probability that samples of these sizes can have: when every value of one is above all of the
/// other.
pub(super) fn smallest_p(reference: usize, sample: usize, inefficiency: f64) -> f64 {
    let low: Vec<f64> = (0..reference).map(|i| i as f64).collect();
    let high: Vec<f64> = (0..sample).map(|i| (reference + i) as f64).collect();
    p_above(&low, &high, inefficiency)
}

/// Twice the mid-rank of each value, reference first: whole numbers also with ties.
fn doubled_ranks(reference: &[f64], sample: &[f64]) -> Vec<usize> {
    let values: Vec<f64> = reference.iter().chain(sample).copied().collect();
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0; values.len()];
    let mut start = 0;
    while start < order.len() {
        let value = values[order[start]];
        let ties =
            order[start..].iter().take_while(|place| values[**place].total_cmp(&value).is_eq()).count();
        for place in &order[start..start + ties] {
            // The ranks start + 1 to start + ties, on average, twice.
            ranks[*place] = 2 * start + ties + 1;
        }
        start += ties;
    }
    ranks
}

/// Share of all choices of `count` ranks whose sum is at least `sum`.
fn exact(ranks: &[usize], count: usize, sum: usize) -> f64 {
    let mut largest = ranks.to_vec();
    largest.sort_unstable_by(|a, b| b.cmp(a));
    let most: usize = largest.iter().take(count).sum();
    // ways[k][s]: choices of k ranks with the sum s. Whole numbers, exact in a float up to 2^53 and close beyond.
    let mut ways = vec![vec![0.0_f64; most + 1]; count + 1];
    ways[0][0] = 1.0;
    for rank in ranks {
        for chosen in (1..=count).rev() {
            let (before, after) = ways.split_at_mut(chosen);
            let (from, to) = (&before[chosen - 1], &mut after[0]);
            for (place, more) in to.iter_mut().skip(*rank).zip(from) {
                *place += more;
            }
        }
    }
    let all: f64 = ways[count].iter().sum();
    ways[count].iter().skip(sum).sum::<f64>() / all
}

fn approximate(ranks: &[usize], reference: usize, sample: usize, sum: usize) -> f64 {
    let total = ranks.len() as f64;
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    let ties: f64 =
        sorted.chunk_by(|a, b| a == b).map(|group| (group.len() as f64).powi(3) - group.len() as f64).sum();
    let (n, m) = (reference as f64, sample as f64);
    let variance = n * m / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let above = sum as f64 / 2.0 - m * (total + 1.0) / 2.0;
    // Half a rank for continuity.
    Normal::standard().sf((above - 0.5) / variance.sqrt())
}

/// The probability after the deviation is scaled down to the number of independent observations.
fn weakened(p: f64, inefficiency: f64) -> f64 {
    if inefficiency <= 1.0 {
        return p;
    }
    let normal = Normal::standard();
    let deviation = normal.inverse_cdf(1.0 - p.clamp(1e-15, 1.0 - 1e-15));
    normal.sf(deviation / inefficiency.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64, within: f64) {
        assert!((found - expected).abs() <= within, "{found} for {expected}");
    }

    #[test]
    fn small_samples_are_counted_out() {
        // The known table: 4 above 4 is one choice of 70; 3 above 5 one of 56.
        close(p_above(&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, 8.0], 1.0), 1.0 / 70.0, 1e-12);
        close(smallest_p(5, 3, 1.0), 1.0 / 56.0, 1e-12);
        // U = 2 of 9: the two choices above, and this one, and its equal.
        close(p_above(&[1.0, 2.0, 4.0], &[3.0, 5.0, 6.0], 1.0), 2.0 / 20.0, 1e-12);
    }

    #[test]
    fn ties_share_their_ranks() {
        assert_eq!(doubled_ranks(&[1.0, 2.0], &[2.0, 3.0]), [2, 5, 5, 8]);
        // All equal: nothing is above anything.
        close(p_above(&[1.0; 4], &[1.0; 4], 1.0), 1.0, 1e-12);
        close(p_above(&[1.0; 200], &[1.0; 200], 1.0), 1.0, 1e-12);
        // {1,1,2} and {2,2,3}: of 20 choices those with at least this rank sum (2+2+3): 3 of the 20.
        close(p_above(&[1.0, 1.0, 2.0], &[2.0, 2.0, 3.0], 1.0), 3.0 / 20.0, 1e-12);
    }

    #[test]
    fn the_approximation_meets_the_exact_count() {
        let low: Vec<f64> = (0..14).map(|i| f64::from(i) * 1.9).collect();
        let high: Vec<f64> = (0..14).map(|i| f64::from(i) * 1.9 + 6.0).collect();
        let ranks = doubled_ranks(&low, &high);
        let sum = ranks[14..].iter().sum();
        close(approximate(&ranks, 14, 14, sum), exact(&ranks, 14, sum), 2e-3);
    }

    #[test]
    fn dependent_observations_prove_less() {
        let (low, high) = ([1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 9.0, 10.0]);
        let (free, bound) = (p_above(&low, &high, 1.0), p_above(&low, &high, 4.0));
        close(free, 1.0 / 252.0, 1e-9);
        assert!(bound > 0.05, "{bound}");
    }

    #[test]
    fn nothing_proves_nothing() {
        close(p_above(&[], &[1.0], 1.0), 1.0, 0.0);
        close(p_above(&[1.0], &[], 1.0), 1.0, 0.0);
    }
}
