//! The result as one HTML file: it loads nothing and runs no script, so that it can be mailed, archived and opened
//! anywhere.
//!
//! Every chart has its figures in a table beside it.

mod cases;
mod chart;
mod nodes;
mod plan;
mod ranks;
mod transport;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::compared::{self, Compared};
use super::markdown::status_word;
use super::model::{Outcome, ResultFile};
use super::read::Stored;
use crate::gate::Judgement;
use crate::measure::units::time;

const STYLE: &str = include_str!("html/style.css");
/// Forbids the page to load anything, whatever a result contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// All results in one page; several are compared with the first.
pub(crate) fn render(results: &[Stored]) -> String {
    let title = results.first().map_or(String::new(), |one| one.result.run.id.clone());
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="color-scheme" content="light dark";
                link rel="icon" href="data:,";
                title { "kvwire " (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    @for stored in results { (verdict(&stored.result)) }
                    @if results.len() > 1 { (comparison(results)) }
                    (cases::over_size(results))
                    @for stored in results { (one(stored, results.len() > 1)) }
                }
                footer { "kvwire " (env!("CARGO_PKG_VERSION")) ". GB/s is 1e9 bytes per second; total = prep + post + wire." }
            }
        }
    };
    page.into_string()
}

fn verdict(result: &ResultFile) -> Markup {
    let verdict = &result.verdict;
    let (class, sign) = match verdict.outcome {
        Outcome::Trusted => ("good", "✓"),
        Outcome::NotTrusted => ("bad", "✗"),
        Outcome::Inconclusive => ("doubt", "?"),
    };
    html! {
        header.verdict.(class) {
            h1 { span aria-hidden="true" { (sign) } " " (verdict.outcome) }
            p.summary { (verdict.summary) }
            @if let Some(fix) = &verdict.first_fix { p.fix { strong { "Fix first: " } (fix) } }
            p.quiet { "Scope: " (verdict.scope) }
            p.quiet {
                "Run " code { (result.run.id) } ", started " (result.run.started_at) ", took " (time(result.run.duration_ns))
                ", exit code " (verdict.exit_code)
                @if !result.run.complete { ". The run did not finish: only what was measured before its end stands here" }
            }
        }
    }
}

/// Everything about one result.
fn one(stored: &Stored, several: bool) -> Markup {
    let result = &stored.result;
    html! {
        @if several { h2.run { "Run " code { (result.run.id) } } }
        (cases::table(result))
        (ranks::by_rank(result))
        (cases::distributions(result))
        (cases::where_the_time_goes(result))
        (cases::descriptors(result))
        (transport::shares(result))
        (transport::limits(result))
        (nodes::side_by_side(result))
        (findings(result))
        (plan::plan(result))
    }
}

fn findings(result: &ResultFile) -> Markup {
    html! {
        section {
            h2 { "Findings" }
            @if result.findings.is_empty() { p { "There are none." } }
            @for finding in &result.findings {
                details.finding {
                    summary { span.tag.(status_word(finding.status)) { (status_word(finding.status)) } " " (finding.title) }
                    p.quiet { code { (finding.id) } }
                    @if !finding.detail.is_empty() { p { (finding.detail) } }
                    @if !finding.evidence.is_empty() { pre { @for line in &finding.evidence { (line) "\n" } } }
                    @if !finding.next_step.is_empty() { p { strong { "What to do: " } (finding.next_step) } }
                }
            }
        }
    }
}

fn comparison(results: &[Stored]) -> Markup {
    html! {
        section {
            h2 { "What changed" }
            @for compared in compared::compared(results) { (against(&results[0], &compared)) }
        }
    }
}

fn against(first: &Stored, compared: &Compared<'_>) -> Markup {
    let Compared { other, differences, comparisons } = compared;
    html! {
        h3 { code { (other.result.run.id) } " against " code { (first.result.run.id) } }
        @if !differences.is_empty() { ul { @for text in differences { li { "differs: " (text) } } } }
        div.scroll tabindex="0" {
            table {
                thead { tr { th { "case" } th { "metric" } th.n { "before" } th.n { "now" } th.n { "change (95 % interval)" } th { "" } } }
                tbody {
                    @for one in comparisons {
                        @let class = match one.judgement { Judgement::Worse => "fail", Judgement::Better => "ok", _ => "" };
                        tr {
                            td { (one.case) } td { (one.metric) }
                            td.n { (one.metric.show(one.baseline)) } td.n { (one.metric.show(one.candidate)) }
                            td.n { (compared::change(one)) }
                            td { span.tag.(class) { (compared::word(one.judgement)) } }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::example;
    use super::*;

    fn page(results: Vec<ResultFile>) -> String {
        let stored = |result| Stored { path: std::path::PathBuf::from("r.json"), result };
        render(&results.into_iter().map(stored).collect::<Vec<_>>())
    }

    #[test]
    fn the_page_is_one_file_that_loads_and_runs_nothing() {
        let text = page(vec![example::passed(), example::failed()]);
        for forbidden in ["<script", "http://", "https://", "@import", "url(", "<iframe", "<img"] {
            assert!(!text.contains(forbidden), "{forbidden}");
        }
    }

    #[test]
    fn text_from_outside_is_no_markup() {
        let mut result = example::failed();
        result.verdict.summary = "<script>alert(1)</script>".to_owned();
        result.nodes.initiator.as_mut().unwrap().hostname = "\"><b>host".to_owned();
        result.findings[0].evidence = vec!["</pre><b>line".to_owned()];
        result.cases[0].name = "<b>case".to_owned();
        let text = page(vec![result]);
        assert!(!text.contains("<script>") && !text.contains("<b>"), "{text}");
    }

    #[test]
    fn every_figure_stands_as_text() {
        let result = example::failed();
        let text = page(vec![result.clone()]);
        for case in &result.cases {
            assert!(text.contains(&case.name), "{}", case.name);
        }
        for part in [
            "not trusted",
            "look at the transport of",
            "decode-0",
            "0.189",
            "the run ended before it",
            "kvwire pair",
        ] {
            assert!(text.contains(part), "{part}");
        }
    }

    #[test]
    fn a_result_without_cases_is_still_a_page() {
        let mut result = example::passed();
        result.cases.clear();
        result.nodes = crate::report::model::Sides::default();
        assert!(page(vec![result]).contains("nothing was measured"));
    }
}
