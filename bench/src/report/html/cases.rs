//! The figures of the cases: charts over size, the table, the distributions, and where the time goes.

use maud::{Markup, html};

use super::super::model::{CaseResult, CaseStatus, ResultFile};
use super::super::read::Stored;
use super::chart::{Series, lines};
use crate::measure::histogram::Distribution;
use crate::measure::units::{ByteSize, count, gigabits_per_s, gigabytes_per_s, microseconds, time};

/// Bandwidth and latency over block size, all results in the same charts.
pub(super) fn over_size(results: &[Stored]) -> Markup {
    let bandwidth = series(results, |case| case.bandwidth_bytes_per_s);
    let p50 = series(results, |case| case.total.as_ref().map(|total| total.p50 as f64));
    let p99 = series(results, |case| case.total.as_ref().and_then(|total| total.p99).map(|ns| ns as f64));
    let size = |bytes: f64| ByteSize::from_bytes(bytes.round() as u64).to_string();
    let in_time = |ns: f64| time(ns.round() as u64);
    html! {
        section {
            h2 { "Bandwidth and latency over size" }
            @if bandwidth.is_empty() && p50.is_empty() { p { "There is no figure: nothing was measured, or nothing passed." } }
            div.charts {
                (lines("Bandwidth, GB/s, over block size", &bandwidth, size, gigabytes_per_s))
                (lines("Median time of a transfer over block size", &p50, size, in_time))
                (lines("99th percentile of the time of a transfer over block size", &p99, size, in_time))
            }
        }
    }
}

/// One line for each result, operation and whatever else varies, over the block size.
fn series(results: &[Stored], of: impl Fn(&CaseResult) -> Option<f64>) -> Vec<Series> {
    let passed = |case: &&CaseResult| case.status == CaseStatus::Pass;
    let all: Vec<&CaseResult> = results.iter().flat_map(|one| &one.result.cases).filter(passed).collect();
    let varies = |of: fn(&CaseResult) -> String| all.iter().any(|case| of(case) != of(all[0]));
    let shapes = varies(|case| case.shape.clone());
    let batches = varies(|case| case.batch.to_string());
    let depths = varies(|case| case.depth.to_string());
    let mut found: Vec<Series> = Vec::new();
    for stored in results {
        for case in stored.result.cases.iter().filter(passed) {
            let Some(value) = of(case).filter(|value| *value > 0.0) else { continue };
            let mut label = vec![case.op.to_string()];
            label.extend(shapes.then(|| case.shape.clone()));
            label.extend(batches.then(|| format!("batch {}", case.batch)));
            label.extend(depths.then(|| format!("depth {}", case.depth)));
            label.extend((results.len() > 1).then(|| format!("({})", stored.result.run.id)));
            let label = label.join(" ");
            let point = (case.block_bytes as f64, value);
            match found.iter_mut().find(|one| one.label == label) {
                Some(one) => one.points.push(point),
                None => found.push(Series { label, style: found.len(), points: vec![point] }),
            }
        }
    }
    found.iter_mut().for_each(|one| one.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    found
}

fn us(distribution: Option<&Distribution>, of: fn(&Distribution) -> Option<u64>) -> String {
    distribution.and_then(of).map_or("-".to_owned(), microseconds)
}

/// How a case, or a part of one, ended: the class of its tag and the word on it.
pub(super) fn ended(status: CaseStatus) -> (&'static str, &'static str) {
    match status {
        CaseStatus::Pass => ("ok", "ok"),
        CaseStatus::Fail => ("fail", "FAIL"),
        CaseStatus::NotRun => ("unknown", "not run"),
    }
}

/// Every case with its figures.
pub(super) fn table(result: &ResultFile) -> Markup {
    html! {
        section {
            h2 { "Cases" }
            div.scroll tabindex="0" {
                table {
                    thead { tr {
                        th { "case" } th { "result" } th.n { "GB/s" } th.n { "Gb/s" } th.n { "p50 us" } th.n { "p90 us" } th.n { "p99 us" }
                        th.n { "p99.9 us" } th.n { "max us" } th.n { "cold us" } th.n { "samples" } th.n { "rounds" }
                    } }
                    tbody { @for case in &result.cases {
                        @let (class, text) = ended(case.status);
                        @let total = case.total.as_ref();
                        tr {
                            td { (case.name) }
                            td { span.tag.(class) { (text) } @if let Some(reason) = &case.reason { " " (reason) } }
                            td.n { (case.bandwidth_bytes_per_s.map_or("-".to_owned(), gigabytes_per_s)) }
                            td.n { (case.bandwidth_bytes_per_s.map_or("-".to_owned(), gigabits_per_s)) }
                            td.n { (us(total, |d| Some(d.p50))) } td.n { (us(total, |d| Some(d.p90))) } td.n { (us(total, |d| d.p99)) }
                            td.n { (us(total, |d| d.p999)) } td.n { (us(total, |d| Some(d.max))) }
                            td.n { (case.cold_ns.map_or("-".to_owned(), microseconds)) }
                            td.n { (count(case.transfers)) } td.n { (case.repetitions.len().max(usize::from(case.transfers > 0))) }
                        }
                    } }
                }
            }
            p.quiet { "A dash: too few samples (p99 needs 1,000 and p99.9 needs 10,000), or no figure because the case did not pass." }
        }
    }
}

/// Bars of a distribution's picture.
const BARS: usize = 48;

/// The shape of every distribution on one common axis.
pub(super) fn distributions(result: &ResultFile) -> Markup {
    let totals: Vec<(&CaseResult, &Distribution)> =
        result.cases.iter().filter_map(|case| Some((case, case.total.as_ref()?))).collect();
    let low = totals.iter().map(|(_, total)| total.min.max(1)).min().unwrap_or(1) as f64;
    let high = totals.iter().map(|(_, total)| total.max).max().unwrap_or(1) as f64 * 1.001;
    html! {
        section {
            h2 { "Latency distributions" }
            @if totals.is_empty() { p { "No transfer was timed." } } @else {
                p.quiet { "Time of a transfer, from " (time(low as u64)) " on the left to " (time(high as u64)) " on the right, in equal ratios; height: share of the transfers." }
                div.scroll tabindex="0" { table {
                    thead { tr { th { "case" } th { "distribution" } th.n { "min us" } th.n { "p50 us" } th.n { "p99 us" } th.n { "max us" } th.n { "deviation us" } } }
                    tbody { @for (case, total) in &totals { tr {
                        td { (case.name) }
                        td { (picture(total, low, high)) }
                        td.n { (microseconds(total.min)) } td.n { (microseconds(total.p50)) }
                        td.n { (total.p99.map_or("-".to_owned(), microseconds)) }
                        td.n { (microseconds(total.max)) } td.n { (microseconds(total.stdev.round() as u64)) }
                    } } }
                } }
            }
        }
    }
}

fn picture(total: &Distribution, low: f64, high: f64) -> Markup {
    let Ok(histogram) = total.decode() else { return html! { "not readable" } };
    let mut bars = [0_u64; BARS];
    for step in histogram.iter_recorded() {
        let share = (step.value_iterated_to().max(1) as f64 / low).ln() / (high / low).ln().max(1e-9);
        let bar = ((share * BARS as f64).max(0.0) as usize).min(BARS - 1);
        bars[bar] += step.count_at_value();
    }
    let most = bars.iter().copied().max().unwrap_or(0).max(1) as f64;
    html! {
        svg.picture viewBox=(format!("0 0 {} 32", BARS * 4)) role="img" aria-label="distribution; its figures stand beside it" {
            @for (at, number) in bars.iter().enumerate().filter(|(_, number)| **number > 0) {
                // The square root keeps a tail of a few transfers visible.
                @let height = ((*number as f64 / most).sqrt() * 30.0).max(1.0);
                rect.bar x=(at * 4) y=(format!("{:.1}", 32.0 - height)) width="3" height=(format!("{height:.1}")) {}
            }
        }
    }
}

/// Mean prep, post and wire of each case as parts of a bar.
pub(super) fn where_the_time_goes(result: &ResultFile) -> Markup {
    let mean = |distribution: &Option<Distribution>| distribution.as_ref().map_or(0.0, |d| d.mean);
    let rows: Vec<(&CaseResult, [f64; 3])> = result
        .cases
        .iter()
        .map(|case| (case, [mean(&case.prep), mean(&case.post), mean(&case.wire)]))
        .filter(|(_, parts)| parts.iter().sum::<f64>() > 0.0)
        .collect();
    html! {
        section {
            h2 { "Where the time goes" }
            @if rows.is_empty() { p { "No transfer was timed." } } @else {
                p.quiet {
                    "Mean time of making the request (prep; a dash when it was made once), of the post call, and on the wire. "
                    span.tag.prep { "prep" } " " span.tag.post { "post" } " " span.tag.wire { "wire" }
                }
                div.scroll tabindex="0" { table {
                    thead { tr { th { "case" } th { "share" } th.n { "prep us" } th.n { "post us" } th.n { "wire us" } } }
                    tbody { @for (case, parts) in &rows { tr {
                        td { (case.name) }
                        td { (stacked(parts)) }
                        @for part in parts { td.n { (if *part > 0.0 { microseconds(part.round() as u64) } else { "-".to_owned() }) } }
                    } } }
                } }
            }
        }
    }
}

fn stacked(parts: &[f64; 3]) -> Markup {
    let sum: f64 = parts.iter().sum();
    let widths = parts.map(|part| part / sum * 192.0);
    let starts = [0.0, widths[0], widths[0] + widths[1]];
    html! {
        svg.picture.low viewBox="0 0 192 14" role="img" aria-label="shares; their figures stand beside it" {
            @for ((width, start), class) in widths.iter().zip(starts).zip(["prep", "post", "wire"]) {
                rect.(class) x=(format!("{start:.1}")) y="0" width=(format!("{width:.1}")) height="14" {}
            }
        }
    }
}

/// What each descriptor costs.
pub(super) fn descriptors(result: &ResultFile) -> Markup {
    let fitted = super::transport::list(result, "descriptor_costs");
    let each = |case: &CaseResult| {
        let total = case.total.as_ref()?.p50;
        Some(total / case.descriptors.posted.unwrap_or(case.descriptors.requested).max(1))
    };
    html! {
        section {
            h2 { "Cost per descriptor" }
            @for cost in &fitted { p {
                (super::transport::text(cost, "op")) ": each descriptor adds "
                (super::transport::number(cost, "ns").map_or("?".to_owned(), |ns| time(ns.round() as u64)))
                @if let Some(bytes) = super::transport::number(cost, "crossover_bytes") { "; the wire takes over from " (count(bytes.round() as u64)) " bytes on" }
            } }
            div.scroll tabindex="0" { table {
                thead { tr { th { "case" } th.n { "requested" } th.n { "posted" } th.n { "p50 us per posted descriptor" } } }
                tbody { @for case in &result.cases { tr {
                    td { (case.name) } td.n { (count(case.descriptors.requested)) }
                    td.n { (case.descriptors.posted.map_or("not known".to_owned(), count)) }
                    td.n { (each(case).map_or("-".to_owned(), microseconds)) }
                } } }
            } }
        }
    }
}
