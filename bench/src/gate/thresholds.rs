//! The thresholds file: floors, ceilings and tolerances for workloads, operations, sizes and metrics.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::metric::Metric;
use super::side::SideCase;
use crate::measure::units::{ByteSize, parse_duration};
use crate::plan::Op;

/// Name and major version of the format.
pub(super) const FORMAT: &str = "kvwire.thresholds/1";
/// Largest file that is read.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Why a file holds no thresholds.
#[derive(Debug, Error)]
pub(crate) enum ThresholdsError {
    /// It cannot be read.
    #[error("cannot read {path}: {source}")]
    Io { path: String, source: std::io::Error },
    /// Too large.
    #[error("{0} is larger than {limit} MiB and so holds no thresholds", limit = MAX_FILE_BYTES >> 20)]
    TooLarge(String),
    /// No TOML, an unknown word, or a value of a wrong type. The detail shows the line.
    #[error("{path} holds no thresholds: {detail}")]
    Damaged { path: String, detail: String },
    /// A format of another version.
    #[error("{path} has the format `{found}`, and this kvwire reads `{FORMAT}`")]
    OtherFormat { path: String, found: String },
    /// A rule that cannot be meant.
    #[error("{path}, rule {number}: {problem}")]
    Rule { path: String, number: usize, problem: String },
}

/// The file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Thresholds {
    pub(super) format: String,
    #[serde(default)]
    pub(super) rule: Vec<Rule>,
}

/// One rule: which cases it is for, which metric, and what must hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    /// Name of one case, for example `READ 64 KiB x1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) case: Option<String>,
    /// `READ` or `WRITE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) op: Option<Op>,
    /// The workload, for example `uniform`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) shape: Option<String>,
    /// Smallest block size that it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) min_block: Option<String>,
    /// Largest block size that it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_block: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) batch: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) depth: Option<u32>,
    pub(super) metric: Metric,
    /// The median must not be below: `12GB/s`, `96Gb/s`, or a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) floor: Option<String>,
    /// The median must not be above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ceiling: Option<String>,
    /// Share of the measured limit that the bandwidth must reach: 0.8 is 80 %.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) of_limit: Option<f64>,
    /// Share that the value may worsen by against the baseline: 0.07 is 7 %.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tolerance: Option<f64>,
    /// Smallest worsening that the calibration's runs would have shown; for readers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) detectable: Option<f64>,
}

impl Rule {
    /// A tolerance for one case, as calibration writes it.
    pub(super) fn tolerance(case: &SideCase, metric: Metric, tolerance: f64, detectable: f64) -> Self {
        Self {
            case: Some(case.key.name.clone()),
            op: None,
            shape: None,
            min_block: None,
            max_block: None,
            batch: None,
            depth: Some(case.key.depth),
            metric,
            floor: None,
            ceiling: None,
            of_limit: None,
            tolerance: Some(tolerance),
            detectable: Some(detectable),
        }
    }

    /// Whether it is for this case.
    pub(super) fn is_for(&self, case: &SideCase) -> bool {
        let size = |text: &Option<String>| text.as_ref().and_then(|text| text.parse::<ByteSize>().ok());
        let holds = |holds: Option<bool>| holds.unwrap_or(true);
        holds(self.case.as_ref().map(|name| *name == case.key.name))
            && holds(self.op.map(|op| op == case.op))
            && holds(self.shape.as_ref().map(|shape| *shape == case.shape))
            && holds(size(&self.min_block).map(|least| case.block_bytes >= least.bytes()))
            && holds(size(&self.max_block).map(|most| case.block_bytes <= most.bytes()))
            && holds(self.batch.map(|batch| batch == case.batch))
            && holds(self.depth.map(|depth| depth == case.key.depth))
    }

    /// The rule in words, for messages.
    pub(super) fn show(&self) -> String {
        let mut words: Vec<String> = Vec::new();
        words.extend(self.case.clone());
        words.extend(self.op.map(|op| op.to_string()));
        words.extend(self.shape.clone());
        words.extend(self.min_block.as_ref().map(|size| format!("from {size}")));
        words.extend(self.max_block.as_ref().map(|size| format!("to {size}")));
        words.extend(self.batch.map(|batch| format!("batch {batch}")));
        words.extend(self.depth.map(|depth| format!("depth {depth}")));
        if words.is_empty() {
            words.push("every case".to_owned());
        }
        format!("{} of {}", self.metric, words.join(", "))
    }

    /// What cannot be meant, in words.
    fn problem(&self) -> Option<String> {
        let wrong = |what: &str, text: &str, why: String| Some(format!("{what} = \"{text}\": {why}"));
        for (what, text) in [("min_block", &self.min_block), ("max_block", &self.max_block)] {
            if let Some(text) = text
                && let Err(error) = text.parse::<ByteSize>()
            {
                return wrong(what, text, error.to_string());
            }
        }
        for (what, text) in [("floor", &self.floor), ("ceiling", &self.ceiling)] {
            if let Some(text) = text
                && let Err(why) = quantity(self.metric, text)
            {
                return wrong(what, text, why);
            }
        }
        if self.of_limit.is_some() && self.metric != Metric::Bandwidth {
            return Some("of_limit is for the metric bandwidth".to_owned());
        }
        for (what, share) in [("of_limit", self.of_limit), ("tolerance", self.tolerance)] {
            if share.is_some_and(|share| !(share > 0.0 && share <= 10.0)) {
                return Some(format!("{what} is a share: 0.07 is 7 %"));
            }
        }
        if self.floor.is_none()
            && self.ceiling.is_none()
            && self.of_limit.is_none()
            && self.tolerance.is_none()
        {
            return Some("it says nothing; give floor, ceiling, of_limit or tolerance".to_owned());
        }
        None
    }
}

/// A bandwidth in bytes per second (`12GB/s`, `96 Gb/s`, `900MB/s`) or a time in ns (`20us`).
pub(super) fn quantity(metric: Metric, text: &str) -> Result<f64, String> {
    if !metric.more_is_better() {
        return parse_duration(text).map(|time| time.as_secs_f64() * 1e9).map_err(|e| e.to_string());
    }
    let help = || "write it as 12GB/s, 900MB/s or 96Gb/s".to_owned();
    let digits = text.trim().trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = text.trim()[digits.len()..].trim();
    let scale = match unit {
        "GB/s" => 1e9,
        "MB/s" => 1e6,
        "Gb/s" => 1e9 / 8.0,
        "Mb/s" => 1e6 / 8.0,
        _ => return Err(help()),
    };
    match digits.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value * scale),
        _ => Err(help()),
    }
}

/// Reads a thresholds file.
///
/// # Errors
/// [`ThresholdsError`], each kind with the path and what is wrong.
pub(super) fn read(path: &Path) -> Result<Thresholds, ThresholdsError> {
    let name = path.display().to_string();
    let io = |source| ThresholdsError::Io { path: name.clone(), source };
    let mut text = String::new();
    let file = File::open(path).map_err(io)?;
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(io)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(ThresholdsError::TooLarge(name));
    }
    parse(&name, &text)
}

pub(super) fn parse(path: &str, text: &str) -> Result<Thresholds, ThresholdsError> {
    let path = path.to_owned();
    let thresholds: Thresholds = toml::from_str(text)
        .map_err(|error| ThresholdsError::Damaged { path: path.clone(), detail: error.to_string() })?;
    if thresholds.format != FORMAT {
        return Err(ThresholdsError::OtherFormat { path, found: thresholds.format });
    }
    let wrong = thresholds.rule.iter().enumerate().find_map(|(at, rule)| Some((at, rule.problem()?)));
    match wrong {
        Some((at, problem)) => Err(ThresholdsError::Rule { path, number: at + 1, problem }),
        None => Ok(thresholds),
    }
}

impl Thresholds {
    /// What must hold for a metric of a case: of each kind the last rule that is for it.
    pub(super) fn last<T>(
        &self,
        case: &SideCase,
        metric: Metric,
        of: impl Fn(&Rule) -> Option<T>,
    ) -> Option<T> {
        self.rule.iter().rev().filter(|rule| rule.metric == metric && rule.is_for(case)).find_map(of)
    }
}

#[cfg(test)]
mod tests {
    use super::super::side::collect;
    use super::*;
    use crate::report::model::example;

    fn parsed(rules: &str) -> Result<Thresholds, ThresholdsError> {
        parse("t.toml", &format!("format = \"{FORMAT}\"\n{rules}"))
    }

    #[test]
    fn rules_are_for_workloads_operations_sizes_and_metrics() {
        let text = r#"
            [[rule]]
            metric = "bandwidth"
            tolerance = 0.1
            [[rule]]
            op = "READ"
            shape = "uniform"
            min_block = "1KiB"
            max_block = "4KiB"
            metric = "bandwidth"
            tolerance = 0.2
            floor = "1.5GB/s"
            [[rule]]
            op = "READ"
            min_block = "1MiB"
            metric = "bandwidth"
            tolerance = 0.3
        "#;
        let thresholds = parsed(text).unwrap();
        let cases = collect([&example::passed()]);
        let tolerance = |case: &SideCase, metric| thresholds.last(case, metric, |rule| rule.tolerance);
        assert_eq!(tolerance(&cases[0], Metric::Bandwidth), Some(0.1), "WRITE 4 KiB");
        assert_eq!(tolerance(&cases[3], Metric::Bandwidth), Some(0.2), "READ 4 KiB");
        assert_eq!(tolerance(&cases[3], Metric::P50), None);
        assert_eq!(
            thresholds.last(&cases[3], Metric::Bandwidth, |rule| rule.floor.clone()).unwrap(),
            "1.5GB/s"
        );
    }

    #[test]
    fn quantities_carry_their_unit() {
        for (text, value) in [("12GB/s", 12e9), ("96 Gb/s", 12e9), ("900MB/s", 9e8), ("0.5GB/s", 5e8)] {
            assert!((quantity(Metric::Bandwidth, text).unwrap() - value).abs() < 1.0, "{text}");
        }
        assert!((quantity(Metric::P50, "20us").unwrap() - 20_000.0).abs() < 1e-6);
        for (metric, text) in [
            (Metric::Bandwidth, "12"),
            (Metric::Bandwidth, "12GiB/s"),
            (Metric::Bandwidth, "-1GB/s"),
            (Metric::P99, "20"),
        ] {
            assert!(quantity(metric, text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_the_rule() {
        for (rules, part) in [
            ("[[rule]]\nmetric = \"bandwidth\"", "rule 1: it says nothing"),
            ("[[rule]]\nmetric = \"p50\"\nof_limit = 0.8", "of_limit is for the metric bandwidth"),
            (
                "[[rule]]\nmetric = \"p50\"\ntolerance = 7\n[[rule]]\nmetric = \"p50\"\ntolerance = -1.0",
                "rule 2: tolerance is a share",
            ),
            ("[[rule]]\nmetric = \"p50\"\ntolerance = -1.0", "0.07 is 7 %"),
            ("[[rule]]\nmetric = \"p50\"\nceiling = \"20\"", "is not a duration"),
            ("[[rule]]\nmetric = \"speed\"\ntolerance = 0.1", "speed"),
            ("[[rule]]\nmetric = \"p50\"\ntolerence = 0.1", "tolerence"),
            ("[[rule]]\nmetric = \"p50\"\ntolerance = 0.1\nmin_block = \"1.5KiB\"", "fraction"),
        ] {
            let error = parsed(rules).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("t.toml"), "{rules}: {error}");
        }
        let other = parse("t.toml", "format = \"kvwire.thresholds/2\"").unwrap_err();
        assert!(matches!(other, ThresholdsError::OtherFormat { .. }), "{other}");
    }
}
