//! The build of a kustomization from what lies on this machine.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::super::documents_of;
use super::super::find::Document;
use super::super::selection::embedded_all;
use super::super::source::Sources;
use super::super::yaml::{Limits, Node, Span, Value, compose};
use super::{change, kustomization_in, normal};
use crate::Finding;

/// Kustomizations inside each other.
const DEPTH_MAX: usize = 16;
/// Work of all builds together: kustomizations opened, objects taken in, and objects that a patch was held against.
const STEPS_MAX: usize = 2_000_000;
/// What opening a kustomization counts: it looks for files.
const OPENING_STEPS: usize = 200;
/// Files that a kustomization may lead to.
const REACH_MAX: usize = 10_000;

/// Fields that are built here, or change nothing that is checked.
const KNOWN: &[&str] = &[
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
    "configMapGenerator",
    "secretGenerator",
];

/// Why a kustomization was not built, and where that stands.
pub(super) type Unbuilt = (String, Span);

pub(super) struct Builder<'a> {
    pub(super) sources: &'a mut Sources,
    pub(super) findings: &'a mut Vec<(Finding, Span)>,
    /// Files that went into a build.
    pub(super) used: HashSet<PathBuf>,
    pub(super) parsed: HashMap<u32, Vec<Document>>,
    /// Work so far.
    pub(super) steps: usize,
    /// Files by their path without `.` and `..`.
    pub(super) known: HashMap<PathBuf, u32>,
}

/// What a kustomization leads to.
#[derive(Debug, Default)]
pub(super) struct Reach {
    /// Files on this machine, the kustomizations among them.
    pub(super) files: HashSet<PathBuf>,
    /// The first reference to somewhere else.
    pub(super) remote: Option<String>,
}

impl Builder<'_> {
    fn kustomization(&mut self, path: &Path) -> Option<(u32, Rc<Node>)> {
        let (file, documents) = self.documents(path).ok()?;
        documents.first().map(|d| (file, Rc::clone(&d.node)))
    }

    /// Documents of a file, which is read when it has not been.
    fn documents(&mut self, path: &Path) -> Result<(u32, Vec<Document>), String> {
        let file = match self.known.get(path) {
            Some(&file) => file,
            None => self.sources.read_file(path).map_err(|f| f.title)?,
        };
        self.known.insert(path.to_owned(), file);
        if !self.parsed.contains_key(&file) {
            let documents = documents_of(self.sources, file, self.findings);
            self.parsed.insert(file, documents);
        }
        Ok((file, self.parsed.get(&file).cloned().unwrap_or_default()))
    }

    /// True for a component, which is only built into what takes it in.
    pub(super) fn is_component(&mut self, path: &Path) -> bool {
        self.kustomization(path).is_some_and(|(_, node)| node.text_of(&["kind"]) == Some("Component"))
    }

    /// Folders that a kustomization takes in.
    pub(super) fn references(&mut self, path: &Path) -> Vec<PathBuf> {
        let Some((_, node)) = self.kustomization(path) else { return Vec::new() };
        let folder = path.parent().unwrap_or(path);
        ["resources", "bases", "components"]
            .iter()
            .filter_map(|key| node.get(key))
            .flat_map(|list| list.items())
            .filter_map(|item| Some(normal(&folder.join(item.text()?))))
            .collect()
    }

    /// All that a kustomization leads to, whichever of its fields says so.
    pub(super) fn reach(&mut self, root: &Path) -> Reach {
        let mut reach = Reach::default();
        let mut open = vec![root.to_owned()];
        while let Some(path) = open.pop() {
            if reach.files.len() > REACH_MAX || !reach.files.insert(path.clone()) {
                continue;
            }
            let Some((_, node)) = self.kustomization(&path) else { continue };
            let folder = path.parent().unwrap_or(&path).to_owned();
            let mut words = Vec::new();
            scalars(&node, 0, &mut words);
            for word in words {
                let takes_in = ["resources", "bases", "components"].iter().any(|key| {
                    node.get(key).is_some_and(|l| l.items().iter().any(|i| i.text() == Some(&word)))
                });
                if is_remote(&word) && (takes_in || word.contains("://")) {
                    reach.remote.get_or_insert(word);
                    continue;
                }
                // `key=file` of a generator.
                let name = word.split_once('=').map_or(word.as_str(), |(_, file)| file);
                let target = normal(&folder.join(name));
                if target.is_dir() {
                    open.extend(kustomization_in(&target));
                } else if !name.is_empty() && !name.contains('\n') && target.is_file() {
                    reach.files.insert(target);
                }
            }
        }
        reach
    }

    /// The objects of a kustomization.
    ///
    /// # Errors
    /// What in it is beyond this reader, or not there.
    pub(super) fn build(&mut self, path: &Path, depth: usize) -> Result<Vec<Document>, Unbuilt> {
        let mut documents = Vec::new();
        self.accumulate(path, &mut documents, depth)?;
        Ok(documents)
    }

    /// Adds the objects of a kustomization, and changes those that are there when it is a component.
    fn accumulate(
        &mut self,
        path: &Path,
        documents: &mut Vec<Document>,
        depth: usize,
    ) -> Result<(), Unbuilt> {
        let Some((_, node)) = self.kustomization(path) else {
            return Err((format!("{} cannot be read", path.display()), Span::default()));
        };
        if depth > DEPTH_MAX {
            let why = "kustomizations lie too deep inside each other, or in a circle";
            return Err((why.to_owned(), node.span));
        }
        let unknown = node.entries().iter().find(|(k, _)| !k.text().is_some_and(|k| KNOWN.contains(&k)));
        if let Some((key, _)) = unknown {
            return Err((format!("`{}` is beyond this reader", key.text().unwrap_or("?")), key.span));
        }
        self.step(OPENING_STEPS, node.span)?;
        self.used.insert(path.to_owned());
        let folder = path.parent().unwrap_or(path).to_owned();
        for key in ["resources", "bases"] {
            for item in node.get(key).map_or(&[][..], |l| l.items()) {
                documents.extend(self.resource(&folder, item, depth)?);
            }
        }
        for item in node.get("components").map_or(&[][..], |l| l.items()) {
            let target = normal(&folder.join(item.text().unwrap_or("")));
            let Some(inner) = kustomization_in(&target) else {
                return Err((format!("the component {} is not there", target.display()), item.span));
            };
            self.accumulate(&inner, documents, depth + 1)?;
        }
        self.generate(&folder, &node, documents)?;
        self.patches(&folder, &node, documents)?;
        if let Some(pairs) = node.get("commonLabels") {
            self.step(documents.len(), pairs.span)?;
            change::label(pairs, true, documents);
        }
        for labels in node.get("labels").map_or(&[][..], |l| l.items()) {
            let Some(pairs) = labels.get("pairs") else { continue };
            let in_templates = ["includeTemplates", "includeSelectors"]
                .iter()
                .any(|key| labels.text_of(&[key]) == Some("true"));
            self.step(documents.len(), pairs.span)?;
            change::label(pairs, in_templates, documents);
        }
        if let Some(images) = node.get("images") {
            self.step(documents.len().saturating_mul(images.items().len()), images.span)?;
            change::images(images, documents);
        }
        Ok(())
    }

    fn resource(&mut self, folder: &Path, item: &Rc<Node>, depth: usize) -> Result<Vec<Document>, Unbuilt> {
        let text = item.text().unwrap_or("");
        if is_remote(text) {
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
        self.step(documents.len(), item.span)?;
        self.used.insert(target);
        Ok(documents)
    }

    /// Counts work, so that kustomizations that take each other in again and again come to an end.
    fn step(&mut self, count: usize, span: Span) -> Result<(), Unbuilt> {
        self.steps = self.steps.saturating_add(count);
        if self.steps > STEPS_MAX {
            return Err(("it and those before it take more steps than the limit".to_owned(), span));
        }
        Ok(())
    }

    /// ConfigMaps from literals and files, as far as workers may read them.
    fn generate(&mut self, folder: &Path, node: &Node, documents: &mut Vec<Document>) -> Result<(), Unbuilt> {
        for generator in node.get("configMapGenerator").map_or(&[][..], |l| l.items()) {
            let Some(name) = generator.get("name") else { continue };
            if let Some(behavior) = generator.get("behavior").filter(|b| b.text() != Some("create")) {
                return Err((
                    "a ConfigMap that is merged into another is beyond this reader".to_owned(),
                    behavior.span,
                ));
            }
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
                let content = self.content(folder, path, file.span)?;
                data.push((Node::text_at(key, file.span), Node::text_at(content, file.span)));
            }
            let listed = generator.get("envs").map_or(&[][..], |l| l.items());
            for file in listed.iter().chain(generator.get("env")) {
                let content = self.content(folder, file.text().unwrap_or(""), file.span)?;
                for line in content.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
                    // A name alone takes its value from whoever builds.
                    let Some((key, value)) = line.split_once('=') else {
                        let why = format!(
                            "{} takes {line} from the environment of the build",
                            file.text().unwrap_or("")
                        );
                        return Err((why, file.span));
                    };
                    data.push((Node::text_at(key, file.span), Node::text_at(value, file.span)));
                }
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

    /// The text of a file that a generator takes in; it is no manifest of its own.
    fn content(&mut self, folder: &Path, path: &str, span: Span) -> Result<String, Unbuilt> {
        let target = normal(&folder.join(path));
        let index = self.sources.read_file(&target).map_err(|f| (f.title, span))?;
        self.used.insert(target);
        self.parsed.entry(index).or_default();
        Ok(self.sources.file(index).map_or(String::new(), |s| s.text.to_string()))
    }

    fn patches(&mut self, folder: &Path, node: &Node, documents: &mut Vec<Document>) -> Result<(), Unbuilt> {
        for item in node.get("patchesStrategicMerge").map_or(&[][..], |l| l.items()) {
            for patch in self.patch_nodes(folder, item)? {
                self.step(documents.len(), item.span)?;
                change::apply(&patch, None, documents, item.span)?;
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
                    self.step(documents.len(), item.span)?;
                    change::apply(&patch, item.get("target"), documents, item.span)?;
                }
            }
        }
        Ok(())
    }

    /// The patch itself, which stands in a text here or in a file.
    fn patch_nodes(&mut self, folder: &Path, item: &Rc<Node>) -> Result<Vec<Rc<Node>>, Unbuilt> {
        let text = item.text().unwrap_or("");
        if text.contains('\n') || text.trim_start().starts_with(['{', '[', '-']) {
            let (nodes, problem) = embedded_all(item);
            return match problem {
                Some(problem) => Err((format!("a patch is not YAML: {problem}"), item.span)),
                None => Ok(nodes),
            };
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

/// True for what kustomize would fetch.
fn is_remote(text: &str) -> bool {
    text.contains("://")
        || text.starts_with("github.com")
        || text.starts_with("git@")
        || text.contains("?ref=")
}

/// All texts of a node.
fn scalars(node: &Node, depth: u32, out: &mut Vec<String>) {
    if depth > 16 || out.len() > REACH_MAX {
        return;
    }
    out.extend(node.text().map(str::to_owned));
    node.items().iter().for_each(|item| scalars(item, depth + 1, out));
    node.entries().iter().for_each(|(_, value)| scalars(value, depth + 1, out));
}
