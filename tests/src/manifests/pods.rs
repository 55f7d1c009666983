//! The pods that a Job's controller would make.

use serde_json::{Value, json};

use super::{list, text};

/// What a cluster adds to a pod.
#[derive(Debug, Clone, Copy)]
pub struct Given<'a> {
    /// Its index.
    pub index: usize,
    /// The id of its Job.
    pub job: &'a str,
    /// What the cluster's DNS would say: address and name.
    pub names: &'a [(&'a str, &'a str)],
    /// The file behind the termination message, on this machine.
    pub termination_log: &'a str,
}

/// The pod of an index, made from the Job's template as its controller does it.
pub fn pod_of(job: &Value, given: &Given<'_>) -> Value {
    let mut pod = job["spec"]["template"].clone();
    let name = format!("{}-{}", text(job, "/metadata/name"), given.index);
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] = json!(given.job);
    pod["spec"]["hostname"] = json!(name);
    pod["spec"]["hostAliases"] =
        given.names.iter().map(|(address, name)| json!({ "ip": address, "hostnames": [name] })).collect();
    let index = json!({ "name": "JOB_COMPLETION_INDEX", "value": given.index.to_string() });
    with_own_volumes(&mut pod, &name);
    let container = &mut pod["spec"]["containers"][0];
    push(&mut container["env"], index);
    push(
        &mut container["volumeMounts"],
        json!({ "name": "termination", "mountPath": "/dev/termination-log" }),
    );
    let file = json!({ "path": given.termination_log, "type": "File" });
    push(&mut pod["spec"]["volumes"], json!({ "name": "termination", "hostPath": file }));
    pod
}

fn push(items: &mut Value, item: Value) {
    match items {
        Value::Array(items) => items.push(item),
        other => *other = json!([item]),
    }
}

/// podman knows volumes by their name alone: without this the two pods would share theirs.
fn with_own_volumes(pod: &mut Value, name: &str) {
    let own = |volume: &str| json!(format!("{name}-{volume}"));
    for volume in pod["spec"]["volumes"].as_array_mut().into_iter().flatten() {
        volume["name"] = own(text(volume, "/name"));
    }
    for kind in ["containers", "initContainers"] {
        for container in pod["spec"][kind].as_array_mut().into_iter().flatten() {
            for mount in container["volumeMounts"].as_array_mut().into_iter().flatten() {
                mount["name"] = own(text(mount, "/name"));
            }
        }
    }
    debug_assert!(!list(pod, "/spec/containers").is_empty());
}
