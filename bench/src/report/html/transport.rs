//! What carried the bytes. Read from the result's JSON form by name, so that a result without this part, or of another
//! minor version, still has a report.

use maud::{Markup, html};
use serde_json::Value;

use super::super::model::ResultFile;
use crate::proof::paths;

/// Which wire each case took, and the share of every device.
pub(super) fn shares(result: &ResultFile) -> Markup {
    let cases: Vec<Value> =
        list(result, "cases").into_iter().filter(|case| case["transport"].is_object()).collect();
    html! {
        section {
            h2 { "Transport" }
            @if cases.is_empty() { p { "This result does not say which wire carried the bytes." } } @else {
                div.scroll tabindex="0" { table {
                    thead { tr { th { "case" } th { "wire" } th { "side" } th { "device" } th.n { "share of the payload" } } }
                    tbody { @for case in &cases {
                        @let wire = &case["transport"];
                        @let devices = wire["devices"].as_array().cloned().unwrap_or_default();
                        @if devices.is_empty() { tr { td { (text(case, "name")) } td { (text(wire, "class")) } td { "-" } td { "-" } td.n { "-" } } }
                        @for device in &devices { tr {
                            td { (text(case, "name")) } td { (text(wire, "class")) }
                            td { (text(device, "side")) } td { (text(device, "device")) }
                            td.n { (number(device, "share_percent").map_or("not counted".to_owned(), |share| format!("{share:.1} %"))) }
                        } }
                    } }
                } }
                @for case in &cases { @if let Some(doubt) = case["transport"]["doubt"].as_str() { p { (text(case, "name")) ": " (doubt) } } }
            }
        }
    }
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
