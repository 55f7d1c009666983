//! Files without a kind: values for a chart, profiles, scenario descriptions. They are no manifests: what they
//! state is looked at, and what becomes of it is unknown.

use std::rc::Rc;

use super::super::launch::Launch;
use super::super::worker::Role;
use super::super::yaml::{Node, Value};
use super::container::{Draft, is_sidecar};

const DEPTH_MAX: u32 = 16;

/// Sections of one document that are looked at.
const SECTIONS_MAX: usize = 10_000;

/// Profiles, values and scenarios. True when there are more than the limit.
pub(super) fn find(node: &Rc<Node>, drafts: &mut Vec<Draft>) -> bool {
    let first = drafts.len();
    let is_profile = node.get("env").is_some_and(|e| e.is_map())
        && (node.get("provider").is_some()
            || node.get("kv_backend").is_some()
            || node.get("device").is_some());
    if is_profile {
        profile(node, drafts);
    } else {
        search(node, &mut Vec::new(), 0, first + SECTIONS_MAX, drafts);
    }
    drafts.len() >= first + SECTIONS_MAX
}

/// `env:` as a mapping, `device:` as resources, `target.match` as roles.
fn profile(node: &Rc<Node>, drafts: &mut Vec<Draft>) {
    let name = node.text_of(&["provider"]).unwrap_or("profile");
    let mut draft = Draft::new(name, &format!("profile {name}"), Rc::clone(node));
    draft.span = node.span;
    draft.env_map.extend(node.get("env").cloned());
    if let Some(device) = node.get("device") {
        let key = Node::text_at("limits", device.span);
        draft.resources.push(device.with(Value::Map(vec![(key, Rc::clone(device))])));
    }
    draft.annotations.extend(node.get("annotations").cloned());
    let roles: Vec<&str> = node
        .at(&["target", "match"])
        .map_or(&[][..], |m| m.items())
        .iter()
        .filter_map(|r| r.text())
        .collect();
    draft.role_hints.push(match roles.as_slice() {
        ["prefill"] => (Role::Prefill, "target.match".to_owned()),
        ["decode"] => (Role::Decode, "target.match".to_owned()),
        [] => (Role::Unknown, String::new()),
        _ => (Role::Both, "target.match".to_owned()),
    });
    draft.backend_hint = node.get("kv_backend").and_then(|n| Some((n.text()?.to_owned(), n.span)));
    draft.partial = Some("a profile: it is merged into a recipe".to_owned());
    draft.must_show = false;
    drafts.push(draft);
}

fn search(node: &Rc<Node>, path: &mut Vec<String>, depth: u32, max: usize, drafts: &mut Vec<Draft>) {
    if depth > DEPTH_MAX || drafts.len() >= max {
        return;
    }
    match &node.value {
        Value::Map(entries) => {
            if let Some(draft) = section(node, path) {
                drafts.push(draft);
                return;
            }
            for (key, value) in entries {
                path.push(key.text().unwrap_or("").to_owned());
                search(value, path, depth + 1, max, drafts);
                path.pop();
            }
        }
        Value::List(items) => {
            for item in items {
                search(item, path, depth + 1, max, drafts);
            }
        }
        Value::Scalar(_) => {}
    }
}

/// A mapping that describes one worker: containers under `prefill`, an `env` list with a role, `extraEnvVars`.
fn section(node: &Rc<Node>, path: &[String]) -> Option<Draft> {
    let role = path.iter().rev().find_map(|key| match key.as_str() {
        "prefill" => Some(Role::Prefill),
        "decode" => Some(Role::Decode),
        _ => None,
    });
    let containers = node.get("containers").map_or(&[][..], |c| c.items());
    let stated = ["nixlRole", "kvRole"].iter().find_map(|k| {
        let word = node.text_of(&["lmcacheConfig", k]).or_else(|| node.text_of(&[k]))?;
        match word {
            "sender" | "kv_producer" | "prefill" => Some((Role::Prefill, format!("{k}: {word}"))),
            "receiver" | "kv_consumer" | "decode" => Some((Role::Decode, format!("{k}: {word}"))),
            _ => None,
        }
    });
    let env =
        ["extraEnvVars", "extraEnv", "env", "envs"].iter().find_map(|k| node.get(k).filter(|e| e.is_list()));
    if role.is_none() && stated.is_none() {
        return None;
    }
    let is_worker = |c: &&Rc<Node>| !is_sidecar(c.text_of(&["name"]).unwrap_or(""));
    let container = containers.iter().find(is_worker).or(containers.first()).cloned();
    env.or(container.as_ref())?;
    let name = node.text_of(&["name"]).map_or_else(|| path.join("."), str::to_owned);
    let mut draft = Draft::new(&name, "chart values", container.unwrap_or_else(|| Rc::clone(node)));
    draft.span = node.span;
    if containers.is_empty() {
        draft.env.extend(env.map(|list| ("values env", Rc::clone(list))));
        draft.skip_container_env = true;
    }
    draft.pod_spec = Some(Rc::clone(node));
    draft.resources.extend(node.get("resources").cloned());
    draft.script =
        node.at(&["vllm", "customCommand"]).or_else(|| node.get("customCommand")).map(Launch::from_script);
    draft.security.extend(node.at(&["extraContainerConfig", "securityContext"]).cloned());
    if let Some(stated) = stated {
        draft.role_hints.push(stated);
    }
    draft.path_role = role.map(|role| (role, format!("key {}", role.word())));
    draft.partial =
        Some("values of a chart: render it first (helm template … | kvwire check env -)".to_owned());
    Some(draft)
}
