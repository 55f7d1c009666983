//! What the schemas do not catch and the API server, the scheduler or the pods would.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

use super::{job, list, of_kind, text};
use crate::kvwire;

/// Secrets that a person makes in the namespace.
const SECRETS_OF_THE_NAMESPACE: [&str; 1] = ["kvwire-token"];
/// Labels that the Job's controller adds to its pods.
const LABELS_OF_THE_JOB: [&str; 3] = [
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
    "batch.kubernetes.io/job-completion-index",
];
/// Fields of a pod that a variable may come from, besides labels and annotations.
const FIELDS: [&str; 8] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.podIP",
    "status.podIPs",
];

/// Everything that is wrong with the objects of one deployment.
pub fn complaints(objects: &[Value]) -> Vec<String> {
    let mut told = Complaints::default();
    for object in objects {
        names_and_labels(object, &mut told);
    }
    for service in of_kind(objects, "Service") {
        selects_a_pod(objects, service, "/spec/selector", &mut told);
    }
    for policy in of_kind(objects, "NetworkPolicy") {
        selects_a_pod(objects, policy, "/spec/podSelector/matchLabels", &mut told);
        for rule in list(policy, "/spec/ingress").iter().chain(list(policy, "/spec/egress")) {
            for peer in list(rule, "/from").iter().chain(list(rule, "/to")) {
                if peer.get("podSelector").is_some() {
                    selects_a_pod(objects, peer, "/podSelector/matchLabels", &mut told);
                }
            }
        }
    }
    for workload in objects.iter().filter(|object| object.pointer("/spec/template/spec").is_some()) {
        template(objects, workload, &mut told);
    }
    for one in of_kind(objects, "Job") {
        job::check(objects, one, &mut told);
    }
    for map in of_kind(objects, "ConfigMap") {
        for key in map["data"].as_object().map_or_else(Vec::new, |data| data.keys().collect()) {
            told.unless(variables().contains(key), map, || {
                format!("no flag of `kvwire run` has the variable {key}")
            });
        }
    }
    told.0
}

#[derive(Debug, Default)]
pub(super) struct Complaints(Vec<String>);

impl Complaints {
    pub(super) fn unless(&mut self, good: bool, object: &Value, what: impl FnOnce() -> String) {
        if !good {
            self.0.push(format!("{} {}: {}", text(object, "/kind"), text(object, "/metadata/name"), what()));
        }
    }
}

/// The variables that `kvwire run` reads, from its own help.
fn variables() -> &'static BTreeSet<String> {
    static VARIABLES: OnceLock<BTreeSet<String>> = OnceLock::new();
    VARIABLES.get_or_init(|| {
        let output = Command::new(kvwire()).args(["run", "--help"]).output().expect("kvwire runs");
        let help = String::from_utf8_lossy(&output.stdout).into_owned();
        let named = |rest: &str| rest.split(['=', ']']).next().unwrap_or("").to_owned();
        let found: BTreeSet<String> = help.split("[env: ").skip(1).map(named).collect();
        assert!(found.len() > 20, "{help}");
        found
    })
}

fn is_label(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    name.len() <= 63 && name.chars().all(inner) && end(name.chars().next()) && end(name.chars().next_back())
}

fn names_and_labels(object: &Value, told: &mut Complaints) {
    let name = text(object, "/metadata/name");
    told.unless(is_label(name), object, || format!("`{name}` is no name of Kubernetes"));
    for label in ["name", "instance", "part-of"] {
        let pointer = format!("/metadata/labels/app.kubernetes.io~1{label}");
        told.unless(!text(object, &pointer).is_empty(), object, || {
            format!("has no label app.kubernetes.io/{label}")
        });
    }
}

/// Whether labels have all that a selector asks for; a selector that asks for nothing selects everything, by accident.
pub(super) fn fits(selector: &Value, labels: &Value) -> bool {
    let wanted = selector.as_object().filter(|wanted| !wanted.is_empty());
    wanted.is_some_and(|wanted| wanted.iter().all(|(key, value)| labels.get(key) == Some(value)))
}

fn templates(objects: &[Value]) -> impl Iterator<Item = &Value> {
    objects.iter().filter_map(|object| object.pointer("/spec/template"))
}

fn selects_a_pod(objects: &[Value], object: &Value, pointer: &str, told: &mut Complaints) {
    let selector = object.pointer(pointer).unwrap_or(&Value::Null);
    let any = templates(objects).any(|template| fits(selector, &template["metadata"]["labels"]));
    told.unless(any, object, || format!("{pointer} fits no pod: {selector}"));
}

/// A pod template, whatever makes pods of it.
fn template(objects: &[Value], workload: &Value, told: &mut Complaints) {
    let template = &workload["spec"]["template"];
    let spec = &template["spec"];
    if let Some(selector) = workload.pointer("/spec/selector/matchLabels") {
        told.unless(fits(selector, &template["metadata"]["labels"]), workload, || {
            "its selector does not fit its own pods".to_owned()
        });
    }
    volumes(objects, workload, spec, told);
    affinity(workload, template, told);
    claims(objects, workload, spec, told);
    for flag in ["hostNetwork", "hostPID", "hostIPC"] {
        told.unless(spec.get(flag).is_none(), workload, || format!("asks for {flag}"));
    }
    told.unless(spec["automountServiceAccountToken"] == false, workload, || {
        "mounts a service account's token".to_owned()
    });
    told.unless(text(spec, "/securityContext/seccompProfile/type") == "RuntimeDefault", workload, || {
        "has no seccomp profile".to_owned()
    });
    let restart = text(spec, "/restartPolicy");
    told.unless(["", "Always", "OnFailure", "Never"].contains(&restart), workload, || {
        format!("restartPolicy {restart}")
    });
    for container in list(spec, "/initContainers").iter().chain(list(spec, "/containers")) {
        privileges(workload, spec, container, told);
        resources(workload, container, told);
        environment(objects, workload, template, container, told);
    }
}

fn volumes(objects: &[Value], workload: &Value, spec: &Value, told: &mut Complaints) {
    let declared: Vec<&str> = list(spec, "/volumes").iter().map(|volume| text(volume, "/name")).collect();
    let containers = || list(spec, "/initContainers").iter().chain(list(spec, "/containers"));
    let mounted: Vec<&str> = containers()
        .flat_map(|container| list(container, "/volumeMounts"))
        .map(|mount| text(mount, "/name"))
        .collect();
    for name in &mounted {
        told.unless(declared.contains(name), workload, || format!("mounts {name}, which is no volume"));
    }
    for volume in list(spec, "/volumes") {
        let name = text(volume, "/name");
        told.unless(mounted.contains(&name), workload, || format!("nobody mounts the volume {name}"));
        told.unless(volume.get("hostPath").is_none(), workload, || format!("{name} is a folder of the node"));
        let empty = volume.get("emptyDir");
        told.unless(empty.is_none_or(|e| !text(e, "/sizeLimit").is_empty()), workload, || {
            format!("{name} has no limit")
        });
        let claim = text(volume, "/persistentVolumeClaim/claimName");
        told.unless(claim.is_empty() || exists(objects, "PersistentVolumeClaim", claim), workload, || {
            format!("there is no volume claim {claim}")
        });
    }
}

fn exists(objects: &[Value], kind: &str, name: &str) -> bool {
    of_kind(objects, kind).iter().any(|object| text(object, "/metadata/name") == name)
}

/// Pods that stay apart or together do so from their own kind: another selector would mean nothing.
fn affinity(workload: &Value, template: &Value, told: &mut Complaints) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let terms = format!("/spec/affinity/{kind}/requiredDuringSchedulingIgnoredDuringExecution");
        for term in list(template, &terms) {
            let selector = term.pointer("/labelSelector/matchLabels").unwrap_or(&Value::Null);
            told.unless(fits(selector, &template["metadata"]["labels"]), workload, || {
                format!("{kind} fits none of its own pods")
            });
            told.unless(text(term, "/topologyKey") == "kubernetes.io/hostname", workload, || {
                format!("{kind} is not about nodes")
            });
        }
    }
}

fn claims(objects: &[Value], workload: &Value, spec: &Value, told: &mut Complaints) {
    let of_pod: Vec<&str> = list(spec, "/resourceClaims").iter().map(|claim| text(claim, "/name")).collect();
    let used: Vec<&str> = list(spec, "/containers")
        .iter()
        .flat_map(|container| list(container, "/resources/claims"))
        .map(|claim| text(claim, "/name"))
        .collect();
    told.unless(of_pod == used, workload, || {
        format!("claims of the pod {of_pod:?}, of its container {used:?}")
    });
    for claim in list(spec, "/resourceClaims") {
        let template = text(claim, "/resourceClaimTemplateName");
        let made = of_kind(objects, "ComputeDomain")
            .iter()
            .any(|domain| text(domain, "/spec/channel/resourceClaimTemplate/name") == template);
        told.unless(made, workload, || format!("nothing makes the claim template {template}"));
    }
}

/// No more than is needed: root only where memory must be pinned, and nothing else besides.
fn privileges(workload: &Value, spec: &Value, container: &Value, told: &mut Complaints) {
    let name = text(container, "/name");
    let context = &container["securityContext"];
    told.unless(context.get("privileged").is_none(), workload, || format!("{name} is privileged"));
    told.unless(context["allowPrivilegeEscalation"] == false, workload, || {
        format!("{name} may gain privileges")
    });
    told.unless(context["readOnlyRootFilesystem"] == true, workload, || {
        format!("{name} may write to its image")
    });
    told.unless(context["capabilities"]["drop"] == serde_json::json!(["ALL"]), workload, || {
        format!("{name} keeps capabilities")
    });
    let added = list(context, "/capabilities/add");
    told.unless(added.iter().all(|capability| capability == "IPC_LOCK"), workload, || {
        format!("{name} adds {added:?}")
    });
    let root = spec.pointer("/securityContext/runAsUser") == Some(&0.into());
    let pins = list(spec, "/containers")
        .iter()
        .any(|one| !list(one, "/securityContext/capabilities/add").is_empty());
    told.unless(root == pins, workload, || {
        "root, and nothing that only root can have; or the other way round".to_owned()
    });
    told.unless(
        root || spec.pointer("/securityContext/runAsNonRoot") == Some(&true.into()),
        workload,
        || "may run as root".to_owned(),
    );
    let pull = text(container, "/imagePullPolicy");
    told.unless(["", "Always", "IfNotPresent", "Never"].contains(&pull), workload, || {
        format!("imagePullPolicy {pull}")
    });
}

fn resources(workload: &Value, container: &Value, told: &mut Complaints) {
    let (requests, limits) = (&container["resources"]["requests"], &container["resources"]["limits"]);
    let name = text(container, "/name");
    told.unless(limits.is_object() && requests == limits, workload, || {
        format!("{name}: requests {requests} are not limits {limits}")
    });
    for kind in ["cpu", "memory"] {
        told.unless(limits.get(kind).is_some(), workload, || format!("{name} has no limit of {kind}"));
    }
    for (kind, amount) in limits.as_object().into_iter().flatten() {
        told.unless(amount.as_str().is_some_and(is_quantity), workload, || {
            format!("{name}: {kind} is {amount}")
        });
    }
}

fn is_quantity(text: &str) -> bool {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let units = ["", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"];
    text[..end].parse::<f64>().is_ok() && units.contains(&&text[end..])
}

fn environment(
    objects: &[Value],
    workload: &Value,
    template: &Value,
    container: &Value,
    told: &mut Complaints,
) {
    for source in list(container, "/envFrom") {
        let map = text(source, "/configMapRef/name");
        told.unless(exists(objects, "ConfigMap", map), workload, || format!("there is no ConfigMap {map}"));
    }
    let mut known: Vec<&str> = Vec::new();
    for variable in list(container, "/env") {
        let name = text(variable, "/name");
        told.unless(!known.contains(&name), workload, || format!("{name} stands twice"));
        if name.starts_with("KVWIRE_") && name != "KVWIRE_TOKEN" {
            told.unless(variables().contains(name), workload, || {
                format!("no flag of `kvwire run` has the variable {name}")
            });
        }
        for part in text(variable, "/value").split("$(").skip(1) {
            let used = part.split(')').next().unwrap_or("");
            told.unless(known.contains(&used), workload, || {
                format!("{name} uses {used}, which is not defined before it")
            });
        }
        let field = text(variable, "/valueFrom/fieldRef/fieldPath");
        told.unless(field.is_empty() || is_field(field, template), workload, || {
            format!("{name}: no field {field}")
        });
        if let Some(key) = variable.pointer("/valueFrom/secretKeyRef") {
            told.unless(has_key(objects, key), workload, || format!("{name}: no Secret has {key}"));
        }
        known.push(name);
    }
}

fn is_field(path: &str, template: &Value) -> bool {
    let label = path.strip_prefix("metadata.labels['").and_then(|rest| rest.strip_suffix("']"));
    match label {
        Some(label) => {
            LABELS_OF_THE_JOB.contains(&label) || template["metadata"]["labels"].get(label).is_some()
        }
        None => FIELDS.contains(&path),
    }
}

fn has_key(objects: &[Value], reference: &Value) -> bool {
    let (name, key) = (text(reference, "/name"), text(reference, "/key"));
    let given = of_kind(objects, "Secret").into_iter().find(|secret| text(secret, "/metadata/name") == name);
    match given {
        Some(secret) => secret["data"].get(key).is_some(),
        None => SECRETS_OF_THE_NAMESPACE.contains(&name) && key == "token",
    }
}
