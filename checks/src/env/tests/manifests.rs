//! Whole manifests of the kinds that are in use, each with what a careful reader says about it.

use super::super::{Engine, Options, Report, Role, check};
use super::{found, value, worker};
use crate::Status;

fn read(name: &str) -> Report {
    check(&[super::fixture("manifests").join(name)], &mut std::io::empty(), &Options::default())
}

#[test]
fn roles_engines_and_verdicts_are_those_that_the_file_states() {
    use Engine::{Plain, Sglang, TensorRtLlm, Vllm};
    use Role::{Both, Decode, NotAWorker, Prefill, Unknown};
    type Row = (&'static str, &'static [(&'static str, Role, Engine, Status)]);
    let rows: &[Row] = &[
        (
            "dynamo-vllm-h200.yaml",
            &[
                ("Frontend", NotAWorker, Vllm, Status::Skipped),
                ("prefill", Prefill, Vllm, Status::Warn),
                ("decode", Decode, Vllm, Status::Warn),
            ],
        ),
        (
            "dynamo-sglang-b200.yaml",
            &[("prefill", Prefill, Sglang, Status::Warn), ("decode", Decode, Sglang, Status::Warn)],
        ),
        (
            "dynamo-sglang-no-rdma.yaml",
            &[("prefill", Prefill, Sglang, Status::Fail), ("decode", Decode, Sglang, Status::Fail)],
        ),
        (
            "dynamo-trtllm-gb200.yaml",
            &[("prefill", Prefill, TensorRtLlm, Status::Ok), ("decode", Decode, TensorRtLlm, Status::Ok)],
        ),
        (
            "dynamo-vllm-efa.yaml",
            &[("PrefillWorker", Prefill, Vllm, Status::Ok), ("DecodeWorker", Decode, Vllm, Status::Ok)],
        ),
        ("profile.yaml", &[("nscale-ib", Both, Plain, Status::Unknown)]),
        (
            "helm-mnnvl.yaml",
            &[
                ("pd-mnnvl-prefill", Prefill, Vllm, Status::Warn),
                ("pd-mnnvl-decode", Decode, Vllm, Status::Warn),
            ],
        ),
        ("lws-prefill.yaml", &[("wide-ep-prefill (worker)", Prefill, Vllm, Status::Warn)]),
        (
            "kustomization-json-patch.yaml",
            &[("prefill", Prefill, Plain, Status::Unknown), ("decode", Decode, Plain, Status::Unknown)],
        ),
        ("not-disaggregated.yaml", &[("distributed-sglang", Unknown, Sglang, Status::Skipped)]),
    ];
    for (file, workers) in rows {
        let report = read(file);
        for (name, role, engine, status) in *workers {
            let view = worker(&report, name);
            assert_eq!((view.role, view.engine, view.status), (*role, *engine, *status), "{file}: {name}");
        }
    }
}

#[test]
fn a_variable_that_a_patch_deletes_is_not_reported_as_set() {
    let report = read("dynamo-patch-delete.yaml");
    for name in ["PrefillWorker", "DecodeWorker"] {
        assert_eq!(value(&report, name, "MC_FORCE_TCP"), None);
        assert_eq!(worker(&report, name).removed, ["MC_FORCE_TCP"]);
        assert_eq!(value(&report, name, "NCCL_SOCKET_IFNAME"), Some("eth0"));
    }
    assert!(found(&report, "mooncake-forced").is_none());
}

#[test]
fn an_aliased_worker_is_a_worker_of_its_own() {
    let report = read("dynamo-patch-aliases.yaml");
    assert_eq!(worker(&report, "DecodeWorker").role, Role::Decode);
    assert_eq!(
        value(&report, "DecodeWorker", "NCCL_SOCKET_IFNAME"),
        value(&report, "PrefillWorker", "NCCL_SOCKET_IFNAME")
    );
    assert!(worker(&report, "DecodeWorker").fabric.contains("rdma-0"));
}

#[test]
fn a_setting_on_decode_only_is_told_without_claiming_what_a_secret_may_set() {
    let report = read("dynamo-vllm-nebius.yaml");
    let finding = found(&report, "roles-asymmetric").expect("asymmetry");
    assert_eq!(finding.status, Status::Unknown);
    assert!(finding.evidence.iter().any(|l| l.starts_with("decode") && l.contains("8192")), "{finding:?}");
    assert!(finding.evidence.iter().any(|l| l.starts_with("prefill") && l.contains("not set")));
}

#[test]
fn settings_that_do_nothing_are_told_apart_from_those_that_do() {
    let report = read("dynamo-sglang-b200.yaml");
    let title = |name: &str| report.findings.iter().any(|f| f.id == "no-effect" && f.title.starts_with(name));
    assert!(title("UCX_IB_ADDR_TYPE=eth") && title("UCX_RNDV_SCHEME"));
    assert!(!title("UCX_TLS") && !title("UCX_NET_DEVICES"));
    assert!(found(&report, "one-rail").is_some());
    assert!(found(&report, "tcp-fallback-possible").is_none());
}

#[test]
fn a_placeholder_is_not_judged_as_if_it_were_deployed() {
    let report = read("placeholder.yaml");
    assert_eq!(found(&report, "not-disaggregated").map(|f| f.status), Some(Status::Unknown));
    assert!(report.findings.iter().any(|f| f.id == "placeholder" && f.title.contains("ubuntu:22.04")));
    assert!(found(&report, "no-fabric-resource").is_none());
}

#[test]
fn a_report_never_says_that_a_wire_is_good() {
    for entry in std::fs::read_dir(super::fixture("manifests")).expect("manifests") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|e| e == "yaml") {
            let report = check(std::slice::from_ref(&path), &mut std::io::empty(), &Options::default());
            let json = serde_json::to_string(&report).expect("JSON").to_lowercase();
            assert!(!json.contains("\"trusted\"") && !report.verdict.contains("is trusted"), "{path:?}");
        }
    }
}
