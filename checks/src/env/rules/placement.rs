//! Where prefill and decode run, seen from each other.

use std::collections::BTreeMap;

use super::super::worker::{Placed, Role, Worker};
use super::super::yaml::Span;
use super::{Findings, Scene, finding, side};
use crate::Status;

pub(super) fn check(scene: &Scene<'_>, (prefill, decode): (&Worker, &Worker), out: &mut Findings<'_>) {
    if prefill.partial.is_some() || decode.partial.is_some() {
        return;
    }
    one_node(scene, prefill, decode, out);
    domains(scene, prefill, decode, out);
}

/// Two sides on two nodes, in the pod's spec of either.
const APART: &str = "affinity:\n  podAntiAffinity:\n    requiredDuringSchedulingIgnoredDuringExecution:\n      - topologyKey: kubernetes.io/hostname\n        labelSelector: {matchLabels: {<label of the other side>: <its value>}}";

/// Where it is written that both sides run on one node, and whether they must.
fn shared_node(prefill: &Worker, decode: &Worker) -> Option<(Span, bool)> {
    let (a, b) = (&prefill.pod, &decode.pod);
    if let (Some(node), Some(other)) = (&a.node, &b.node)
        && node.text == other.text
    {
        return Some((other.span, true));
    }
    let beside = |one: &Worker, other: &Worker| {
        let meant = one.pod.beside.iter().find(|n| n.means(&other.pod.labels))?;
        Some((meant.span, meant.required))
    };
    beside(decode, prefill).or_else(|| beside(prefill, decode))
}

fn one_node(scene: &Scene<'_>, prefill: &Worker, decode: &Worker, out: &mut Findings<'_>) {
    let Some((span, required)) = shared_node(prefill, decode) else { return };
    let status = if required { Status::Fail } else { Status::Warn };
    let both = |has: &dyn Fn(&Worker) -> bool| has(prefill) && has(decode);
    if both(&|w| w.pod.resources.iter().any(|r| r.name.ends_with("/efa"))) {
        let title = "prefill and decode share a node, and EFA is not made for peers on one node";
        let found = finding("same-node-isolation", Status::Warn, title).fix(APART).worker(&prefill.name);
        out.add(found, span, Some(decode));
        return;
    }
    let joined = both(&|w| w.pod.host_pid && w.pod.host_ipc) || both(&|w| scene.has_imex(w));
    if joined || both(&|w| scene.fabric(w).is_some()) {
        return;
    }
    let title = "prefill and decode share a node, and neither GPU memory nor a network card is shared: KV cache takes TCP between the two pods";
    let lines =
        [side(out, prefill, "no RDMA device, no IMEX channel, its own process namespace", prefill.span)]
            .into_iter()
            .chain([side(
                out,
                decode,
                "no RDMA device, no IMEX channel, its own process namespace",
                decode.span,
            )]);
    let fix = "resources:\n  limits:\n    rdma/ib: \"1\"";
    let found = finding("same-node-isolation", status, title).evidence(lines).fix(fix).worker(&prefill.name);
    out.add(found, span, Some(decode));
}

/// The ComputeDomain behind a worker's claim: name of its template, and where the claim stands.
fn domain<'a>(scene: &Scene<'_>, worker: &'a Worker) -> Option<(&'a str, &'a Placed)> {
    let known = |template: &str| scene.around.compute_domains.iter().any(|(name, _, _)| name == template);
    worker.pod.pod_claims.iter().find(|(_, template)| known(template)).map(|(claim, t)| (t.as_str(), claim))
}

fn domains(scene: &Scene<'_>, prefill: &Worker, decode: &Worker, out: &mut Findings<'_>) {
    let (Some((a, first)), Some((b, second))) = (domain(scene, prefill), domain(scene, decode)) else {
        return;
    };
    if a != b && scene.fabric(prefill).is_none() && scene.fabric(decode).is_none() {
        let title = format!(
            "prefill and decode are in different ComputeDomains, {a} and {b}: NVLink does not join them"
        );
        let lines = [side(out, prefill, a, first.span), side(out, decode, b, second.span)];
        let fix = format!("resourceClaimTemplateName: {a}");
        let found =
            finding("compute-domain", Status::Fail, title).evidence(lines).fix(fix).worker(&prefill.name);
        out.add(found, second.span, Some(decode));
    }
}

/// Nodes of all workers that claim a channel of one ComputeDomain, against its `numNodes`.
pub(super) fn sizes(scene: &Scene<'_>, out: &mut Findings<'_>) {
    let mut nodes: BTreeMap<&str, (u64, Vec<String>)> = BTreeMap::new();
    for worker in scene.workers.iter().filter(|w| w.role != Role::NotAWorker && w.partial.is_none()) {
        if let Some((template, _)) = domain(scene, worker) {
            let here = u64::from(worker.pod.nodes) * u64::from(worker.pod.replicas);
            let sum = nodes.entry(template).or_default();
            sum.0 = sum.0.saturating_add(here);
            sum.1.push(format!("{}: {here}", worker.name));
        }
    }
    for (template, stated, span) in &scene.around.compute_domains {
        // Without a number, or with 0, the domain follows its workloads.
        let (Some(stated @ 1..), Some((wanted, lines))) = (stated, nodes.get(template.as_str())) else {
            continue;
        };
        if *wanted > u64::from(*stated) {
            let title =
                format!("the ComputeDomain of {template} has {stated} nodes, and its workers take {wanted}");
            let found = finding("compute-domain", Status::Warn, title).evidence(lines.iter().cloned());
            let found = found.fix(format!("numNodes: {wanted}"));
            out.add(found, *span, None);
        }
    }
}
