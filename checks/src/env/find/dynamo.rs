//! Dynamo's graphs: v1alpha1 with `services`, v1beta1 with `components`.

use std::rc::Rc;

use super::super::selection::role_of;
use super::super::worker::{Engine, Placed, Role, SharedMemory};
use super::super::yaml::Node;
use super::container::Draft;
use super::placement;

/// `DynamoGraphDeployment`.
pub(super) fn graph(node: &Node, object: &str, drafts: &mut Vec<Draft>) {
    let Some(spec) = node.get("spec") else { return };
    let framework = spec.text_of(&["backendFramework"]);
    let graph_env: Vec<&Rc<Node>> = ["envs", "env"].iter().filter_map(|k| spec.get(k)).collect();
    let first = drafts.len();
    for (key, service) in spec.get("services").map_or(&[][..], |s| s.entries()) {
        one(key.text().unwrap_or("?"), service, object, framework, &graph_env, drafts);
    }
    for component in spec.get("components").map_or(&[][..], |s| s.items()) {
        let name = component.text_of(&["name"]).unwrap_or("?");
        one(name, component, object, framework, &graph_env, drafts);
    }
    // A graph whose workers state no image is a patch on another one.
    for draft in &mut drafts[first..] {
        if draft.container.get("image").is_none() {
            draft.partial = Some("a patch: it states no image".to_owned());
        }
    }
}

/// `DynamoComponentDeployment`: one service on its own.
pub(super) fn component(node: &Node, object: &str, name: &str, drafts: &mut Vec<Draft>) {
    if let Some(spec) = node.get("spec") {
        let framework = spec.text_of(&["backendFramework"]);
        one(name, spec, object, framework, &[], drafts);
    }
}

fn one(
    name: &str,
    service: &Rc<Node>,
    object: &str,
    framework: Option<&str>,
    graph_env: &[&Rc<Node>],
    drafts: &mut Vec<Draft>,
) {
    let pod = service.get("extraPodSpec").or_else(|| service.at(&["podTemplate", "spec"]));
    let containers = pod.and_then(|p| p.get("containers"));
    let listed = containers.map_or(&[][..], |c| c.items());
    let main = pod
        .and_then(|p| p.get("mainContainer"))
        .or_else(|| listed.iter().find(|c| c.text_of(&["name"]) == Some("main")))
        .or_else(|| listed.first());
    let container = main.cloned().unwrap_or_else(|| Node::empty_map(service.span));
    let mut draft = Draft::new(name, object, container);
    draft.span = service.span;
    draft.dynamo = true;
    draft.pod_spec = pod.cloned();
    let annotations = [
        service.at(&["extraPodMetadata", "annotations"]),
        service.at(&["podTemplate", "metadata", "annotations"]),
        service.get("annotations"),
    ];
    draft.annotations.extend(annotations.into_iter().flatten().cloned());
    draft.env.extend(graph_env.iter().map(|list| ("graph env", Rc::clone(list))));
    for key in ["envs", "env"] {
        draft.env.extend(service.get(key).map(|list| ("service env", Rc::clone(list))));
    }
    draft.sources.extend(service.get("envFromSecret").cloned());
    draft.resources.extend(service.get("resources").cloned());
    draft.replicas = service.text_of(&["replicas"]).and_then(|n| n.parse().ok()).unwrap_or(1);
    draft.labels = operator_labels(name, object, service);
    draft.nodes = service.text_of(&["multinode", "nodeCount"]).and_then(|n| n.parse().ok()).unwrap_or(1);
    draft.engine_hint = match framework {
        Some("vllm") => Some(Engine::Vllm),
        Some("sglang") => Some(Engine::Sglang),
        Some("trtllm") => Some(Engine::TensorRtLlm),
        _ => None,
    };
    let size = service.at(&["sharedMemory", "size"]).or_else(|| service.get("sharedMemorySize"));
    draft.shared_memory = match size {
        Some(size) => {
            let text = size.text().unwrap_or("").to_owned();
            Some(SharedMemory::Size(Placed { text, span: size.span }))
        }
        None => Some(SharedMemory::Operator),
    };
    draft.role_hints.extend(stated_role(service));
    drafts.push(draft);
}

/// Labels of a service's pods: its own, and those that the operator adds.
fn operator_labels(name: &str, object: &str, service: &Node) -> Vec<(String, String)> {
    let mut labels = placement::labels(service.get("extraPodMetadata"));
    labels.extend(placement::labels(service.at(&["podTemplate", "metadata"])));
    labels.extend(placement::labels(Some(&service.with(service.value.clone()))));
    let graph = object.rsplit(' ').next().unwrap_or(object);
    let kind = service.text_of(&["componentType"]).or_else(|| service.text_of(&["type"])).unwrap_or("worker");
    let kind = if matches!(kind, "prefill" | "decode") { "worker" } else { kind };
    for (key, value) in [("component", name), ("component-type", kind), ("graph-deployment-name", graph)] {
        labels.push((format!("nvidia.com/dynamo-{key}"), value.to_owned()));
    }
    labels
}

/// The role as the graph states it.
fn stated_role(service: &Node) -> Option<(Role, String)> {
    for key in ["subComponentType", "type", "componentType"] {
        let Some(word) = service.text_of(&[key]) else { continue };
        if let Some(role) = role_of(word) {
            return Some((role, format!("{key}: {word}")));
        }
        if !matches!(word, "worker" | "default" | "main") {
            return Some((Role::NotAWorker, format!("{key}: {word}")));
        }
    }
    None
}
