//! Markdown, as job summaries of CI systems show it: the verdict, the figures, what changed, and the findings folded
//! away.

use std::fmt::Write as _;

use checks::Status;

use super::compared::{self, Compared};
use super::model::{CaseResult, CaseStatus, Outcome, ResultFile};
use super::read::Stored;
use crate::measure::histogram::Distribution;
use crate::measure::units::{count, gigabits_per_s, gigabytes_per_s, microseconds};
use crate::proof::{Transport, paths, wire};

/// All results, and the first against the others.
pub(super) fn render(results: &[Stored]) -> String {
    let mut out = String::new();
    for stored in results {
        push_result(&mut out, &stored.result);
    }
    for compared in compared::compared(results) {
        push_compared(&mut out, &results[0], &compared);
    }
    out
}

fn push_result(out: &mut String, result: &ResultFile) {
    let verdict = &result.verdict;
    let sign = match verdict.outcome {
        Outcome::Trusted => "✅",
        Outcome::NotTrusted => "❌",
        Outcome::Inconclusive => "❔",
    };
    let _ = writeln!(out, "## {sign} kvwire: {}\n\n{}\n", verdict.outcome, plain(&verdict.summary));
    if let Some(fix) = &verdict.first_fix {
        let _ = writeln!(out, "**Fix first:** {}\n", plain(fix));
    }
    let host = |node: &Option<checks::Node>| {
        node.as_ref().map_or("not heard of".to_owned(), |node| plain(&node.hostname))
    };
    let _ = writeln!(
        out,
        "Scope: {}. Run `{}`, started {}; initiator {}, target {}.\n",
        plain(&verdict.scope),
        plain(&result.run.id),
        plain(&result.run.started_at),
        host(&result.nodes.initiator),
        host(&result.nodes.target)
    );
    out.push_str("| case | result | GB/s | Gb/s | p50 us | p99 us | p99.9 us | max us | samples |\n");
    out.push_str("|---|---|--:|--:|--:|--:|--:|--:|--:|\n");
    result.cases.iter().for_each(|case| push_case(out, case));
    out.push('\n');
    push_parts(out, result);
    let paths = paths(&result.cases);
    paths.iter().for_each(|path| _ = writeln!(out, "- {}", plain(&path.to_string())));
    if !paths.is_empty() {
        out.push('\n');
    }
    push_findings(out, result);
}

fn ended(status: CaseStatus, reason: Option<&str>) -> String {
    match status {
        CaseStatus::Pass => "ok".to_owned(),
        CaseStatus::Fail => format!("**FAIL** {}", plain(reason.unwrap_or_default())),
        CaseStatus::NotRun => format!("not run: {}", plain(reason.unwrap_or_default())),
    }
}

fn push_case(out: &mut String, case: &CaseResult) {
    let status = ended(case.status, case.reason.as_deref());
    let rate = |show: fn(f64) -> String| case.bandwidth_bytes_per_s.map_or("-".to_owned(), show);
    let time = |of: fn(&Distribution) -> Option<u64>| {
        case.total.as_ref().and_then(of).map_or("-".to_owned(), microseconds)
    };
    let _ = writeln!(
        out,
        "| {} | {status} | {} | {} | {} | {} | {} | {} | {} |",
        plain(&case.name),
        rate(gigabytes_per_s),
        rate(gigabits_per_s),
        time(|d| Some(d.p50)),
        time(|d| d.p99),
        time(|d| d.p999),
        time(|d| Some(d.max)),
        count(case.transfers)
    );
}

/// Each rank and direction of the cases that have several, folded away.
fn push_parts(out: &mut String, result: &ResultFile) {
    if result.cases.iter().all(|case| case.parts.is_empty()) {
        return;
    }
    out.push_str("<details><summary>Each rank and direction by itself</summary>\n\n");
    out.push_str("| case | rank | direction | GPUs | result | GB/s | p50 us | carried by |\n");
    out.push_str("|---|---|---|---|---|--:|--:|---|\n");
    for case in &result.cases {
        for part in &case.parts {
            let gpu = |gpu: &Option<String>| gpu.as_deref().map_or("host memory".to_owned(), plain);
            let _ = writeln!(
                out,
                "| {} | {} to {} | {} | {} to {} | {} | {} | {} | {} |",
                plain(&case.name),
                part.rank,
                part.target_rank,
                part.op,
                gpu(&part.gpu),
                gpu(&part.target_gpu),
                ended(part.status, part.reason.as_deref()),
                part.bandwidth_bytes_per_s.map_or("-".to_owned(), gigabytes_per_s),
                part.total.as_ref().map_or("-".to_owned(), |total| microseconds(total.p50)),
                part.transport.as_ref().map_or("-".to_owned(), carried_by)
            );
        }
    }
    out.push_str("\n</details>\n\n");
}

fn carried_by(transport: &Transport) -> String {
    let doubt = transport.doubt.as_ref().map_or(String::new(), |doubt| format!(" (doubt: {doubt})"));
    plain(&format!("{}{doubt}", wire(transport)))
}

fn push_findings(out: &mut String, result: &ResultFile) {
    for finding in &result.findings {
        let word = status_word(finding.status);
        let _ = writeln!(out, "<details><summary>{word}: {}</summary>\n", plain(&finding.title));
        if !finding.detail.is_empty() {
            let _ = writeln!(out, "{}\n", plain(&finding.detail));
        }
        if !finding.evidence.is_empty() {
            out.push_str("<pre>\n");
            finding.evidence.iter().for_each(|line| _ = writeln!(out, "{}", plain(line)));
            out.push_str("</pre>\n\n");
        }
        if !finding.next_step.is_empty() {
            let _ = writeln!(out, "What to do: {}\n", plain(&finding.next_step));
        }
        out.push_str("</details>\n\n");
    }
}

/// A finding's status in a word.
pub(super) fn status_word(status: Status) -> &'static str {
    match status {
        Status::Ok => "ok",
        Status::Warn => "warning",
        Status::Fail => "fail",
        Status::Skipped => "skipped",
        Status::Unknown => "unknown",
    }
}

fn push_compared(out: &mut String, first: &Stored, compared: &Compared<'_>) {
    let Compared { other, differences, comparisons } = compared;
    let _ = writeln!(out, "## `{}` against `{}`\n", plain(&other.result.run.id), plain(&first.result.run.id));
    differences.iter().for_each(|text| _ = writeln!(out, "- differs: {}", plain(text)));
    out.push_str(
        "\n| case | metric | before | now | change (95 % interval) | |\n|---|---|--:|--:|--:|---|\n",
    );
    for one in comparisons {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} |",
            plain(&one.case),
            one.metric,
            one.metric.show(one.baseline),
            one.metric.show(one.candidate),
            compared::change(one),
            compared::word(one.judgement)
        );
    }
    out.push('\n');
}

/// Text from outside as text: no markup, no table cell of its own, no line break.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '|' | '*' | '_' | '`' | '[' | ']' | '\\' | '#' | '!' => {
                let _ = write!(out, "&#{};", u32::from(c));
            }
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::model::example;
    use super::*;

    fn stored(result: ResultFile) -> Stored {
        Stored { path: std::path::PathBuf::from("r.json"), result }
    }

    #[test]
    fn the_verdict_comes_first_and_every_case_is_a_row() {
        let text = render(&[stored(example::failed())]);
        assert!(text.starts_with("## ❌ kvwire: not trusted\n"), "{text}");
        assert!(text.contains("**Fix first:** look at the transport"), "{text}");
        assert_eq!(
            text.lines().filter(|line| line.starts_with("| ") && line.contains("KiB x1 |")).count(),
            3,
            "{text}"
        );
        assert!(text.contains("<details><summary>fail: WRITE 64 KiB x1"), "{text}");
    }

    #[test]
    fn each_rank_is_a_row_of_a_table_of_its_own() {
        let text = render(&[stored(example::ranks())]);
        let row = "| READ 4 KiB x1 | 1 to 1 | READ | GPU-b to MIG-d | ok |";
        let row = text.lines().find(|line| line.starts_with(row)).unwrap();
        assert!(row.ends_with("| tcp (doubt: counters cannot tell) |"), "{row}");
        assert!(!render(&[stored(example::passed())]).contains("by itself"));
    }

    #[test]
    fn text_from_outside_is_no_markup() {
        let mut result = example::passed();
        result.verdict.summary = "a|b <script>x</script>\n# `c`".to_owned();
        let text = render(&[stored(result)]);
        assert!(!text.contains("<script>") && !text.contains("a|b") && !text.contains("\n# "), "{text}");
    }

    #[test]
    fn several_results_are_compared_with_the_first() {
        let text = render(&[stored(example::passed()), stored(example::passed())]);
        assert!(text.contains("too few repetitions") && text.contains("+0.0 %"), "{text}");
    }
}
