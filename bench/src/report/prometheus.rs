//! Prometheus text exposition, for the textfile folder of a node exporter or a push gateway. `docs/reports.md` lists
//! the names; they do not change within `kvwire.result/1`.

use std::fmt::Write as _;

use super::csv::status;
use super::model::{CaseResult, CaseStatus, Outcome, PartResult, ResultFile};
use super::read::Stored;
use crate::measure::histogram::Distribution;

/// Names and texts.
type Labels = Vec<(&'static str, String)>;
/// One sample: labels and value.
type Sample = (Labels, f64);

/// One metric family with what it says of a result.
struct Family {
    name: &'static str,
    help: &'static str,
    samples: fn(&ResultFile) -> Vec<Sample>,
}

/// All families. Times are seconds and sizes bytes, as Prometheus wants it.
const FAMILIES: [Family; 15] = [
    Family { name: "kvwire_run_info", help: "Who measured what; always 1.", samples: run_info },
    Family {
        name: "kvwire_run_started_seconds",
        help: "Start of the run, seconds since 1970.",
        samples: |r| vec![(run(r), started(r))],
    },
    Family {
        name: "kvwire_run_duration_seconds",
        help: "Time of the whole run.",
        samples: |r| vec![(run(r), r.run.duration_ns as f64 / 1e9)],
    },
    Family {
        name: "kvwire_verdict",
        help: "1 for the outcome of the run, 0 for the others.",
        samples: verdict,
    },
    Family { name: "kvwire_findings", help: "Findings of the run by status.", samples: findings },
    Family {
        name: "kvwire_case_status",
        help: "1 for how the case ended, 0 for the others.",
        samples: |r| each(r, |c| status_of(c.status)),
    },
    Family {
        name: "kvwire_case_bandwidth_bytes_per_second",
        help: "Payload bytes per second of the timed loop; absent unless the data was verified.",
        samples: |r| {
            each(r, |c| c.bandwidth_bytes_per_s.map(|value| (Vec::new(), value)).into_iter().collect())
        },
    },
    Family {
        name: "kvwire_case_time_seconds",
        help: "Quantiles of the parts of a transfer's time; absent with too few samples.",
        samples: |r| each(r, times),
    },
    Family {
        name: "kvwire_case_cold_seconds",
        help: "The first transfer of the case.",
        samples: |r| each(r, |c| c.cold_ns.map(|ns| (Vec::new(), ns as f64 / 1e9)).into_iter().collect()),
    },
    Family {
        name: "kvwire_case_payload_bytes",
        help: "Bytes moved in the timed loop.",
        samples: |r| each(r, |c| vec![(Vec::new(), c.payload_bytes as f64)]),
    },
    // Names of their own: a sum over the cases is not to count the bytes of their ranks again.
    Family {
        name: "kvwire_rank_info",
        help: "Where the payload of a rank lay and what carried it; always 1.",
        samples: |r| each_part(r, part_info),
    },
    Family {
        name: "kvwire_rank_status",
        help: "1 for how the rank's part of the case ended, 0 for the others.",
        samples: |r| each_part(r, |p| status_of(p.status)),
    },
    Family {
        name: "kvwire_rank_bandwidth_bytes_per_second",
        help: "Payload bytes per second of a rank while all of them moved; absent unless its data was verified.",
        samples: |r| {
            each_part(r, |p| p.bandwidth_bytes_per_s.map(|value| (Vec::new(), value)).into_iter().collect())
        },
    },
    Family {
        name: "kvwire_rank_time_seconds",
        help: "Quantiles of the total time of a rank's transfers; absent with too few samples.",
        samples: |r| each_part(r, |p| quantiles("total", p.total.as_ref())),
    },
    Family {
        name: "kvwire_rank_payload_bytes",
        help: "Bytes that a rank moved in the timed loop.",
        samples: |r| each_part(r, |p| vec![(Vec::new(), p.payload_bytes as f64)]),
    },
];

/// All families of all results.
pub(super) fn render(results: &[Stored]) -> String {
    let mut out = String::new();
    for family in FAMILIES {
        let samples: Vec<Sample> =
            results.iter().flat_map(|stored| (family.samples)(&stored.result)).collect();
        let _ = writeln!(out, "# HELP {} {}\n# TYPE {0} gauge", family.name, family.help);
        for (labels, value) in samples {
            let labels: Vec<String> =
                labels.iter().map(|(name, text)| format!("{name}=\"{}\"", escaped(text))).collect();
            let _ = writeln!(out, "{}{{{}}} {value}", family.name, labels.join(","));
        }
    }
    out
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn run(result: &ResultFile) -> Labels {
    vec![("run", result.run.id.clone())]
}

fn started(result: &ResultFile) -> f64 {
    humantime::parse_rfc3339(&result.run.started_at)
        .ok()
        .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok())
        .map_or(0.0, |since| since.as_secs_f64())
}

fn run_info(result: &ResultFile) -> Vec<Sample> {
    let host =
        |node: &Option<checks::Node>| node.as_ref().map_or(String::new(), |node| node.hostname.clone());
    let node = result.nodes.initiator.as_ref();
    let software = node.and_then(|node| node.nixl.as_ref());
    let mut labels = run(result);
    labels.push(("initiator", host(&result.nodes.initiator)));
    labels.push(("target", host(&result.nodes.target)));
    labels.push(("kvwire", node.map_or(String::new(), |node| node.kvwire.clone())));
    labels.push(("nixl", software.and_then(|nixl| nixl.version.clone()).unwrap_or_default()));
    labels.push(("ucx", software.and_then(|nixl| nixl.ucx_version.clone()).unwrap_or_default()));
    labels.push(("scope", result.verdict.scope.clone()));
    vec![(labels, 1.0)]
}

fn verdict(result: &ResultFile) -> Vec<Sample> {
    let outcomes = [
        (Outcome::Trusted, "trusted"),
        (Outcome::NotTrusted, "not_trusted"),
        (Outcome::Inconclusive, "inconclusive"),
    ];
    let one = |(outcome, word): (Outcome, &str)| {
        let mut labels = run(result);
        labels.push(("outcome", word.to_owned()));
        (labels, f64::from(u8::from(result.verdict.outcome == outcome)))
    };
    outcomes.map(one).into_iter().collect()
}

fn findings(result: &ResultFile) -> Vec<Sample> {
    use checks::Status::{Fail, Ok, Skipped, Unknown, Warn};
    let all = [(Ok, "ok"), (Warn, "warn"), (Fail, "fail"), (Skipped, "skipped"), (Unknown, "unknown")];
    let one = |(status, word): (checks::Status, &str)| {
        let mut labels = run(result);
        labels.push(("status", word.to_owned()));
        (labels, result.findings.iter().filter(|finding| finding.status == status).count() as f64)
    };
    all.map(one).into_iter().collect()
}

fn labels_of(result: &ResultFile, case: &CaseResult) -> Labels {
    let mut labels = run(result);
    labels.push(("case", case.name.clone()));
    labels.push(("op", case.op.to_string()));
    labels.push(("shape", case.shape.clone()));
    labels.push(("block_bytes", case.block_bytes.to_string()));
    labels.push(("batch", case.batch.to_string()));
    labels.push(("depth", case.depth.to_string()));
    labels
}

fn behind(labels: &Labels, samples: Vec<Sample>) -> Vec<Sample> {
    samples.into_iter().map(|(more, value)| ([labels.clone(), more].concat(), value)).collect()
}

/// Samples of every case, each with the labels of its case in front.
fn each(result: &ResultFile, of: impl Fn(&CaseResult) -> Vec<Sample>) -> Vec<Sample> {
    result.cases.iter().flat_map(|case| behind(&labels_of(result, case), of(case))).collect()
}

/// Samples of every rank and direction, each with the labels of its case and its own in front.
fn each_part(result: &ResultFile, of: impl Fn(&PartResult) -> Vec<Sample>) -> Vec<Sample> {
    let with_part = |case: &CaseResult, part: &PartResult| {
        let mut labels = labels_of(result, case);
        labels.push(("rank", part.rank.to_string()));
        labels.push(("target_rank", part.target_rank.to_string()));
        labels.push(("direction", part.op.to_string()));
        behind(&labels, of(part))
    };
    let parts = result.cases.iter().flat_map(|case| case.parts.iter().map(move |part| (case, part)));
    parts.flat_map(|(case, part)| with_part(case, part)).collect()
}

fn part_info(part: &PartResult) -> Vec<Sample> {
    let gpu = |gpu: &Option<String>| gpu.clone().unwrap_or_default();
    let transport = part.transport.as_ref();
    let labels = vec![
        ("initiator_gpu", gpu(&part.gpu)),
        ("target_gpu", gpu(&part.target_gpu)),
        ("carried_by", transport.map_or("unknown".to_owned(), crate::proof::wire)),
        ("doubt", transport.and_then(|transport| transport.doubt.clone()).unwrap_or_default()),
    ];
    vec![(labels, 1.0)]
}

fn status_of(ended: CaseStatus) -> Vec<Sample> {
    let one = |is| (vec![("status", status(is).to_owned())], f64::from(u8::from(ended == is)));
    [CaseStatus::Pass, CaseStatus::Fail, CaseStatus::NotRun].map(one).into_iter().collect()
}

fn times(case: &CaseResult) -> Vec<Sample> {
    let parts = [("total", &case.total), ("prep", &case.prep), ("post", &case.post), ("wire", &case.wire)];
    parts.into_iter().flat_map(|(part, times)| quantiles(part, times.as_ref())).collect()
}

fn quantiles(part: &str, times: Option<&Distribution>) -> Vec<Sample> {
    let quantiles = times.map_or([const { None }; 4], |d| {
        [("0.5", Some(d.p50)), ("0.9", Some(d.p90)), ("0.99", d.p99), ("0.999", d.p999)].map(Some)
    });
    let sample = |(quantile, ns): (&str, Option<u64>)| {
        let labels = vec![("part", part.to_owned()), ("quantile", quantile.to_owned())];
        Some((labels, ns? as f64 / 1e9))
    };
    quantiles.into_iter().flatten().filter_map(sample).collect()
}

#[cfg(test)]
mod tests {
    use super::super::model::example;
    use super::*;

    fn rendered(result: ResultFile) -> String {
        render(&[Stored { path: std::path::PathBuf::from("r.json"), result }])
    }

    #[test]
    fn every_line_is_a_comment_or_a_sample() {
        let mut result = example::failed();
        result.run.id = "a \"b\"\\\n".to_owned();
        for line in rendered(result).lines() {
            let sample = line.split_once('{').and_then(|(name, rest)| {
                let (labels, value) = rest.rsplit_once("} ")?;
                Some(
                    name.starts_with("kvwire_")
                        && labels.contains("run=\"a \\\"b\\\"\\\\\\n\"")
                        && value.parse::<f64>().is_ok(),
                )
            });
            assert!(line.starts_with("# ") || sample == Some(true), "{line}");
        }
    }

    #[test]
    fn figures_are_in_seconds_and_bytes_and_absent_where_there_are_none() {
        let text = rendered(example::failed());
        assert!(text.contains("kvwire_verdict{run=\"quiet-otter-41\",outcome=\"not_trusted\"} 1"), "{text}");
        let bandwidths = text.lines().filter(|l| l.starts_with("kvwire_case_bandwidth_bytes_per_second{"));
        assert_eq!(bandwidths.count(), 2, "{text}");
        let p50 = text.lines().find(|l| l.contains("part=\"total\",quantile=\"0.5\"")).unwrap();
        let seconds: f64 = p50.rsplit(' ').next().unwrap().parse().unwrap();
        assert!((1e-5..1e-4).contains(&seconds), "{p50}");
    }

    #[test]
    fn ranks_have_series_of_their_own_that_no_sum_over_cases_counts() {
        let text = rendered(example::ranks());
        let values = |name: &str| -> Vec<f64> {
            let lines = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
            lines.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect()
        };
        let (cases, ranks) = (values("kvwire_case_payload_bytes"), values("kvwire_rank_payload_bytes"));
        assert_eq!((cases.len(), ranks.len()), (1, 2));
        assert_eq!(cases[0], ranks[0] + ranks[1]);
        let slow = "rank=\"1\",target_rank=\"1\",direction=\"READ\"";
        assert!(
            text.contains(&format!("{slow},initiator_gpu=\"GPU-b\",target_gpu=\"MIG-d\",carried_by=\"tcp\"")),
            "{text}"
        );
        assert_eq!(values("kvwire_rank_bandwidth_bytes_per_second").len(), 2);
        assert!(!rendered(example::passed()).contains("rank="), "nothing of ranks where there is one");
    }

    #[test]
    fn every_name_is_documented() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reports.md");
        let page = std::fs::read_to_string(path).unwrap();
        for family in FAMILIES {
            assert!(page.contains(&format!("`{}`", family.name)), "{} in docs/reports.md", family.name);
        }
    }
}
