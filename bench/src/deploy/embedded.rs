//! The manifests of `deploy/`, as they were when this program was built.

use std::fs;
use std::io;
use std::path::Path;

macro_rules! embedded {
    ($($path:literal)*) => {
        /// Each file of `deploy/base` and `deploy/components`, with its path below `deploy/`.
        const FILES: &[(&str, &str)] = &[$(($path, include_str!(concat!("../../../deploy/", $path)))),*];
    };
}

embedded! {
    "base/job.yaml"
    "base/kustomization.yaml"
    "base/plan.yaml"
    "base/service.yaml"
    "components/aks-infiniband/kustomization.yaml"
    "components/aws-efa/device.yaml"
    "components/aws-efa/kustomization.yaml"
    "components/etcd/etcd.yaml"
    "components/etcd/kustomization.yaml"
    "components/gke-rdma/kustomization.yaml"
    "components/gpu/kustomization.yaml"
    "components/inject/kustomization.yaml"
    "components/mnnvl/compute-domain.yaml"
    "components/mnnvl/kustomization.yaml"
    "components/network-policy/kustomization.yaml"
    "components/network-policy/policy.yaml"
    "components/pin-memory/kustomization.yaml"
    "components/ranks/kustomization.yaml"
    "components/rdma-shared-device/kustomization.yaml"
    "components/rendezvous-etcd/kustomization.yaml"
    "components/rendezvous-tcp/kustomization.yaml"
    "components/results-volume/claim.yaml"
    "components/results-volume/kustomization.yaml"
    "components/run-token/kustomization.yaml"
    "components/same-node/kustomization.yaml"
    "components/sriov/kustomization.yaml"
    "components/tcp-only/kustomization.yaml"
    "components/two-nodes/kustomization.yaml"
    "overlays/aks-infiniband/kustomization.yaml"
    "overlays/aws-efa/kustomization.yaml"
    "overlays/gb200-mnnvl/kustomization.yaml"
    "overlays/gke-rdma/kustomization.yaml"
    "overlays/infiniband/kustomization.yaml"
    "overlays/roce/kustomization.yaml"
    "overlays/sriov/kustomization.yaml"
    "overlays/tcp-etcd/kustomization.yaml"
    "overlays/tcp-same-node/kustomization.yaml"
    "overlays/tcp/kustomization.yaml"
}

/// Text in which the Job's name stands where kustomize does not look for names: labels, host names, templates.
const NAMED: [&str; 5] = [
    "app.kubernetes.io/instance: kvwire\n",
    "subdomain: kvwire\n",
    "tcp://kvwire-0.kvwire:",
    "etcd://kvwire-etcd:",
    "kvwire-imex-channel\n",
];

/// The components that an overlay takes, in its order.
pub(super) fn components(overlay: &str) -> Vec<&'static str> {
    let path = format!("overlays/{overlay}/kustomization.yaml");
    let text = FILES.iter().find(|(name, _)| *name == path).map_or("", |(_, text)| text);
    text.lines().filter_map(|line| line.trim().strip_prefix("- ../../components/")).collect()
}

/// Writes all files below `folder`, for a Job named `kvwire` and `suffix`.
///
/// # Errors
/// The folder cannot be written.
pub(super) fn unpack(folder: &Path, suffix: &str) -> io::Result<()> {
    for (path, text) in FILES {
        let path = folder.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, renamed(text, suffix))?;
    }
    Ok(())
}

fn renamed(text: &str, suffix: &str) -> String {
    let mut text = text.to_owned();
    for named in NAMED.iter().filter(|_| !suffix.is_empty()) {
        let end = named.trim_end_matches(['\n', ':']);
        let tail = &named[end.len()..];
        let new = match *named {
            "tcp://kvwire-0.kvwire:" => format!("tcp://kvwire{suffix}-0.kvwire{suffix}"),
            _ => format!("{end}{suffix}"),
        };
        text = text.replace(named, &(new + tail));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_manifest_of_the_repository_is_part_of_the_program() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy"));
        let mut found = Vec::new();
        for part in ["base", "components", "overlays"] {
            collect(&root.join(part), root, &mut found);
        }
        found.sort();
        let mut embedded: Vec<String> = FILES.iter().map(|(path, _)| (*path).to_owned()).collect();
        embedded.sort();
        assert_eq!(found, embedded);
    }

    fn collect(folder: &Path, root: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.path().is_dir() {
                collect(&entry.path(), root, found);
            } else if entry.path().extension().is_some_and(|extension| extension == "yaml") {
                found.push(entry.path().strip_prefix(root).unwrap().display().to_string());
            }
        }
    }

    #[test]
    fn a_name_reaches_the_places_that_kustomize_does_not_know() {
        let text = "  subdomain: kvwire\n  x: tcp://kvwire-0.kvwire:18516\n  name: kvwire\n";
        let expected = "  subdomain: kvwire-a\n  x: tcp://kvwire-a-0.kvwire-a:18516\n  name: kvwire\n";
        assert_eq!(renamed(text, "-a"), expected);
        assert_eq!(renamed(text, ""), text);
    }

    #[test]
    fn overlays_are_lists_of_components() {
        assert_eq!(components("tcp"), ["rendezvous-tcp", "two-nodes", "tcp-only"]);
    }
}
