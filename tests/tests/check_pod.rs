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
    assert_eq!(json(&ended)["checks"][0]["detail"], "pod decode-0: read by shell");
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
    let detail = json(&pod)["checks"][0]["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("read by kvwire "), "{detail}");
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
        let kubectl =
            Kubectl::new(&format!("cat >&2 <<'T'\nW1130 some warning of a plugin\n{stderr}\nT\nexit 1"));
        let ended = check(&kubectl, &["node", "-n", "s", "--pod", "a", "--json"]);
        assert_eq!(ended.code, 3, "{ended}");
        let report = json(&ended);
        assert_eq!(report["checks"].as_array().unwrap().len(), 1, "{ended}");
        let check = &report["checks"][0];
        assert_eq!((check["name"].as_str(), check["status"].as_str()), (Some("pod-exec"), Some("unknown")));
        assert!(check["detail"].as_str().unwrap().contains(title), "{ended}");
        assert!(check["next_step"].as_str().unwrap().contains(next), "{ended}");
        assert!(
            check["evidence"].to_string().contains(
                stderr.split(':').next_back().unwrap().trim().trim_matches('"').split('"').next().unwrap()
            ),
            "{ended}"
        );
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
    let ended = check(&kubectl, &["node", "--pod", "a", "--pod-timeout", "200ms"]);
    assert_eq!(ended.code, 3, "{ended}");
    assert!(ended.stdout.contains("no answer within 200ms"), "{ended}");
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
    assert_eq!(pods, ["prefill-0", "decode-0", "prefill-0", "decode-0"]);
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
        "kubectl -n s exec prefill-0 -- /tmp/kvwire target",
        "kubectl -n s exec decode-0 -- /tmp/kvwire initiator --rendezvous ",
    ] {
        assert!(next.contains(words), "{next}");
    }
    let none = check(&Kubectl::new("exit 0"), &["nixl", "--pod", "a", "--json"]);
    assert_eq!(statuses(&json(&none))[0], ("nixl:binary".into(), "warn".into()));
    assert_eq!(none.code, 0);
}
