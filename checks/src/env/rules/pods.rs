//! What the pod gives to its container: devices, claims, capabilities, shared memory.

use super::super::selection::Library;
use super::super::worker::{SharedMemory, Worker};
use super::{Findings, Scene, finding, is_fabric};
use crate::Status;

pub(super) fn check(scene: &Scene<'_>, worker: &Worker, out: &mut Findings<'_>) {
    claims(worker, out);
    gke_networks(worker, out);
    shared_memory(worker, out);
    if worker.partial.is_some() || worker.is_process {
        return;
    }
    fabric(scene, worker, out);
    memlock(scene, worker, out);
    counts(worker, out);
}

fn fabric(scene: &Scene<'_>, worker: &Worker, out: &mut Findings<'_>) {
    if matches!(worker.selection.library, Library::Other(_))
        || scene.fabric(worker).is_some()
        || scene.has_imex(worker)
        || expects_tcp(worker)
    {
        return;
    }
    let both = scene.has_both_sides(worker);
    let (status, title) = if worker.pod.privileged {
        // A privileged container sees the host's devices, /dev/infiniband among them.
        (
            Status::Warn,
            "no RDMA device is requested; the container is privileged and may see the host's, of which nothing is reserved",
        )
    } else if both {
        (Status::Fail, "nothing gives the pod an RDMA device or NVLink to other pods: KV cache takes TCP")
    } else {
        (
            Status::Warn,
            "nothing here gives the pod an RDMA device or NVLink to other pods; an overlay would have to",
        )
    };
    let detail = if worker.pod.nodes > 1 {
        format!("one replica spans {} nodes", worker.pod.nodes)
    } else {
        String::new()
    };
    let fix = if worker.dynamo {
        "resources:\n  limits:\n    custom:\n      rdma/ib: \"1\""
    } else {
        "resources:\n  limits:\n    rdma/ib: \"1\""
    };
    out.add(finding("no-fabric-resource", status, title).detail(detail).fix(fix), worker.span, Some(worker));
}

/// An active test that is told that TCP will do.
fn expects_tcp(worker: &Worker) -> bool {
    let expected = worker.env.get("KVWIRE_EXPECT").and_then(|setting| setting.text());
    worker.launch.is_active_test() && matches!(expected, Some("tcp" | "any"))
}

fn memlock(scene: &Scene<'_>, worker: &Worker, out: &mut Findings<'_>) {
    let Some(fabric) = scene.fabric(worker) else { return };
    let has = worker.pod.privileged
        || worker.pod.capabilities.iter().any(|c| matches!(c.text.as_str(), "IPC_LOCK" | "ALL"));
    if !has {
        let title =
            "the container lacks IPC_LOCK: whether RDMA can pin memory depends on the node's default limit";
        let fix = "securityContext:\n  capabilities:\n    add: [IPC_LOCK]";
        let span = worker.pod.resources.iter().find(|r| is_fabric(&r.name)).map_or(worker.span, |r| r.span);
        out.add(finding("memlock", Status::Warn, title).evidence([fabric]).fix(fix), span, Some(worker));
    }
}

fn counts(worker: &Worker, out: &mut Findings<'_>) {
    let Some(gpus) = worker.gpus() else { return };
    let fabric =
        worker.pod.resources.iter().find(|r| is_fabric(&r.name) && !r.name.contains("networking.gke.io"));
    let Some(resource) = fabric else { return };
    let Ok(devices) = resource.amount.parse::<u32>() else { return };
    // One unit is often a ticket for all cards of the node.
    if devices > 1 && devices < gpus {
        let title = format!("{devices} of {} for {gpus} GPUs: GPUs share network cards", resource.name);
        let fix = format!("{}: \"{gpus}\"", resource.name);
        out.add(finding("rdma-fewer-than-gpus", Status::Warn, title).fix(fix), resource.span, Some(worker));
    }
}

fn claims(worker: &Worker, out: &mut Findings<'_>) {
    for claim in &worker.pod.container_claims {
        if worker.partial.is_none() && !worker.pod.pod_claims.iter().any(|(name, _)| name.text == claim.text)
        {
            let title = format!("the container uses the claim {}, which the pod does not have", claim.text);
            let fix = format!(
                "resourceClaims:\n  - name: {0}\n    resourceClaimTemplateName: <template of {0}>",
                claim.text
            );
            out.add(finding("claim-incomplete", Status::Fail, title).fix(fix), claim.span, Some(worker));
        }
    }
    for (claim, _) in &worker.pod.pod_claims {
        if worker.partial.is_none() && !worker.pod.container_claims.iter().any(|c| c.text == claim.text) {
            let title = format!("the pod has the claim {}, and the container does not use it", claim.text);
            let fix = format!("resources:\n  claims:\n    - name: {}", claim.text);
            out.add(finding("claim-incomplete", Status::Fail, title).fix(fix), claim.span, Some(worker));
        }
    }
}

/// Networks that are requested as resources, and those that the annotation attaches.
fn gke_networks(worker: &Worker, out: &mut Findings<'_>) {
    const PREFIX: &str = "networking.gke.io.networks/";
    let Some((_, annotation)) =
        worker.pod.annotations.iter().find(|(k, _)| k == "networking.gke.io/interfaces")
    else {
        return;
    };
    let attached: Vec<&str> = annotation
        .text
        .split("\"network\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').nth(1))
        .filter(|n| *n != "default")
        .collect();
    let requested: Vec<&str> = worker
        .pod
        .resources
        .iter()
        .filter_map(|r| r.name.strip_prefix(PREFIX))
        .filter(|n| !n.ends_with(".IP"))
        .collect();
    if requested.is_empty() && worker.partial.is_some() {
        return;
    }
    for name in &attached {
        if !requested.contains(name) {
            let title =
                format!("the network {name} is attached in the annotation and not requested as a resource");
            let fix = format!("{PREFIX}{name}: \"1\"");
            let span = out.sources.locate(annotation.span, name);
            out.add(finding("gke-networks", Status::Fail, title).fix(fix), span, Some(worker));
        }
    }
    for resource in
        worker.pod.resources.iter().filter(|r| r.name.starts_with(PREFIX) && !r.name.ends_with(".IP"))
    {
        if !attached.contains(&&resource.name[PREFIX.len()..]) {
            let title = format!("{} is requested and not attached in the annotation", resource.name);
            let network = &resource.name[PREFIX.len()..];
            let fix =
                format!("{{\"interfaceName\": \"eth{}\", \"network\": \"{network}\"}}", attached.len() + 2);
            out.add(finding("gke-networks", Status::Fail, title).fix(fix), resource.span, Some(worker));
        }
    }
}

fn shared_memory(worker: &Worker, out: &mut Findings<'_>) {
    match &worker.pod.shared_memory {
        SharedMemory::Size(size) => {
            let Some(bytes) = quantity(&size.text) else { return };
            if bytes < 16.0 * 1024.0 * 1024.0 {
                let title = format!("/dev/shm has {}: below 16 MiB UCX drops shared memory", size.text);
                let fix = if worker.dynamo { "sharedMemory:\n  size: 8Gi" } else { "sizeLimit: 8Gi" };
                out.add(
                    finding("shared-memory-small", Status::Fail, title).fix(fix),
                    size.span,
                    Some(worker),
                );
            }
        }
        SharedMemory::Runtime if worker.partial.is_none() && worker.gpus().is_some_and(|g| g > 1) => {
            let title = "/dev/shm is not set: the container runtime gives 64 MiB, for several GPUs";
            let fix = "volumes:\n  - name: shm\n    emptyDir:\n      medium: Memory\n      sizeLimit: 16Gi\n# and in the container\nvolumeMounts:\n  - name: shm\n    mountPath: /dev/shm";
            out.add(finding("shared-memory-small", Status::Warn, title).fix(fix), worker.span, Some(worker));
        }
        _ => {}
    }
}

/// A quantity of Kubernetes, in units.
fn quantity(text: &str) -> Option<f64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    let factor = match &text[end..] {
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "Ki" => 1024.0,
        "Mi" => 1024.0_f64.powi(2),
        "Gi" => 1024.0_f64.powi(3),
        "Ti" => 1024.0_f64.powi(4),
        _ => return None,
    };
    Some(number * factor)
}
