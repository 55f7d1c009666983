//! Patches on trees: strategic merge as Kubernetes and kustomize do it, and JSON patches (RFC 6902).

use std::rc::Rc;

use super::yaml::{Node, Span, Value};

/// Deepest that patches are followed.
const DEPTH_MAX: u32 = 64;

/// A tree that was read from inside a scalar, with positions in the file around it.
pub(super) fn moved(node: &Rc<Node>, base: Span, literal: bool) -> Rc<Node> {
    let value = match &node.value {
        Value::Scalar(s) => Value::Scalar(s.clone()),
        Value::List(items) => Value::List(items.iter().map(|n| moved(n, base, literal)).collect()),
        Value::Map(entries) => Value::Map(
            entries.iter().map(|(k, v)| (moved(k, base, literal), moved(v, base, literal))).collect(),
        ),
    };
    let span = if literal {
        // The block's indentation is unknown here: the column is found by text when it is shown.
        Span {
            file: base.file,
            line: base.line + node.span.line,
            column: 1,
            end_line: base.line + node.span.end_line,
            end_column: 1,
        }
    } else {
        base
    };
    let mut out = (*node.with(value)).clone();
    out.span = span;
    Rc::new(out)
}

/// Kinds whose lists Kubernetes merges by a key: those of its own workloads. Of a custom resource kustomize knows no
/// keys and puts the patch's list in place of the other one.
const MERGED_KINDS: &[&str] = &[
    "Pod",
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "ReplicaSet",
    "ReplicationController",
    "Job",
    "CronJob",
    "PodTemplate",
];

/// Applies a strategic merge patch; none when it takes the object away.
///
/// # Errors
/// A directive in a list whose key is not known.
pub(super) fn strategic(target: &Rc<Node>, patch: &Rc<Node>) -> Result<Option<Rc<Node>>, String> {
    let by_key = target.text_of(&["kind"]).is_some_and(|kind| MERGED_KINDS.contains(&kind));
    if !by_key && has_directive_in_list(patch, false, 0) {
        return Err("a $patch in a list of a custom resource needs its schema".to_owned());
    }
    Ok(merge("", target, patch, by_key, 0))
}

fn has_directive_in_list(node: &Node, in_list: bool, depth: u32) -> bool {
    depth <= DEPTH_MAX
        && ((in_list && node.get("$patch").is_some())
            || node.items().iter().any(|item| has_directive_in_list(item, true, depth + 1))
            || node.entries().iter().any(|(_, value)| has_directive_in_list(value, in_list, depth + 1)))
}

/// Lists that Kubernetes merges by a key, and the key. Other lists are replaced.
fn merge_key(field: &str) -> &'static [&'static str] {
    match field {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "env"
        | "volumes"
        | "resourceClaims"
        | "imagePullSecrets" => &["name"],
        "volumeMounts" => &["mountPath"],
        "volumeDevices" => &["devicePath"],
        "ports" => &["containerPort"],
        "hostAliases" => &["ip"],
        _ => &[],
    }
}

/// None when the patch takes the node away.
fn merge(field: &str, target: &Rc<Node>, patch: &Rc<Node>, by_key: bool, depth: u32) -> Option<Rc<Node>> {
    if depth > DEPTH_MAX {
        return Some(Rc::clone(target));
    }
    match (&target.value, &patch.value) {
        (Value::Map(old), Value::Map(new)) => {
            match patch.text_of(&["$patch"]) {
                Some("delete") => return None,
                Some("replace") => {
                    let kept = new.iter().filter(|(k, _)| k.text() != Some("$patch")).cloned().collect();
                    return Some(patch.with(Value::Map(kept)));
                }
                _ => {}
            }
            let mut entries: Vec<(Rc<Node>, Rc<Node>)> = old.clone();
            for (key, value) in new {
                let Some(name) = key.text() else { continue };
                let at = entries.iter().position(|(k, _)| k.text() == Some(name));
                match at {
                    _ if name.starts_with("$") => {}
                    // null takes a key away.
                    Some(i) if value.is_null() => {
                        entries.remove(i);
                    }
                    Some(i) => match merge(name, &entries[i].1, value, by_key, depth + 1) {
                        Some(merged) => entries[i].1 = merged,
                        None => {
                            entries.remove(i);
                        }
                    },
                    None if value.is_null() => {}
                    None => entries.push((Rc::clone(key), Rc::clone(value))),
                }
            }
            Some(target.with(Value::Map(entries)))
        }
        (Value::List(old), Value::List(new)) if by_key && !merge_key(field).is_empty() => {
            Some(target.with(Value::List(merged_list(field, old, new, depth))))
        }
        _ => Some(Rc::clone(patch)),
    }
}

fn merged_list(field: &str, old: &[Rc<Node>], new: &[Rc<Node>], depth: u32) -> Vec<Rc<Node>> {
    // `$patch: replace` as an item of its own: the patch's other items are the whole list.
    let replaces =
        |item: &Rc<Node>| item.text_of(&["$patch"]) == Some("replace") && item.entries().len() == 1;
    if new.iter().any(replaces) {
        return new.iter().filter(|item| !replaces(item)).cloned().collect();
    }
    let mut items = old.to_vec();
    let mut front = 0;
    for item in new {
        let name = merge_key(field).iter().find_map(|k| Some((k, item.text_of(&[k])?)));
        let at = name.and_then(|(k, name)| items.iter().position(|old| old.text_of(&[k]) == Some(name)));
        let deletes = item.text_of(&["$patch"]) == Some("delete");
        match at {
            Some(i) if deletes => {
                items.remove(i);
                front = front.min(i);
            }
            Some(i) => {
                // `value` and `valueFrom` exclude each other: the patch's wins.
                let base = exclusive(&items[i], item);
                if let Some(merged) = merge("", &base, item, true, depth + 1) {
                    items[i] = merged;
                }
            }
            None if deletes => {}
            None => {
                items.insert(front.min(items.len()), Rc::clone(item));
                front += 1;
            }
        }
    }
    items
}

fn exclusive(old: &Rc<Node>, new: &Node) -> Rc<Node> {
    let drop = match (new.get("value"), new.get("valueFrom")) {
        (Some(_), None) => "valueFrom",
        (None, Some(_)) => "value",
        _ => return Rc::clone(old),
    };
    let kept = old.entries().iter().filter(|(k, _)| k.text() != Some(drop)).cloned().collect();
    old.with(Value::Map(kept))
}

/// Applies a JSON patch: a list of operations.
///
/// # Errors
/// A sentence about the first operation that does not fit.
pub(super) fn json(target: &Rc<Node>, operations: &Node) -> Result<Rc<Node>, String> {
    let mut root = Rc::clone(target);
    for operation in operations.items() {
        let op = operation.text_of(&["op"]).unwrap_or("");
        let path = operation.text_of(&["path"]).unwrap_or("");
        let value = operation.get("value");
        root = match op {
            "add" | "replace" => {
                let value = value.ok_or_else(|| format!("{op} {path} has no value"))?;
                at_path(&root, path, &Edit::Put(value, op == "add"))?
            }
            "remove" => at_path(&root, path, &Edit::Remove)?,
            "move" | "copy" => {
                let from = operation.text_of(&["from"]).unwrap_or("");
                let moved = find(&root, from).ok_or_else(|| format!("{op}: nothing at {from}"))?;
                let base = if op == "move" { at_path(&root, from, &Edit::Remove)? } else { Rc::clone(&root) };
                at_path(&base, path, &Edit::Put(&moved, true))?
            }
            "test" => match (find(&root, path), value) {
                (Some(found), Some(value)) if found.text().is_some() && found.text() == value.text() => root,
                _ => return Err(format!("test {path} fails, or compares more than a text")),
            },
            other => return Err(format!("no such operation: {other}")),
        };
    }
    Ok(root)
}

enum Edit<'a> {
    /// Put a value; into a list it is inserted when true.
    Put(&'a Rc<Node>, bool),
    Remove,
}

fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

fn find(root: &Rc<Node>, path: &str) -> Option<Rc<Node>> {
    let mut node = Rc::clone(root);
    for part in path.split('/').skip(1) {
        let part = unescape(part);
        let next =
            if node.is_list() { node.items().get(part.parse::<usize>().ok()?)? } else { node.get(&part)? };
        node = Rc::clone(next);
    }
    Some(node)
}

fn at_path(root: &Rc<Node>, path: &str, edit: &Edit<'_>) -> Result<Rc<Node>, String> {
    let parts: Vec<String> = path.split('/').skip(1).map(unescape).collect();
    if parts.is_empty() || parts.len() > DEPTH_MAX as usize {
        return Err(format!("the path {path} leads nowhere"));
    }
    edit_at(root, &parts, edit).ok_or_else(|| format!("nothing at {path}"))
}

fn edit_at(node: &Rc<Node>, parts: &[String], edit: &Edit<'_>) -> Option<Rc<Node>> {
    let (part, rest) = parts.split_first()?;
    match &node.value {
        Value::Map(entries) => {
            let mut entries = entries.clone();
            let at = entries.iter().position(|(k, _)| k.text() == Some(part));
            match (at, rest.is_empty(), edit) {
                (Some(i), true, Edit::Put(value, _)) => entries[i].1 = Rc::clone(value),
                (None, true, Edit::Put(value, true)) => {
                    entries.push((Node::text_at(part.clone(), value.span), Rc::clone(value)));
                }
                (Some(i), true, Edit::Remove) => {
                    entries.remove(i);
                }
                (Some(i), false, _) => entries[i].1 = edit_at(&entries[i].1, rest, edit)?,
                _ => return None,
            }
            Some(node.with(Value::Map(entries)))
        }
        Value::List(items) => {
            let mut items = items.clone();
            let at = if part == "-" { items.len() } else { part.parse::<usize>().ok()? };
            match (rest.is_empty(), edit) {
                (true, Edit::Put(value, true)) if at <= items.len() => items.insert(at, Rc::clone(value)),
                (true, Edit::Put(value, false)) if at < items.len() => items[at] = Rc::clone(value),
                (true, Edit::Remove) if at < items.len() => {
                    items.remove(at);
                }
                (false, _) if at < items.len() => items[at] = edit_at(&items[at], rest, edit)?,
                _ => return None,
            }
            Some(node.with(Value::List(items)))
        }
        Value::Scalar(_) => None,
    }
}
