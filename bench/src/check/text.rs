//! The report for people.

use std::fmt::Write as _;

use checks::env::{Report, Role, WorkerView};
use checks::{Finding, SourceSpan, Status};

use crate::report::table::text::{Paint, Tone, plain, push_wrapped};

/// Characters that the status word and its gap take.
const INDENT: usize = 9;
/// Characters of a source line that are shown.
const LINE_MAX: usize = 160;

/// Renders the report. With `verbose` also what is as it should be, and each worker's variables.
pub(super) fn render(report: &Report, colour: bool, width: usize, verbose: bool) -> String {
    let paint = Paint::new(colour);
    let mut out = String::new();
    for worker in report.workers.iter().filter(|w| verbose || w.role != Role::NotAWorker) {
        push_worker(&mut out, worker, paint, width, verbose);
    }
    for finding in &report.findings {
        let quiet = matches!(finding.status, Status::Ok | Status::Skipped);
        if !quiet || verbose {
            push_finding(&mut out, finding, report, paint, width);
        }
    }
    push_end(&mut out, report, paint, width);
    out
}

fn push_worker(out: &mut String, worker: &WorkerView, paint: Paint, width: usize, verbose: bool) {
    let (word, tone) = word(worker.status);
    let _ = write!(out, "{}{:gap$}", paint.text(tone, word), "", gap = INDENT.saturating_sub(word.len()));
    let mut line = format!("{} ({}", worker.name, worker.role.word());
    if !worker.role_from.is_empty() {
        let _ = write!(line, ", by {}", worker.role_from);
    }
    let kv = match worker.kv_transfer.as_str() {
        "not stated" => "KV transfer not stated".to_owned(),
        stated => format!("KV by {stated}"),
    };
    let _ = write!(line, ") in {}: {}, {kv}", worker.object, worker.engine.word());
    let fabric = if worker.fabric.is_empty() { "no network device stated" } else { &worker.fabric };
    let _ = write!(line, "; {fabric}");
    if !worker.unseen.is_empty() {
        let _ = write!(line, "; not seen: {}", worker.unseen.join(", "));
    }
    push_wrapped(out, &line, INDENT, width);
    if !verbose {
        return;
    }
    for setting in &worker.env {
        let place = setting.source.as_ref().map_or(String::new(), place);
        let mut line = format!("{}={}  {} {place}", setting.name, setting.value, setting.origin);
        if !setting.overrides.is_empty() {
            let _ = write!(line, ", over {}", setting.overrides.join(" and "));
        }
        let _ = write!(out, "{:INDENT$}", "");
        push_wrapped(out, &line, INDENT, width);
    }
}

fn push_finding(out: &mut String, finding: &Finding, report: &Report, paint: Paint, width: usize) {
    out.push('\n');
    let (word, tone) = word(finding.status);
    let _ = write!(out, "{}{:gap$}", paint.text(tone, word), "", gap = INDENT.saturating_sub(word.len()));
    push_wrapped(out, &format!("{} [{}]", finding.title, finding.id), INDENT, width);
    if let Some(source) = &finding.source {
        push_source(out, source, report, paint);
    }
    if !finding.workers.is_empty() {
        push_part(out, "workers: ", &finding.workers.join(", "), paint, width);
    }
    push_part(out, "", &finding.detail, paint, width);
    for line in &finding.evidence {
        let _ = writeln!(out, "{:INDENT$}{} {}", "", paint.text(Tone::Quiet, "|"), plain(line));
    }
    push_part(out, "why: ", &finding.why, paint, width);
    push_part(out, "next: ", &finding.next_step, paint, width);
    if !finding.fix.is_empty() {
        let _ = writeln!(out, "{:INDENT$}{}", "", paint.text(Tone::Quiet, "fix:"));
        for line in finding.fix.lines() {
            let _ = writeln!(out, "{:INDENT$}  {}", "", plain(line));
        }
    }
}

/// The place, the line, and carets below the part that is meant.
fn push_source(out: &mut String, source: &SourceSpan, report: &Report, paint: Paint) {
    let _ = writeln!(out, "{:INDENT$}{} {}", "", paint.text(Tone::Quiet, "-->"), plain(&place(source)));
    let Some(line) = report.line(&source.file, source.line) else { return };
    let line = plain(line);
    let number = source.line.to_string();
    let bar = paint.text(Tone::Quiet, "|");
    let shown: String = line.chars().take(LINE_MAX).collect();
    let _ = writeln!(out, "{:INDENT$}{number} {bar} {shown}", "");
    let first = source.column.saturating_sub(1) as usize;
    let length = shown.chars().count();
    if first >= length {
        return;
    }
    let last =
        if source.end_line == source.line { source.end_column.saturating_sub(1) as usize } else { length };
    let carets = "^".repeat(last.min(length).saturating_sub(first).max(1));
    let _ = writeln!(
        out,
        "{:INDENT$}{:pad$} {bar} {:first$}{}",
        "",
        "",
        "",
        paint.text(Tone::Bad, &carets),
        pad = number.len()
    );
}

fn push_end(out: &mut String, report: &Report, paint: Paint, width: usize) {
    if !report.switched_off.is_empty() {
        out.push('\n');
        let _ = writeln!(out, "{}", paint.text(Tone::Heading, "switched off:"));
        for off in &report.switched_off {
            let at = off.finding.source.as_ref().map_or(String::new(), |s| format!(" at {}", place(s)));
            let line = format!("{} ({}){at}, by {}", off.finding.id, off.finding.title, off.by);
            let _ = write!(out, "  ");
            push_wrapped(out, &line, 2, width);
        }
    }
    push_unstated(out, report, paint, width);
    let next = report.findings.iter().find(|f| f.id == "static-check-passed");
    let counts = report.counts;
    let _ = writeln!(
        out,
        "\n{} fail, {} warn, {} unknown, {} ok; {} in {}",
        counts.fail,
        counts.warn,
        counts.unknown,
        counts.ok,
        several(report.judged(), "worker"),
        match (report.files, report.processes) {
            (0, pods) if pods > 0 => several(pods, "pod"),
            (files, 0) => several(files, "file"),
            (files, pods) => format!("{} and {}", several(files, "file"), several(pods, "pod")),
        }
    );
    let _ = write!(out, "{} ", paint.text(Tone::Heading, "verdict:"));
    push_wrapped(out, &report.verdict, 9, width);
    if let (0, Some(next)) = (counts.fail, next) {
        let _ = write!(out, "{} ", paint.text(Tone::Heading, "next:"));
        push_wrapped(out, &next.next_step, 6, width);
    }
}

/// The variables that the transport rests on and that nothing states: no finding, since the image may set them.
fn push_unstated(out: &mut String, report: &Report, paint: Paint, width: usize) {
    let check = report.checks.iter().find(|c| c.name == "env:disagg-transport" && c.status != Status::Ok);
    if let Some(check) = check.filter(|_| report.judged() > 0) {
        let (word, tone) = word(check.status);
        let gap = INDENT.saturating_sub(word.len());
        let _ = write!(out, "\n{}{:gap$}", paint.text(tone, word), "");
        push_wrapped(out, &check.detail, INDENT, width);
    }
}

fn several(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

fn place(source: &SourceSpan) -> String {
    format!("{}:{}:{}", source.file, source.line, source.column)
}

fn push_part(out: &mut String, label: &str, text: &str, paint: Paint, width: usize) {
    if text.is_empty() {
        return;
    }
    let _ = write!(out, "{:INDENT$}{}", "", paint.text(Tone::Quiet, label));
    push_wrapped(out, text, INDENT + label.len(), width);
}

fn word(status: Status) -> (&'static str, Tone) {
    match status {
        Status::Fail => ("FAIL", Tone::Bad),
        Status::Warn => ("warn", Tone::Doubtful),
        Status::Unknown => ("unknown", Tone::Doubtful),
        Status::Ok => ("ok", Tone::Good),
        Status::Skipped => ("skipped", Tone::Quiet),
    }
}
