//! `kvwire deploy` and `kvwire collect` through a kubectl that writes down how it was called, and what a run leaves in a log.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::fs;

use kvwire_tests::manifests::{kubectl, of_kind, read};
use kvwire_tests::{Ended, Kubectl, Nixl, bare_pair, kvwire_command};
use serde_json::{Value, json};

/// Runs `kvwire` with this kubectl.
fn run(kubectl: &Kubectl, command: &str, words: &[&str]) -> Ended {
    let run = kvwire_command(command).env("PATH", &kubectl.path());
    words.iter().fold(run, |run, word| run.args([*word])).run()
}

/// A short run with these flags.
fn pair(words: &[&str]) -> Ended {
    let run =
        bare_pair().nixl(&Nixl::Newest).args(["--sizes", "4KiB,8KiB", "--op", "read", "--case-time", "20ms"]);
    words.iter().fold(run, |run, word| run.args([*word])).run()
}

#[test]
fn a_run_leaves_its_verdict_its_progress_and_its_result_where_a_cluster_shows_them() {
    let folder = tempfile::tempdir().unwrap();
    let message = folder.path().join("termination-log");
    let path = message.to_str().unwrap();
    let ended = pair(&["--print-result", "--progress", "lines", "--termination-log", path]);
    assert_eq!(ended.code, 0, "{ended}");
    assert!(ended.stdout.starts_with("TRUSTED"), "{ended}");
    let line = ended.stdout.lines().last().unwrap().strip_prefix("kvwire-result: ").unwrap();
    let result: Value = serde_json::from_str(line).unwrap();
    assert_eq!(result["schema"], "kvwire.result/1");
    assert!(ended.stderr.contains("case 2 of 2: READ 8 KiB x1, about"), "{ended}");
    let said = fs::read_to_string(&message).unwrap();
    assert!(said.starts_with("trusted: all 2 cases ran") && said.ends_with("(exit code 0)\n"), "{said}");

    let refused = pair(&["--samples", "0", "--termination-log", path]);
    assert_eq!(refused.code, 2, "{refused}");
    let said = fs::read_to_string(&message).unwrap();
    assert!(said.starts_with("usage: --samples") && said.lines().count() == 1, "{said}");

    let elsewhere = pair(&["--termination-log", "/proc/kvwire"]);
    assert_eq!(elsewhere.code, 0, "the exit code tells without it: {elsewhere}");
    assert!(elsewhere.stderr.contains("--termination-log: /proc/kvwire cannot be written"), "{elsewhere}");
}

/// A cluster: builds with the real kubectl, and keeps what is applied.
fn cluster() -> Kubectl {
    Kubectl::new(&format!(
        r#"while :; do case $1 in --context=*|--namespace=*) shift ;; *) break ;; esac; done
case $1 in
kustomize) exec '{}' "$@" ;;
apply) cat > "${{0%/*}}/applied"; echo "job.batch/kvwire created" ;;
delete) echo "deleted" ;;
*) exit 1 ;;
esac"#,
        kubectl().display()
    ))
}

#[test]
fn apply_takes_the_old_job_away_and_applies_what_render_prints() {
    let cluster = cluster();
    let ended = run(
        &cluster,
        "deploy",
        &["apply", "--namespace", "serving", "--context", "a b", "--token-secret", "mine"],
    );
    assert_eq!(ended.code, 0, "{ended}");
    assert!(ended.stderr.contains("next: kvwire collect --job kvwire -n serving"), "{ended}");
    let calls = cluster.calls();
    assert!(calls.iter().all(|call| call[..2] == ["--context=a b", "--namespace=serving"]), "{calls:?}");
    let verbs: Vec<&str> = calls.iter().map(|call| call[2].as_str()).collect();
    assert_eq!(verbs, ["kustomize", "delete", "apply"]);
    assert_eq!(calls[1][3..], ["job", "kvwire", "--ignore-not-found", "--wait", "--cascade=foreground"]);
    let applied = read(&fs::read_to_string(cluster.file("applied")).unwrap());
    let shown = run(&cluster, "deploy", &["render", "--namespace", "serving", "--token-secret", "mine"]);
    assert_eq!(applied, read(&shown.stdout));
    assert_eq!(of_kind(&applied, "Job").len(), 1);
    assert!(!std::path::Path::new(&calls[0][3]).exists(), "the folder with the manifests is gone: {calls:?}");
}

#[test]
fn delete_names_its_objects_by_the_job_s_label() {
    let cluster = cluster();
    let ended = run(&cluster, "deploy", &["delete", "--job", "kvwire-a"]);
    assert_eq!(ended.code, 0, "{ended}");
    let selector = "--selector=app.kubernetes.io/part-of=kvwire,app.kubernetes.io/instance=kvwire-a";
    assert!(
        cluster.calls().iter().all(|call| call[0] == "delete" && call[2] == selector),
        "{:?}",
        cluster.calls()
    );
    assert_eq!(run(&cluster, "deploy", &["delete", "--job", "other"]).code, 2);
}

/// One pod's container as `kubectl get` shows it.
fn pod(index: usize, state: &Value) -> Value {
    json!({ "metadata": { "name": format!("kvwire-{index}-x"),
                          "annotations": { "batch.kubernetes.io/job-completion-index": index.to_string() } },
            "status": { "containerStatuses": [{ "name": "kvwire", "state": state }] } })
}

/// A cluster with a Job that stands like this, and the log of its initiator.
fn job(condition: &Value, pods: &[Value], log: &str) -> Kubectl {
    let job = json!({ "status": { "conditions": condition } });
    let stub = Kubectl::new(
        r#"folder=${0%/*}
case "$1 $2" in
"get job") cat "$folder/job.json" ;;
"get pods") cat "$folder/pods.json" ;;
"logs --follow") [ "$3" = kvwire-0-x ] || cat "$folder/log" ;;
*) exit 1 ;;
esac"#,
    );
    fs::write(stub.file("job.json"), job.to_string()).unwrap();
    fs::write(stub.file("pods.json"), json!({ "items": pods }).to_string()).unwrap();
    fs::write(stub.file("log"), log).unwrap();
    stub
}

fn failed() -> Value {
    json!([{ "type": "Failed", "status": "True", "reason": "FailedIndexes", "message": "Job has failed indexes" }])
}

fn ended_with(code: u8) -> Value {
    json!({ "terminated": { "exitCode": code, "message": format!("said {code}\n") } })
}

#[test]
fn collect_shows_progress_writes_the_result_and_ends_with_the_run_s_exit_code() {
    let real = pair(&["--print-result", "--progress", "lines", "--expect", "nvlink"]);
    assert_eq!(real.code, 1, "{real}");
    let log = format!("{}{}", real.stderr, real.stdout);
    let cluster = job(&failed(), &[pod(1, &ended_with(1)), pod(0, &ended_with(1))], &log);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("new");
    let ended = run(&cluster, "collect", &["--folder", out.to_str().unwrap()]);
    assert_eq!(ended.code, 1, "{ended}");
    assert!(ended.stderr.contains("initiator | case 1 of 2"), "{ended}");
    assert!(ended.stderr.contains("Job failed: FailedIndexes, Job has failed indexes"), "{ended}");
    assert!(ended.stderr.contains("initiator kvwire-1-x: said 1"), "{ended}");
    assert!(ended.stdout.starts_with("NOT TRUSTED"), "{ended}");
    assert!(!ended.stdout.contains("kvwire-result"), "{ended}");
    let result: Value = serde_json::from_str(&fs::read_to_string(out.join("kvwire.json")).unwrap()).unwrap();
    assert_eq!(result["verdict"]["outcome"], "not_trusted");
    assert!(fs::read_to_string(out.join("kvwire.html")).unwrap().contains("</html>"));
    let as_json = run(&cluster, "collect", &["--folder", out.to_str().unwrap(), "--json", "--quiet"]);
    assert_eq!(serde_json::from_str::<Value>(&as_json.stdout).unwrap(), result);
    assert_eq!(as_json.stderr, "");
}

#[test]
fn what_did_not_come_out_is_said() {
    let cut = job(&failed(), &[pod(1, &ended_with(3))], "kvwire-result: {\"schema\":\"kvwire.res");
    let ended = run(&cut, "collect", &[]);
    assert_eq!(ended.code, 3, "{ended}");
    assert!(
        ended.stderr.contains("the result in the log of kvwire-1-x") && ended.stderr.contains("cut off"),
        "{ended}"
    );

    let nothing =
        job(&failed(), &[pod(0, &json!({ "waiting": {} })), pod(1, &ended_with(2))], "error: --sizes\n");
    let ended = run(&nothing, "collect", &[]);
    assert_eq!(ended.code, 2, "{ended}");
    assert!(
        ended.stderr.contains("initiator | error: --sizes") && ended.stderr.contains("no log holds a result"),
        "{ended}"
    );

    let gone =
        Kubectl::new(r#"echo 'Error from server (NotFound): jobs.batch "kvwire" not found' >&2; exit 1"#);
    let ended = run(&gone, "collect", &["--namespace", "serving"]);
    assert_eq!(ended.code, 3, "{ended}");
    assert!(
        ended.stderr.contains("not found") && ended.stderr.contains("kubectl get jobs -n serving"),
        "{ended}"
    );
}

#[test]
fn a_pod_that_does_not_start_is_told_until_the_time_is_over() {
    let pulls = json!({ "waiting": { "reason": "ImagePullBackOff", "message": "no such image" } });
    let cluster = job(&json!([]), &[pod(0, &pulls)], "");
    let ended = run(&cluster, "deploy", &["wait", "--timeout", "100ms"]);
    assert_eq!(ended.code, 3, "{ended}");
    assert!(ended.stderr.contains("container kvwire waits: ImagePullBackOff, no such image"), "{ended}");
    assert!(ended.stderr.contains("(--timeout): target kvwire-0-x: container kvwire waits"), "{ended}");
}

#[test]
fn without_a_kubectl_the_next_step_is_to_install_it() {
    let ended = kvwire_command("deploy").args(["render"]).env("PATH", "/nonexistent").run();
    assert_eq!(ended.code, 3, "{ended}");
    assert!(
        ended.stderr.contains("there is no kubectl") && ended.stderr.contains("fix: install kubectl"),
        "{ended}"
    );
}
