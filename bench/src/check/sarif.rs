//! SARIF 2.1.0 (OASIS), as code scanning reads it.

use checks::env::{Report, rule};
use checks::{Finding, Status};
use serde_json::{Value, json};

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// Renders the report.
///
/// # Errors
/// It cannot be written as JSON.
pub(super) fn render(report: &Report) -> serde_json::Result<String> {
    let mut ids: Vec<&str> = report.findings.iter().map(|f| f.id.as_str()).collect();
    ids.extend(report.switched_off.iter().map(|s| s.finding.id.as_str()));
    ids.sort_unstable();
    ids.dedup();
    let rules: Vec<Value> = ids.iter().map(|id| describe(id)).collect();
    let mut results: Vec<Value> = report.findings.iter().filter_map(result).collect();
    results.extend(report.switched_off.iter().filter_map(|off| {
        let mut value = result(&off.finding)?;
        value["suppressions"] = json!([{"kind": "external", "justification": off.by}]);
        Some(value)
    }));
    let sarif = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "kvwire",
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "columnKind": "unicodeCodePoints",
            "results": results,
            "properties": {"verdict": report.verdict},
        }],
    });
    serde_json::to_string_pretty(&sarif).map(|text| text + "\n")
}

fn describe(id: &str) -> Value {
    match rule(id) {
        Some(rule) => json!({
            "id": id,
            "shortDescription": {"text": rule.title},
            "fullDescription": {"text": rule.why},
            "help": {"text": rule.remedy},
        }),
        None => json!({"id": id}),
    }
}

fn result(finding: &Finding) -> Option<Value> {
    let (level, kind) = match finding.status {
        Status::Fail => ("error", "fail"),
        Status::Warn => ("warning", "fail"),
        Status::Unknown => ("none", "open"),
        Status::Ok => ("none", "pass"),
        Status::Skipped => return None,
    };
    let mut text = finding.title.clone();
    if !finding.fix.is_empty() {
        text.push_str("\nfix:\n");
        text.push_str(&finding.fix);
    } else if !finding.next_step.is_empty() {
        text.push_str("\nnext: ");
        text.push_str(&finding.next_step);
    }
    let mut value = json!({
        "ruleId": finding.id,
        "level": level,
        "kind": kind,
        "message": {"text": text},
        "properties": {"workers": finding.workers},
    });
    if let Some(source) = &finding.source {
        let mut region = json!({
            "startLine": source.line,
            "startColumn": source.column.max(1),
            "endLine": source.end_line.max(source.line),
        });
        if source.end_line > source.line || source.end_column > source.column {
            region["endColumn"] = json!(source.end_column.max(1));
        }
        value["locations"] = json!([{"physicalLocation": {
            "artifactLocation": {"uri": uri(&source.file)},
            "region": region,
        }}]);
    }
    Some(value)
}

/// A path as a relative or absolute reference (RFC 3986).
fn uri(path: &str) -> String {
    let path = path.strip_prefix("./").unwrap_or(path);
    let mut out = String::with_capacity(path.len());
    if path.starts_with('/') {
        out.push_str("file://");
    }
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
