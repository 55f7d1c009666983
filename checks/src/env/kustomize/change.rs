//! What a kustomization changes in objects: patches, images and labels.

use std::rc::Rc;

use super::super::find::Document;
use super::super::patch;
use super::super::yaml::{Node, Span, Value};
use super::build::Unbuilt;

/// Applies one patch to the objects that it is for.
///
/// # Errors
/// It fits no object, or does what is beyond this reader.
pub(super) fn apply(
    patch: &Rc<Node>,
    target: Option<&Rc<Node>>,
    documents: &mut Vec<Document>,
    span: Span,
) -> Result<(), Unbuilt> {
    let mut hit = false;
    let mut kept = Vec::with_capacity(documents.len());
    for document in documents.drain(..) {
        let fits = match target {
            Some(target) => selects(target, &document.node).map_err(|why| (why, target.span))?,
            None => same_object(patch, &document.node),
        };
        if !fits {
            kept.push(document);
            continue;
        }
        hit = true;
        let does_not_fit = |why| (format!("a patch does not fit: {why}"), span);
        if patch.is_list() {
            let node = patch::json(&document.node, patch).map_err(does_not_fit)?;
            kept.push(Document { node, ..document });
        } else if let Some(node) =
            patch::strategic(&document.node, &named_as(patch, &document.node)).map_err(does_not_fit)?
        {
            kept.push(Document { node, ..document });
        }
    }
    *documents = kept;
    if hit {
        Ok(())
    } else {
        let name = patch.text_of(&["metadata", "name"]).or_else(|| target.and_then(|t| t.text_of(&["name"])));
        Err((format!("a patch fits no object ({})", name.unwrap_or("?")), span))
    }
}

/// With a target the patch's own name does not rename the object.
fn named_as(patch: &Rc<Node>, object: &Node) -> Rc<Node> {
    let entries = patch.entries().iter().map(|(k, v)| match (k.text(), object.get("metadata")) {
        (Some("metadata"), Some(_)) => {
            let kept = v.entries().iter().filter(|(k, _)| k.text() != Some("name")).cloned().collect();
            (Rc::clone(k), v.with(Value::Map(kept)))
        }
        _ => (Rc::clone(k), Rc::clone(v)),
    });
    patch.with(Value::Map(entries.collect()))
}

fn same_object(patch: &Node, object: &Node) -> bool {
    patch.text_of(&["kind"]) == object.text_of(&["kind"])
        && patch.text_of(&["metadata", "name"]) == object.text_of(&["metadata", "name"])
}

/// True when a kustomize target names the object.
///
/// # Errors
/// The target selects by what this reader does not follow: patterns other than a final `.*`, annotations, sets of labels.
fn selects(target: &Node, object: &Node) -> Result<bool, String> {
    let actual = |path: &[&str]| object.text_of(path).unwrap_or("");
    let (group, version) = match actual(&["apiVersion"]).split_once('/') {
        Some((group, version)) => (group, version),
        None => ("", actual(&["apiVersion"])),
    };
    for (key, value) in target.entries() {
        let (key, wanted) = (key.text().unwrap_or(""), value.text().unwrap_or(""));
        let fits = match key {
            "name" => named(wanted, actual(&["metadata", "name"]))?,
            "kind" => named(wanted, actual(&["kind"]))?,
            "namespace" => named(wanted, actual(&["metadata", "namespace"]))?,
            "group" => wanted == group,
            "version" => wanted == version,
            "labelSelector" => labelled(wanted, object)?,
            _ => return Err(format!("a patch that selects by `{key}` is beyond this reader")),
        };
        if !fits {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A kustomize target is a pattern for the whole name; here a name, or one with a final `.*`.
fn named(pattern: &str, actual: &str) -> Result<bool, String> {
    let pattern = pattern.trim_start_matches('^').trim_end_matches('$');
    let (head, open) = pattern.strip_suffix(".*").map_or((pattern, false), |head| (head, true));
    if head.contains(['*', '+', '?', '|', '(', '[', '{', '\\', '.', '^', '$']) {
        return Err(format!("the pattern `{pattern}` is beyond this reader"));
    }
    Ok(if open { actual.starts_with(head) } else { head.is_empty() || actual == head })
}

fn labelled(selector: &str, object: &Node) -> Result<bool, String> {
    let labels = object.at(&["metadata", "labels"]);
    for part in selector.split(',') {
        let pair = part.split_once("==").or_else(|| part.split_once('='));
        let Some((key, value)) = pair.filter(|(key, _)| !key.ends_with('!') && !part.contains(" in ")) else {
            return Err(format!("the label selector `{selector}` is beyond this reader"));
        };
        if labels.and_then(|l| l.text_of(&[key.trim()])) != Some(value.trim()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// `images:` gives containers another name, tag or digest.
pub(super) fn images(list: &Node, documents: &mut [Document]) {
    for image in list.items() {
        if let Some(name) = image.text_of(&["name"]) {
            for document in &mut *documents {
                document.node = renamed(&document.node, name, image, 0);
            }
        }
    }
}

/// Below `containers` and `initContainers`, as kustomize does it; other images stay.
fn renamed(node: &Rc<Node>, name: &str, image: &Node, depth: u32) -> Rc<Node> {
    if depth > 32 {
        return Rc::clone(node);
    }
    match &node.value {
        Value::Map(entries) => {
            let entries = entries.iter().map(|(key, value)| {
                let new = match key.text() {
                    Some("containers" | "initContainers") if value.is_list() => {
                        let items = value.items().iter().map(|c| with_image(c, name, image)).collect();
                        value.with(Value::List(items))
                    }
                    _ => renamed(value, name, image, depth + 1),
                };
                (Rc::clone(key), new)
            });
            node.with(Value::Map(entries.collect()))
        }
        Value::List(items) => {
            node.with(Value::List(items.iter().map(|i| renamed(i, name, image, depth + 1)).collect()))
        }
        Value::Scalar(_) => Rc::clone(node),
    }
}

fn with_image(container: &Rc<Node>, name: &str, image: &Node) -> Rc<Node> {
    let entries = container.entries().iter().map(|(key, value)| {
        let new = (key.text() == Some("image"))
            .then(|| value.text())
            .flatten()
            .and_then(|old| other_image(old, name, image));
        // What stands in the kustomization decides: that is the place to show.
        (Rc::clone(key), new.map_or_else(|| Rc::clone(value), |text| Node::text_at(text, image.span)))
    });
    container.with(Value::Map(entries.collect()))
}

fn other_image(old: &str, name: &str, image: &Node) -> Option<String> {
    let (rest, digest) = old.split_once('@').map_or((old, None), |(rest, digest)| (rest, Some(digest)));
    // A colon before a slash belongs to the registry's port.
    let (base, tag) = match rest.rsplit_once(':') {
        Some((base, tag)) if !tag.contains('/') => (base, Some(tag)),
        _ => (rest, None),
    };
    if base != name {
        return None;
    }
    let base = image.text_of(&["newName"]).unwrap_or(base);
    Some(match (image.text_of(&["newTag"]), image.text_of(&["digest"])) {
        (_, Some(digest)) => format!("{base}@{digest}"),
        (Some(tag), None) => format!("{base}:{tag}"),
        (None, None) => match (tag, digest) {
            (Some(tag), Some(digest)) => format!("{base}:{tag}@{digest}"),
            (Some(tag), None) => format!("{base}:{tag}"),
            (None, Some(digest)) => format!("{base}@{digest}"),
            (None, None) => base.to_owned(),
        },
    })
}

/// Labels for objects, and for the templates of their pods where the kustomization says so.
pub(super) fn label(pairs: &Node, in_templates: bool, documents: &mut [Document]) {
    for document in documents {
        let mut paths: Vec<&[&str]> = vec![&["metadata", "labels"]];
        if in_templates && document.node.at(&["spec", "template", "spec"]).is_some() {
            paths.push(&["spec", "template", "metadata", "labels"]);
        }
        for path in paths {
            document.node = merged_at(&document.node, path, pairs);
        }
    }
}

fn merged_at(node: &Rc<Node>, path: &[&str], pairs: &Node) -> Rc<Node> {
    let mut entries = node.entries().to_vec();
    let mut put =
        |key: &Rc<Node>, value: Rc<Node>| match entries.iter().position(|(k, _)| k.text() == key.text()) {
            Some(i) => entries[i].1 = value,
            None => entries.push((Rc::clone(key), value)),
        };
    match path.split_first() {
        None => pairs.entries().iter().for_each(|(key, value)| put(key, Rc::clone(value))),
        Some((first, rest)) => {
            let inner = node.get(first).cloned().unwrap_or_else(|| Node::empty_map(pairs.span));
            put(&Node::text_at(*first, pairs.span), merged_at(&inner, rest, pairs));
        }
    }
    node.with(Value::Map(entries))
}
