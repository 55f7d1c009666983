//! Kustomizations, built here for the common cases: resources, components, strategic merge and JSON patches.
//! What else they can do is named, and their parts are then looked at one by one.

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use super::find::Document;
use super::patch;
use super::source::Sources;
use super::yaml::{Limits, Node, Span, Value, compose};
use super::{Input, documents_of, selection};
use crate::{Finding, Status};

/// Kustomizations inside each other.
const DEPTH_MAX: usize = 16;
/// Objects of one build.
const OBJECTS_MAX: usize = 20_000;

const NAMES: &[&str] = &["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// Fields that change nothing that is checked.
const HARMLESS: &[&str] = &[
    "apiVersion",
    "kind",
    "metadata",
    "resources",
    "bases",
    "components",
    "patches",
    "patchesStrategicMerge",
    "patchesJson6902",
    "namespace",
    "namePrefix",
    "nameSuffix",
    "commonLabels",
    "labels",
    "commonAnnotations",
    "images",
    "replicas",
    "generatorOptions",
    "sortOptions",
    "buildMetadata",
    "openapi",
    "configurations",
    "configMapGenerator",
    "secretGenerator",
];

/// Reads all documents; files that a kustomization uses are read through it.
pub(super) fn read(sources: &mut Sources, input: &mut Input, findings: &mut Vec<(Finding, Span)>) {
    let files: Vec<(u32, Option<PathBuf>)> = sources
        .files()
        .iter()
        .enumerate()
        .map(|(i, s)| (u32::try_from(i).unwrap_or(u32::MAX), s.path.as_deref().map(normal)))
        .collect();
    let mut parsed: HashMap<u32, Vec<Document>> = HashMap::new();
    for (file, _) in &files {
        parsed.insert(*file, documents_of(sources, *file, findings));
    }
    let mut builder = Builder { sources, findings, used: HashSet::new(), parsed };
    // Overlays first: what another one uses is not built again on its own.
    let mut roots: Vec<PathBuf> =
        files.iter().filter_map(|(_, p)| p.clone()).filter(|p| is_kustomization(p)).collect();
    let referenced: HashSet<PathBuf> = roots.iter().flat_map(|root| builder.references(root)).collect();
    roots.retain(|root| root.parent().is_some_and(|folder| !referenced.contains(folder)));
    let mut built = Vec::new();
    for root in &roots {
        let kind = builder.kustomization(root).map(|(_, node)| node.text_of(&["kind"]) == Some("Component"));
        if kind == Some(true) {
            continue;
        }
        let before = builder.used.clone();
        match builder.build(root, 0) {
            Ok(documents) => built.extend(documents),
            Err((why, span)) => {
                builder.used = before;
                let folder = root.parent().unwrap_or(root).display().to_string();
                let title = format!("the kustomization in {folder} was not built: {why}");
                let finding = Finding::new("kustomize-unresolved", Status::Unknown, title)
                    .next_step(format!("`kubectl kustomize {folder} | kvwire check env -`"))
                    .source(builder.sources.span(span));
                builder.findings.push((finding, span));
            }
        }
    }
    let used = builder.used;
    let mut parsed = builder.parsed;
    for (file, path) in &files {
        let part_of_build = path.as_ref().is_some_and(|p| used.contains(p));
        if part_of_build {
            continue;
        }
        let mut documents = parsed.remove(file).unwrap_or_default();
        // An inline patch of a kustomization that was not built still says something.
        let inline: Vec<Document> = documents.iter().flat_map(|d| inline_patches(&d.node)).collect();
        documents.extend(inline);
        input.documents.extend(documents);
    }
    input.documents.extend(built);
}

type Unbuilt = (String, Span);

struct Builder<'a> {
    sources: &'a mut Sources,
    findings: &'a mut Vec<(Finding, Span)>,
    /// Files that went into a build.
    used: HashSet<PathBuf>,
    parsed: HashMap<u32, Vec<Document>>,
}

impl Builder<'_> {
    fn kustomization(&mut self, path: &Path) -> Option<(u32, Rc<Node>)> {
        let (file, documents) = self.documents(path).ok()?;
        documents.first().map(|d| (file, Rc::clone(&d.node)))
    }

    /// Documents of a file, which is read when it has not been.
    fn documents(&mut self, path: &Path) -> Result<(u32, Vec<Document>), String> {
        let known =
            self.sources.files().iter().position(|s| s.path.as_deref().map(normal).as_deref() == Some(path));
        let file = match known {
            Some(i) => u32::try_from(i).unwrap_or(u32::MAX),
            None => self.sources.read_file(path).map_err(|f| f.title)?,
        };
        if !self.parsed.contains_key(&file) {
            let documents = documents_of(self.sources, file, self.findings);
            self.parsed.insert(file, documents);
        }
        Ok((file, self.parsed.get(&file).cloned().unwrap_or_default()))
    }

    /// Folders that a kustomization takes in.
    fn references(&mut self, path: &Path) -> Vec<PathBuf> {
        let Some((_, node)) = self.kustomization(path) else { return Vec::new() };
        let folder = path.parent().unwrap_or(path);
        ["resources", "bases", "components"]
            .iter()
            .filter_map(|key| node.get(key))
            .flat_map(|list| list.items())
            .filter_map(|item| Some(normal(&folder.join(item.text()?))))
            .collect()
    }

    fn build(&mut self, path: &Path, depth: usize) -> Result<Vec<Document>, Unbuilt> {
        let Some((_, node)) = self.kustomization(path) else {
            return Err((format!("{} cannot be read", path.display()), Span::default()));
        };
        if depth > DEPTH_MAX {
            return Err((
                "kustomizations lie too deep inside each other, or in a circle".to_owned(),
                node.span,
            ));
        }
        if let Some((key, _)) =
            node.entries().iter().find(|(k, _)| !k.text().is_some_and(|k| HARMLESS.contains(&k)))
        {
            return Err((format!("`{}` is beyond this reader", key.text().unwrap_or("?")), key.span));
        }
        self.used.insert(path.to_owned());
        let folder = path.parent().unwrap_or(path).to_owned();
        let mut documents = Vec::new();
        for key in ["resources", "bases"] {
            for item in node.get(key).map_or(&[][..], |l| l.items()) {
                documents.extend(self.resource(&folder, item, depth)?);
                if documents.len() > OBJECTS_MAX {
                    return Err(("more objects than the limit".to_owned(), item.span));
                }
            }
        }
        self.generate(&folder, &node, &mut documents)?;
        for item in node.get("components").map_or(&[][..], |l| l.items()) {
            let target = normal(&folder.join(item.text().unwrap_or("")));
            let Some(inner) = kustomization_in(&target) else {
                return Err((format!("the component {} is not there", target.display()), item.span));
            };
            self.component(&inner, &mut documents, depth + 1)?;
        }
        self.patches(&folder, &node, &mut documents)?;
        Ok(documents)
    }

    /// A component changes the objects of whoever takes it in.
    fn component(&mut self, path: &Path, documents: &mut Vec<Document>, depth: usize) -> Result<(), Unbuilt> {
        let Some((_, node)) = self.kustomization(path) else {
            return Err((format!("{} cannot be read", path.display()), Span::default()));
        };
        if depth > DEPTH_MAX {
            return Err(("components lie too deep inside each other, or in a circle".to_owned(), node.span));
        }
        if let Some((key, _)) =
            node.entries().iter().find(|(k, _)| !k.text().is_some_and(|k| HARMLESS.contains(&k)))
        {
            return Err((format!("`{}` is beyond this reader", key.text().unwrap_or("?")), key.span));
        }
        self.used.insert(path.to_owned());
        let folder = path.parent().unwrap_or(path).to_owned();
        for item in node.get("resources").map_or(&[][..], |l| l.items()) {
            documents.extend(self.resource(&folder, item, depth)?);
        }
        self.generate(&folder, &node, documents)?;
        for item in node.get("components").map_or(&[][..], |l| l.items()) {
            let target = normal(&folder.join(item.text().unwrap_or("")));
            let Some(inner) = kustomization_in(&target) else {
                return Err((format!("the component {} is not there", target.display()), item.span));
            };
            self.component(&inner, documents, depth + 1)?;
        }
        self.patches(&folder, &node, documents)
    }

    fn resource(&mut self, folder: &Path, item: &Rc<Node>, depth: usize) -> Result<Vec<Document>, Unbuilt> {
        let text = item.text().unwrap_or("");
        if text.contains("://") || text.starts_with("github.com") || text.contains("?ref=") {
            return Err((format!("{text} is not on this machine"), item.span));
        }
        let target = normal(&folder.join(text));
        if target.is_dir() {
            let Some(inner) = kustomization_in(&target) else {
                return Err((format!("{} has no kustomization", target.display()), item.span));
            };
            return self.build(&inner, depth + 1);
        }
        let (_, documents) = self.documents(&target).map_err(|why| (why, item.span))?;
        self.used.insert(target);
        Ok(documents)
    }

    /// ConfigMaps from literals and files, as far as workers may read them.
    fn generate(&mut self, folder: &Path, node: &Node, documents: &mut Vec<Document>) -> Result<(), Unbuilt> {
        for generator in node.get("configMapGenerator").map_or(&[][..], |l| l.items()) {
            let Some(name) = generator.get("name") else { continue };
            let mut data = Vec::new();
            for literal in generator.get("literals").map_or(&[][..], |l| l.items()) {
                if let Some((key, value)) = literal.text().and_then(|t| t.split_once('=')) {
                    let value = value.trim_matches(['"', '\'']);
                    data.push((Node::text_at(key, literal.span), Node::text_at(value, literal.span)));
                }
            }
            for file in generator.get("files").map_or(&[][..], |l| l.items()) {
                let text = file.text().unwrap_or("");
                let (key, path) =
                    text.split_once('=').unwrap_or((text.rsplit('/').next().unwrap_or(text), text));
                let target = normal(&folder.join(path));
                let index = self.sources.read_file(&target).map_err(|f| (f.title, file.span))?;
                let content = self.sources.file(index).map_or(String::new(), |s| s.text.to_string());
                self.used.insert(target);
                self.parsed.entry(index).or_default();
                data.push((Node::text_at(key, file.span), Node::text_at(content, file.span)));
            }
            let at = |text: &str| Node::text_at(text, generator.span);
            let map = |entries: Vec<(Rc<Node>, Rc<Node>)>| generator.with(Value::Map(entries));
            let metadata = map(vec![(at("name"), Rc::clone(name))]);
            let object =
                map(vec![(at("kind"), at("ConfigMap")), (at("metadata"), metadata), (at("data"), map(data))]);
            documents.push(Document { node: object, partial: None });
        }
        Ok(())
    }

    fn patches(&mut self, folder: &Path, node: &Node, documents: &mut Vec<Document>) -> Result<(), Unbuilt> {
        for item in node.get("patchesStrategicMerge").map_or(&[][..], |l| l.items()) {
            for patch in self.patch_nodes(folder, item)? {
                apply(&patch, None, documents, item.span)?;
            }
        }
        for key in ["patches", "patchesJson6902"] {
            for item in node.get(key).map_or(&[][..], |l| l.items()) {
                let content = match (item.get("patch"), item.get("path")) {
                    (Some(inline), _) => self.patch_nodes(folder, inline)?,
                    (None, Some(path)) => self.patch_nodes(folder, path)?,
                    (None, None) => continue,
                };
                for patch in content {
                    apply(&patch, item.get("target"), documents, item.span)?;
                }
            }
        }
        Ok(())
    }

    /// The patch itself, which stands in a text here or in a file.
    fn patch_nodes(&mut self, folder: &Path, item: &Rc<Node>) -> Result<Vec<Rc<Node>>, Unbuilt> {
        let text = item.text().unwrap_or("");
        if text.contains('\n') || text.trim_start().starts_with(['{', '[', '-']) {
            return Ok(embedded_all(item));
        }
        let target = normal(&folder.join(text));
        let (file, documents) = self.documents(&target).map_err(|why| (why, item.span))?;
        self.used.insert(target);
        if documents.is_empty() {
            // A JSON patch is a list, which is no object.
            let text = self.sources.file(file).map_or(String::new(), |s| s.text.to_string());
            return Ok(compose(&text, file, Limits::default()).0);
        }
        Ok(documents.into_iter().map(|d| d.node).collect())
    }
}

fn apply(
    patch: &Rc<Node>,
    target: Option<&Rc<Node>>,
    documents: &mut Vec<Document>,
    span: Span,
) -> Result<(), Unbuilt> {
    let mut hit = false;
    let mut kept = Vec::with_capacity(documents.len());
    for document in documents.drain(..) {
        let fits = match target {
            Some(target) => selects(target, &document.node),
            None => same_object(patch, &document.node),
        };
        if !fits {
            kept.push(document);
            continue;
        }
        hit = true;
        if patch.is_list() {
            let node = patch::json(&document.node, patch)
                .map_err(|why| (format!("a JSON patch does not fit: {why}"), span))?;
            kept.push(Document { node, ..document });
        } else if let Some(node) = patch::strategic(&document.node, &named_as(patch, &document.node)) {
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

/// A kustomize target: kind, name (a pattern in kustomize; here whole, or with a final `.*`).
fn selects(target: &Node, object: &Node) -> bool {
    let name_fits = match target.text_of(&["name"]) {
        None | Some(".*") => true,
        Some(name) => {
            let actual = object.text_of(&["metadata", "name"]).unwrap_or("");
            match name.strip_suffix(".*") {
                Some(head) => actual.starts_with(head),
                None => actual == name,
            }
        }
    };
    let kind_fits = target.text_of(&["kind"]).is_none_or(|k| Some(k) == object.text_of(&["kind"]));
    let labels = target.text_of(&["labelSelector"]).unwrap_or("");
    let labels_fit = labels.split(',').filter_map(|l| l.split_once('=')).all(|(key, value)| {
        object.at(&["metadata", "labels"]).and_then(|l| l.text_of(&[key])) == Some(value)
    });
    kind_fits && name_fits && labels_fit
}

/// Patches that stand in a kustomization as text, as documents of their own.
fn inline_patches(node: &Node) -> Vec<Document> {
    if !matches!(node.text_of(&["kind"]), Some("Kustomization" | "Component")) {
        return Vec::new();
    }
    let mut out = Vec::new();
    for item in node.get("patches").map_or(&[][..], |l| l.items()) {
        let Some(text) = item.get("patch") else { continue };
        for patch in embedded_all(text) {
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

fn embedded_all(text: &Rc<Node>) -> Vec<Rc<Node>> {
    selection::embedded(text).into_iter().collect()
}

fn is_kustomization(path: &Path) -> bool {
    path.file_name().is_some_and(|n| NAMES.iter().any(|known| n == *known))
}

fn kustomization_in(folder: &Path) -> Option<PathBuf> {
    NAMES.iter().map(|n| folder.join(n)).find(|p| p.is_file())
}

/// Without `.` and `..`; links are not followed.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(out.components().next_back(), Some(Component::Normal(_))) => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}
