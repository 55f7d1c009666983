//! Where a pod is to run: by the name of a node, or beside other pods.

use std::rc::Rc;

use super::super::worker::{Neighbour, Placed, Pod};
use super::super::yaml::Node;

/// The label that every node has its own value of.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Reads what a pod's spec says about its place.
pub(super) fn add(spec: &Node, pod: &mut Pod) {
    let by_label = spec.get("nodeSelector").and_then(|selector| selector.get(HOSTNAME));
    let node = spec.get("nodeName").or(by_label);
    pod.node = node.and_then(|n| Some(Placed { text: n.text()?.to_owned(), span: n.span }));
    let Some(affinity) = spec.at(&["affinity", "podAffinity"]) else { return };
    for term in items(affinity, "requiredDuringSchedulingIgnoredDuringExecution") {
        pod.beside.extend(neighbour(term, true));
    }
    for weighted in items(affinity, "preferredDuringSchedulingIgnoredDuringExecution") {
        pod.beside.extend(weighted.get("podAffinityTerm").and_then(|term| neighbour(term, false)));
    }
}

fn items<'a>(node: &'a Node, key: &str) -> &'a [Rc<Node>] {
    node.get(key).map_or(&[][..], |list| list.items())
}

fn neighbour(term: &Rc<Node>, required: bool) -> Option<Neighbour> {
    if term.text_of(&["topologyKey"]) != Some(HOSTNAME) {
        return None;
    }
    let selector = term.get("labelSelector")?;
    let mut labels = Vec::new();
    for (key, value) in selector.get("matchLabels").map_or(&[][..], |l| l.entries()) {
        labels.push((key.text()?.to_owned(), vec![value.text()?.to_owned()]));
    }
    for expression in items(selector, "matchExpressions") {
        let values = items(expression, "values").iter().filter_map(|v| v.text().map(str::to_owned)).collect();
        match expression.text_of(&["operator"]) {
            Some("In" | "Exists") => labels.push((expression.text_of(&["key"])?.to_owned(), values)),
            // What it must not have says nothing about where the other side is.
            _ => return None,
        }
    }
    Some(Neighbour { labels, required, span: term.span })
}

/// The labels of a metadata node.
pub(super) fn labels(metadata: Option<&Rc<Node>>) -> Vec<(String, String)> {
    let entries = metadata.and_then(|m| m.get("labels")).map_or(&[][..], |l| l.entries());
    entries.iter().filter_map(|(k, v)| Some((k.text()?.to_owned(), v.text()?.to_owned()))).collect()
}
