//! Latencies of one case: recorded without allocation, summarised without flattery.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// p99 is withheld below this many samples: under it, fewer than ten lie beyond the quantile.
pub(crate) const P99_MIN_SAMPLES: u64 = 1_000;
/// p99.9 is withheld below this many samples, for the same reason.
pub(crate) const P999_MIN_SAMPLES: u64 = 10_000;

/// Longest time that keeps its own place in the histogram: one hour, in ns. Longer ones count in the last
/// place.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Significant decimal digits that the histogram keeps of each value.
const SIGNIFICANT_DIGITS: u8 = 3;

/// Takes durations in ns inside a timed loop.
///
/// All memory is allocated and touched at creation, so that recording neither allocates nor faults a page.
/// Minimum, maximum, mean and deviation are kept apart from the histogram and are exact; quantiles have three
/// digits.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    histogram: Histogram<u64>,
    min: u64,
    max: u64,
    sum: u64,
    sum_of_squares: u128,
}

impl Recorder {
    /// An empty recorder for 1 ns to one hour.
    pub(crate) fn new() -> Self {
        #[expect(clippy::expect_used, reason = "the three bounds are constants that the library accepts")]
        let histogram =
            Histogram::new_with_bounds(1, LONGEST_NS, SIGNIFICANT_DIGITS).expect("valid constant bounds");
        let mut recorder = Self { histogram, min: u64::MAX, max: 0, sum: 0, sum_of_squares: 0 };
        // Fresh zeroed memory is only promised by the kernel; writing it now keeps page faults out of the
        // timed loop.
        recorder.clear();
        recorder
    }

    /// Counts one duration. Anything above an hour counts as the longest, with its true value as the maximum.
    #[inline]
    pub(crate) fn record_ns(&mut self, ns: u64) {
        self.histogram.saturating_record(ns);
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
        // 584 years of waiting saturate; a u128 here would only cost time.
        self.sum = self.sum.saturating_add(ns);
        let wide = u128::from(ns);
        self.sum_of_squares = self.sum_of_squares.saturating_add(wide * wide);
    }

    /// Forgets everything and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.histogram.reset();
        self.min = u64::MAX;
        self.max = 0;
        self.sum = 0;
        self.sum_of_squares = 0;
    }

    /// Durations recorded so far.
    pub(crate) fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Adds everything that `other` recorded.
    #[cfg_attr(not(test), expect(dead_code, reason = "for runs with several initiators"))]
    pub(crate) fn merge(&mut self, other: &Self) {
        for step in other.histogram.iter_recorded() {
            self.histogram.saturating_record_n(step.value_iterated_to(), step.count_at_value());
        }
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum = self.sum.saturating_add(other.sum);
        self.sum_of_squares = self.sum_of_squares.saturating_add(other.sum_of_squares);
    }

    /// The summary, or `None` when nothing was recorded.
    pub(crate) fn distribution(&self) -> Option<Distribution> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        Some(Distribution {
            unit: TimeUnit::Ns,
            count,
            min: self.min,
            mean: self.sum as f64 / count as f64,
            stdev: self.deviation(),
            max: self.max,
            p50: self.quantile(0.5),
            p90: self.quantile(0.9),
            p99: (count >= P99_MIN_SAMPLES).then(|| self.quantile(0.99)),
            p999: (count >= P999_MIN_SAMPLES).then(|| self.quantile(0.999)),
            histogram: encode(&self.histogram),
        })
    }

    /// The quantile's place in the histogram, never outside of what was really seen.
    fn quantile(&self, quantile: f64) -> u64 {
        self.histogram.value_at_quantile(quantile).clamp(self.min, self.max)
    }

    /// Standard deviation of the sample in ns; zero for a single value.
    fn deviation(&self) -> f64 {
        let count = self.count() as f64;
        if count < 2.0 {
            return 0.0;
        }
        let mean = self.sum as f64 / count;
        let mean_square = self.sum_of_squares as f64 / count;
        let variance = (mean_square - mean * mean).max(0.0);
        (variance * count / (count - 1.0)).sqrt()
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

/// Base64 of the portable compressed form; empty if the encoder fails, which it only does on a failing
/// writer.
fn encode(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    match V2DeflateSerializer::new().serialize(histogram, &mut bytes) {
        Ok(_) => BASE64.encode(bytes),
        Err(_) => String::new(),
    }
}

/// The unit of every time in a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TimeUnit {
    /// Nanoseconds.
    Ns,
}

/// How one kind of duration was distributed over the samples of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Distribution {
    /// Unit of all times here: nanoseconds.
    pub(crate) unit: TimeUnit,
    /// Samples recorded.
    pub(crate) count: u64,
    /// Shortest sample, exact.
    pub(crate) min: u64,
    /// Arithmetic mean, exact.
    pub(crate) mean: f64,
    /// Standard deviation of the sample (n - 1), exact; 0 for one sample.
    pub(crate) stdev: f64,
    /// Longest sample, exact.
    pub(crate) max: u64,
    /// Median, to three significant digits.
    pub(crate) p50: u64,
    /// 90th percentile, to three significant digits.
    pub(crate) p90: u64,
    /// 99th percentile, to three significant digits; null below 1,000 samples, because it would be guesswork.
    pub(crate) p99: Option<u64>,
    /// 99.9th percentile, to three significant digits; null below 10,000 samples.
    pub(crate) p999: Option<u64>,
    /// All samples: base64 of an HdrHistogram V2 compressed encoding (1 ns to 1 h, three significant digits).
    pub(crate) histogram: String,
}

/// Why an encoded histogram cannot be read back.
#[derive(Debug, Error)]
pub(crate) enum HistogramError {
    /// The text is not base64.
    #[error("the histogram is not base64: {0}")]
    Base64(#[from] base64::DecodeError),
    /// The bytes are not an HdrHistogram V2 encoding.
    #[error("the histogram is not an HdrHistogram V2 encoding: {0}")]
    Encoding(String),
}

impl Distribution {
    /// Reads all samples back, to compare two runs by more than their quantiles.
    ///
    /// # Errors
    /// [`HistogramError`] when the text was not written by a kvwire.
    pub(crate) fn decode(&self) -> Result<Histogram<u64>, HistogramError> {
        let bytes = BASE64.decode(&self.histogram)?;
        Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| HistogramError::Encoding(format!("{error:?}")))
    }
}

impl Distribution {
    /// Both distributions as one: as if all samples had been recorded together. The deviation is exact, from both
    /// means and deviations.
    ///
    /// # Errors
    /// [`HistogramError`] when one of them was not written by a kvwire.
    pub(crate) fn joined(&self, other: &Self) -> Result<Self, HistogramError> {
        let mut histogram = self.decode()?;
        histogram.add(other.decode()?).map_err(|error| HistogramError::Encoding(error.to_string()))?;
        let (min, max) = (self.min.min(other.min), self.max.max(other.max));
        let (n, m) = (self.count as f64, other.count as f64);
        let count = self.count + other.count;
        let mean = (self.mean * n + other.mean * m) / (n + m);
        let squares = |d: &Self, n: f64| d.stdev.powi(2) * (n - 1.0).max(0.0) + n * (d.mean - mean).powi(2);
        let stdev = ((squares(self, n) + squares(other, m)) / (n + m - 1.0).max(1.0)).sqrt();
        let at = |quantile: f64| histogram.value_at_quantile(quantile).clamp(min, max);
        Ok(Self {
            unit: TimeUnit::Ns,
            count,
            min,
            mean,
            stdev,
            max,
            p50: at(0.5),
            p90: at(0.9),
            p99: (count >= P99_MIN_SAMPLES).then(|| at(0.99)),
            p999: (count >= P999_MIN_SAMPLES).then(|| at(0.999)),
            histogram: encode(&histogram),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joining_is_recording_together() {
        let (low, high) = (1..6_000_u64, 1_000_000..1_007_000_u64);
        let part = |values: std::ops::Range<u64>| recorded(values).distribution().unwrap();
        let joined = part(low.clone()).joined(&part(high.clone())).unwrap();
        let together = recorded(low.chain(high)).distribution().unwrap();
        assert!((joined.stdev / together.stdev - 1.0).abs() < 1e-9);
        assert!((joined.mean / together.mean - 1.0).abs() < 1e-9);
        let same = Distribution { stdev: together.stdev, mean: together.mean, ..joined };
        assert_eq!(same, together);
    }

    fn recorded(values: impl IntoIterator<Item = u64>) -> Recorder {
        let mut recorder = Recorder::new();
        values.into_iter().for_each(|ns| recorder.record_ns(ns));
        recorder
    }

    #[test]
    fn nothing_recorded_is_no_distribution() {
        assert_eq!(Recorder::new().distribution(), None);
    }

    #[test]
    fn exact_figures_are_exact_and_quantiles_have_three_digits() {
        let d = recorded(1..=100_000).distribution().unwrap();
        assert_eq!((d.count, d.min, d.max), (100_000, 1, 100_000));
        assert!((d.mean - 50_000.5).abs() < 1e-6);
        assert!((d.stdev - 28_867.657_8).abs() < 1e-3, "{}", d.stdev);
        for (found, exact) in
            [(d.p50, 50_000.0), (d.p90, 90_000.0), (d.p99.unwrap(), 99_000.0), (d.p999.unwrap(), 99_900.0)]
        {
            assert!((found as f64 / exact - 1.0).abs() < 1e-3, "{found} for {exact}");
        }
    }

    #[test]
    fn a_single_sample_is_every_figure() {
        let d = recorded([123_456_789]).distribution().unwrap();
        assert_eq!((d.min, d.p50, d.p90, d.max), (123_456_789, 123_456_789, 123_456_789, 123_456_789));
        assert!(d.stdev.abs() < f64::EPSILON);
    }

    #[test]
    fn high_percentiles_need_samples() {
        let at = |n| recorded((0..n).map(|_| 5)).distribution().unwrap();
        assert_eq!((at(999).p99, at(999).p999), (None, None));
        assert_eq!((at(1_000).p99, at(1_000).p999), (Some(5), None));
        assert_eq!((at(9_999).p99, at(9_999).p999), (Some(5), None));
        assert_eq!((at(10_000).p99, at(10_000).p999), (Some(5), Some(5)));
    }

    #[test]
    fn beyond_an_hour_saturates_with_the_true_maximum() {
        let d = recorded([0, 1, u64::MAX]).distribution().unwrap();
        assert_eq!((d.count, d.min, d.max), (3, 0, u64::MAX));
        assert!(d.p90 >= LONGEST_NS);
    }

    #[test]
    fn merging_is_recording_together() {
        let (low, high) = (1..5_000, 1_000_000..1_007_000);
        let mut merged = recorded(low.clone());
        merged.merge(&recorded(high.clone()));
        assert_eq!(merged.distribution(), recorded(low.chain(high)).distribution());

        let mut kept = recorded([7]);
        kept.merge(&Recorder::new());
        assert_eq!(kept.distribution(), recorded([7]).distribution());
    }

    #[test]
    fn a_cleared_recorder_is_a_new_one() {
        let mut recorder = recorded([1, 2, 3]);
        recorder.clear();
        assert_eq!(recorder.distribution(), None);
        recorder.record_ns(9);
        assert_eq!(recorder.distribution(), recorded([9]).distribution());
    }

    #[test]
    fn the_samples_come_back_from_the_encoding() {
        let d = recorded(1..=20_000).distribution().unwrap();
        let histogram = d.decode().unwrap();
        assert_eq!(histogram.len(), 20_000);
        assert_eq!(histogram.value_at_quantile(0.5), d.p50);

        let broken = |text: &str| {
            let histogram = text.to_owned();
            Distribution { histogram, ..d.clone() }.decode().map(|_| ())
        };
        assert!(matches!(broken("!"), Err(HistogramError::Base64(_))));
        assert!(matches!(broken("AAAA"), Err(HistogramError::Encoding(_))));
    }
}
