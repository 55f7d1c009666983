//! The result as a person reads it in a terminal: the verdict first, then who, then the figures, then the
//! reasons.
//!
//! Plain ASCII. Everything comes from the result file, so that a stored result prints the same again.

mod columns;
mod evidence;
pub(crate) mod findings;
mod kv;
mod limits;
mod nodes;
#[cfg(test)]
mod tests;
pub(crate) mod text;

use std::fmt::Write as _;

use checks::Node;

use super::model::{CaseResult, CaseStatus, GpuUsed, Outcome, Placement, Registration, ResultFile, Sides};
use crate::measure::histogram::{P99_MIN_SAMPLES, P999_MIN_SAMPLES};
use crate::measure::units::{ByteSize, count, time};
use columns::Columns;
pub(crate) use evidence::{evidence, parts};
use findings::push_findings;
use text::{Paint, Tone, plain, push_wrapped};

/// Below this many characters lines are left to the terminal to wrap.
const MIN_WIDTH: usize = 80;

/// The whole result as text, each line ended.
///
/// `width` is in characters and decides how many columns the figures may have; those that do not fit are
/// named below the table. `colour` adds ANSI colours to words that also stand there without.
pub(crate) fn render(result: &ResultFile, colour: bool, width: usize) -> String {
    let width = width.max(MIN_WIDTH);
    let paint = Paint::new(colour);
    let mut out = String::new();
    push_verdict(&mut out, result, paint, width);
    kv::push_headlines(&mut out, result, paint, width);
    push_run(&mut out, result, width);
    nodes::push_nodes(&mut out, &result.nodes, paint);
    let columns = Columns::of(&result.cases, width);
    columns.push_tables(&mut out, &result.cases, paint);
    limits::push_limits(&mut out, &result.cases, width);
    push_reasons(&mut out, result, paint, width);
    push_findings(&mut out, &result.findings, paint, width);
    push_notes(&mut out, result, &columns, paint, width);
    out
}

fn push_verdict(out: &mut String, result: &ResultFile, paint: Paint, width: usize) {
    let verdict = &result.verdict;
    let tone = match verdict.outcome {
        Outcome::Trusted => Tone::Good,
        Outcome::NotTrusted => Tone::Bad,
        Outcome::Inconclusive => Tone::Doubtful,
    };
    let label = verdict.outcome.to_string().to_uppercase();
    push_labelled(out, (&label, tone), &verdict.summary, label.len() + 2, paint, width);
    push_labelled(out, ("  scope", Tone::Quiet), &verdict.scope, 13, paint, width);
    if let Some(fix) = &verdict.first_fix {
        push_labelled(out, ("  fix first", Tone::Quiet), fix, 13, paint, width);
    }
    if !result.run.complete {
        let text = "the run did not finish: only what was measured before its end stands here";
        push_labelled(out, ("  note", Tone::Quiet), text, 13, paint, width);
    }
    out.push('\n');
}

/// A label in its own tone, and a text that is wrapped beside it.
fn push_labelled(
    out: &mut String,
    label: (&str, Tone),
    text: &str,
    indent: usize,
    paint: Paint,
    width: usize,
) {
    let (label, tone) = label;
    let painted = paint.text(tone, label);
    let padding = indent.saturating_sub(label.chars().count());
    out.push_str(&painted);
    out.extend(std::iter::repeat_n(' ', padding));
    push_wrapped(out, text, indent, width);
}

fn push_run(out: &mut String, result: &ResultFile, width: usize) {
    let run = &result.run;
    let line = format!("run {}, started {}, took {}", run.id, run.started_at, time(run.duration_ns));
    push_wrapped(out, &line, 0, width);
    let Sides { initiator, target } = &result.nodes;
    let hosts =
        [initiator, target].map(|node| node.as_ref().map_or(String::new(), |node| plain(&node.hostname)));
    let host_width = hosts.iter().map(|host| host.chars().count()).max().unwrap_or(0);
    let sides = [
        (
            "initiator",
            initiator,
            memory(&result.memory.initiator, &result.placement.initiator),
            &result.registration.initiator,
        ),
        (
            "target",
            target,
            memory(&result.memory.target, &result.placement.target),
            &result.registration.target,
        ),
    ];
    for ((role, node, memory, registration), host) in sides.into_iter().zip(hosts) {
        let Some(node) = node else {
            let _ = writeln!(out, "{role:<11}not heard of");
            continue;
        };
        let _ = write!(out, "{role:<11}{host:<host_width$}  ");
        let facts = side_facts(node, memory.as_deref(), *registration);
        push_wrapped(out, &facts, 13 + host_width, width);
    }
}

/// The memory of a side, with the GPUs that it is on.
fn memory(memory: &Option<String>, placements: &Option<Vec<Placement>>) -> Option<String> {
    let memory = memory.as_ref()?;
    let place = |placement: &Placement| {
        let gpu = placement.gpu.as_ref()?;
        let ports = placement.ports().map_or(String::new(), |ports| format!(" by {}", plain(&ports)));
        Some(format!("{} at {}{ports}", plain(&gpu.name), plain(&gpu.pci)))
    };
    let mut places: Vec<String> = placements.iter().flatten().filter_map(place).collect();
    places.dedup();
    // Of several GPUs the result has the copies.
    let only = placements.iter().flatten().find_map(|p| p.gpu.as_ref()).filter(|_| places.len() == 1);
    let copies =
        only.and_then(GpuUsed::copies).map_or(String::new(), |copies| format!(", {}", plain(&copies)));
    Some(if places.is_empty() {
        memory.clone()
    } else {
        format!("{memory} of {}{copies}", places.join(" and "))
    })
}

fn side_facts(node: &Node, memory: Option<&str>, registration: Option<Registration>) -> String {
    let nixl = node.nixl.as_ref();
    let mut facts = vec![nixl.map_or("no NIXL loaded".to_owned(), checks::NixlIdentity::versions)];
    facts.extend(memory.map(str::to_owned));
    facts.extend(registration.map(|registration| {
        let size = ByteSize::from_bytes(registration.bytes);
        format!("{size} registered in {}", time(registration.ns))
    }));
    facts.join(", ")
}

/// Why cases failed or did not run, with cases of one reason together. What a finding says is left to it.
fn push_reasons(out: &mut String, result: &ResultFile, paint: Paint, width: usize) {
    let told = |reason: &str| result.findings.iter().any(|finding| finding.title.contains(reason));
    let mut reasons: Vec<(CaseStatus, String, Vec<&str>)> = Vec::new();
    for case in result.cases.iter().filter(|case| case.status != CaseStatus::Pass) {
        let reason = case.reason.clone().unwrap_or_else(|| "no reason was recorded".to_owned());
        if case.status == CaseStatus::Fail && told(&reason) {
            continue;
        }
        match reasons.iter_mut().find(|(status, text, _)| *status == case.status && *text == reason) {
            Some((_, _, names)) => names.push(&case.name),
            None => reasons.push((case.status, reason, vec![&case.name])),
        }
    }
    if !reasons.is_empty() {
        out.push('\n');
    }
    for (status, reason, names) in reasons {
        let text = format!("{}: {reason}", some_of(&names));
        push_labelled(out, (status_word(status), status_tone(status)), &text, 9, paint, width);
    }
}

/// The names of a few cases, or the first and the last of many.
fn some_of(names: &[&str]) -> String {
    const LISTED: usize = 6;
    match names {
        [first, .., last] if names.len() > LISTED => format!("{first} to {last} ({} cases)", names.len()),
        few => few.join(", "),
    }
}

fn status_word(status: CaseStatus) -> &'static str {
    match status {
        CaseStatus::Pass => "ok",
        CaseStatus::Fail => "FAIL",
        CaseStatus::NotRun => "not run",
    }
}

fn status_tone(status: CaseStatus) -> Tone {
    match status {
        CaseStatus::Pass => Tone::Good,
        CaseStatus::Fail => Tone::Bad,
        CaseStatus::NotRun => Tone::Doubtful,
    }
}

/// What a reader of the figures must know, each thing once.
fn push_notes(out: &mut String, result: &ResultFile, columns: &Columns, paint: Paint, width: usize) {
    if result.cases.iter().all(|case| case.status == CaseStatus::NotRun) {
        return;
    }
    out.push('\n');
    for note in notes(result, columns) {
        out.push_str(&paint.text(Tone::Quiet, "*"));
        out.push(' ');
        push_wrapped(out, &note, 2, width);
    }
}

fn notes(result: &ResultFile, columns: &Columns) -> Vec<String> {
    let mut notes = vec![formula_note(&result.cases)];
    let passed = || result.cases.iter().filter(|case| case.status == CaseStatus::Pass);
    let few = passed().filter(|case| case.total.as_ref().is_some_and(|total| total.p999.is_none())).count();
    if few > 0 {
        notes.push(format!(
            "-: p99 needs {} samples and p99.9 needs {}; {few} of {} cases had fewer",
            count(P99_MIN_SAMPLES),
            count(P999_MIN_SAMPLES),
            result.cases.len()
        ));
    }
    if passed().any(|case| case.bandwidth_bytes_per_s.is_none()) {
        notes.push("-: no bandwidth is given for data that was not verified".to_owned());
    }
    if result.cases.iter().any(|case| case.status == CaseStatus::Fail) {
        notes.push(
            "-: a failed case has no figures: they would be of something else than what was asked for"
                .to_owned(),
        );
    }
    notes.extend(columns.hidden_note());
    notes.extend(merge_notes(&result.cases));
    notes.extend(kv::notes(result));
    notes
}

fn formula_note(cases: &[CaseResult]) -> String {
    let prep = if cases.iter().any(|case| case.prep.is_some()) { "prep + " } else { "" };
    format!(
        "GB/s: 1e9 payload bytes per second of the timed loop, Gb/s the same in bits; \
         total = {prep}post + wire; cold: the first transfer"
    )
}

/// Cases in which NIXL posted another number of descriptors than was asked for.
fn merge_notes(cases: &[CaseResult]) -> Option<String> {
    let merged = cases.iter().filter_map(|case| {
        let posted = case.descriptors.posted?;
        let requested = case.descriptors.requested;
        (posted != requested).then(|| format!("{} ({} as {})", case.name, count(requested), count(posted)))
    });
    let merged: Vec<String> = merged.collect();
    (!merged.is_empty()).then(|| format!("descriptors that NIXL merged: {}", merged.join(", ")))
}
