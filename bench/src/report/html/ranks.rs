//! Each rank and direction of a case by itself: a bar and a row for each, folded below a line that names the slowest.

use maud::{Markup, html};

use super::super::model::{CaseResult, CaseStatus, PartResult, ResultFile};
use super::cases::ended;
use crate::measure::units::{count, gigabytes_per_s, microseconds, time};
use crate::proof::wire;

/// Width of the longest bar.
const BAR: f64 = 120.0;

/// The cases that several ranks, or both directions, moved at once; nothing where there is none.
pub(super) fn by_rank(result: &ResultFile) -> Markup {
    let cases: Vec<&CaseResult> = result.cases.iter().filter(|case| !case.parts.is_empty()).collect();
    html! {
        @if !cases.is_empty() {
            section.ranks {
                h2 { "Each rank by itself" }
                p.quiet { "All of a case moved at the same time; a bar is the share of the fastest one's bandwidth. "
                    "The case above is over all of them." }
                @for case in cases {
                    details { summary { (case.name) ": " (spread(case)) } (table(case)) (doubts(case)) }
                }
            }
        }
    }
}

/// The slowest and the fastest, or how many failed.
fn spread(case: &CaseResult) -> Markup {
    let bad = case.parts.iter().filter(|part| part.status != CaseStatus::Pass).count();
    let rate = |part: &PartResult| part.bandwidth_bytes_per_s.map_or("-".to_owned(), gigabytes_per_s);
    html! {
        @if bad > 0 { (bad) " of " (case.parts.len()) " did not pass" }
        @else if let Some([slowest, fastest]) = case.slowest_and_fastest() {
            "slowest " (case.label(slowest)) " with " (rate(slowest)) " GB/s, fastest "
            (case.label(fastest)) " with " (rate(fastest)) " GB/s"
        } @else { (case.parts.len()) " parts" }
    }
}

fn table(case: &CaseResult) -> Markup {
    let rates = case.parts.iter().filter_map(|part| part.bandwidth_bytes_per_s);
    let most = rates.fold(0.0, f64::max);
    html! {
        div.scroll tabindex="0" {
            table {
                thead { tr {
                    th { "rank" } th { "direction" } th { "result" } th.n { "GB/s" } th { "" } th.n { "p50 us" } th.n { "p99 us" }
                    th.n { "samples" } th.n { "began after" } th { "carried by" } th { "initiator's memory" } th { "target's memory" }
                } }
                tbody { @for part in &case.parts { (row(part, most)) } }
            }
        }
    }
}

fn doubts(case: &CaseResult) -> Markup {
    let doubt = |part: &PartResult| part.transport.as_ref().and_then(|transport| transport.doubt.clone());
    html! {
        @for part in &case.parts { @if let Some(doubt) = doubt(part) { p.quiet { (case.label(part)) ", in doubt: " (doubt) } } }
    }
}

fn row(part: &PartResult, most: f64) -> Markup {
    let (class, text) = ended(part.status);
    let gpu = |gpu: &Option<String>| gpu.clone().unwrap_or_else(|| "host memory".to_owned());
    let p99 = part.total.as_ref().and_then(|total| total.p99);
    html! {
        tr {
            td { (part.rank) " to " (part.target_rank) }
            td { (part.op) }
            td { span.tag.(class) { (text) } @if let Some(reason) = &part.reason { " " (reason) } }
            td.n { (part.bandwidth_bytes_per_s.map_or("-".to_owned(), gigabytes_per_s)) }
            td { @if let Some(rate) = part.bandwidth_bytes_per_s { (bar(rate / most.max(1.0))) } }
            td.n { (part.total.as_ref().map_or("-".to_owned(), |total| microseconds(total.p50))) }
            td.n { (p99.map_or("-".to_owned(), microseconds)) }
            td.n { (count(part.transfers)) }
            td.n { (time(part.began_after_ns)) }
            td.wire {
                @match &part.transport {
                    Some(transport) => {
                        (wire(transport))
                        @if transport.meets_expectation == Some(false) { " " span.tag.fail { "less than expected" } }
                        @if transport.doubt.is_some() { " " span.tag.warning { "doubt" } }
                    }
                    None => "-",
                }
            }
            td.gpu { (gpu(&part.gpu)) }
            td.gpu { (gpu(&part.target_gpu)) }
        }
    }
}

/// A bar of this share of the full width; its figure stands beside it.
fn bar(share: f64) -> Markup {
    let width = (share.clamp(0.0, 1.0) * BAR).max(1.0);
    html! {
        svg.share viewBox=(format!("0 0 {BAR} 12")) aria-hidden="true" {
            rect.track x="0" y="0" width=(BAR) height="12" {}
            rect.bar x="0" y="0" width=(format!("{width:.1}")) height="12" {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::model::example;
    use super::*;

    #[test]
    fn the_slowest_rank_is_named_without_opening_anything() {
        let page = by_rank(&example::ranks()).into_string();
        assert!(page.contains("<summary>READ 4 KiB x1: slowest rank 1 with"), "{page}");
        for text in ["GPU-b", "MIG-d", "nvlink", "counters cannot tell"] {
            assert!(page.contains(text), "{text}: {page}");
        }
        assert_eq!(page.matches("<svg").count(), 2);
        assert!(page.contains("width=\"120.0\""), "the fastest has a whole bar: {page}");
        assert!(by_rank(&example::passed()).into_string().is_empty());
    }

    #[test]
    fn a_rank_that_failed_is_told_before_any_speed() {
        let mut result = example::ranks();
        let part = &mut result.cases[0].parts[1];
        (part.status, part.bandwidth_bytes_per_s) = (CaseStatus::Fail, None);
        part.reason = Some("zeros".to_owned());
        let page = by_rank(&result).into_string();
        assert!(page.contains("1 of 2 did not pass") && page.contains("zeros"), "{page}");
    }
}
