//! What carried the bytes. Read from the result's JSON form by name, so that a result without this part, or of another
//! minor version, still has a report.

use maud::{Markup, html};
use serde_json::Value;

use super::super::model::ResultFile;
use crate::proof::{Class, paths};

/// Which wire each case took, and the share of every device.
pub(super) fn shares(result: &ResultFile) -> Markup {
    let cases: Vec<(String, Value)> = list(result, "cases").iter().flat_map(carried).collect();
    html! {
        section {
            h2 { "Transport" }
            @if let Some(expected) = &result.expectation {
                p.quiet { "Expected: " (expected.class.map_or("any wire", Class::name)) " (" (expected.why) ")" }
            }
            @if cases.is_empty() { p { "This result does not say which wire carried the bytes." } } @else {
                div.scroll tabindex="0" { table {
                    thead { tr { th { "case" } th { "wire" } th { "side" } th { "device" } th.n { "share of the payload" } } }
                    tbody { @for (name, wire) in &cases {
                        @let devices = wire["devices"].as_array().cloned().unwrap_or_default();
                        @if devices.is_empty() { tr { td { (name) } td { (text(wire, "class")) } td { "-" } td { "-" } td.n { "-" } } }
                        @for device in &devices { tr {
                            td { (name) } td { (text(wire, "class")) }
                            td { (text(device, "side")) } td { (text(device, "device")) }
                            td.n { (number(device, "share_percent").map_or("not counted".to_owned(), |share| format!("{share:.1} %"))) }
                        } }
                    } }
                } }
                @for (name, wire) in &cases { @if let Some(doubt) = wire["doubt"].as_str() { p { (name) ": " (doubt) } } }
            }
        }
    }
}

/// What carried a case; where it has parts, what carried each of them, under names of their own.
fn carried(case: &Value) -> Vec<(String, Value)> {
    let parts = case["parts"].as_array().map_or(&[][..], Vec::as_slice);
    let of_part = |part: &Value| {
        let rank = part["rank"].as_u64().unwrap_or(0);
        (format!("{}, rank {rank} {}", text(case, "name"), text(part, "op")), part["transport"].clone())
    };
    let all = match parts {
        [] => vec![(text(case, "name"), case["transport"].clone())],
        parts => parts.iter().map(of_part).collect(),
    };
    all.into_iter().filter(|(_, transport)| transport.is_object()).collect()
}

/// How near each path came to what it can carry.
pub(super) fn limits(result: &ResultFile) -> Markup {
    let paths = paths(&result.cases);
    html! {
        @if !paths.is_empty() {
            section {
                h2 { "What the paths can carry" }
                ul { @for path in &paths { li { (path) } } }
            }
        }
    }
}

/// A list of the result by name; empty when the result has none.
pub(super) fn list(result: &ResultFile, name: &str) -> Vec<Value> {
    let value = serde_json::to_value(result).unwrap_or_default();
    value[name].as_array().cloned().unwrap_or_default()
}

/// A text by name; a dash when there is none.
pub(super) fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or("-").to_owned()
}

/// A number by name.
pub(super) fn number(value: &Value, name: &str) -> Option<f64> {
    value[name].as_f64()
}
