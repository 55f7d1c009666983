//! Finds the workers in documents of every shape.

mod container;
mod dynamo;
mod placement;
mod pod;
mod process;
mod values;

use std::rc::Rc;

use super::environment::Maps;
use super::worker::Worker;
use super::yaml::{Node, Span};

use container::Draft;
pub(super) use container::SETTINGS_FILES;

pub(super) use process::worker as of_process;

/// Variables of all workers together: a graph's own count for each of its services.
const SETTINGS_MAX: usize = 500_000;

/// One document of the input.
#[derive(Debug, Clone)]
pub(super) struct Document {
    /// Its tree.
    pub node: Rc<Node>,
    /// Why it is only a part of what is deployed; none when it is whole.
    pub partial: Option<String>,
}

/// What stands in the documents beside workers, and says what a worker's claims mean.
#[derive(Debug, Default)]
pub(super) struct Surroundings {
    /// Templates and claims of devices: name, and the words in it that say what they are.
    pub claims: Vec<(String, String)>,
    /// Domains of multi-node NVLink: name of the claim template, nodes, where.
    pub compute_domains: Vec<(String, Option<u32>, Span)>,
    /// Objects that were recognised: kind and name.
    pub objects: Vec<String>,
    /// More workers or variables than the limits: not all of them were looked at.
    pub is_cut: bool,
    /// Documents that no one knows.
    pub unknown: Vec<Span>,
}

/// All workers, and what is around them. Values of credentials are added to `hide`.
pub(super) fn workers(
    documents: &[Document],
    maps: &Maps,
    hide: &mut Vec<Span>,
) -> (Vec<Worker>, Surroundings) {
    let mut around = Surroundings::default();
    let mut drafts: Vec<Draft> = Vec::new();
    for document in documents {
        find(document, &mut drafts, &mut around);
    }
    let mut workers: Vec<Worker> = Vec::new();
    let mut settings = 0;
    for draft in drafts {
        if settings > SETTINGS_MAX {
            around.is_cut = true;
            break;
        }
        // One that is no worker costs as much to put together.
        settings += 1;
        if let Some(worker) = draft.finish(maps, hide) {
            settings += worker.env.settings().len();
            around.is_cut |= worker.env.is_cut;
            workers.push(worker);
        }
    }
    (workers, around)
}

fn find(document: &Document, drafts: &mut Vec<Draft>, around: &mut Surroundings) {
    let node = &document.node;
    let kind = node.text_of(&["kind"]).unwrap_or("");
    let name = node.text_of(&["metadata", "name"]).unwrap_or("?");
    let object = format!("{kind} {name}");
    let first = drafts.len();
    match kind {
        "" => around.is_cut |= values::find(node, drafts),
        "DynamoGraphDeployment" => dynamo::graph(node, &object, drafts),
        "DynamoComponentDeployment" => dynamo::component(node, &object, name, drafts),
        "ComputeDomain" => {
            if let Some(template) = node.at(&["spec", "channel", "resourceClaimTemplate", "name"]) {
                let nodes = node.text_of(&["spec", "numNodes"]).and_then(|n| n.parse().ok());
                around.compute_domains.push((template.text().unwrap_or("").to_owned(), nodes, node.span));
            }
        }
        "ResourceClaimTemplate" | "ResourceClaim" => {
            let mut classes = Vec::new();
            device_classes(node, 0, &mut classes);
            around.claims.push((name.to_owned(), classes.join(" ")));
        }
        "Kustomization" | "Component" => {}
        _ => around.is_cut |= pod::workload(node, kind, &object, name, drafts),
    }
    if !kind.is_empty() {
        around.objects.push(object);
    } else if drafts.len() == first {
        around.unknown.push(node.span);
    }
    for draft in &mut drafts[first..] {
        if draft.partial.is_none() {
            draft.partial.clone_from(&document.partial);
        }
    }
}

fn device_classes(node: &Node, depth: u32, out: &mut Vec<String>) {
    if depth > 16 {
        return;
    }
    for (key, value) in node.entries() {
        if key.text() == Some("deviceClassName") {
            out.extend(value.text().map(str::to_owned));
        }
        device_classes(value, depth + 1, out);
    }
    for item in node.items() {
        device_classes(item, depth + 1, out);
    }
}
