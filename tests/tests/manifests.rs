//! The manifests of `deploy/`: they build, Kubernetes' schemas accept them, and what no schema sees is right as well.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use kvwire_tests::manifests::{
    Schemas, complaints, kustomize, of_kind, overlay, overlays, path_with_kubectl, rendered, text,
};
use kvwire_tests::{Ended, kvwire_command, repository};
use serde_json::{Value, json};

/// The oldest Kubernetes that the Job needs, the oldest for claims of devices, and the newest.
const VERSIONS: [&str; 3] = ["1.29", CLAIMS_FROM, "1.37"];
const CLAIMS_FROM: &str = "1.32";
/// The one kind that is not Kubernetes' own.
const FOREIGN: &str = "ComputeDomain";

/// Flags of `kvwire deploy` that together take every component.
const DEPLOYMENTS: [&[&str]; 5] = [
    &[],
    &["--job", "kvwire-nightly", "--namespace", "serving", "--fabric", "infiniband", "--network-policy"],
    &["--job", "kvwire-b", "--etcd", "--same-node", "--results-volume", "--nodes", "node-a"],
    &["--job", "kvwire-c", "--fabric", "gb200-mnnvl", "--gpus", "4", "--token-secret", "kvwire-token"],
    &[
        "--into",
        "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.0",
        "--image",
        "r.example:5000/kvwire@sha256:00",
        "--nodes",
        "a,b",
    ],
];

fn all() -> Vec<(String, Vec<Value>)> {
    let overlays = overlays().into_iter().map(|name| (name.clone(), overlay(&name)));
    let deployments = DEPLOYMENTS.iter().map(|flags| (flags.join(" "), rendered(flags)));
    overlays.chain(deployments).collect()
}

#[test]
fn schemas_of_old_and_new_kubernetes_accept_every_deployment() {
    let all = all();
    for version in VERSIONS {
        let mut schemas = Schemas::of(version);
        let has_claims = |objects: &[Value]| !of_kind(objects, FOREIGN).is_empty();
        for (name, objects) in
            all.iter().filter(|(_, objects)| version >= CLAIMS_FROM || !has_claims(objects))
        {
            for object in objects.iter().filter(|object| object["kind"] != FOREIGN) {
                let found = schemas.complaints(object);
                assert!(found.is_empty(), "{name} in Kubernetes {version}: {found:?}");
            }
        }
    }
}

#[test]
fn nothing_is_wrong_that_a_schema_does_not_see() {
    for (name, objects) in all() {
        let found = complaints(&objects);
        assert!(found.is_empty(), "{name}: {found:#?}");
    }
}

/// Puts a value into the first object of a kind.
fn planted(kind: &str, pointer: &str, value: &Value) -> Vec<Value> {
    let mut objects = rendered(&["--network-policy", "--gpus", "1", "--fabric", "infiniband"]);
    let object = objects.iter_mut().find(|object| object["kind"] == kind).unwrap();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap_or_else(|| panic!("{pointer}"));
    match parent {
        Value::Array(items) => items[key.parse::<usize>().unwrap()] = value.clone(),
        other => other[key] = value.clone(),
    }
    objects
}

#[test]
fn a_planted_fault_is_found_by_a_schema_or_by_our_own_rules() {
    const POD: &str = "/spec/template/spec";
    let pod = |rest: &str| format!("{POD}{rest}");
    let faults: [(&str, String, Value); 22] = [
        ("Job", "/spec/completionMod".to_owned(), json!("Indexed")),
        ("Job", "/spec/completions".to_owned(), json!("two")),
        ("Job", "/spec/completionMode".to_owned(), json!("Indexx")),
        ("Job", "/spec/parallelism".to_owned(), json!(3)),
        ("Job", "/spec/backoffLimit".to_owned(), json!(6)),
        ("Job", "/spec/podFailurePolicy/rules/1/onExitCodes/containerName".to_owned(), json!("main")),
        ("Job", "/spec/podFailurePolicy/rules/2/action".to_owned(), json!("Ignore")),
        ("Job", "/metadata/name".to_owned(), json!("Bench_X")),
        ("Job", pod("/restartPolicy"), json!("Always")),
        ("Job", pod("/subdomain"), json!("kvwires")),
        ("Job", pod("/hostNetwork"), json!(true)),
        ("Job", pod("/containers/0/imagePullPolicy"), json!("Nevr")),
        ("Job", pod("/containers/0/resources/limits/cpu"), json!("50mm")),
        ("Job", pod("/containers/0/resources/requests/memory"), json!("1Gi")),
        ("Job", pod("/containers/0/volumeMounts/0/name"), json!("shmm")),
        ("Job", pod("/containers/0/securityContext/privileged"), json!(true)),
        (
            "Job",
            pod("/containers/0/env/0/valueFrom"),
            json!({ "fieldRef": { "fieldPath": "status.podIPx" } }),
        ),
        (
            "Job",
            pod("/containers/0/env/0/valueFrom"),
            json!({ "secretKeyRef": { "name": "kvwire-run-token", "key": "t" } }),
        ),
        (
            "Job",
            pod(
                "/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0/labelSelector/matchLabels",
            ),
            json!({ "app": "kvwire" }),
        ),
        ("Service", "/spec/selector".to_owned(), json!({ "app": "kvwire" })),
        ("ConfigMap", "/data/KVWIRE_SISES".to_owned(), json!("4KiB")),
        ("ConfigMap", "/data/KVWIRE_RENDEZVOUS".to_owned(), json!("tcp://kvwire-1.kvwire:18516")),
    ];
    let mut schemas = Schemas::of("1.37");
    for (kind, pointer, value) in faults {
        let objects = planted(kind, &pointer, &value);
        let of_schema = objects.iter().flat_map(|object| schemas.complaints(object));
        let found: Vec<String> = of_schema.chain(complaints(&objects)).collect();
        assert!(!found.is_empty(), "{kind} {pointer} = {value} was not found");
    }
}

#[test]
fn without_flags_deploy_prints_what_the_overlay_says_and_a_token_of_its_own() {
    for fabric in
        ["tcp", "infiniband", "roce", "sriov", "gke-rdma", "aws-efa", "aks-infiniband", "gb200-mnnvl"]
    {
        let from_secret = rendered(&["--fabric", fabric, "--token-secret", "kvwire-token"]);
        assert_eq!(from_secret, overlay(fabric), "{fabric}");
        let [one, two] = [rendered(&["--fabric", fabric]), rendered(&["--fabric", fabric])];
        let token =
            |objects: &[Value]| of_kind(objects, "Secret")[0]["data"]["token"].as_str().unwrap().to_owned();
        assert_ne!(token(&one), token(&two), "{fabric}");
    }
    assert_eq!(rendered(&["--same-node", "--token-secret", "kvwire-token"]), overlay("tcp-same-node"));
    assert_eq!(sorted(rendered(&["--etcd"])), sorted(overlay("tcp-etcd")));
}

fn sorted(mut objects: Vec<Value>) -> Vec<String> {
    let mut texts: Vec<String> = objects.drain(..).map(|object| object.to_string()).collect();
    texts.sort();
    texts
}

#[test]
fn the_image_that_is_named_is_the_one_of_this_version() {
    let image = format!("kvwire:{}", env!("CARGO_PKG_VERSION"));
    for (name, objects) in all().iter().filter(|(name, _)| !name.contains("--i")) {
        let job = of_kind(objects, "Job")[0];
        assert_eq!(text(job, "/spec/template/spec/containers/0/image"), image, "{name}");
    }
    for page in ["deploy/Containerfile", "docs/kubernetes.md"] {
        let text = std::fs::read_to_string(repository().join(page)).unwrap();
        assert!(text.contains(&image), "{page} names another version");
    }
}

#[test]
fn flags_change_what_they_name() {
    let objects = rendered(&[
        "--image",
        "r.example:5000/kvwire:2",
        "--nodes",
        "a,b",
        "--gpus",
        "4",
        "--model",
        "llama-3.1-70b",
        "--workload",
        "paged",
        "--plan",
        "KVWIRE_TOKENS=1k,8k",
        "--namespace",
        "serving",
    ]);
    let job = of_kind(&objects, "Job")[0];
    let container = &job["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "r.example:5000/kvwire:2");
    assert_eq!(container["resources"]["limits"]["nvidia.com/gpu"], "4");
    let nodes = "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions/0/values";
    assert_eq!(job.pointer(nodes), Some(&json!(["a", "b"])));
    let plan = &of_kind(&objects, "ConfigMap")[0]["data"];
    for (name, value) in [("MODEL", "llama-3.1-70b"), ("WORKLOAD", "paged"), ("TOKENS", "1k,8k")] {
        assert_eq!(plan[format!("KVWIRE_{name}")], value);
    }
    assert!(objects.iter().all(|object| text(object, "/metadata/namespace") == "serving"));
}

#[test]
fn what_cannot_be_deployed_is_refused_with_the_flag() {
    for (flags, told) in [
        (["--plan", "KVWIRE_SIZES=4 bananas"], "--sizes"),
        (["--plan", "KVWIRE_SISES=4KiB"], "no setting of the plan"),
        (["--plan", "KVWIRE_RENDEZVOUS=tcp://a:1"], "no setting of the plan"),
        (["--nodes", "a"], "--same-node"),
        (["--gpus", "0"], "--gpus"),
        (["--image", "a b"], "--image"),
        (["--job", "other"], "--job"),
        (["--model", "/models/config.json"], "--model"),
    ] {
        let ended = deploy(&["render", flags[0], flags[1]]);
        assert_eq!(ended.code, 2, "{flags:?}: {ended}");
        assert!(ended.stderr.contains(told), "{flags:?}: {ended}");
        assert!(ended.stdout.is_empty(), "{flags:?}: {ended}");
    }
}

fn deploy(words: &[&str]) -> Ended {
    let run = kvwire_command("deploy").env("PATH", &path_with_kubectl());
    words.iter().fold(run, |run, word| run.args([*word])).run()
}

#[test]
fn check_env_has_nothing_to_say_against_our_own_manifests() {
    let folder = repository().join("deploy");
    let ended =
        kvwire_command("check").args(["env", folder.to_str().unwrap(), "--fail-on", "warn", "--json"]).run();
    assert_eq!(ended.code, 0, "{ended}");
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let workers = report["workers"].as_array().unwrap();
    assert_eq!(workers.len(), overlays().len(), "{ended}");
    assert!(workers.iter().all(|worker| worker["status"] == "ok"), "{ended}");
    for bad in ["warn", "fail", "unknown"] {
        assert_eq!(report["counts"][bad], 0, "{ended}");
    }
}

#[test]
fn a_run_token_of_ones_own_and_more_ranks_go_with_any_overlay() {
    let folder = tempfile::tempdir().unwrap();
    let copy = std::process::Command::new("cp")
        .arg("-r")
        .arg(repository().join("deploy"))
        .arg(folder.path())
        .status();
    assert!(copy.unwrap().success());
    let deploy = folder.path().join("deploy");
    std::fs::write(deploy.join("components/run-token/token.env"), "token=0123456789abcdef0123456789abcdef\n")
        .unwrap();
    let overlay = deploy.join("overlays/roce");
    let path = overlay.join("kustomization.yaml");
    let text = std::fs::read_to_string(&path).unwrap()
        + "  - ../../components/run-token\n  - ../../components/ranks\n";
    std::fs::write(path, text).unwrap();
    let objects = kustomize(&overlay);
    assert_eq!(of_kind(&objects, "Secret").len(), 1);
    assert_eq!(of_kind(&objects, "ConfigMap")[0]["data"]["KVWIRE_RANKS"], "4");
    assert_eq!(complaints(&objects), Vec::<String>::new());
}
