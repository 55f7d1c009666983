//! What was to be measured, and how to measure it again.

use maud::{Markup, html};
use serde_json::Value;

use super::super::model::ResultFile;
use crate::measure::units::time;

/// The plan, the command that repeats it, and the start-up times.
pub(super) fn plan(result: &ResultFile) -> Markup {
    let plan = serde_json::to_value(&result.plan).unwrap_or_default();
    let fields: Vec<(String, String)> = plan.as_object().map_or_else(Vec::new, |fields| {
        let shown = fields.iter().filter(|(name, _)| *name != "cases");
        shown.flat_map(|(name, value)| rows(&name.replace('_', " "), value)).collect()
    });
    let startup = [("initiator", &result.startup.initiator), ("target", &result.startup.target)];
    html! {
        section {
            h2 { "Plan, and how to repeat it" }
            pre { (command(result)) }
            p.quiet {
                "Recorded by the " (match result.run.recorded_by { crate::report::model::Side::Initiator => "initiator", crate::report::model::Side::Target => "target" })
                "; met at " (if result.rendezvous.place.is_empty() { "no place that was recorded" } else { &result.rendezvous.place }) "."
            }
            details {
                summary { "The plan: " (result.plan.cases.len()) " cases, " (result.plan.repeat) " rounds" }
                table { tbody { @for (name, value) in &fields { tr { th scope="row" { (name) } td { (value) } } } } }
            }
            details {
                summary { "Start-up" }
                @for (role, phases) in startup { @if let Some(phases) = phases {
                    h3 { (role) }
                    table { tbody { @for phase in phases { tr { th scope="row" { (phase.name) } td.n { (time(phase.ns)) } } } } }
                } }
            }
        }
    }
}

/// The command line for a shell, with the seed, without which the data would differ.
fn command(result: &ResultFile) -> String {
    let mut words: Vec<String> = result.run.command_line.iter().map(|word| quoted(word)).collect();
    let seeded = result.run.command_line.iter().any(|word| word.starts_with("--seed"));
    if !seeded {
        words.push(format!("--seed {}", result.plan.seed));
    }
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let simple = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(simple) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// One row for a value, or one for each that it holds.
fn rows(name: &str, value: &Value) -> Vec<(String, String)> {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            fields.iter().map(|(inner, value)| (format!("{name}: {inner}"), plain(value))).collect()
        }
        other => vec![(name.to_owned(), plain(other))],
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Object(fields) if fields.is_empty() => "none".to_owned(),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}
