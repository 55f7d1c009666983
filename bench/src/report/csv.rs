//! The cases as comma-separated values (RFC 4180): one line a case, then one for each rank and direction of it; bytes and
//! ns as they are.

use super::model::{CaseResult, CaseStatus, PartResult};
use super::read::Stored;
use crate::measure::histogram::Distribution;

type Cell = fn(&CaseResult) -> Option<String>;
type CellOfPart = fn(&PartResult) -> Option<String>;

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

/// What only lines of ranks and directions have; empty in the line of their case.
const OF_PART: [(&str, CellOfPart); 5] = [
    ("rank", |p| Some(p.rank.to_string())),
    ("target_rank", |p| Some(p.target_rank.to_string())),
    ("initiator_gpu", |p| p.gpu.clone()),
    ("target_gpu", |p| p.target_gpu.clone()),
    ("began_after_ns", |p| Some(p.began_after_ns.to_string())),
];

/// What carried the bytes of a case, or of a rank and direction.
const OF_WIRE: [(&str, Cell); 2] = [
    ("carried_by", |c| c.transport.as_ref().map(crate::proof::wire)),
    ("doubt", |c| c.transport.as_ref()?.doubt.clone()),
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
    let names = COLUMNS.iter().map(|(name, _)| *name);
    let names =
        names.chain(OF_PART.iter().map(|(name, _)| *name)).chain(OF_WIRE.iter().map(|(name, _)| *name));
    let mut out = ["run", "started_at"].into_iter().chain(names).collect::<Vec<_>>().join(",");
    out.push_str("\r\n");
    for result in results.iter().map(|stored| &stored.result) {
        let run = [result.run.id.clone(), result.run.started_at.clone()];
        let mut push = |case: &CaseResult, part: Option<&PartResult>| {
            let cells = COLUMNS.iter().map(|(_, cell)| cell(case));
            let cells = cells.chain(OF_PART.iter().map(|(_, cell)| part.and_then(cell)));
            let cells = cells.chain(OF_WIRE.iter().map(|(_, cell)| cell(case)));
            let line = run.iter().cloned().chain(cells.map(Option::unwrap_or_default));
            out.push_str(&line.map(|cell| quoted(&cell)).collect::<Vec<_>>().join(","));
            out.push_str("\r\n");
        };
        for case in &result.cases {
            push(case, None);
            case.parts.iter().for_each(|part| push(&case.alone(part), Some(part)));
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
        let commas = COLUMNS.len() + OF_PART.len() + OF_WIRE.len() + 1;
        let lines: Vec<&str> = text.split("\r\n").collect();
        assert_eq!(lines.len(), 6, "{text}");
        assert_eq!(lines[0].matches(',').count(), commas);
        assert_eq!(lines[1].matches(',').count(), commas);
        assert!(lines[2].contains("\"it said \"\"no\"\", twice\nand left\""), "{}", lines[2]);
        assert!(lines[1].contains("WRITE 4 KiB x1,WRITE,uniform,4096,1,1,pass,,"), "{}", lines[1]);
    }

    #[test]
    fn each_rank_has_a_line_below_its_case_that_says_which_it_is() {
        let path = std::path::PathBuf::from("r.json");
        let text = render(&[Stored { path, result: example::ranks() }]);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        let column = |name: &str| lines[0].iter().position(|head| *head == name).unwrap();
        let of = |name: &str| -> Vec<&str> { lines[1..4].iter().map(|line| line[column(name)]).collect() };
        assert_eq!(of("case"), ["READ 4 KiB x1"; 3]);
        assert_eq!(of("rank"), ["", "0", "1"]);
        assert_eq!(of("target_gpu"), ["", "GPU-c", "MIG-d"]);
        assert_eq!(of("carried_by"), ["tcp", "nvlink", "tcp"]);
        assert_eq!(of("post_p50_ns")[1..], ["", ""], "only all together");
        let bytes: Vec<u64> = of("payload_bytes").iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(bytes[0], bytes[1] + bytes[2]);
    }
}
