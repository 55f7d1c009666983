//! `kvwire check env` and `kvwire explain`, as an operator and a pipeline call them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use kvwire_tests::{Ended, kvwire_command, repository};
use serde_json::Value;

fn manifest(name: &str) -> String {
    repository().join("tests/fixtures/manifests").join(name).display().to_string()
}

fn check(name: &str, more: &[&str]) -> Ended {
    let path = manifest(name);
    let run = kvwire_command("check").args(["env", path.as_str()]);
    more.iter().fold(run, |run, arg| run.args([*arg])).run()
}

#[test]
fn the_exit_code_is_that_of_the_worst_finding_that_counts() {
    assert_eq!(check("dynamo-sglang-no-rdma.yaml", &[]).code, 1);
    assert_eq!(check("dynamo-sglang-b200.yaml", &[]).code, 0, "warnings pass by default");
    assert_eq!(check("dynamo-sglang-b200.yaml", &["--fail-on", "warn"]).code, 1);
    assert_eq!(check("dynamo-sglang-no-rdma.yaml", &["--ignore", "no-fabric-resource"]).code, 0);
    let folder = tempfile::tempdir().unwrap();
    let service = folder.path().join("service.yaml");
    fs::write(&service, "kind: Service\nmetadata: {name: s}\n").unwrap();
    assert_eq!(check(service.to_str().unwrap(), &[]).code, 3, "there is nothing to judge in it");
    assert_eq!(check("not-there.yaml", &[]).code, 1);
    assert_eq!(check("profile.yaml", &["--nixl-version", "new"]).code, 2);
    assert_eq!(kvwire_command("check").args(["env"]).run().code, 2);
}

#[test]
fn json_has_the_keys_of_the_read_only_check_and_is_alone_on_standard_output() {
    let ended = check("dynamo-vllm-h200.yaml", &["--json"]);
    let value: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {ended}"));
    let check = value["checks"].as_array().unwrap().iter().find(|c| c["name"] == "env:UCX_TLS").unwrap();
    assert_eq!(check["status"], "ok");
    assert!(check["detail"].as_str().unwrap().starts_with("^cuda_ipc ("));
    assert!(value["counts"]["warn"].as_u64().unwrap() > 0);
    assert!(value["verdict"].as_str().unwrap().contains("verify"));
}

#[test]
fn a_rule_that_is_switched_off_by_a_file_is_listed() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("rules.yaml");
    fs::write(&config, "check: {env: {ignore: [{id: no-fabric-resource, reason: TCP is fine here}]}}\n")
        .unwrap();
    let ended = check("dynamo-sglang-no-rdma.yaml", &["--config", config.to_str().unwrap()]);
    assert_eq!(ended.code, 0, "{ended}");
    // Where lines break depends on how long the path of this checkout is.
    let text = ended.words();
    assert!(text.contains("switched off:") && text.contains("TCP is fine here"), "{ended}");
    fs::write(&config, "checks: {}\n").unwrap();
    let ended = check("dynamo-sglang-no-rdma.yaml", &["--config", config.to_str().unwrap()]);
    assert_eq!(ended.code, 2, "{ended}");
    assert!(ended.stderr.contains("there is no setting checks"), "{ended}");
}

#[test]
fn a_kustomization_beyond_the_reader_goes_to_the_kubectl_on_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let (program, kustomization) = (folder.path().join("bin/kubectl"), folder.path().join("overlay"));
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    fs::create_dir_all(&kustomization).unwrap();
    fs::write(kustomization.join("kustomization.yaml"), "resources: [d.yaml]\nreplacements: []\n").unwrap();
    fs::copy(manifest("helm-mnnvl.yaml"), kustomization.join("d.yaml")).unwrap();
    let built = manifest("dynamo-vllm-efa.yaml");
    fs::write(&program, format!("#!/bin/sh\n[ \"$1\" = kustomize ] && exec /bin/cat {built}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let check = |path: &str| {
        let run = kvwire_command("check").env("PATH", path);
        run.args(["env", "--json", kustomization.to_str().unwrap()]).run()
    };
    let with = check(program.parent().unwrap().to_str().unwrap());
    assert_eq!(with.code, 0, "{with}");
    assert!(
        with.stdout.contains("\"name\": \"PrefillWorker\"") && !with.stdout.contains("pd-mnnvl"),
        "{with}"
    );
    let without = check("/nowhere");
    assert!(without.stdout.contains("kubectl is not installed"), "{without}");
    assert!(without.stdout.contains("a part of a kustomization that was not built"), "{without}");
}

#[test]
fn explain_knows_variables_and_findings_and_guesses_at_misspelt_ones() {
    let explain = |name: &str| kvwire_command("explain").args([name]).run();
    let variable = explain("UCX_TLS");
    assert_eq!(variable.code, 0);
    assert!(variable.stdout.contains("default") && variable.stdout.contains("source"), "{variable}");
    assert!(explain("tls-without-rdma").stdout.contains("What to do"));
    let unknown = explain("UCX_TLSS");
    assert_eq!(unknown.code, 2);
    assert!(unknown.stderr.contains("is UCX_TLS meant?"), "{unknown}");
    assert!(kvwire_command("explain").run().stdout.contains("rndv-thresh-set"));
}
