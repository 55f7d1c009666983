//! The two nodes side by side, differences marked in words and colour.

use std::collections::BTreeMap;

use checks::Node;
use maud::{Markup, html};
use serde_json::Value;

use super::super::model::ResultFile;

/// Rows in which two sides always differ, and which so tell nothing.
const ALWAYS_DIFFERENT: [&str; 2] = ["pid", "namespaces"];
/// Levels of a node's description that get rows of their own.
const DEPTH: usize = 4;

/// Everything that is known of both nodes.
pub(super) fn side_by_side(result: &ResultFile) -> Markup {
    let facts = |node: &Option<Node>, memory: &Option<String>| {
        let mut facts = BTreeMap::new();
        if let Some(node) = node {
            flatten("", &serde_json::to_value(node).unwrap_or_default(), DEPTH, &mut facts);
        }
        facts.extend(memory.clone().map(|memory| ("memory of the payload".to_owned(), memory)));
        facts
    };
    let initiator = facts(&result.nodes.initiator, &result.memory.initiator);
    let target = facts(&result.nodes.target, &result.memory.target);
    let mut names: Vec<&String> = initiator.keys().chain(target.keys()).collect();
    names.sort();
    names.dedup();
    let differs = |name: &str| {
        let (ours, theirs) = (initiator.get(name), target.get(name));
        ours.is_some()
            && theirs.is_some()
            && ours != theirs
            && !ALWAYS_DIFFERENT.iter().any(|one| name.starts_with(one))
    };
    let cell = |facts: &BTreeMap<String, String>, name: &String| {
        facts.get(name).cloned().unwrap_or_else(|| "not known".to_owned())
    };
    html! {
        section {
            h2 { "The two nodes" }
            @if names.is_empty() { p { "Neither side was heard of." } } @else {
                div.scroll tabindex="0" { table.nodes {
                    thead { tr { th { "" } th { "initiator" } th { "target" } th { "" } } }
                    tbody { @for name in names {
                        @let other = differs(name);
                        tr.differs[other] {
                            th scope="row" { (name) } td { (cell(&initiator, name)) } td { (cell(&target, name)) }
                            td { @if other { span.tag.warning { "differs" } } }
                        }
                    } }
                } }
            }
        }
    }
}

/// Every value under its path; lists of plain values in one line.
fn flatten(path: &str, value: &Value, depth: usize, out: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) if depth > 0 => {
            for (name, inner) in fields {
                let name = name.replace('_', " ");
                let path = if path.is_empty() { name } else { format!("{path}: {name}") };
                flatten(&path, inner, depth - 1, out);
            }
        }
        Value::Array(items) if depth > 0 && items.iter().any(Value::is_object) => {
            for (at, inner) in items.iter().enumerate() {
                flatten(&format!("{path} {}", at + 1), inner, depth - 1, out);
            }
        }
        Value::Array(items) => {
            let text = items.iter().map(plain).collect::<Vec<_>>().join(", ");
            out.insert(path.to_owned(), if text.is_empty() { "none".to_owned() } else { text });
        }
        Value::Null => {}
        other => _ = out.insert(path.to_owned(), plain(other)),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
