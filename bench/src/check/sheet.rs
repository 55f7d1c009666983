//! Checks as a person reads them: the conclusion, what to fix first, then the judgements, bad ones first.

use std::fmt::Write as _;

use checks::{Finding, Status};

use super::contract::{Check, Node, Report};
use crate::report::table::findings::push_findings;
use crate::report::table::text::{Paint, Tone, plain, push_wrapped};

/// Columns of a label in front of the conclusion.
const LABEL: usize = 11;

/// The whole report as text, each line ended.
pub(super) fn render(report: &Report, colour: bool, width: usize) -> String {
    let width = width.max(80);
    let paint = Paint::new(colour);
    let mut out = String::new();
    let counts = report.counts;
    let (word, tone) = if counts.fail > 0 {
        ("FAIL", Tone::Bad)
    } else if counts.warn > 0 || report.exit() != crate::exit::Exit::Trusted {
        ("warn", Tone::Doubtful)
    } else {
        ("ok", Tone::Good)
    };
    push_label(&mut out, word, tone, &report.verdict, paint, width);
    if let Some((first, rest)) = report.ranked.split_first() {
        let place = first.place.as_deref().map_or(String::new(), |place| format!(" of {place}"));
        let text = format!("{}{place}: {}", first.name, first.next_step);
        push_label(&mut out, "fix first", Tone::Quiet, &text, paint, width);
        let mut then: Vec<&str> = Vec::new();
        for one in rest.iter().filter(|one| one.status == Status::Fail && one.name != first.name) {
            if !then.contains(&one.name.as_str()) {
                then.push(&one.name);
            }
        }
        if !then.is_empty() {
            push_label(&mut out, "then", Tone::Quiet, &then.join(", "), paint, width);
        }
    }
    let tally = format!(
        "{} ok, {} warn, {} fail, {} unknown, {} skipped",
        counts.ok, counts.warn, counts.fail, counts.unknown, counts.skipped
    );
    push_label(&mut out, "checks", Tone::Quiet, &tally, paint, width);
    push_nodes(&mut out, &report.nodes, paint);
    // In the order in which to mend them.
    let findings: Vec<Finding> = super::rollup::ranked(&report.checks).into_iter().map(as_finding).collect();
    push_findings(&mut out, &findings, paint, width);
    let wanted = |status: Status| report.checks.iter().filter(move |check| check.status == status);
    for (status, word) in [(Status::Ok, "ok"), (Status::Skipped, "skipped")] {
        let mut first = true;
        for check in wanted(status) {
            if std::mem::take(&mut first) {
                out.push('\n');
            }
            let place = check.place.as_deref().map_or(String::new(), |place| format!("{place}: "));
            let _ = write!(out, "{word:<9}");
            push_wrapped(&mut out, &format!("{place}{} [{}]", check.detail, check.name), 9, width);
            if status == Status::Skipped && !check.next_step.is_empty() {
                let _ = write!(out, "{:9}{}", "", paint.text(Tone::Quiet, "next: "));
                push_wrapped(&mut out, &check.next_step, 15, width);
            }
            if check.name == "gpu-nic-distance" && status == Status::Ok {
                for line in &check.evidence {
                    let _ = writeln!(out, "{:9}| {}", "", plain(line));
                }
            }
        }
    }
    out
}

fn push_label(out: &mut String, label: &str, tone: Tone, text: &str, paint: Paint, width: usize) {
    let _ = write!(out, "{}{:gap$}", paint.text(tone, label), "", gap = LABEL.saturating_sub(label.len()));
    push_wrapped(out, text, LABEL, width);
}

/// What the nodes are like, in columns; two of them side by side with their differences marked.
fn push_nodes(out: &mut String, nodes: &[Node], paint: Paint) {
    let Some(first) = nodes.first() else { return };
    let names = first.facts.iter().map(|fact| fact.name.len()).max().unwrap_or(0).max(5);
    let values =
        first.facts.iter().map(|fact| fact.value.chars().count()).max().unwrap_or(0).max(first.place.len());
    let values = values.min(56);
    out.push('\n');
    match nodes.get(1) {
        None => {
            for fact in &first.facts {
                let _ = writeln!(out, "  {:<names$}  {}", fact.name, plain(&fact.value));
            }
        }
        Some(second) => {
            let _ =
                writeln!(out, "  {:<names$}  {:<values$}  {}", "", plain(&first.place), plain(&second.place));
            for fact in &first.facts {
                let other = second.facts.iter().find(|other| other.name == fact.name);
                let other = other.map_or("not known", |other| other.value.as_str());
                let mark = if other == fact.value { " ".to_owned() } else { paint.text(Tone::Doubtful, "!") };
                let _ = writeln!(
                    out,
                    "{mark} {:<names$}  {:<values$}  {}",
                    fact.name,
                    plain(&fact.value),
                    plain(other)
                );
            }
            let _ = writeln!(out, "  (! marks a difference)");
        }
    }
}

fn as_finding(check: &Check) -> Finding {
    let place = check.place.as_deref().map_or(String::new(), |place| format!("{place}: "));
    Finding::new(&check.name, check.status, format!("{place}{}", check.detail))
        .evidence(check.evidence.iter().cloned())
        .next_step(&check.next_step)
        .fix(&check.fix)
}
