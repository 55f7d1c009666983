//! The kustomization that a command line asks for: an overlay of `deploy/`, with what the flags change.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use clap::ValueEnum as _;
use coordinator::Token;
use serde_json::{Value, json};

use super::kubectl::{Kubectl, is_kubernetes_name};
use super::settings::settings;
use super::{Problem, embedded};
use crate::cli::RenderArgs;

/// Longest name of a Job: pods are named after it, with their index.
const JOB_NAME_MAX: usize = 52;

/// A kustomization and the files beside it.
#[derive(Debug)]
pub(super) struct Overlay {
    kustomization: Value,
    suffix: String,
    /// The token of this run, where it does not come from the namespace.
    token: Option<String>,
}

/// What stands behind `kvwire` in the Job's name.
///
/// # Errors
/// The name is not one that kvwire gives.
pub(super) fn job_suffix(job: &str) -> Result<String, Problem> {
    let suffix = job.strip_prefix("kvwire").filter(|rest| rest.is_empty() || rest.starts_with('-'));
    suffix
        .filter(|_| is_kubernetes_name(job) && !job.contains('.') && job.len() <= JOB_NAME_MAX)
        .map(str::to_owned)
        .ok_or_else(|| {
            Problem::usage(format!(
                "--job: `{job}` is not a name that kvwire gives to a Job\n  fix: kvwire, or kvwire- and lower-case letters or digits"
            ))
        })
}

impl Overlay {
    /// What the flags ask for.
    ///
    /// # Errors
    /// A value that cannot be deployed.
    pub(super) fn of(args: &RenderArgs) -> Result<Self, Problem> {
        let suffix = job_suffix(&args.job.job)?;
        let own_token = !args.etcd && args.token_secret.is_none();
        let token = if own_token {
            let token = Token::random().map_err(|e| Problem::internal(format!("no random token: {e}")))?;
            Some(token.reveal().to_owned())
        } else {
            None
        };
        let mut kustomization = json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": ["../base"],
            "components": components(args).iter().map(|name| format!("../components/{name}")).collect::<Vec<_>>(),
            "patches": patches(args)?,
            "images": images(args)?,
        });
        if !suffix.is_empty() {
            kustomization["nameSuffix"] = json!(suffix);
        }
        if let Some(namespace) = &args.job.namespace {
            kustomization["namespace"] = json!(namespace);
        }
        Ok(Self { kustomization, suffix, token })
    }

    /// Builds it with `kubectl kustomize`.
    ///
    /// # Errors
    /// There is no kubectl, or no folder to work in.
    pub(super) async fn build(&self, kubectl: &Kubectl) -> Result<String, Problem> {
        let folder = Folder::new()?;
        self.write(&folder.0).map_err(|e| {
            Problem::internal(format!("the folder {} cannot be written: {e}", folder.0.display()))
        })?;
        let path = folder.0.join("run").display().to_string();
        kubectl.call(&["kustomize", &path], "").await.map_err(Problem::cluster)
    }

    fn write(&self, folder: &Path) -> std::io::Result<()> {
        embedded::unpack(folder, &self.suffix)?;
        if let Some(token) = &self.token {
            fs::write(folder.join("components/run-token/token.env"), format!("token={token}\n"))?;
        }
        fs::create_dir(folder.join("run"))?;
        // JSON is YAML, and no value can break out of it.
        fs::write(folder.join("run/kustomization.yaml"), format!("{:#}\n", self.kustomization))
    }
}

/// The overlay's components, some of them exchanged.
fn components(args: &RenderArgs) -> Vec<&'static str> {
    let fabric = args.fabric.to_possible_value();
    let mut components = embedded::components(fabric.as_ref().map_or("tcp", |value| value.get_name()));
    let mut exchange = |from: &str, to: &[&'static str]| {
        if let Some(at) = components.iter().position(|name| *name == from) {
            components.splice(at..=at, to.iter().copied());
        }
    };
    if args.etcd {
        exchange("rendezvous-tcp", &["rendezvous-etcd", "etcd", "network-policy"]);
    } else if args.token_secret.is_none() {
        exchange("rendezvous-tcp", &["rendezvous-tcp", "run-token"]);
    }
    if args.same_node {
        exchange("two-nodes", &["same-node"]);
    }
    let more = [
        (args.gpus.is_some(), "gpu"),
        (args.into.is_some(), "inject"),
        (args.network_policy, "network-policy"),
        (args.results_volume, "results-volume"),
    ];
    for (_, name) in more.iter().filter(|(wanted, _)| *wanted) {
        if !components.contains(name) {
            components.push(name);
        }
    }
    components
}

fn patches(args: &RenderArgs) -> Result<Vec<Value>, Problem> {
    let job = |pod: Value| {
        json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "kvwire" },
                "spec": { "template": { "spec": pod } } })
    };
    let container = |container: Value| job(json!({ "containers": [container] }));
    let mut patches = Vec::new();
    let settings = settings(args)?;
    if !settings.is_empty() {
        patches.push(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "kvwire-plan" },
                             "data": settings }));
    }
    if let Some(gpus) = args.gpus {
        if gpus == 0 {
            return Err(Problem::usage("--gpus: 0 is what there is without the flag\n  fix: leave it out"));
        }
        let count = json!({ "nvidia.com/gpu": gpus.to_string() });
        patches.push(container(
            json!({ "name": "kvwire", "resources": { "requests": count, "limits": count } }),
        ));
    }
    if let Some(secret) = &args.token_secret {
        if !is_kubernetes_name(secret) {
            return Err(Problem::usage(format!("--token-secret: `{secret}` is no name of Kubernetes")));
        }
        let key = json!({ "secretKeyRef": { "name": secret, "key": "token" } });
        patches.push(container(
            json!({ "name": "kvwire", "env": [{ "name": "KVWIRE_TOKEN", "valueFrom": key }] }),
        ));
    }
    if !args.nodes.is_empty() {
        patches.push(job(json!({ "affinity": { "nodeAffinity": on_nodes(args)? } })));
    }
    Ok(patches.into_iter().map(|patch| json!({ "patch": patch.to_string() })).collect())
}

fn on_nodes(args: &RenderArgs) -> Result<Value, Problem> {
    if let Some(node) = args.nodes.iter().find(|node| !is_kubernetes_name(node)) {
        return Err(Problem::usage(format!(
            "--nodes: `{node}` is no name of a node\n  fix: choose two of `kubectl get nodes -L kubernetes.io/hostname`"
        )));
    }
    if args.nodes.len() == 1 && !args.same_node {
        return Err(Problem::usage(
            "--nodes: two pods on two nodes need two of them\n  fix: name two nodes, or give --same-node",
        ));
    }
    let here = json!({ "key": "kubernetes.io/hostname", "operator": "In", "values": args.nodes });
    Ok(json!({ "requiredDuringSchedulingIgnoredDuringExecution":
               { "nodeSelectorTerms": [{ "matchExpressions": [here] }] } }))
}

fn images(args: &RenderArgs) -> Result<Vec<Value>, Problem> {
    let given = [("--image", "kvwire", &args.image), ("--into", "engine", &args.into)];
    let given = given.into_iter().filter_map(|(flag, name, image)| Some((flag, name, image.as_ref()?)));
    given.map(|(flag, name, image)| image_of(flag, name, image)).collect()
}

/// `registry:5000/path/name:tag` or `…@sha256:…`, taken apart as kustomize wants it.
fn image_of(flag: &str, name: &str, image: &str) -> Result<Value, Problem> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._/:@".contains(c);
    if image.is_empty() || image.starts_with(['-', '/', ':', '@']) || !image.chars().all(allowed) {
        return Err(Problem::usage(format!(
            "{flag}: `{image}` is no name of an image\n  fix: for example registry.example.com/kvwire:0.1.0"
        )));
    }
    if let Some((path, digest)) = image.split_once('@') {
        return Ok(json!({ "name": name, "newName": path, "digest": digest }));
    }
    // A colon before the last slash belongs to a port.
    match image.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')) {
        Some((path, tag)) => Ok(json!({ "name": name, "newName": path, "newTag": tag })),
        None => Ok(json!({ "name": name, "newName": image, "newTag": "latest" })),
    }
}

/// A folder that only this user can read, removed in the end.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, Problem> {
        let refused = |e: &dyn std::fmt::Display| {
            Problem::internal(format!(
                "no temporary folder can be made: {e}\n  fix: set TMPDIR to one that can be written"
            ))
        };
        let name = Token::random().map_err(|e| refused(&e))?;
        let path = std::env::temp_dir().join(format!("kvwire-deploy-{}", name.reveal()));
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(|e| refused(&e))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nothing is left to tell it to.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Fabric;

    #[test]
    fn an_image_is_taken_apart_at_the_right_colon() {
        let parts = |image: &str| image_of("--image", "kvwire", image).unwrap();
        assert_eq!(parts("r:5000/a/kvwire")["newName"], "r:5000/a/kvwire");
        assert_eq!(parts("r:5000/a/kvwire:1")["newTag"], "1");
        assert_eq!(parts("a/kvwire@sha256:00")["digest"], "sha256:00");
        assert!(image_of("--image", "kvwire", "a b").is_err());
    }

    #[test]
    fn a_job_is_named_after_kvwire() {
        assert_eq!(job_suffix("kvwire").unwrap(), "");
        assert_eq!(job_suffix("kvwire-nightly").unwrap(), "-nightly");
        for name in ["job", "kvwirex", "kvwire-", "kvwire-A", "kvwire-a.b", "-kvwire"] {
            assert!(job_suffix(name).is_err(), "{name}");
        }
    }

    #[test]
    fn each_fabric_has_its_overlay() {
        for fabric in Fabric::value_variants() {
            let name = fabric.to_possible_value().unwrap();
            assert!(!embedded::components(name.get_name()).is_empty(), "{}", name.get_name());
        }
    }
}
