//! Kustomizations: built here for the common cases, by `kubectl kustomize` where this reader does not go far enough and
//! kubectl is installed. What neither builds is looked at part by part, and nothing about it is guessed.

mod alone;
mod build;
mod change;
mod kubectl;

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};

use super::find::Document;
use super::secret;
use super::source::Sources;
use super::yaml::Span;
use super::{Input, documents_of};
use crate::{Finding, Status};

use build::{Builder, Unbuilt};

const NAMES: &[&str] = &["kustomization.yaml", "kustomization.yml", "Kustomization"];
/// Kustomizations that kubectl builds for one check.
const KUBECTL_RUNS_MAX: u32 = 50;
/// Why what stands in a kustomization that was not built is only a part.
pub(super) const PART: &str = "a part of a kustomization that was not built";

/// Reads all documents; files that a kustomization uses are read through it. `kubectl` is the program, where there is one.
pub(super) fn read(
    sources: &mut Sources,
    input: &mut Input,
    kubectl: Option<&Path>,
    findings: &mut Vec<(Finding, Span)>,
) {
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
    let known = files.iter().filter_map(|(file, path)| Some((path.clone()?, *file))).collect();
    let mut builder = Builder { sources, findings, used: HashSet::new(), parsed, steps: 0, known };
    // Overlays first: what another one uses is not built again on its own.
    let mut roots: Vec<PathBuf> =
        files.iter().filter_map(|(_, p)| p.clone()).filter(|p| is_kustomization(p)).collect();
    let referenced: HashSet<PathBuf> = roots.iter().flat_map(|root| builder.references(root)).collect();
    roots.retain(|root| root.parent().is_some_and(|folder| !referenced.contains(folder)));
    let mut built = Vec::new();
    let mut parts = HashSet::new();
    let mut left = KUBECTL_RUNS_MAX;
    for root in &roots {
        if builder.is_component(root) {
            continue;
        }
        let before = builder.used.clone();
        let result = builder.build(root, 0);
        let Err(unbuilt) = result else {
            built.extend(result.unwrap_or_default());
            continue;
        };
        builder.used = before;
        let reach = builder.reach(root);
        match by_kubectl(&mut builder, kubectl, &mut left, root, &unbuilt, &reach) {
            Some(documents) => {
                built.extend(documents);
                builder.used.extend(reach.files);
            }
            None => parts.extend(reach.files),
        }
    }
    let used = builder.used;
    let mut parsed = builder.parsed;
    for (file, path) in &files {
        if path.as_ref().is_some_and(|p| used.contains(p)) {
            continue;
        }
        let mut documents = parsed.remove(file).unwrap_or_default();
        // An inline patch of a kustomization that was not built still says something.
        let inline: Vec<Document> = documents.iter().flat_map(|d| alone::inline_patches(&d.node)).collect();
        documents.extend(inline);
        if path.as_ref().is_some_and(|p| parts.contains(p)) {
            documents.iter_mut().for_each(|d| d.partial = d.partial.take().or_else(|| Some(PART.to_owned())));
        }
        input.documents.extend(documents);
    }
    input.documents.extend(built);
}

/// What `kubectl kustomize` makes of a kustomization that is beyond the reader here; none, with a finding, when it cannot.
fn by_kubectl(
    builder: &mut Builder<'_>,
    kubectl: Option<&Path>,
    left: &mut u32,
    root: &Path,
    (why, span): &Unbuilt,
    reach: &build::Reach,
) -> Option<Vec<Document>> {
    let folder = folder_of(root);
    let command = format!("kubectl kustomize {}", folder.display());
    let result = match (kubectl, &reach.remote) {
        (_, Some(remote)) => Err(format!("{} is not on this machine", secret::text(remote))),
        (Some(_), None) if *left == 0 => {
            Err(format!("{why}, and kubectl has built {KUBECTL_RUNS_MAX} others already"))
        }
        (None, None) => Err(format!("{why}, and kubectl is not installed")),
        (Some(kubectl), None) => {
            *left -= 1;
            kubectl::build(kubectl, folder)
                .map_err(|said| format!("{why}, and kubectl says: {}", secret::text(&said)))
                .and_then(|text| builder.sources.accept(command.clone(), None, text).map_err(|f| f.title))
        }
    };
    match result {
        Ok(file) => {
            let documents = documents_of(builder.sources, file, builder.findings);
            Some(documents)
        }
        Err(why) => {
            let title = format!("the kustomization in {} was not built: {why}", folder.display());
            let finding = Finding::new("kustomize-unresolved", Status::Unknown, title)
                .next_step(format!("`{command} | kvwire check env -`"))
                .source(builder.sources.span(*span));
            builder.findings.push((finding, *span));
            None
        }
    }
}

/// The folder of a kustomization. That of the folder that one is in has none in its path.
pub(super) fn folder_of(root: &Path) -> &Path {
    root.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
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
