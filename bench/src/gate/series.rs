//! How much independent information the repetitions of a run hold.

/// Correlation of neighbours that is counted at most: above it a dozen repetitions would hold no information.
const HIGHEST_CORRELATION: f64 = 0.55;

/// How many repetitions are worth one independent one, at least 1 and at most 3.4.
///
/// Neighbouring repetitions resemble each other when the machine warms up, drifts or is loaded for a while.
/// With the lag-1 correlation r this is (1 + r) / (1 - r), as for a first-order process. r is estimated over
/// all series together, each around its own mean, and corrected for the bias of short series (Kendall, 1954).
pub(super) fn inefficiency(series: &[&[f64]]) -> f64 {
    let r = correlation(series).clamp(0.0, HIGHEST_CORRELATION);
    (1.0 + r) / (1.0 - r)
}

/// Length of the blocks that are drawn together in a bootstrap: about twice the reach of the correlation.
pub(super) fn block(inefficiency: f64) -> usize {
    if inefficiency <= 1.2 { 1 } else { (inefficiency * 1.5).ceil() as usize }
}

fn correlation(series: &[&[f64]]) -> f64 {
    let (mut along, mut square, mut length, mut count) = (0.0, 0.0, 0.0, 0.0);
    for values in series.iter().filter(|values| values.len() >= 4) {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        along += values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum::<f64>();
        square += values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        length += values.len() as f64;
        count += 1.0;
    }
    if square <= 0.0 || count == 0.0 {
        return 0.0;
    }
    let r = along / square;
    let r = r + (1.0 + 4.0 * r) / (length / count);
    // Where there is more of it than chance explains, the estimate of a few dozen values may well be too low.
    let error = f64::sqrt(1.0 / length);
    if r > error { r + error / 2.0 } else { r }
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::*;

    fn process(r: f64, length: usize, seed: u64) -> Vec<f64> {
        let mut random = Random::seeded(seed);
        let mut last = 0.0;
        (0..length)
            .map(|_| {
                let step: f64 = (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
                last = r * last + step;
                last
            })
            .collect()
    }

    #[test]
    fn independent_values_count_in_full() {
        let values = process(0.0, 5_000, 1);
        assert!(inefficiency(&[&values]) < 1.1);
    }

    #[test]
    fn correlated_and_drifting_values_count_for_less() {
        let values = process(0.5, 5_000, 2);
        assert!((inefficiency(&[&values]) - 3.0).abs() < 0.3, "{}", inefficiency(&[&values]));
        let drift: Vec<f64> = (0..10).map(f64::from).collect();
        assert!((inefficiency(&[&drift]) - 1.55 / 0.45).abs() < 1e-9);
    }

    #[test]
    fn short_series_are_corrected_for_their_bias() {
        let many: Vec<Vec<f64>> = (0..400).map(|seed| process(0.5, 10, seed)).collect();
        let series: Vec<&[f64]> = many.iter().map(Vec::as_slice).collect();
        let found = correlation(&series);
        assert!((found - 0.5).abs() < 0.12, "{found}");
    }

    #[test]
    fn too_few_or_equal_values_say_nothing() {
        assert!((inefficiency(&[&[1.0, 2.0]]) - 1.0).abs() < 1e-12);
        assert!((inefficiency(&[&[3.0; 9]]) - 1.0).abs() < 1e-12);
        assert_eq!((block(1.0), block(3.0)), (1, 5));
    }
}
