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

/// What the rules look at.
struct Facts<'a> {
    result: &'a ResultFile,
    /// How the run ended, when it did not come to its end.
    stopped: Option<Outcome>,
}

impl Facts<'_> {
    fn cases(&self, status: CaseStatus) -> usize {
        self.result.cases.iter().filter(|case| case.status == status).count()
    }

    fn finding(&self, status: Status) -> Option<&Finding> {
        self.result.findings.iter().find(|finding| finding.status == status)
    }

    fn has(&self, ids: &[&str]) -> bool {
        self.result.findings.iter().any(|finding| ids.contains(&finding.id.as_str()))
    }
}

/// One line of the table: when it holds, and what then follows.
struct Rule {
    /// The question, as `docs/verdict.md` shows it.
    #[cfg_attr(not(test), expect(dead_code, reason = "the page is written and held true by a test"))]
    when: &'static str,
    holds: fn(&Facts<'_>) -> bool,
    outcome: Outcome,
    /// The reason where no finding gives one.
    reason: &'static str,
    /// What to do where no finding says it.
    fix: &'static str,
}

/// Findings that say: another wire carried the bytes than the one that was expected.
const WRONG_TRANSPORT: [&str; 1] = ["transport-below-expected"];
/// Findings that say: evidence is missing without which nothing can be trusted.
const EVIDENCE_MISSING: [&str; 1] = ["transport-unknown"];

const RUN_AGAIN: &str = "mend what the findings name, and run again";

/// All rules. The first that holds decides; the order is from the worst to the best, and what proves a fault comes
/// before what is only missing.
const RULES: [Rule; 11] = [
    Rule {
        when: "kvwire itself failed, or the result could not be written",
        holds: |facts| facts.stopped == Some(Outcome::Internal),
        outcome: Outcome::Internal,
        reason: "something is wrong with kvwire itself",
        fix: "report the fault with the result file",
    },
    Rule {
        when: "a case failed: its data was wrong, late or incomplete, or its transfer failed or stalled",
        holds: |facts| facts.cases(CaseStatus::Fail) > 0,
        outcome: Outcome::NotTrusted,
        reason: "a case failed",
        fix: RUN_AGAIN,
    },
    Rule {
        when: "NIXL or UCX ended the run: an error, a crash or a stall",
        holds: |facts| facts.stopped == Some(Outcome::NotTrusted),
        outcome: Outcome::NotTrusted,
        reason: "NIXL or UCX ended the run",
        fix: RUN_AGAIN,
    },
    Rule {
        when: "a case took another wire than the expected one",
        holds: |facts| facts.has(&WRONG_TRANSPORT),
        outcome: Outcome::NotTrusted,
        reason: "another wire carried the bytes than the expected one",
        fix: RUN_AGAIN,
    },
    Rule {
        when: "a check failed (a node, a manifest, an efficiency below the wanted one) though the run came to its end",
        holds: |facts| facts.stopped.is_none() && facts.finding(Status::Fail).is_some(),
        outcome: Outcome::NotTrusted,
        reason: "a check failed",
        fix: RUN_AGAIN,
    },
    Rule {
        when: "the run was ended from outside: the peer, the rendezvous, NIXL or memory was missing, or it was interrupted",
        holds: |facts| facts.stopped == Some(Outcome::Inconclusive),
        outcome: Outcome::Inconclusive,
        reason: "the run did not come to its end",
        fix: RUN_AGAIN,
    },
    Rule {
        when: "the plan has no case",
        holds: |facts| facts.result.cases.is_empty(),
        outcome: Outcome::Inconclusive,
        reason: "no case was to be measured",
        fix: "give at least one size and one operation",
    },
    Rule {
        when: "an expected case did not run",
        holds: |facts| facts.cases(CaseStatus::NotRun) > 0,
        outcome: Outcome::Inconclusive,
        reason: "expected cases did not run",
        fix: "give the run more time (--total-time)",
    },
    Rule {
        when: "the data of a case was not verified",
        holds: |facts| facts.result.cases.iter().any(|case| case.verification.verified_bytes == 0),
        outcome: Outcome::Inconclusive,
        reason: "the data of a case was not verified",
        fix: RUN_AGAIN,
    },
    Rule {
        when: "it is not known which wire a case took",
        holds: |facts| facts.has(&EVIDENCE_MISSING),
        outcome: Outcome::Inconclusive,
        reason: "it is not known which wire carried the bytes",
        fix: RUN_AGAIN,
    },
    Rule {
        when: "none of these",
        holds: |_| true,
        outcome: Outcome::Trusted,
        reason: "every case ran and every byte was right",
        fix: "",
    },
];

/// Judges a result. `stopped` is how a run ended that did not come to its end.
pub(crate) fn judge(result: &ResultFile, scope: &str, stopped: Option<Outcome>) -> (Outcome, Verdict) {
    let facts = Facts { result, stopped };
    // The last rule always holds.
    let rule = RULES.iter().find(|rule| (rule.holds)(&facts)).unwrap_or(&RULES[RULES.len() - 1]);
    let outcome = rule.outcome;
    let finding = facts.finding(Status::Fail).or_else(|| facts.finding(Status::Unknown));
    let missing = facts.cases(CaseStatus::NotRun);
    let summary = match (outcome, finding) {
        (Outcome::Trusted, _) => {
            let cases = result.cases.len();
            format!("all {cases} cases ran and every byte was right{}{}", carriers(result), fallback(result))
        }
        (_, Some(finding)) => finding.title.clone(),
        (Outcome::Inconclusive, None) if missing > 0 => {
            format!("{missing} of {} cases did not run", result.cases.len())
        }
        (_, None) => rule.reason.to_owned(),
    };
    let step = finding.map(|f| f.next_step.clone()).filter(|step| !step.is_empty());
    let first_fix = (outcome != Outcome::Trusted).then(|| step.unwrap_or_else(|| rule.fix.to_owned()));
    let verdict = Verdict {
        outcome: outcome.stated(),
        summary,
        scope: scope.to_owned(),
        first_fix,
        exit_code: outcome.exit().code(),
    };
    (outcome, verdict)
}

/// That host memory was measured where GPU memory was wished for: nobody must take the one for the other.
fn fallback(result: &ResultFile) -> &'static str {
    let placements = [&result.placement.initiator, &result.placement.target];
    let without =
        placements.into_iter().flatten().flatten().any(|placement| placement.instead_of_gpu.is_some());
    if without { ", IN HOST MEMORY since no GPU could be used" } else { "" }
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

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/verdict.md");
    const BEGIN: &str = "<!-- rules: written by a test -->\n";
    const END: &str = "<!-- end of rules -->\n";

    fn rules_as_markdown() -> String {
        let mut out = String::from("| | when | verdict | exit code |\n|--:|---|---|--:|\n");
        for (number, rule) in (1..).zip(&RULES) {
            let stated = rule.outcome.stated();
            out.push_str(&format!(
                "| {number} | {} | {stated} | {} |\n",
                rule.when,
                rule.outcome.exit().code()
            ));
        }
        out
    }

    #[test]
    fn the_page_shows_the_rules_of_the_code() {
        let page = std::fs::read_to_string(PAGE).unwrap();
        let (before, rest) = page.split_once(BEGIN).unwrap();
        let (shown, after) = rest.split_once(END).unwrap();
        if std::env::var_os("KVWIRE_UPDATE_DOCS").is_some_and(|value| value == "1") {
            std::fs::write(PAGE, format!("{before}{BEGIN}{}{END}{after}", rules_as_markdown())).unwrap();
        } else {
            assert_eq!(shown, rules_as_markdown(), "docs/verdict.md is stale; run `make docs`");
        }
    }

    #[test]
    fn every_rule_decides_where_it_is_the_first_that_holds() {
        type Change = fn(&mut ResultFile);
        let table: [(Option<Outcome>, Change, Outcome); 11] = [
            (Some(Outcome::Internal), |r| r.cases[0].status = CaseStatus::Fail, Outcome::Internal),
            (Some(Outcome::Inconclusive), |r| r.cases[0].status = CaseStatus::Fail, Outcome::NotTrusted),
            (Some(Outcome::NotTrusted), |r| r.cases[0].status = CaseStatus::NotRun, Outcome::NotTrusted),
            (
                Some(Outcome::Inconclusive),
                |r| r.findings.push(Finding::new("transport-below-expected", Status::Fail, "tcp")),
                Outcome::NotTrusted,
            ),
            (None, |r| r.findings.push(Finding::new("memlock", Status::Fail, "64 KiB")), Outcome::NotTrusted),
            (
                Some(Outcome::Inconclusive),
                |r| r.findings.push(Finding::new("peer-lost", Status::Fail, "lost")),
                Outcome::Inconclusive,
            ),
            (None, |r| r.cases.clear(), Outcome::Inconclusive),
            (None, |r| r.cases[3].status = CaseStatus::NotRun, Outcome::Inconclusive),
            (None, |r| r.cases[3].verification.verified_bytes = 0, Outcome::Inconclusive),
            (
                None,
                |r| r.findings.push(Finding::new("transport-unknown", Status::Unknown, "?")),
                Outcome::Inconclusive,
            ),
            (
                None,
                |r| r.findings.push(Finding::new("versions-differ", Status::Warn, "two")),
                Outcome::Trusted,
            ),
        ];
        for (number, ((stopped, change, expected), rule)) in (1..).zip(table.into_iter().zip(&RULES)) {
            let mut result = example::passed();
            change(&mut result);
            let facts = Facts { result: &result, stopped };
            let first = RULES.iter().position(|rule| (rule.holds)(&facts));
            assert_eq!(first, Some(number - 1), "rule {number}: {}", rule.when);
            let (outcome, verdict) = judge(&result, "scope", stopped);
            assert_eq!(outcome, expected, "rule {number}: {}", rule.when);
            assert!(!verdict.summary.is_empty() && verdict.scope == "scope");
            assert_eq!(verdict.first_fix.is_some(), outcome != Outcome::Trusted, "rule {number}");
        }
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
