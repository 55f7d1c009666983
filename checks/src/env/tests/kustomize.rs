//! Kustomizations: built here, built by kubectl, or named as not built. kubectl itself says what is right.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::{Options, Report, check};
use super::{both, found, report, value, worker};
use crate::Status;

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn check_with(kubectl: Option<PathBuf>, path: &Path) -> Report {
    let options = Options { kubectl, ..Options::default() };
    check(&[path.to_owned()], &mut std::io::empty(), &options)
}

/// The kubectl that `make setup-tests` fetches.
fn kubectl() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/kubectl");
    let found = fs::read_dir(&root).ok().into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let mut found = found.map(|path| path.join("scripts/kubectl")).filter(|path| path.is_file());
    found.next().unwrap_or_else(|| panic!("no kubectl in {}; run: make setup-tests", root.display()))
}

/// A program that stands in for kubectl.
fn stub(folder: &Path, script: &str) -> PathBuf {
    let path = folder.join("kubectl-stub");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: decode, labels: {app: d}}
spec:
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec:
      containers:
        - name: c
          image: vllm/vllm-openai:v1
          resources: {limits: {nvidia.com/gpu: 1}}
          env:
            - {name: UCX_TLS, value: tcp}
            - {name: UCX_LOG_LEVEL, value: debug}
            - {name: UCX_MAX_RMA_RAILS, valueFrom: {configMapKeyRef: {name: net, key: rails}}}
";

const GRAPH: &str = "
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: g}
spec:
  services:
    decode:
      subComponentType: decode
      extraPodSpec:
        mainContainer:
          image: vllm-runtime:1
          env:
            - {name: UCX_TLS, value: tcp}
            - {name: UCX_LOG_LEVEL, value: debug}
";

/// What each worker sees, its image and its devices: what a wrong build would change.
fn seen(report: &Report) -> BTreeMap<String, String> {
    let of = |w: &super::super::WorkerView| {
        let mut env: Vec<String> = w.env.iter().map(|s| format!("{}={}", s.name, s.value)).collect();
        env.sort();
        format!("{:?} {:?} {} {env:?}", w.role, w.engine, w.fabric)
    };
    report.workers.iter().map(|w| (w.object.clone(), of(w))).collect()
}

#[test]
fn what_is_built_here_is_what_kubectl_builds() {
    let base = "resources: [d.yaml]\nconfigMapGenerator:\n  - {name: net, literals: ['rails=4']}\n";
    let patch = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: decode}\nspec:\n  template:\n    spec:\n      containers:\n        - name: c\n          env:\n            - {name: UCX_TLS, value: 'rc,cuda_copy'}\n            - {name: UCX_LOG_LEVEL, $patch: delete}\n            - {name: UCX_NET_DEVICES, value: 'mlx5_0:1'}\n";
    let graph_patch = "apiVersion: nvidia.com/v1alpha1\nkind: DynamoGraphDeployment\nmetadata: {name: g}\nspec:\n  services:\n    decode:\n      resources: {limits: {custom: {rdma/ib: '1'}}}\n      extraPodSpec:\n        mainContainer:\n          env:\n            - {name: UCX_NET_DEVICES, value: 'mlx5_1:1'}\n";
    let rows: &[(&str, &str)] = &[
        ("a strategic merge patch", "resources: [../base]\npatches: [{path: patch.yaml}]\n"),
        ("the older field for it", "resources: [../base]\npatchesStrategicMerge: [patch.yaml]\n"),
        ("a component", "resources: [../base]\ncomponents: [../fabric]\n"),
        (
            "a JSON patch, its escapes and places in lists",
            "resources: [../base]\npatches:\n  - target: {kind: Deployment, name: dec.*}\n    patch: |-\n      - {op: add, path: /spec/template/spec/containers/0/resources/limits/rdma~1ib, value: '1'}\n      - {op: replace, path: /spec/template/spec/containers/0/env/0/value, value: rc_x}\n      - {op: remove, path: /spec/template/spec/containers/0/env/1}\n      - {op: add, path: /spec/template/spec/containers/0/env/-, value: {name: UCX_RC_TIMEOUT, value: 2s}}\n",
        ),
        (
            "two patches in one text",
            "resources: [../base, ../graph]\npatches:\n  - patch: |-\n      apiVersion: apps/v1\n      kind: Deployment\n      metadata: {name: decode}\n      spec: {template: {spec: {containers: [{name: c, env: [{name: UCX_TLS, value: a}]}]}}}\n",
        ),
        (
            "a patch on a custom resource, whose lists are replaced",
            "resources: [../graph]\npatches: [{path: graph-patch.yaml}]\n",
        ),
        (
            "an item of a list that takes the others away",
            "resources: [../base]\npatches:\n  - patch: |-\n      apiVersion: apps/v1\n      kind: Deployment\n      metadata: {name: decode}\n      spec:\n        template:\n          spec:\n            containers:\n              - name: c\n                env: [{$patch: replace}, {name: UCX_TLS, value: ud}]\n",
        ),
        (
            "images with another name and tag",
            "resources: [../base]\nimages: [{name: vllm/vllm-openai, newName: lmsysorg/sglang, newTag: v2}]\n",
        ),
        (
            "labels that say the role",
            "resources: [../base]\nlabels: [{pairs: {llm-d.ai/role: prefill}, includeTemplates: true}]\n",
        ),
        ("labels of the older kind", "resources: [../base]\ncommonLabels: {llm-d.ai/role: prefill}\n"),
        (
            "a ConfigMap from a file of variables",
            "resources: [../plain]\nconfigMapGenerator: [{name: net, envs: [net.env]}]\n",
        ),
        ("names and namespaces", "resources: [../base]\nnamespace: serving\n"),
    ];
    for (what, overlay) in rows {
        let folder = folder(&[
            ("base/kustomization.yaml", base),
            ("base/d.yaml", DEPLOYMENT),
            ("plain/kustomization.yaml", "resources: [d.yaml]\n"),
            ("plain/d.yaml", DEPLOYMENT),
            ("graph/kustomization.yaml", "resources: [g.yaml]\n"),
            ("graph/g.yaml", GRAPH),
            (
                "fabric/kustomization.yaml",
                "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches: [{path: patch.yaml}]\n",
            ),
            ("fabric/patch.yaml", patch),
            ("overlay/net.env", "# rails of a node\nrails=8\n"),
            ("overlay/kustomization.yaml", overlay),
        ]);
        // kustomize reads patches from its own folder only; a file that nothing uses would be looked at by itself.
        let path = folder.path().join("overlay");
        for (name, text) in [("patch.yaml", patch), ("graph-patch.yaml", graph_patch)] {
            if overlay.contains(&format!("path: {name}")) || overlay.contains(&format!("[{name}]")) {
                fs::write(path.join(name), text).unwrap();
            }
        }
        let overlay = path;
        let built = Command::new(kubectl()).arg("kustomize").arg(&overlay).output().unwrap();
        assert!(built.status.success(), "{what}: {}", String::from_utf8_lossy(&built.stderr));
        let theirs = report(std::str::from_utf8(&built.stdout).unwrap());
        let ours = check_with(None, &overlay);
        assert!(found(&ours, "kustomize-unresolved").is_none(), "{what}: {:?}", ours.findings);
        assert!(!ours.workers.is_empty(), "{what}");
        assert_eq!(seen(&ours), seen(&theirs), "{what}");
    }
}

/// Beyond the reader here: one value is copied into another.
const REPLACEMENTS: &str = "resources: [d.yaml, net.yaml]\nreplacements:\n  - source: {kind: ConfigMap, name: net, fieldPath: data.tls}\n    targets:\n      - select: {kind: Deployment, name: decode}\n        fieldPaths: ['spec.template.spec.containers.[name=c].env.[name=UCX_TLS].value']\n";
const NET: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: net}\ndata: {tls: 'rc,cuda_copy', rails: '2'}\n";

#[test]
fn what_is_beyond_the_reader_is_built_by_kubectl_where_it_is_installed() {
    let folder = folder(&[("kustomization.yaml", REPLACEMENTS), ("d.yaml", DEPLOYMENT), ("net.yaml", NET)]);
    let with = check_with(Some(kubectl()), folder.path());
    assert!(found(&with, "kustomize-unresolved").is_none(), "{:?}", with.findings);
    assert_eq!(with.workers.len(), 1);
    assert_eq!(value(&with, "decode", "UCX_TLS"), Some("rc,cuda_copy"));
    assert_eq!(worker(&with, "decode").partial, "");
    let place = worker(&with, "decode").source.as_ref().expect("a place");
    assert!(place.file.starts_with("kubectl kustomize "), "{}", place.file);
    assert!(with.line(&place.file, place.line).is_none() || place.line > 0);
}

#[test]
fn the_folder_that_one_is_in_has_a_name_for_kubectl() {
    let folder = |path: &'static str| super::super::kustomize::folder_of(Path::new(path));
    assert_eq!(folder("kustomization.yaml"), Path::new("."));
    assert_eq!(folder("overlay/kustomization.yaml"), Path::new("overlay"));
}

#[test]
fn what_nobody_builds_is_unknown_and_its_parts_are_looked_at_as_parts() {
    let folder = folder(&[("kustomization.yaml", REPLACEMENTS), ("d.yaml", DEPLOYMENT), ("net.yaml", NET)]);
    let without = check_with(None, folder.path());
    let finding = found(&without, "kustomize-unresolved").expect("a finding");
    assert_eq!(finding.status, Status::Unknown);
    assert!(
        finding.title.contains("`replacements` is beyond this reader")
            && finding.title.contains("not installed")
    );
    assert!(finding.next_step.contains("kubectl kustomize"));
    assert!(!worker(&without, "decode").partial.is_empty(), "a part is never judged as if it were whole");
    assert_eq!(found(&without, "no-fabric-resource"), None);
    assert!(without.findings.iter().all(|f| f.status != Status::Fail), "{:?}", without.findings);
}

#[test]
fn fields_that_change_what_a_worker_sees_are_never_passed_over() {
    for field in [
        "transformers: [t.yaml]",
        "generators: [g.yaml]",
        "helmCharts: [{name: c}]",
        "openapi: {path: schema.json}",
        "crds: [c.json]",
        "vars: [{name: X}]",
        "validators: [v.yaml]",
        "configMapGenerator: [{name: net, behavior: merge, literals: [a=b]}]",
        "configMapGenerator: [{name: net, envs: [bare.env]}]",
        "patches: [{target: {annotationSelector: 'a=b'}, patch: '- {op: remove, path: /spec}'}]",
        "patches: [{target: {name: '(a|decode)'}, patch: '- {op: remove, path: /spec}'}]",
        "patches: [{target: {labelSelector: 'a in (b)'}, patch: '- {op: remove, path: /spec}'}]",
        "patches: [{target: {kind: Deployment}, patch: '- {op: test, path: /spec, value: {}}'}]",
        "patches: [{patch: \"a: [\\n\"}]",
    ] {
        let text = format!("resources: [d.yaml]\n{field}\n");
        let folder =
            folder(&[("kustomization.yaml", &text), ("d.yaml", DEPLOYMENT), ("bare.env", "RAILS\n")]);
        let report = check_with(None, folder.path());
        let status = found(&report, "kustomize-unresolved").map(|f| f.status);
        assert_eq!(status, Some(Status::Unknown), "{field}");
        assert_eq!(report.workers.len(), 1, "{field}");
    }
}

#[test]
fn a_reference_to_the_network_is_never_followed() {
    for remote in ["https://example.com/base?ref=v1", "github.com/o/r//base", "git@example.com:o/r.git"] {
        let text = format!("resources: ['{remote}', here.yaml]\n");
        let folder = folder(&[("kustomization.yaml", &text), ("here.yaml", &both(&[]))]);
        let mark = folder.path().join("was-started");
        let program = stub(folder.path(), &format!(": > {}", mark.display()));
        let report = check_with(Some(program), folder.path());
        let finding = found(&report, "kustomize-unresolved").expect("a finding");
        assert!(finding.title.contains("not on this machine"), "{}", finding.title);
        assert!(!mark.exists(), "kubectl was started for {remote}");
        assert_eq!(report.workers.len(), 2);
    }
}

#[test]
fn a_kubectl_that_fails_is_quoted_without_secrets() {
    let folder = folder(&[("kustomization.yaml", REPLACEMENTS), ("d.yaml", DEPLOYMENT), ("net.yaml", NET)]);
    let rows = [
        ("echo 'error: no such field' >&2; exit 1", "kubectl says: no such field"),
        ("echo 'error: token=hunter2-very-private' >&2; exit 1", "hidden"),
        ("exit 3", "kubectl says: it says nothing"),
        ("yes a-long-line-of-output | head -c 6000000", "MiB"),
        ("printf '\\377\\376'", "not UTF-8"),
    ];
    for (script, says) in rows {
        let report = check_with(Some(stub(folder.path(), script)), folder.path());
        let finding = found(&report, "kustomize-unresolved").expect("a finding");
        assert!(finding.title.contains(says), "{script}: {}", finding.title);
        assert!(!finding.title.contains("hunter2"), "{}", finding.title);
    }
    let report = check_with(Some(folder.path().join("no-such-program")), folder.path());
    assert!(found(&report, "kustomize-unresolved").is_some_and(|f| f.title.contains("cannot be started")));
}
