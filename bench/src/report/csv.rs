//! The cases as comma-separated values (RFC 4180): one line a case, bytes and ns as they are.

use super::model::{CaseResult, CaseStatus};
use super::read::Stored;
use crate::measure::histogram::Distribution;

type Cell = fn(&CaseResult) -> Option<String>;

fn at(distribution: Option<&Distribution>, of: fn(&Distribution) -> Option<u64>) -> Option<String> {
    distribution.and_then(of).map(|ns| ns.to_string())
}

/// Columns after the run's own, with how each is read from a case.
const COLUMNS: [(&str, Cell); 27] = [
    ("case", |c| Some(c.name.clone())),
    ("op", |c| Some(c.op.to_string())),
    ("shape", |c| Some(c.shape.clone())),
    ("block_bytes", |c| Some(c.block_bytes.to_string())),
    ("batch", |c| Some(c.batch.to_string())),
    ("depth", |c| Some(c.depth.to_string())),
    ("status", |c| Some(status(c.status).to_owned())),
    ("reason", |c| c.reason.clone()),
    ("repetitions", |c| Some(c.repetitions.len().to_string())),
    ("transfers", |c| Some(c.transfers.to_string())),
    ("payload_bytes", |c| Some(c.payload_bytes.to_string())),
    ("wall_ns", |c| Some(c.wall_ns.to_string())),
    ("bandwidth_bytes_per_s", |c| c.bandwidth_bytes_per_s.map(|value| value.to_string())),
    ("cold_ns", |c| c.cold_ns.map(|ns| ns.to_string())),
    ("total_min_ns", |c| at(c.total.as_ref(), |d| Some(d.min))),
    ("total_p50_ns", |c| at(c.total.as_ref(), |d| Some(d.p50))),
    ("total_p90_ns", |c| at(c.total.as_ref(), |d| Some(d.p90))),
    ("total_p99_ns", |c| at(c.total.as_ref(), |d| d.p99)),
    ("total_p999_ns", |c| at(c.total.as_ref(), |d| d.p999)),
    ("total_max_ns", |c| at(c.total.as_ref(), |d| Some(d.max))),
    ("prep_p50_ns", |c| at(c.prep.as_ref(), |d| Some(d.p50))),
    ("post_p50_ns", |c| at(c.post.as_ref(), |d| Some(d.p50))),
    ("wire_p50_ns", |c| at(c.wire.as_ref(), |d| Some(d.p50))),
    ("notify_p50_ns", |c| at(c.notify.as_ref(), |d| Some(d.p50))),
    ("descriptors_requested", |c| Some(c.descriptors.requested.to_string())),
    ("descriptors_posted", |c| c.descriptors.posted.map(|n| n.to_string())),
    ("verified_bytes", |c| Some(c.verification.verified_bytes.to_string())),
];

/// How a case ended, as the JSON says it.
pub(super) fn status(status: CaseStatus) -> &'static str {
    match status {
        CaseStatus::Pass => "pass",
        CaseStatus::Fail => "fail",
        CaseStatus::NotRun => "not_run",
    }
}

/// All cases of all results.
pub(super) fn render(results: &[Stored]) -> String {
    let mut out = String::from("run,started_at");
    for (name, _) in COLUMNS {
        out.push(',');
        out.push_str(name);
    }
    out.push_str("\r\n");
    for result in results.iter().map(|stored| &stored.result) {
        for case in &result.cases {
            let cells = COLUMNS.iter().map(|(_, cell)| cell(case).unwrap_or_default());
            let run = [result.run.id.clone(), result.run.started_at.clone()];
            let line: Vec<String> = run.into_iter().chain(cells).map(|cell| quoted(&cell)).collect();
            out.push_str(&line.join(","));
            out.push_str("\r\n");
        }
    }
    out
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::example;
    use super::*;

    #[test]
    fn every_case_is_a_line_of_as_many_cells_as_the_head_has() {
        let mut failed = example::failed();
        failed.cases[1].reason = Some("it said \"no\", twice\nand left".to_owned());
        let path = std::path::PathBuf::from("r.json");
        let text = render(&[Stored { path, result: failed }]);
        let commas = COLUMNS.len() + 1;
        let lines: Vec<&str> = text.split("\r\n").collect();
        assert_eq!(lines.len(), 6, "{text}");
        assert_eq!(lines[0].matches(',').count(), commas);
        assert_eq!(lines[1].matches(',').count(), commas);
        assert!(lines[2].contains("\"it said \"\"no\"\", twice\nand left\""), "{}", lines[2]);
        assert!(lines[1].contains("WRITE 4 KiB x1,WRITE,uniform,4096,1,1,pass,,"), "{}", lines[1]);
    }
}
