//! The judgements below the figures: what, the lines that it rests on, and what to do next.

use std::fmt::Write as _;

use checks::{Finding, Status};

use super::text::{Paint, Tone, plain, push_wrapped};

/// Characters that the status word and its gap take.
const INDENT: usize = 9;

/// Every finding that asks something of the reader.
pub(crate) fn push_findings(out: &mut String, findings: &[Finding], paint: Paint, width: usize) {
    for finding in findings {
        let Some((word, tone)) = word(finding.status) else { continue };
        out.push('\n');
        let _ = write!(out, "{}{:gap$}", paint.text(tone, word), "", gap = INDENT - word.len());
        push_wrapped(out, &format!("{} [{}]", finding.title, finding.id), INDENT, width);
        push_part(out, "", &finding.detail, paint, width);
        for line in &finding.evidence {
            // Log lines stay one line each, so that they can be searched for as they are.
            let _ = writeln!(out, "{:INDENT$}{} {}", "", paint.text(Tone::Quiet, "|"), plain(line));
        }
        push_part(out, "next: ", &finding.next_step, paint, width);
        if !finding.fix.is_empty() {
            let _ = writeln!(out, "{:INDENT$}{}", "", paint.text(Tone::Quiet, "fix:"));
            for line in finding.fix.lines() {
                let _ = writeln!(out, "{:INDENT$}  {}", "", plain(line));
            }
        }
    }
}

fn word(status: Status) -> Option<(&'static str, Tone)> {
    match status {
        Status::Fail => Some(("FAIL", Tone::Bad)),
        Status::Warn => Some(("warn", Tone::Doubtful)),
        Status::Unknown => Some(("unknown", Tone::Doubtful)),
        Status::Ok | Status::Skipped => None,
    }
}

fn push_part(out: &mut String, label: &str, text: &str, paint: Paint, width: usize) {
    if text.is_empty() {
        return;
    }
    let _ = write!(out, "{:INDENT$}{}", "", paint.text(Tone::Quiet, label));
    push_wrapped(out, text, INDENT + label.len(), width);
}
