//! Pods, in everything that has them: workloads of Kubernetes, LeaderWorkerSets, model servers of other operators.

use std::rc::Rc;

use super::super::selection::role_of;
use super::super::worker::Role;
use super::super::yaml::{Node, Value};
use super::container::Draft;
use super::placement;

/// How deep a pod may stand in an object of an unknown kind.
const DEPTH_MAX: u32 = 16;

/// A pod template and what its path says about it.
struct Found {
    spec: Rc<Node>,
    metadata: Option<Rc<Node>>,
    /// Keys on the way: `leaderTemplate`, `decoderConfig`.
    path: Vec<String>,
}

/// Pods of one object that are looked at.
const PODS_MAX: usize = 10_000;

/// Any object that has pods somewhere in it. True when it has more than the limit.
pub(super) fn workload(
    node: &Rc<Node>,
    kind: &str,
    object: &str,
    name: &str,
    drafts: &mut Vec<Draft>,
) -> bool {
    let mut found = Vec::new();
    search(node, &mut Vec::new(), 0, &mut found);
    let is_cut = found.len() >= PODS_MAX;
    let known = matches!(kind, "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" | "LeaderWorkerSet");
    let selects = node.at(&["spec", "selector"]).is_some();
    let replicas = node.text_of(&["spec", "replicas"]).and_then(|n| n.parse().ok()).unwrap_or(1);
    // KServe: what stands beside a prefill part is the decode part.
    let beside_prefill =
        kind.starts_with("LLMInferenceService") && node.at(&["spec", "prefill"]).is_some_and(|p| p.is_map());
    for pod in found {
        let parts: Vec<&str> = pod.path.iter().filter_map(|key| part_of(key)).collect();
        let part = (!parts.is_empty()).then(|| parts.join(" "));
        let nodes = node.text_of(&["spec", "leaderWorkerTemplate", "size"]).and_then(|n| n.parse().ok());
        for container in pod.spec.get("containers").map_or(&[][..], |c| c.items()) {
            let container_name = container.text_of(&["name"]).unwrap_or("?");
            let shown = part.as_ref().map_or_else(|| name.to_owned(), |part| format!("{name} ({part})"));
            let mut draft = Draft::new(&shown, object, Rc::clone(container));
            draft.span = container.span;
            draft.container_name = container_name.to_owned();
            draft.pod_spec = Some(Rc::clone(&pod.spec));
            draft.must_show = true;
            draft.nodes = nodes.unwrap_or(1);
            draft.replicas = replicas;
            draft.labels = placement::labels(pod.metadata.as_ref());
            let labels = [
                pod.metadata.as_ref().and_then(|m| m.at(&["labels", "llm-d.ai/role"])),
                node.at(&["metadata", "labels", "llm-d.ai/role"]),
            ];
            if let Some(word) = labels.into_iter().flatten().find_map(|l| l.text()) {
                draft.label_role = Some((label_role(word), format!("label llm-d.ai/role: {word}")));
            }
            draft.path_role = pod.path.iter().find_map(|key| match key.as_str() {
                "engineConfig" | "engine" => Some((Role::Prefill, "engineConfig".to_owned())),
                "decoderConfig" | "decoder" => Some((Role::Decode, "decoderConfig".to_owned())),
                "prefill" => Some((Role::Prefill, "key prefill".to_owned())),
                "decode" => Some((Role::Decode, "key decode".to_owned())),
                _ => None,
            });
            if draft.path_role.is_none() && beside_prefill {
                draft.path_role = Some((Role::Decode, "spec beside spec.prefill".to_owned()));
            }
            if let Some(annotations) = pod.metadata.as_ref().and_then(|m| m.get("annotations")) {
                draft.annotations.push(Rc::clone(annotations));
            }
            draft.patch =
                container.get("image").is_none() || (known && !selects && kind != "LeaderWorkerSet");
            drafts.push(draft);
        }
    }
    is_cut
}

fn label_role(word: &str) -> Role {
    match word {
        "prefill-decode" | "both" => Role::Both,
        other => role_of(other).unwrap_or(Role::Unknown),
    }
}

fn part_of(key: &str) -> Option<&'static str> {
    match key {
        "leaderTemplate" | "leader" => Some("leader"),
        "workerTemplate" | "worker" => Some("worker"),
        "prefill" => Some("prefill"),
        _ => None,
    }
}

/// Every mapping with a list of containers in it; init containers are not workers.
fn search(node: &Rc<Node>, path: &mut Vec<String>, depth: u32, out: &mut Vec<Found>) {
    if depth > DEPTH_MAX || out.len() >= PODS_MAX {
        return;
    }
    match &node.value {
        Value::Map(entries) => {
            if is_pod(node) {
                out.push(Found { spec: Rc::clone(node), metadata: None, path: path.clone() });
                return;
            }
            for (key, value) in entries {
                let first = out.len();
                path.push(key.text().unwrap_or("").to_owned());
                search(value, path, depth + 1, out);
                path.pop();
                // The metadata of a template stands beside its spec.
                if key.text() == Some("spec") {
                    for found in &mut out[first..] {
                        if found.metadata.is_none() && found.path.len() == path.len() + 1 {
                            found.metadata = node.get("metadata").cloned();
                        }
                    }
                }
            }
            // A single container under `runner`, as some model servers have it.
            if let Some(runner) = node.get("runner").filter(|r| r.is_map()) {
                let list = node.with(Value::List(vec![Rc::clone(runner)]));
                let key = Node::text_at("containers", runner.span);
                let mut entries = entries.clone();
                entries.push((key, list));
                out.push(Found { spec: node.with(Value::Map(entries)), metadata: None, path: path.clone() });
            }
        }
        Value::List(items) => {
            for item in items {
                search(item, path, depth + 1, out);
            }
        }
        Value::Scalar(_) => {}
    }
}

fn is_pod(node: &Node) -> bool {
    let containers = node.get("containers").map_or(&[][..], |c| c.items());
    containers.first().is_some_and(|c| c.is_map())
}
