//! JUnit XML: one test case for each case, and one for the verdict, so that a run without any bad case still fails
//! where the verdict does.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::model::{CaseResult, CaseStatus, Outcome, ResultFile};
use super::read::Stored;

/// All results, one suite each.
///
/// # Errors
/// The XML cannot be written; in words.
pub(super) fn render(results: &[Stored]) -> Result<String, String> {
    let mut report = Report::new("kvwire");
    for stored in results {
        report.add_test_suite(suite(&stored.result));
    }
    report.to_string().map_err(|e| e.to_string())
}

fn suite(result: &ResultFile) -> TestSuite {
    let mut suite = TestSuite::new(format!("kvwire {}", result.run.id));
    suite.add_property(("scope", result.verdict.scope.as_str()));
    suite.set_time(Duration::from_nanos(result.run.duration_ns));
    suite.add_test_case(verdict(result));
    for case in &result.cases {
        let mut row = TestCase::new(case.name.as_str(), outcome(result, case));
        row.set_classname(format!("kvwire.{}.{}", case.shape, case.op));
        row.set_time(Duration::from_nanos(case.wall_ns));
        if !case.parts.is_empty() {
            row.set_system_out(format!("by rank and direction:\n{}", super::table::parts(case).join("\n")));
        }
        suite.add_test_case(row);
    }
    suite
}

fn verdict(result: &ResultFile) -> TestCase {
    let verdict = &result.verdict;
    let mut row = match verdict.outcome {
        Outcome::Trusted => TestCaseStatus::success(),
        Outcome::NotTrusted => TestCaseStatus::non_success(NonSuccessKind::Failure),
        Outcome::Inconclusive => TestCaseStatus::non_success(NonSuccessKind::Error),
    };
    if verdict.outcome != Outcome::Trusted {
        row.set_message(verdict.summary.as_str());
        row.set_type(verdict.outcome.to_string());
        row.set_description(text(&verdict.summary, verdict.first_fix.as_deref()));
    }
    let mut row = TestCase::new("verdict", row);
    row.set_classname("kvwire");
    row
}

fn outcome(result: &ResultFile, case: &CaseResult) -> TestCaseStatus {
    let reason = case.reason.as_deref().unwrap_or("no reason was recorded");
    let mut status = match case.status {
        CaseStatus::Pass => return TestCaseStatus::success(),
        CaseStatus::NotRun => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(reason);
            return status;
        }
        CaseStatus::Fail => TestCaseStatus::non_success(NonSuccessKind::Failure),
    };
    // The finding about this case knows what to do; else the verdict does.
    let finding = result.findings.iter().find(|f| f.title.starts_with(&case.name) && !f.next_step.is_empty());
    let step = finding.map(|f| f.next_step.as_str()).or(result.verdict.first_fix.as_deref());
    status.set_message(reason);
    status.set_type("fail");
    status.set_description(text(reason, step));
    status
}

fn text(reason: &str, step: Option<&str>) -> String {
    match step {
        Some(step) => format!("{reason}\nWhat to do: {step}"),
        None => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::example;
    use super::*;

    fn rendered(result: ResultFile) -> String {
        render(&[Stored { path: std::path::PathBuf::from("r.json"), result }]).unwrap()
    }

    #[test]
    fn every_case_is_a_row_and_the_verdict_is_one() {
        let text = rendered(example::passed());
        assert!(text.contains(r#"tests="5""#) && text.contains(r#"failures="0""#), "{text}");
        assert_eq!(text.matches("<testcase").count(), 5);
        assert!(text.contains(r#"name="READ 4 KiB x1""#), "{text}");
    }

    #[test]
    fn each_rank_stands_in_the_output_of_its_case() {
        let text = rendered(example::ranks());
        let out =
            text.split_once("<system-out>").and_then(|(_, rest)| rest.split_once("</system-out>")).unwrap().0;
        assert_eq!(out.lines().count(), 4, "{out}");
        assert!(out.contains("rank 1 - 1") && out.contains("GPU-b - MIG-d") && out.contains("tcp"), "{out}");
        assert!(out.contains("doubt: counters cannot tell"), "{out}");
        assert!(!rendered(example::passed()).contains("system-out"));
    }

    #[test]
    fn a_failure_says_what_to_do() {
        let text = rendered(example::failed());
        assert!(text.contains("What to do: look at the transport of WRITE 64 KiB x1"), "{text}");
        assert!(text.contains("<skipped message=\"the run ended before it\""), "{text}");
        assert!(text.contains(r#"failures="2""#), "the case and the verdict: {text}");
    }

    #[test]
    fn an_inconclusive_run_is_an_error_though_no_case_failed() {
        let mut result = example::passed();
        result.verdict.outcome = Outcome::Inconclusive;
        assert!(rendered(result).contains(r#"errors="1""#));
    }
}
