//! `kvwire check` of pods, through a kubectl that writes down how it was called.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use kvwire_tests::{Ended, Kubectl, RUNS_HERE, kvwire, kvwire_command};
use serde_json::Value;

fn check(kubectl: &Kubectl, args: &[&str]) -> Ended {
    let run = kvwire_command("check").env("PATH", &kubectl.path());
    args.iter().fold(run, |run, arg| run.args([*arg])).run()
}

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}\n{ended}"))
}

/// Name and status of each check.
fn statuses(report: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    report["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| (text(&check["name"]), text(&check["status"])))
        .collect()
}

#[test]
fn one_exec_with_exact_words_reads_a_pod() {
    let kubectl = Kubectl::new(RUNS_HERE);
    let ended = check(
        &kubectl,
        &[
            "node",
            "--context",
            "admin@my cluster",
            "--namespace",
            "serving",
            "--pod",
            "decode-0",
            "--container",
            "worker",
            "--json",
        ],
    );
    assert_eq!(ended.code, 0, "{ended}");
    let calls = kubectl.calls();
    assert_eq!(calls.len(), 1, "{calls:?}");
    let expected = [
        "--context=admin@my cluster",
        "--namespace=serving",
        "exec",
        "decode-0",
        "--container=worker",
        "--",
        "sh",
        "-c",
    ];
    assert_eq!(calls[0][..8], expected, "{:?}", &calls[0][..8]);
    assert_eq!(calls[0].len(), 9, "the script is one word");
    let target = &json(&ended)["checks"][0];
    assert_eq!(
        (&target["detail"], &target["evidence"][0]),
        (&"pod decode-0".into(), &"read by shell".into())
    );
}

#[test]
fn a_pod_read_by_shell_and_this_machine_read_by_kvwire_give_the_same_findings() {
    let kubectl = Kubectl::new(RUNS_HERE);
    let pod = check(&kubectl, &["node", "--pod", "a", "--json"]);
    let here = check(&kubectl, &["node", "--json"]);
    assert_eq!(statuses(&json(&pod)), statuses(&json(&here)));
    assert_eq!(kubectl.calls().len(), 1, "the local check needs no kubectl");
}

#[test]
fn a_kvwire_in_the_pod_does_the_reading_itself() {
    let folder = kvwire().parent().unwrap().display().to_string();
    let behaviour =
        format!("while [ \"$1\" != -- ]; do shift; done; shift\nPATH={folder}:/usr/bin:/bin exec \"$@\"");
    let kubectl = Kubectl::new(&behaviour);
    let pod = check(&kubectl, &["node", "--pod", "a", "--json"]);
    assert_eq!(pod.code, 0, "{pod}");
    let read = json(&pod)["checks"][0]["evidence"][0].as_str().unwrap().to_owned();
    assert!(read.starts_with("read by kvwire "), "{read}");
    let here = check(&kubectl, &["node", "--json"]);
    assert_eq!(statuses(&json(&pod)), statuses(&json(&here)));
}

#[test]
fn an_image_without_a_shell_is_asked_for_kvwire_and_then_said_to_have_neither() {
    let kubectl = Kubectl::new(
        "echo 'error: Internal error occurred: exec failed: executable file not found in $PATH' >&2; exit 126",
    );
    let ended = check(&kubectl, &["node", "--pod", "a"]);
    assert_eq!(ended.code, 3, "{ended}");
    assert!(
        ended.stdout.contains("neither a shell nor kvwire") && ended.stdout.contains("kubectl debug a"),
        "{ended}"
    );
    let calls = kubectl.calls();
    assert_eq!(calls[1], ["exec", "a", "--", "kvwire", "check", "node", "--capture", "-"]);
}

#[test]
fn every_refusal_of_kubectl_says_what_to_do_and_is_no_pass() {
    for (stderr, title, next) in [
        ("Error from server (NotFound): pods \"a\" not found", "there is no pod a", "kubectl get pods -n s"),
        (
            "Error from server (Forbidden): pods \"a\" is forbidden: User \"me\" cannot create resource \"pods/exec\"",
            "no permission",
            "can-i create pods/exec -n s",
        ),
        (
            "Error from server (BadRequest): container x is not valid for pod a",
            "no such container",
            "--container",
        ),
        (
            "Unable to connect to the server: dial tcp: lookup api: no such host",
            "does not reach the cluster",
            "KUBECONFIG",
        ),
    ] {
        for command in ["node", "nixl", "env"] {
            let kubectl =
                Kubectl::new(&format!("cat >&2 <<'T'\nW1130 some warning of a plugin\n{stderr}\nT\nexit 1"));
            let ended = check(&kubectl, &[command, "-n", "s", "--pod", "a", "--json"]);
            assert_eq!(ended.code, 3, "{command}: {ended}");
            let report = json(&ended);
            let checks = report["checks"].as_array().unwrap();
            let refused = checks.iter().find(|check| check["name"].as_str().unwrap().ends_with("pod-exec"));
            let refused = refused.unwrap_or_else(|| panic!("{ended}"));
            assert_eq!(refused["status"], "unknown", "{ended}");
            assert!(!checks.iter().any(|check| check["status"] == "ok"), "nothing was seen: {ended}");
            assert!(refused["detail"].as_str().unwrap().contains(title), "{ended}");
            assert!(ended.stdout.contains(next), "{ended}");
            let quoted =
                stderr.split(':').next_back().unwrap().trim().trim_matches('"').split('"').next().unwrap();
            assert!(ended.stdout.contains(quoted), "{ended}");
        }
    }
}

#[test]
fn noise_on_standard_error_and_before_the_capture_does_no_harm() {
    let kubectl = Kubectl::new(&format!(
        "echo 'Defaulted container \"worker\" out of: worker, sidecar' >&2\necho 'Welcome to the cluster'\n{RUNS_HERE}"
    ));
    let ended = check(&kubectl, &["node", "--pod", "a", "--json"]);
    assert_eq!(ended.code, 0, "{ended}");
    assert!(json(&ended)["checks"].as_array().unwrap().len() > 20, "{ended}");
}

#[test]
fn an_answer_cut_short_is_no_answer() {
    let kubectl = Kubectl::new(
        "echo 'kvwire.capture/1 shell'; echo 'M /dev/gdrdrv'; echo 'command terminated with exit code 137' >&2; exit 137",
    );
    let ended = check(&kubectl, &["node", "--pod", "a"]);
    assert_eq!(ended.code, 3, "{ended}");
    assert!(ended.stdout.contains("cut short") && ended.stdout.contains("137"), "{ended}");
}

#[test]
fn a_pod_that_does_not_answer_in_time_is_given_up() {
    let kubectl = Kubectl::new("exec sleep 600");
    for command in ["node", "nixl", "env"] {
        let ended = check(&kubectl, &[command, "--pod", "a", "--pod-timeout", "200ms"]);
        assert_eq!(ended.code, 3, "{ended}");
        assert!(ended.stdout.contains("no answer within 200ms"), "{ended}");
    }
}

#[test]
fn a_machine_without_kubectl_says_so() {
    let empty = tempfile::tempdir().unwrap();
    let path = empty.path().display().to_string();
    let ended = kvwire_command("check").env("PATH", &path).args(["node", "--pod", "a"]).run();
    assert_eq!(ended.code, 3, "{ended}");
    assert!(ended.stdout.contains("no kubectl on this machine"), "{ended}");
}

#[test]
fn names_that_kubectl_could_misread_are_refused_before_it_is_called() {
    let kubectl = Kubectl::new(RUNS_HERE);
    for (flag, value) in
        [("--pod", "-it"), ("--pod", "a;b"), ("--namespace", "--all"), ("--container", "x y")]
    {
        let given = format!("{flag}={value}");
        let ended = check(&kubectl, &["node", "--pod=a", &given]);
        assert_eq!(ended.code, 2, "{ended}");
        assert!(ended.stderr.contains(flag) && ended.stderr.contains("fix:"), "{ended}");
    }
    assert!(kubectl.calls().is_empty());
}

#[test]
fn two_pods_stand_side_by_side() {
    let kubectl = Kubectl::new(RUNS_HERE);
    let ended = check(&kubectl, &["--pod", "prefill-0", "--pod", "decode-0"]);
    assert_eq!(ended.code, 0, "{ended}");
    assert!(ended.stdout.contains("pod prefill-0") && ended.stdout.contains("pod decode-0"), "{ended}");
    assert!(ended.stdout.contains("alike in everything"), "{ended}");
    let calls = kubectl.calls();
    let pods: Vec<&str> = calls.iter().map(|call| call[1].as_str()).collect();
    // Node, NIXL, environment.
    assert_eq!(pods, ["prefill-0", "decode-0", "prefill-0", "decode-0", "prefill-0", "decode-0"]);
}

#[test]
fn a_pod_with_nixl_and_without_kvwire_gets_the_next_commands_with_both_names() {
    let kubectl = Kubectl::new("echo 'found /usr/local/nixl'");
    let ended = check(&kubectl, &["nixl", "-n", "s", "--pod", "prefill-0", "--pod", "decode-0", "--json"]);
    assert_eq!(ended.code, 0, "{ended}");
    let report = json(&ended);
    assert_eq!(
        statuses(&report)[..2],
        [("nixl:binary".into(), "ok".into()), ("nixl-loopback".into(), "skipped".into())]
    );
    let next = report["checks"][1]["next_step"].as_str().unwrap();
    for words in [
        "kubectl cp \"$(command -v kvwire)\" s/prefill-0:/tmp/kvwire",
        "kubectl cp \"$(command -v kvwire)\" s/decode-0:/tmp/kvwire",
        "kubectl -n s exec prefill-0 -- env KVWIRE_TOKEN=$T /tmp/kvwire target --rendezvous tcp://0.0.0.0:18516 --run-id check",
        "kubectl -n s exec decode-0 -- env KVWIRE_TOKEN=$T /tmp/kvwire initiator --rendezvous \
         tcp://$(kubectl -n s get pod prefill-0 -o jsonpath='{.status.podIP}'):18516 --run-id check",
    ] {
        assert!(next.contains(words), "{next}");
    }
    // Shell would run it as it stands.
    let syntax = std::process::Command::new("sh").args(["-n", "-c", next]).output().unwrap();
    assert!(syntax.status.success(), "{next}");
    let none = check(&Kubectl::new("exit 0"), &["nixl", "--pod", "a", "--json"]);
    assert_eq!(statuses(&json(&none))[0], ("nixl:binary".into(), "warn".into()));
    assert_eq!(none.code, 0);
}

/// A pod in which a shell started an engine: what the probe would find in `/proc`.
fn worker(tls: &str) -> (tempfile::TempDir, Kubectl) {
    let folder = tempfile::tempdir().unwrap();
    for (id, command, environment) in [
        (1, "sh\0-c\0vllm serve m\0", String::from("PATH=/bin\0")),
        (
            7,
            "python3\0/usr/bin/vllm\0serve\0m\0--kv-transfer-config\0{\"kv_connector\":\"NixlConnector\",\"kv_role\":\"kv_both\"}\0",
            format!("PATH=/bin\0UCX_TLS={tls}\0HF_TOKEN=hf_abcdefghijklmnop\0"),
        ),
    ] {
        let process = folder.path().join(format!("proc/{id}"));
        std::fs::create_dir_all(&process).unwrap();
        std::fs::write(process.join("cmdline"), command).unwrap();
        std::fs::write(process.join("environ"), environment).unwrap();
    }
    let kubectl = Kubectl::new(&format!("export KVWIRE_ROOT='{}'\n{RUNS_HERE}", folder.path().display()));
    (folder, kubectl)
}

/// A manifest with a prefill and a decode worker, both with this UCX_TLS.
fn manifest(tls: &str) -> tempfile::NamedTempFile {
    let side = |name: &str| {
        format!(
            "    {name}:\n      subComponentType: {name}\n      resources: {{limits: {{gpu: \"1\", custom: {{rdma/ib: \"1\"}}}}}}\n      \
             extraPodSpec:\n        mainContainer:\n          image: vllm-runtime:1.3.0\n          \
             securityContext: {{capabilities: {{add: [IPC_LOCK]}}}}\n          command: [python3, -m, dynamo.vllm]\n          \
             args: [--kv-transfer-config, '{{\"kv_connector\":\"NixlConnector\",\"kv_role\":\"kv_both\"}}']\n          \
             env:\n            - {{name: UCX_TLS, value: '{tls}'}}\n"
        )
    };
    let text = format!(
        "kind: DynamoGraphDeployment\nmetadata: {{name: serving}}\nspec:\n  services:\n{}{}",
        side("prefill"),
        side("decode")
    );
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

#[test]
fn one_exec_with_exact_words_reads_the_environment_of_the_engine() {
    let (_folder, kubectl) = worker("tcp,cuda_copy");
    let ended = check(
        &kubectl,
        &["env", "--context", "admin@my cluster", "-n", "serving", "--pod", "decode-0", "-c", "worker"],
    );
    assert_eq!(ended.code, 1, "{ended}");
    let calls = kubectl.calls();
    assert_eq!(calls.len(), 1, "{calls:?}");
    let expected = [
        "--context=admin@my cluster",
        "--namespace=serving",
        "exec",
        "decode-0",
        "--container=worker",
        "--",
        "sh",
        "-c",
    ];
    assert_eq!(
        (&calls[0][..8], calls[0].len()),
        (&expected.map(str::to_owned)[..], 9),
        "the script is one word"
    );
    for words in
        ["pod decode-0, process 7:3:9", "UCX_TLS=tcp,cuda_copy", "[tls-without-rdma]", "1 worker in 1 pod"]
    {
        assert!(ended.stdout.contains(words), "{words}: {ended}");
    }
    assert!(!ended.stdout.contains("hf_abc"), "{ended}");
}

#[test]
fn a_manifest_and_a_pod_say_what_did_not_arrive() {
    let (_folder, kubectl) = worker("rc,cuda_copy,cuda_ipc");
    let declared = manifest("rc_x,cuda_copy");
    let path = declared.path().display().to_string();
    let ended = check(&kubectl, &["env", &path, "--pod", "serving-0-decode-x7k2p", "--format", "json"]);
    assert_eq!(ended.code, 1, "{ended}");
    let report = json(&ended);
    let changed =
        report["findings"].as_array().unwrap().iter().find(|f| f["id"] == "declared-changed").unwrap();
    assert_eq!(
        changed["evidence"],
        serde_json::json!(["declared  rc_x,cuda_copy", "arrived   rc,cuda_copy,cuda_ipc"])
    );
    assert_eq!(changed["source"]["file"], path.as_str());
    let same = manifest("rc,cuda_copy,cuda_ipc");
    let path = same.path().display().to_string();
    let ended = check(&kubectl, &["env", &path, "--pod", "serving-0-decode-x7k2p"]);
    assert_eq!(ended.code, 0, "{ended}");
    let nothing = check(&kubectl, &["env"]);
    assert_eq!(nothing.code, 2, "{nothing}");
}

#[test]
fn an_image_without_a_shell_says_so_of_its_environment() {
    let kubectl = Kubectl::new("echo 'exec failed: executable file not found in $PATH' >&2; exit 126");
    let ended = check(&kubectl, &["env", "--pod", "a"]);
    assert_eq!(ended.code, 3, "{ended}");
    assert!(ended.stdout.contains("has no shell") && ended.stdout.contains("kubectl debug a"), "{ended}");
}

#[test]
fn a_command_that_ends_badly_after_it_said_everything_is_believed() {
    let kubectl = Kubectl::new(
        "while [ \"$1\" != -- ]; do shift; done; shift\nPATH=/usr/bin:/bin \"$@\"; echo 'command terminated with exit code 1' >&2; exit 1",
    );
    let ended = check(&kubectl, &["node", "--pod", "a", "--json"]);
    assert_eq!(ended.code, 0, "{ended}");
    assert!(json(&ended)["checks"].as_array().unwrap().len() > 20, "{ended}");
}

#[test]
fn everything_that_can_be_reached_gives_one_ranked_answer() {
    let (_folder, kubectl) = worker("tcp,cuda_copy");
    let declared = manifest("rc,cuda_copy,cuda_ipc");
    let path = declared.path().display().to_string();
    let ended = check(
        &kubectl,
        &[
            "--manifest",
            &path,
            "--pod",
            "serving-0-prefill-aaaaa",
            "--pod",
            "serving-0-decode-bbbbb",
            "--json",
        ],
    );
    assert_eq!(ended.code, 1, "{ended}");
    let report = json(&ended);
    let names: Vec<&str> =
        report["checks"].as_array().unwrap().iter().map(|check| check["name"].as_str().unwrap()).collect();
    for name in ["env:declared-changed", "env:tls-without-rdma", "rdma-usable", "nixl:binary", "nodes-differ"]
    {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    let ranked: Vec<&str> =
        report["ranked"].as_array().unwrap().iter().map(|check| check["name"].as_str().unwrap()).collect();
    // What runs is not what was declared: that comes before what follows from it.
    assert_eq!(ranked[..2], ["env:declared-changed"; 2], "{ranked:?}");
    assert!(report["fix_first"].as_str().unwrap().contains("Restart the pod"), "{ended}");
    assert!(report["verdict"].as_str().unwrap().contains("blockers"), "{ended}");
    let explained = json(&kvwire_command("explain").args(["--json"]).run());
    let ids: Vec<&str> = ["pages", "rules"]
        .iter()
        .flat_map(|list| explained[list].as_array().unwrap())
        .map(|entry| entry["id"].as_str().unwrap())
        .collect();
    for name in &names {
        assert!(
            ids.contains(&name.strip_prefix("env:").unwrap_or(name)),
            "kvwire explain {name} says nothing"
        );
    }
    let page = kvwire_command("explain").args(["env:declared-changed"]).run();
    for part in ["Cause: ", "Confirm by hand: ", "What to do: ", "Who can: "] {
        assert!(page.stdout.contains(part), "{page}");
    }
    let text = check(&kubectl, &["--manifest", &path, "--pod", "serving-0-decode-bbbbb"]);
    assert!(text.stdout.starts_with("FAIL") && text.stdout.contains("fix first"), "{text}");
    let of = |words: &str| text.stdout.find(words).unwrap_or_else(|| panic!("{words}: {text}"));
    assert!(of("[env:declared-changed]") < of("[env:tls-without-rdma]"), "{text}");
}
