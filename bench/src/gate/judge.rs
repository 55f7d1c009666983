//! One verdict over all comparisons and checks, with everything that stood in their way.

use checks::{Finding, Status};
use serde::Serialize;

use super::check::{Check, CheckOutcome, check};
use super::compare::{Comparison, Judgement, compare};
use super::same::{Difference, differences};
use super::side::{SideCase, collect};
use super::slowest;
use super::thresholds::Thresholds;
use crate::exit::Exit;
use crate::report::model::{CaseStatus, Outcome};
use crate::report::read::Stored;

/// What the user asked for.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    /// Share that a value may worsen by where no threshold says another one.
    pub(super) tolerance: f64,
    /// Differences between results that are meant.
    pub(super) allowed: &'a [Difference],
    /// Whether an inconclusive gate passes.
    pub(super) allow_inconclusive: bool,
}

/// What a gate says: printed as it is with `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct Gate {
    /// Name and major version of this format: `kvwire.gate/1`.
    pub(crate) schema: &'static str,
    /// The conclusion.
    pub(crate) outcome: Outcome,
    /// The reason in one sentence.
    pub(crate) summary: String,
    /// The first thing to do about it.
    pub(crate) first_fix: Option<String>,
    /// The exit code.
    #[serde(serialize_with = "code")]
    pub(crate) exit: Exit,
    /// Everything that was compared with the baseline.
    pub(crate) comparisons: Vec<Comparison>,
    /// Floors, ceilings and shares of the limit.
    pub(crate) checks: Vec<Check>,
    /// What else a reader should know, and what stood in the way.
    pub(crate) findings: Vec<Finding>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for this signature")]
fn code<S: serde::Serializer>(exit: &Exit, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u8(exit.code())
}

/// Holds the candidate against baseline and thresholds.
pub(super) fn judge(
    baseline: &[Stored],
    candidate: &[Stored],
    thresholds: Option<&Thresholds>,
    asked: &Asked<'_>,
) -> Gate {
    let mut findings = verdicts(baseline, candidate);
    let (old, new) =
        (collect(baseline.iter().map(|one| &one.result)), collect(candidate.iter().map(|one| &one.result)));
    findings.extend(troubles(&new));
    let likeness = likeness(baseline, candidate, asked.allowed);
    let refused = likeness.iter().any(|finding| finding.status == Status::Unknown);
    findings.extend(likeness);
    let mut comparisons = Vec::new();
    if !baseline.is_empty() && !refused {
        comparisons = compare(&old, &new, thresholds, asked.tolerance);
        findings.extend(missing(&old, &new));
        findings.extend(slowest::unseen(&old, &new));
        findings.extend(blind(&comparisons));
        findings.extend(starved(&comparisons));
        if comparisons.is_empty() {
            findings.push(unknown("nothing-compared", "the two sides have no measured case in common"));
        }
    }
    let checks = thresholds.map_or_else(Vec::new, |t| check(&new, t, !baseline.is_empty()));
    findings.extend(checks.iter().filter_map(check_finding));
    let worse = comparisons.iter().filter(|c| c.judgement == Judgement::Worse);
    findings
        .extend(worse.map(|comparison| worse_finding(comparison).evidence(slowest::named(comparison, &new))));
    conclude(comparisons, checks, findings, asked.allow_inconclusive)
}

fn conclude(
    comparisons: Vec<Comparison>,
    checks: Vec<Check>,
    findings: Vec<Finding>,
    allow_inconclusive: bool,
) -> Gate {
    let first = |status| findings.iter().find(|finding| finding.status == status);
    let count = |status| findings.iter().filter(|finding| finding.status == status).count();
    let (outcome, reason, number) = match (first(Status::Fail), first(Status::Unknown)) {
        (Some(finding), _) => (Outcome::NotTrusted, Some(finding), count(Status::Fail)),
        (None, Some(finding)) => (Outcome::Inconclusive, Some(finding), count(Status::Unknown)),
        (None, None) => (Outcome::Trusted, None, 0),
    };
    let summary = match reason {
        Some(finding) if number > 1 => format!("{} (and {} more)", finding.title, number - 1),
        Some(finding) => finding.title.clone(),
        None => passed(&comparisons, &checks),
    };
    let exit = match outcome {
        Outcome::NotTrusted => Exit::NotTrusted,
        Outcome::Inconclusive if !allow_inconclusive => Exit::Inconclusive,
        Outcome::Trusted | Outcome::Inconclusive => Exit::Trusted,
    };
    Gate {
        schema: "kvwire.gate/1",
        outcome,
        summary,
        first_fix: reason.map(|finding| finding.next_step.clone()).filter(|step| !step.is_empty()),
        exit,
        comparisons,
        checks,
        findings,
    }
}

fn passed(comparisons: &[Comparison], checks: &[Check]) -> String {
    let mut parts = Vec::new();
    if !comparisons.is_empty() {
        parts.push(format!("{} comparisons show nothing that got worse", comparisons.len()));
    }
    if !checks.is_empty() {
        parts.push(format!("{} thresholds hold", checks.len()));
    }
    parts.join(" and ")
}

fn unknown(id: &str, title: impl Into<String>) -> Finding {
    Finding::new(id, Status::Unknown, title)
}

/// What the runs concluded about themselves: a gate over a run that is not trusted proves nothing.
fn verdicts(baseline: &[Stored], candidate: &[Stored]) -> Vec<Finding> {
    let say = |stored: &Stored, role: &str, id: &str, fails: bool| {
        let verdict = &stored.result.verdict;
        let text = format!("{role} {} is {}: {}", stored.path.display(), verdict.outcome, verdict.summary);
        let status = match verdict.outcome {
            Outcome::Trusted => return None,
            Outcome::NotTrusted if fails => Status::Fail,
            Outcome::NotTrusted | Outcome::Inconclusive => Status::Unknown,
        };
        Some(Finding::new(id, status, text).next_step(verdict.first_fix.clone().unwrap_or_default()))
    };
    let of_candidate = candidate.iter().filter_map(|one| say(one, "the result", "gate-result-verdict", true));
    let of_baseline = baseline.iter().filter_map(|one| {
        let finding = say(one, "the baseline", "gate-baseline-verdict", false)?;
        Some(finding.next_step("measure the baseline again, until it is trusted"))
    });
    of_candidate.chain(of_baseline).collect()
}

/// Cases of the candidate that did not pass.
fn troubles(cases: &[SideCase]) -> Vec<Finding> {
    let one = |case: &SideCase| {
        let (status, reason) = case.troubles.first()?;
        let (status, word) = match status {
            CaseStatus::Fail => (Status::Fail, "failed"),
            CaseStatus::NotRun => (Status::Unknown, "did not run"),
            CaseStatus::Pass => return None,
        };
        let title = format!("{} {word}: {reason}", case.key.show());
        Some(
            Finding::new("gate-case-missing", status, title)
                .next_step("mend what the case names, and measure again"),
        )
    };
    cases.iter().filter_map(one).collect()
}

/// Cases of the baseline that the candidate does not have.
fn missing(old: &[SideCase], new: &[SideCase]) -> Vec<Finding> {
    let gone = old.iter().filter(|case| !new.iter().any(|other| other.key == case.key));
    gone.map(|case| {
        unknown("gate-case-missing", format!("{} is in the baseline and was not measured", case.key.show()))
            .next_step("measure the cases of the baseline, or make a new baseline")
    })
    .collect()
}

/// Comparisons that could not have seen a change.
fn blind(comparisons: &[Comparison]) -> Option<Finding> {
    let few: Vec<&Comparison> = comparisons.iter().filter(|c| c.judgement == Judgement::TooFew).collect();
    let first = few.first()?;
    let [old, new] = first.repetitions;
    let title = format!(
        "{} of {} comparisons have too few repetitions to show a change ({old} against {new} for {} of {})",
        few.len(),
        comparisons.len(),
        first.metric,
        first.case
    );
    Some(
        unknown("gate-too-few", title)
            .next_step("measure both sides with --repeat 10, or give several results"),
    )
}

/// Changes for the worse that a busy machine may have made.
fn starved(comparisons: &[Comparison]) -> Option<Finding> {
    let all: Vec<&Comparison> = comparisons.iter().filter(|c| c.judgement == Judgement::Starved).collect();
    let first = all.first()?;
    let title = format!(
        "{} of {} comparisons look worse, and the engine lacked a processor far more than in the baseline ({} of {})",
        all.len(),
        comparisons.len(),
        first.metric,
        first.case
    );
    Some(unknown("gate-cpu-contended", title).next_step("measure again with nothing else running beside it"))
}

fn worse_finding(comparison: &Comparison) -> Finding {
    let Comparison {
        case,
        metric,
        baseline,
        candidate,
        change,
        change_interval: [low, high],
        tolerance,
        p,
        ..
    } = comparison;
    let title = format!(
        "{case}: {metric} went from {} to {} ({:+.1} %)",
        metric.show(*baseline),
        metric.show(*candidate),
        change * 100.0
    );
    let evidence = format!(
        "change {:+.1} % to {:+.1} % with 95 % confidence, tolerance {:.1} %, p {p:.2e}",
        low * 100.0,
        high * 100.0,
        tolerance * 100.0
    );
    Finding::new("gate-regression", Status::Fail, title).evidence([evidence]).next_step(
        "look for what changed between the two results: versions and settings are listed with the findings",
    )
}

fn check_finding(check: &Check) -> Option<Finding> {
    let (id, status, step) = match check.outcome {
        CheckOutcome::Pass => return None,
        CheckOutcome::Fail => (
            "gate-threshold",
            Status::Fail,
            "find what slows the case down; its transport and its node checks come first",
        ),
        CheckOutcome::Unknown => (
            "gate-undecided",
            Status::Unknown,
            "measure what the rule is for, or take the rule out of the thresholds",
        ),
    };
    Some(Finding::new(id, status, format!("{} {}: {}", check.case, check.metric, check.text)).next_step(step))
}

/// What differs between baseline and candidate, and whether that forbids the comparison.
fn likeness(baseline: &[Stored], candidate: &[Stored], allowed: &[Difference]) -> Vec<Finding> {
    let Some(reference) = baseline.first().or(candidate.first()) else { return Vec::new() };
    let mut findings: Vec<Finding> = Vec::new();
    for other in baseline.iter().chain(candidate) {
        let found = differences(&reference.result, &other.result);
        for (kind, text) in found.refused {
            let finding = if allowed.contains(&kind) {
                Finding::new("gate-difference", Status::Warn, text)
            } else {
                unknown("gate-not-comparable", text).next_step(accept(kind))
            };
            if !findings.contains(&finding) {
                findings.push(finding);
            }
        }
        for text in found.told {
            let finding = Finding::new("gate-difference", Status::Warn, text);
            if !findings.contains(&finding) {
                findings.push(finding);
            }
        }
    }
    findings
}

fn accept(kind: Difference) -> String {
    let word = match kind {
        Difference::Workload => "workload",
        Difference::Machine => "machine",
    };
    format!("compare results of one {word}, or say that it is meant with --allow-different {word}")
}

/// The first difference that forbids to put results together as runs of one thing.
pub(super) fn unlike(results: &[Stored], allowed: &[Difference]) -> Option<String> {
    let bad = |finding: &Finding| finding.status != Status::Warn;
    let verdicts = verdicts(&[], results);
    let unlike = likeness(results, &[], allowed);
    let finding = verdicts.into_iter().chain(unlike).find(bad)?;
    Some(format!("{}\n  fix: {}", finding.title, finding.next_step))
}

#[cfg(test)]
mod tests;
