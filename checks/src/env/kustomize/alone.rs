//! Patches of a kustomization that was not built, as documents of their own: they say less than what is deployed, and
//! more than nothing.

use std::rc::Rc;

use super::super::find::Document;
use super::super::patch;
use super::super::selection::embedded_all;
use super::super::yaml::{Limits, Node, Value, compose};

/// Patches that stand in a kustomization as text.
pub(super) fn inline_patches(node: &Node) -> Vec<Document> {
    if !matches!(node.text_of(&["kind"]), Some("Kustomization" | "Component")) {
        return Vec::new();
    }
    let mut out = Vec::new();
    for item in node.get("patches").map_or(&[][..], |l| l.items()) {
        let Some(text) = item.get("patch") else { continue };
        for patch in embedded_all(text).0 {
            if patch.is_map() {
                out.push(Document { node: patch, partial: Some("a patch in a kustomization".to_owned()) });
            } else if let Some(node) = skeleton(item, &patch) {
                out.push(Document { node, partial: Some("a JSON patch in a kustomization".to_owned()) });
            }
        }
    }
    out
}

/// An object with nothing but what a JSON patch adds to it: enough to see roles, resources and variables.
fn skeleton(item: &Node, operations: &Node) -> Option<Rc<Node>> {
    let target = item.get("target")?;
    let kind = target.text_of(&["kind"])?;
    let name = target.text_of(&["name"]).unwrap_or("?");
    let text = format!(
        "kind: {kind:?}\nmetadata: {{name: {name:?}}}\nspec: {{template: {{spec: {{containers: [{{name: main, env: [], resources: {{limits: {{}}, requests: {{}}}}}}]}}}}}}\n"
    );
    let mut node = compose(&text, target.span.file, Limits::default()).0.into_iter().next()?;
    node = patch::moved(&node, target.span, false);
    for operation in operations.items() {
        let one = operations.with(Value::List(vec![Rc::clone(operation)]));
        if let Ok(patched) = patch::json(&node, &one) {
            node = patched;
        }
    }
    Some(node)
}
