//! Running pods: what is in their processes, and what of a manifest did not arrive there.

use std::path::PathBuf;

use super::super::{Options, PodProcesses, Report, check};
use super::{both, found, value};
use crate::Status::{self, Fail, Ok as Fine, Unknown, Warn};
use crate::node::{Entry, Evidence};

/// How an engine is started.
const VLLM: &str = "python3\n/usr/bin/vllm\nserve\nm\n--kv-transfer-config\n{\"kv_connector\":\"NixlConnector\",\"kv_role\":\"kv_both\"}\n";

/// A pod in the making: process by process.
fn pod(name: &str, processes: &[(u32, &str, Option<&str>)]) -> PodProcesses {
    let mut evidence = Evidence::new("shell");
    for (id, command, environment) in processes {
        evidence.add(format!("/proc/{id}/cmdline"), Entry::Text((*command).to_owned()));
        let environment = environment.map_or(Entry::Denied, |text| Entry::Text(text.to_owned()));
        evidence.add(format!("/proc/{id}/environ"), environment);
    }
    PodProcesses::new(name, None, &evidence)
}

fn engine(name: &str, environment: &str) -> PodProcesses {
    pod(name, &[(1, VLLM, Some(environment))])
}

fn judged(manifest: Option<&str>, pods: &[PodProcesses]) -> Report {
    let options = Options { pods: pods.to_vec(), ..Options::default() };
    let paths = if manifest.is_some() { vec![PathBuf::from("-")] } else { Vec::new() };
    check(&paths, &mut manifest.unwrap_or_default().as_bytes(), &options)
}

#[track_caller]
fn expect(report: &Report, id: &str, status: Status, words: &str) {
    let finding = found(report, id).unwrap_or_else(|| panic!("no {id}: {:?}", report.findings));
    assert_eq!(finding.status, status, "{finding:?}");
    let text = format!("{} {} {:?}", finding.title, finding.detail, finding.evidence);
    assert!(text.contains(words), "{id} does not say `{words}`: {text}");
}

#[test]
fn a_process_is_judged_by_the_rules_of_manifests_and_points_to_the_variable() {
    let report =
        judged(None, &[engine("decode-0", "PATH=/bin\nUCX_TLS=tcp,cuda_copy\nUCX_MAX_RNDV_RAILS=4\n")]);
    expect(&report, "tls-without-rdma", Fail, "UCX_TLS=tcp,cuda_copy (process)");
    expect(&report, "no-effect", Warn, "UCX_MAX_RNDV_RAILS");
    let source = found(&report, "tls-without-rdma").unwrap().source.clone().unwrap();
    assert_eq!((source.file.as_str(), source.line, source.column), ("pod decode-0, process 1", 3, 9));
    assert_eq!(report.line(&source.file, source.line), Some("UCX_TLS=tcp,cuda_copy"));
    expect(&report, "process-environment", Fine, "process 1 (python3 vllm serve)");
    assert_eq!((report.files, report.processes, report.judged()), (0, 1, 1));
    assert!(!report.checks.iter().any(|check| check.name == "env"), "no manifest was asked for");
}

#[test]
fn what_only_a_pod_spec_says_is_not_held_against_a_process() {
    let report = judged(
        None,
        &[engine("decode-0", "UCX_TLS=rc,cuda_copy,cuda_ipc\nVLLM_NIXL_SIDE_CHANNEL_HOST=10.0.0.1\n")],
    );
    for id in ["no-fabric-resource", "memlock", "shared-memory-small", "partial-manifest", "claim-incomplete"]
    {
        assert!(found(&report, id).is_none(), "{id}");
    }
    expect(&report, "static-check-passed", Fine, "nothing in the environment");
    let nvlink = judged(None, &[engine("decode-0", "UCX_TLS=cuda_copy,cuda_ipc,tcp\n")]);
    expect(&nvlink, "imex-claim-missing", Unknown, "is not in its environment");
}

#[test]
fn the_engine_counts_and_not_the_shell_that_starts_it() {
    let shell = "sh\n-c\nexport UCX_TLS=rc,cuda_copy; vllm serve m\n";
    let report = judged(
        None,
        &[pod(
            "decode-0",
            &[
                (1, shell, Some("UCX_LOG_LEVEL=warn\nUCX_IB_SL=1\n")),
                (7, VLLM, Some("UCX_LOG_LEVEL=warn\nUCX_TLS=rc,cuda_copy\n")),
            ],
        )],
    );
    assert_eq!(value(&report, "decode-0", "UCX_TLS"), Some("rc,cuda_copy"));
    expect(&report, "process-environment", Fine, "set on the way from process 1 (sh -c");
    expect(&report, "process-environment", Fine, "taken away on the way from process 1");
}

#[test]
fn what_may_not_be_read_is_unknown_and_never_judged_as_empty() {
    let hidden = judged(None, &[pod("decode-0", &[(1, VLLM, None)])]);
    expect(&hidden, "process-environment", Unknown, "of no process of its worker");
    assert_eq!(hidden.judged(), 0);
    assert!(hidden.verdict.contains("nothing was judged"), "{}", hidden.verdict);
    let half = judged(None, &[pod("decode-0", &[(1, "sh\nrun.sh\n", Some("A=1\n")), (9, VLLM, None)])]);
    expect(&half, "process-environment", Unknown, "that of the engine, process 9, could not be read");
    let other = judged(None, &[pod("decode-0", &[(1, "sleep\ninf\n", Some("UCX_TLS=tcp\n"))])]);
    expect(&other, "process-environment", Unknown, "no process of a known engine");
    // It wrote its state over its arguments, and what follows them.
    let overwritten = judged(None, &[pod("decode-0", &[(1, "VLLM::EngineCore\n", Some("ngineCore\n"))])]);
    expect(&overwritten, "process-environment", Unknown, "of no process of its worker");
}

#[test]
fn secrets_of_a_process_are_shown_nowhere() {
    let environment =
        "HF_TOKEN=abc def\nOPENAI_API_KEY=k3y\nOTHER=hf_abcdefghijklmnop\nUCX_TLS=rc\nDB=x://u:pw9@h\n";
    let command = VLLM.to_owned() + "--api-key\nverysecret\n";
    let report = judged(
        Some(&both(&[("HF_TOKEN", "declared-secret")])),
        &[pod("g-decode-x", &[(1, &command, Some(environment))])],
    );
    let text = format!("{:?} {}", report, serde_json::to_string(&report).unwrap());
    for secret in ["abc def", "k3y", "hf_abcdefghijklmnop", "pw9", "verysecret", "declared-secret"] {
        assert!(!text.contains(secret), "{secret} is shown");
    }
    expect(&report, "declared-changed", Warn, "hidden");
}

#[test]
fn variables_of_a_service_called_nixl_are_not_taken_for_settings_of_nixl() {
    let environment = "NIXL_ETCD_SERVICE_HOST=10.0.0.9\nNIXL_ETCD_SERVICE_PORT=2379\nNIXL_ETCD_PORT_2379_TCP=tcp://10.0.0.9:2379\nNIXL_WHAT=1\n";
    let report = judged(None, &[engine("decode-0", environment)]);
    let unknown: Vec<&str> =
        report.findings.iter().filter(|f| f.id == "unknown-variable").map(|f| f.title.as_str()).collect();
    assert_eq!(unknown, ["NIXL has no variable NIXL_WHAT"]);
}

#[test]
fn two_pods_are_compared_as_two_sides_of_one_manifest_are() {
    let sides = [
        engine("serving-prefill-0", "UCX_TLS=rc,cuda_copy\nNIXL_ETCD_NAMESPACE=/a\n"),
        engine("serving-decode-0", "UCX_TLS=tcp,cuda_copy\nNIXL_ETCD_NAMESPACE=/a\n"),
    ];
    let report = judged(None, &sides);
    expect(&report, "roles-differ", Fail, "UCX_TLS differs between prefill and decode");
}

#[test]
fn what_was_declared_and_did_not_arrive_is_named_with_its_line() {
    let manifest = both(&[("UCX_TLS", "rc,cuda_copy"), ("UCX_NET_DEVICES", "mlx5_0:1"), ("MY_OWN", "x")]);
    let report = judged(Some(&manifest), &[engine("g-0-decode-abcde", "UCX_TLS=tcp\nUCX_IB_SL=3\n")]);
    expect(&report, "declared-changed", Fail, "arrived   tcp");
    let missing: Vec<(&str, Status, bool)> = report
        .findings
        .iter()
        .filter(|f| f.id == "declared-missing")
        .map(|f| (f.title.split(' ').next().unwrap_or_default(), f.status, f.source.is_some()))
        .collect();
    assert_eq!(missing, [("UCX_NET_DEVICES", Fail, true), ("MY_OWN", Warn, true)]);
    let line = found(&report, "declared-missing").unwrap().source.as_ref().unwrap().line;
    assert!(manifest.lines().nth(line as usize - 1).unwrap().contains("UCX_NET_DEVICES"));
    assert!(found(&report, "declared-arrived").is_none(), "none did");
    expect(&report, "undeclared", Fine, "UCX_IB_SL=3");
    assert!(
        report
            .findings
            .iter()
            .filter(|f| f.id.starts_with("declared"))
            .all(|f| f.workers == ["g-0-decode-abcde"])
    );
}

#[test]
fn what_arrived_as_declared_is_no_finding_but_the_count() {
    let manifest = both(&[("UCX_TLS", "rc,cuda_copy")]);
    let report = judged(Some(&manifest), &[engine("g-0-prefill-abcde", "UCX_TLS=rc,cuda_copy\nPATH=/bin\n")]);
    for id in ["declared-missing", "declared-changed", "undeclared", "process-unmatched"] {
        assert!(found(&report, id).is_none(), "{id}");
    }
    expect(&report, "declared-arrived", Fine, "1 of 1");
}

#[test]
fn a_value_from_elsewhere_only_has_to_be_there() {
    let manifest = "kind: Pod\nmetadata: {name: decode}\nspec:\n  containers:\n    - name: c\n      image: vllm/vllm-openai:v1\n      env:\n        \
                    - {name: UCX_TLS, valueFrom: {configMapKeyRef: {name: m, key: k}}}\n        - {name: UCX_IB_SL, valueFrom: {secretKeyRef: {name: s, key: k}}}\n";
    let report = judged(Some(manifest), &[engine("decode", "UCX_TLS=rc,cuda_copy\n")]);
    expect(&report, "declared-missing", Fail, "UCX_IB_SL");
    expect(&report, "declared-arrived", Fine, "1 of 2");
}

#[test]
fn what_a_script_exports_is_looked_for_in_the_engine_alone() {
    let manifest = "kind: Pod\nmetadata: {name: decode}\nspec:\n  containers:\n    - name: c\n      image: vllm/vllm-openai:v1\n      \
                    command: [sh, -c, 'export UCX_TLS=rc,cuda_copy; exec vllm serve m']\n";
    let before = judged(Some(manifest), &[pod("decode", &[(1, "sh\n-c\nwait\n", Some("A=1\n"))])]);
    expect(&before, "declared-arrived", Fine, "not looked at since no engine was seen: UCX_TLS");
    assert!(found(&before, "declared-missing").is_none());
    let after = judged(Some(manifest), &[engine("decode", "A=1\n")]);
    expect(&after, "declared-missing", Fail, "UCX_TLS");
}

#[test]
fn a_pod_that_could_be_of_either_worker_is_not_compared_with_one_of_them() {
    let manifest = both(&[("UCX_TLS", "rc,cuda_copy")]);
    let report = judged(Some(&manifest), &[engine("somewhere-else", "A=1\n")]);
    expect(&report, "process-unmatched", Unknown, "decode in DynamoGraphDeployment g");
    assert!(found(&report, "declared-missing").is_none());
}

#[test]
fn a_prefill_pod_is_never_compared_with_a_decode_worker() {
    let manifest = "kind: Pod\nmetadata: {name: decode}\nspec:\n  containers:\n    - name: c\n      image: vllm/vllm-openai:v1\n      env:\n        - {name: UCX_TLS, value: 'rc,cuda_copy'}\n";
    let report = judged(Some(manifest), &[engine("prefill-0", "A=1\n")]);
    expect(&report, "process-unmatched", Unknown, "pod prefill-0");
    let both_unnamed =
        judged(Some(&manifest.replace("name: decode", "name: worker")), &[engine("some-pod", "A=1\n")]);
    expect(&both_unnamed, "declared-missing", Fail, "UCX_TLS is declared for worker");
}
