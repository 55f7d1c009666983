//! The static check of manifests: which workers there are, what their processes will see, and what of it keeps
//! the KV cache from RDMA and NVLink. It reads text and nothing else; it never says that a wire is good.

mod catalogue;
mod contract;
mod environment;
mod find;
mod kustomize;
mod launch;
mod lists;
mod patch;
mod process;
mod report;
mod rules;
mod secret;
mod selection;
mod shell;
mod source;
mod value;
mod version;
mod waive;
mod worker;
mod yaml;

#[cfg(test)]
mod tests;

use std::io::Read;
use std::path::PathBuf;
use std::rc::Rc;

pub use catalogue::{Catalogue, Effect, Entry, Owner, catalogue};
pub use contract::{Check, Counts};
pub use process::{PodProcesses, process_script};
pub use report::{Report, SettingView, Switched, WorkerView};
pub use rules::{RULES, Rule, rule, worse};
pub use secret::text as without_secrets;
pub use value::is_off;
pub use version::{Version, Versions};
pub use waive::{Configuration, ConfigurationError, Waiver};
pub use worker::{Engine, Role};

use environment::Maps;
use find::Document;
use source::Sources;
use yaml::{Limits, Problem, ProblemKind, Span, compose};

use crate::{Finding, Status};

/// What the caller decides.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Versions where the images do not say them.
    pub versions: Versions,
    /// Rules that are switched off, and by whom.
    pub waivers: Vec<Waiver>,
    /// kubectl, for kustomizations that are beyond the reader here; none where it is not installed.
    pub kubectl: Option<PathBuf>,
    /// Running pods that are judged by what arrived in their processes, and compared with the manifests.
    pub pods: Vec<PodProcesses>,
    /// What was found before: pods that could not be looked into.
    pub found: Vec<Finding>,
}

/// Reads and judges the manifests below `paths`; `-` is `stdin`.
pub fn check(paths: &[PathBuf], stdin: &mut dyn Read, options: &Options) -> Report {
    let mut sources = Sources::default();
    let mut findings: Vec<(Finding, Span)> =
        sources.read(paths, stdin).into_iter().map(|f| (f, Span::default())).collect();
    let mut input = Input::default();
    kustomize::read(&mut sources, &mut input, options.kubectl.as_deref(), &mut findings);
    hide_secrets(&mut sources, &input.documents);
    let maps = config_maps(&input.documents);
    let mut hide = Vec::new();
    let (mut workers, around) = find::workers(&input.documents, &maps, &mut hide);
    hide.into_iter().for_each(|span| sources.hide(span));
    findings.extend(options.found.iter().map(|found| (found.clone(), Span::default())));
    for pod in &options.pods {
        let (worker, finding) = find::of_process(pod, &mut sources);
        findings.push((finding, Span::default()));
        workers.extend(worker);
    }
    let scene = rules::Scene::new(&workers, &around, &sources, options.versions);
    findings.extend(rules::judge(&scene));
    if around.is_cut {
        let title = "more workers or variables than the limits: not all of them were looked at";
        findings.push((Finding::new("yaml-limits", Status::Fail, title), Span::default()));
    }
    report::Report::make(&scene, findings, &options.waivers)
}

/// Documents of all files, with what could not be read.
#[derive(Debug, Default)]
struct Input {
    documents: Vec<Document>,
}

/// Reads the documents of one file, lists taken apart.
fn documents_of(sources: &mut Sources, file: u32, findings: &mut Vec<(Finding, Span)>) -> Vec<Document> {
    let Some(source) = sources.file(file) else { return Vec::new() };
    let text = source.text.clone();
    let name = source.name.clone();
    let (nodes, problems) = compose(&text, file, Limits::default());
    sources.values += nodes.iter().map(|node| node.weight()).sum::<u64>();
    if sources.values > source::VALUES_MAX {
        let title = format!(
            "{name}: all files together have more than {} values, and this one was left out",
            source::VALUES_MAX
        );
        findings.push((Finding::new("yaml-limits", Status::Fail, title), Span { file, ..Span::default() }));
        return Vec::new();
    }
    let templated = text.contains("{{");
    if problems.iter().any(|p| p.kind == ProblemKind::Syntax) && text.contains("Secret") {
        hide_broken(sources, file, problems.iter().map(|p| p.span.line).max().unwrap_or(0));
    }
    for problem in &problems {
        findings.push((about(sources, problem, templated, &name), problem.span));
    }
    let mut documents = Vec::new();
    for node in nodes {
        let is_list =
            node.text_of(&["kind"]).is_some_and(|k| k.ends_with("List")) && node.get("items").is_some();
        let parts = if is_list {
            node.get("items").map_or(Vec::new(), |items| items.items().to_vec())
        } else {
            vec![node]
        };
        documents
            .extend(parts.into_iter().filter(|n| n.is_map()).map(|node| Document { node, partial: None }));
    }
    documents
}

fn about(sources: &Sources, problem: &Problem, templated: bool, name: &str) -> Finding {
    let finding = match problem.kind {
        ProblemKind::Syntax if templated => Finding::new(
            "template",
            Status::Unknown,
            format!("{name} is a template, not YAML: what it will say is not known before it is rendered"),
        ),
        ProblemKind::Syntax => Finding::new(
            "file-not-yaml",
            Status::Fail,
            format!("{name} is not YAML: {}", secret::text(&problem.text)),
        ),
        ProblemKind::Aliases | ProblemKind::Depth | ProblemKind::Size => {
            Finding::new("yaml-limits", Status::Fail, format!("{name}: {}", problem.text))
        }
        ProblemKind::DuplicateKey => Finding::new("duplicate-key", Status::Warn, secret::text(&problem.text)),
    };
    let rule = rule(&finding.id);
    finding
        .why(rule.map_or("", |r| r.why))
        .next_step(rule.map_or("", |r| r.remedy))
        .source(sources.span(problem.span))
}

/// A document that cannot be read may be a Secret: from its beginning on nothing is shown.
fn hide_broken(sources: &mut Sources, file: u32, line: u32) {
    let Some(source) = sources.file(file) else { return };
    let first = (1..=line).rev().find(|l| source.line(*l).starts_with("---")).unwrap_or(1);
    let end_line = source.line_count();
    sources.hide(Span { file, line: first, end_line, ..Span::default() });
}

/// What a Secret holds is never shown.
fn hide_secrets(sources: &mut Sources, documents: &[Document]) {
    for document in documents.iter().filter(|d| d.node.text_of(&["kind"]) == Some("Secret")) {
        for key in ["data", "stringData"] {
            if let Some(data) = document.node.get(key) {
                sources.hide(data.span);
            }
        }
    }
}

fn config_maps(documents: &[Document]) -> Maps {
    let mut maps = Maps::default();
    for document in documents.iter().filter(|d| d.node.text_of(&["kind"]) == Some("ConfigMap")) {
        let Some(name) = document.node.text_of(&["metadata", "name"]) else { continue };
        let entries = document.node.get("data").map_or(&[][..], |d| d.entries());
        let entries =
            entries.iter().filter_map(|(k, v)| Some((k.text()?.to_owned(), Rc::clone(v)))).collect();
        maps.config.insert(name.to_owned(), entries);
    }
    maps
}
