//! What a gate and a calibration print.

use std::fmt::Write as _;
use std::path::Path;

use checks::{Finding, Status};
use serde_json::{Value, json};

use super::calibrate::{Calibrated, Calibration};
use super::check::{Check, CheckOutcome};
use super::compare::{Comparison, Judgement};
use super::judge::Gate;

/// The gate as text: verdict, what got worse, then everything.
pub(super) fn gate(gate: &Gate) -> String {
    let mut out = format!("{}  {}\n", gate.outcome.to_string().to_uppercase(), gate.summary);
    if let Some(fix) = &gate.first_fix {
        let _ = writeln!(out, "  fix first  {fix}");
    }
    push_findings(&mut out, &gate.findings);
    if !gate.comparisons.is_empty() {
        out.push('\n');
        let rows: Vec<[String; 7]> = gate.comparisons.iter().map(comparison_row).collect();
        let head = ["case", "metric", "baseline", "now", "change", "95 % interval", "tolerance"];
        push_table(&mut out, head, &rows);
    }
    if !gate.checks.is_empty() {
        out.push('\n');
        gate.checks.iter().for_each(|check| push_check(&mut out, check));
    }
    out
}

fn push_findings(out: &mut String, findings: &[Finding]) {
    if !findings.is_empty() {
        out.push('\n');
    }
    for finding in findings {
        let word = match finding.status {
            Status::Fail => "FAIL",
            Status::Warn => "note",
            Status::Unknown | Status::Skipped => "unknown",
            Status::Ok => "ok",
        };
        let _ = writeln!(out, "{word:<8}{}", finding.title);
        for line in &finding.evidence {
            let _ = writeln!(out, "        {line}");
        }
    }
}

fn comparison_row(comparison: &Comparison) -> [String; 7] {
    let percent = |share: f64| format!("{:+.1} %", share * 100.0);
    let word = match comparison.judgement {
        Judgement::Worse => " WORSE",
        Judgement::Better => " better",
        Judgement::Unchanged => "",
        Judgement::TooFew => " too few",
        Judgement::Starved => " no CPU",
    };
    let [low, high] = comparison.change_interval;
    [
        comparison.case.clone(),
        comparison.metric.to_string(),
        comparison.metric.show(comparison.baseline),
        comparison.metric.show(comparison.candidate),
        percent(comparison.change),
        format!("{} to {}", percent(low), percent(high)),
        format!("{:.1} %{word}", comparison.tolerance * 100.0),
    ]
}

fn push_table<const N: usize>(out: &mut String, head: [&str; N], rows: &[[String; N]]) {
    let widths: Vec<usize> = (0..N)
        .map(|column| rows.iter().map(|row| row[column].len()).chain([head[column].len()]).max().unwrap_or(0))
        .collect();
    let mut push = |cells: [&str; N]| {
        let line: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(out, "{}", line.join("  ").trim_end());
    };
    push(head);
    for row in rows {
        push(std::array::from_fn(|column| row[column].as_str()));
    }
}

fn push_check(out: &mut String, check: &Check) {
    let word = match check.outcome {
        CheckOutcome::Pass => "ok",
        CheckOutcome::Fail => "FAIL",
        CheckOutcome::Unknown => "unknown",
    };
    let _ = writeln!(out, "{word:<8}{} {}: {}", check.case, check.metric, check.text);
}

/// The calibration as text.
pub(super) fn calibration(calibration: &Calibration, file: Option<&Path>) -> String {
    let mut out = String::new();
    if calibration.too_few.is_empty() {
        let _ = writeln!(out, "CALIBRATED  {} thresholds", calibration.calibrated.len());
    } else {
        let _ = writeln!(out, "INCONCLUSIVE  the data are too few for thresholds to rely on");
        calibration.too_few.iter().for_each(|text| _ = writeln!(out, "  {text}"));
    }
    calibration.notes.iter().for_each(|text| _ = writeln!(out, "note    {text}"));
    match file {
        Some(file) => _ = writeln!(out, "  written to {}", file.display()),
        None => _ = writeln!(out, "  no file was written"),
    }
    out.push('\n');
    let row = |one: &Calibrated| {
        [
            one.case.clone(),
            one.metric.to_string(),
            format!("{:.1} %", one.tolerance * 100.0),
            format!("{:.1} %", one.detectable * 100.0),
            format!("{} x {}", one.runs, one.repetitions),
        ]
    };
    let rows: Vec<[String; 5]> = calibration.calibrated.iter().map(row).collect();
    push_table(&mut out, ["case", "metric", "tolerance", "detectable", "runs x repetitions"], &rows);
    out
}

/// The calibration for `--json`.
pub(super) fn calibration_value(calibration: &Calibration) -> Value {
    json!({
        "schema": "kvwire.calibration/1",
        "calibrated": calibration.calibrated,
        "too_few": calibration.too_few,
        "notes": calibration.notes,
    })
}

/// The thresholds file, with what it rests on.
pub(super) fn thresholds(calibration: &Calibration, results: usize) -> Result<String, String> {
    let mut out = format!(
        "# Thresholds from {results} runs by `kvwire gate calibrate`.\n\
         # tolerance: share that a value may worsen by against the baseline; it lies above the noise of these runs.\n\
         # detectable: the smallest worsening that a gate with it shows with 95 % probability.\n"
    );
    for text in calibration.too_few.iter().chain(&calibration.notes) {
        let _ = writeln!(out, "# {text}");
    }
    out.push('\n');
    out.push_str(&toml::to_string(&calibration.thresholds).map_err(|e| e.to_string())?);
    Ok(out)
}
