//! Annotations of GitHub Actions: one workflow command a finding.

use std::fmt::Write as _;

use checks::Status;
use checks::env::Report;

/// Renders the report.
pub(super) fn render(report: &Report) -> String {
    let mut out = String::new();
    for finding in &report.findings {
        let level = match finding.status {
            Status::Fail => "error",
            Status::Warn => "warning",
            Status::Unknown => "notice",
            Status::Ok | Status::Skipped => continue,
        };
        let place = finding.source.as_ref().map_or(String::new(), |s| {
            let file = property(&s.file);
            let end = if s.end_line == s.line && s.end_column > s.column {
                format!(",endColumn={}", s.end_column - 1)
            } else {
                String::new()
            };
            format!(" file={file},line={},col={}{end},title={}", s.line, s.column, property(&finding.id))
        });
        let place = if place.is_empty() { format!(" title={}", property(&finding.id)) } else { place };
        let next = if finding.fix.is_empty() { &finding.next_step } else { &finding.fix };
        let mut text = finding.title.clone();
        for part in [&finding.why, next] {
            if !part.is_empty() {
                text.push('\n');
                text.push_str(part);
            }
        }
        let _ = writeln!(out, "::{level}{place}::{}", data(&text));
    }
    // Plain lines are shown in the log as they are.
    let _ = writeln!(out, "{}", data(&report.verdict));
    out
}

/// The escapes of GitHub's runner for the text of a command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// The escapes for a property, which ends at a comma or colon.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
