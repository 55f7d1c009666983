//! One verdict over everything a run found. The worst wins; nothing that did not run can pass.

use checks::{Finding, Status};
use serde::{Deserialize, Serialize};

use crate::exit::Exit;
use crate::proof::wire;
use crate::report::model::{self, CaseStatus, ResultFile, Verdict};

/// How a run came out, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// Everything that was expected ran and was right.
    Trusted,
    /// Something that a judgement needs is missing.
    Inconclusive,
    /// Something is wrong with the data or the transport.
    NotTrusted,
    /// Something is wrong with kvwire itself.
    Internal,
}

impl Outcome {
    /// The exit code that belongs to it.
    pub(crate) fn exit(self) -> Exit {
        match self {
            Self::Trusted => Exit::Trusted,
            Self::Inconclusive => Exit::Inconclusive,
            Self::NotTrusted => Exit::NotTrusted,
            Self::Internal => Exit::Internal,
        }
    }

    /// The conclusion as the result states it. A fault in kvwire says nothing about the wire.
    fn stated(self) -> model::Outcome {
        match self {
            Self::Trusted => model::Outcome::Trusted,
            Self::NotTrusted => model::Outcome::NotTrusted,
            Self::Inconclusive | Self::Internal => model::Outcome::Inconclusive,
        }
    }
}

/// Judges a result. `stopped` is how a run ended that did not come to its end.
pub(crate) fn judge(result: &ResultFile, scope: &str, stopped: Option<Outcome>) -> (Outcome, Verdict) {
    let failed = result.cases.iter().filter(|c| c.status == CaseStatus::Fail).count();
    let missing = result.cases.iter().filter(|c| c.status == CaseStatus::NotRun).count();
    let below = result.findings.iter().any(|f| f.id == "transport-below-expected");
    let unproven = result.findings.iter().any(|f| f.id == "transport-unknown");
    let cases = if failed > 0 || below {
        Outcome::NotTrusted
    } else if missing > 0 || unproven || result.cases.is_empty() {
        Outcome::Inconclusive
    } else {
        Outcome::Trusted
    };
    let outcome = stopped.map_or(cases, |stopped| stopped.max(cases));
    let with = |status: Status| result.findings.iter().find(|f| f.status == status);
    let worst = with(Status::Fail).or_else(|| with(Status::Unknown));
    let summary = match (outcome, worst) {
        (Outcome::Trusted, _) => {
            format!("all {} cases ran and every byte was right{}", result.cases.len(), carriers(result))
        }
        (_, Some(finding)) => finding.title.clone(),
        (_, None) => format!("{missing} of {} cases did not run", result.cases.len()),
    };
    let first_fix = worst.map(|f| f.next_step.clone()).filter(|step| !step.is_empty());
    let first_fix = first_fix.or_else(|| {
        (outcome == Outcome::Inconclusive).then(|| "give the run more time (--total-time)".to_owned())
    });
    let verdict = Verdict {
        outcome: outcome.stated(),
        summary,
        scope: scope.to_owned(),
        first_fix: if outcome == Outcome::Trusted { None } else { first_fix },
        exit_code: outcome.exit().code(),
    };
    (outcome, verdict)
}

/// `, carried by shm`: the wires of all cases.
fn carriers(result: &ResultFile) -> String {
    let mut wires: Vec<String> = Vec::new();
    for transport in result.cases.iter().filter_map(|case| case.transport.as_ref()) {
        let wire = wire(transport);
        if !wires.contains(&wire) {
            wires.push(wire);
        }
    }
    if wires.is_empty() { String::new() } else { format!(", carried by {}", wires.join(" and by ")) }
}

/// The finding for a case whose data was wrong.
pub(crate) fn data_finding(case: &str, reason: &str) -> Finding {
    Finding::new("data-mismatch", Status::Fail, format!("{case}: {reason}")).next_step(
        "do not serve from this pair: find the device or link that carried the bytes, and run again with --verbose",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::example;

    #[test]
    fn a_verdict_is_as_bad_as_the_worst_that_was_found() {
        let with = |status: CaseStatus, stopped| {
            let mut result = example::passed();
            result.findings.clear();
            result.cases[0].status = status;
            judge(&result, "scope", stopped).0
        };
        assert_eq!(with(CaseStatus::Pass, None), Outcome::Trusted);
        assert_eq!(with(CaseStatus::NotRun, None), Outcome::Inconclusive);
        assert_eq!(with(CaseStatus::Fail, None), Outcome::NotTrusted);
        assert_eq!(with(CaseStatus::Pass, Some(Outcome::Inconclusive)), Outcome::Inconclusive);
        assert_eq!(with(CaseStatus::Fail, Some(Outcome::Inconclusive)), Outcome::NotTrusted);
        assert_eq!(with(CaseStatus::NotRun, Some(Outcome::Internal)), Outcome::Internal);
    }

    #[test]
    fn a_run_without_cases_proves_nothing() {
        let mut result = example::passed();
        result.cases.clear();
        assert_eq!(judge(&result, "scope", None).0, Outcome::Inconclusive);
    }

    #[test]
    fn the_summary_and_the_fix_are_those_of_the_first_failure() {
        let mut result = example::passed();
        result.cases[0].status = CaseStatus::Fail;
        result.findings.push(data_finding("READ 4 KiB x1", "zeros"));
        let (_, verdict) = judge(&result, "scope", None);
        assert_eq!(verdict.summary, "READ 4 KiB x1: zeros");
        assert!(verdict.first_fix.is_some());
        assert_eq!(verdict.exit_code, 1);
    }
}
