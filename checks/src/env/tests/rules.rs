//! Each rule with what sets it off, and with its nearest neighbour that must not.

use std::path::PathBuf;

use super::super::lists::{self, Mode};
use super::super::{Options, Version, Versions, Waiver, check};
use super::{both, found, graph, report, worker};
use crate::Status::{self, Fail, Ok as Fine, Warn};

/// The status of a rule's finding for these variables on both sides.
fn status(id: &str, variables: &[(&str, &str)]) -> Option<Status> {
    found(&report(&both(variables)), id).map(|f| f.status)
}

#[test]
fn value_rules_tell_bad_values_from_their_good_neighbours() {
    type Row = (&'static str, &'static [(&'static str, &'static str)], Option<Status>);
    let rows: &[Row] = &[
        // C1
        ("tls-without-rdma", &[("UCX_TLS", "tcp,cuda_copy")], Some(Fail)),
        ("tls-without-rdma", &[("UCX_TLS", "ud,cuda_copy")], Some(Fail)),
        ("tls-without-rdma", &[("UCX_TLS", "rc_x,cuda_copy")], None),
        ("tls-without-rdma", &[("UCX_TLS", "^tcp")], None),
        ("tls-without-rdma", &[("UCX_TLS", "^ib,cuda_ipc")], Some(Fail)),
        ("imex-claim-missing", &[("UCX_TLS", "cuda_copy,cuda_ipc,tcp")], Some(Fail)),
        // C2
        ("tls-without-cuda", &[("UCX_TLS", "rc")], Some(Fail)),
        ("tls-without-cuda", &[("UCX_TLS", "^cuda")], Some(Fail)),
        ("tls-without-cuda", &[("UCX_TLS", "rc,cuda")], None),
        ("tls-without-cuda", &[("UCX_TLS", "^cuda_ipc")], None),
        // C3
        ("list-grammar", &[("UCX_TLS", "rc,ud,sm,^cuda_ipc,cuda_copy")], Some(Fail)),
        ("list-grammar", &[("UCX_TLS", "rc, cuda_copy")], Some(Fail)),
        ("list-grammar", &[("UCX_TLS", "RC,cuda_copy")], Some(Fail)),
        ("list-grammar", &[("UCX_TLS", "all,rc")], Some(Fail)),
        ("list-grammar", &[("UCX_NET_DEVICES", "^all")], Some(Fail)),
        ("list-grammar", &[("UCX_TLS", "")], Some(Fail)),
        ("list-grammar", &[("UCX_TLS", "rc_x,rc,cuda_copy,cuda_ipc")], None),
        ("list-grammar", &[("UCX_TLS", "\\rc_mlx5,ud_mlx5:aux,cuda_copy")], None),
        // C4
        ("tcp-fallback-possible", &[("UCX_TLS", "^cuda_ipc")], Some(Warn)),
        ("tcp-fallback-possible", &[("UCX_TLS", "rc,cuda_copy,tcp")], Some(Warn)),
        ("tcp-fallback-possible", &[("UCX_TLS", "^cuda_ipc"), ("UCX_PROTO_EMULATION_ENABLE", "n")], None),
        ("tcp-fallback-possible", &[("UCX_TLS", "rc,cuda_copy")], None),
        // C5
        ("net-devices-without-rdma", &[("UCX_NET_DEVICES", "eth0,bond0")], Some(Fail)),
        ("net-devices-without-rdma", &[("UCX_NET_DEVICES", "eth0,mlx5_0:1")], None),
        ("net-devices-without-rdma", &[("UCX_NET_DEVICES", "^eth0")], None),
        ("device-name-unknown", &[("UCX_NET_DEVICES", "mlxl5_7")], Some(Warn)),
        ("device-name-unknown", &[("UCX_NET_DEVICES", "mlx5_[0-3]:1,rdmap1s0:1,bnxt_re0")], None),
        ("device-port", &[("UCX_NET_DEVICES", "mlx5_0:0")], Some(Fail)),
        // C6, C7
        ("rndv-thresh-set", &[("UCX_RNDV_THRESH", "0")], Some(Warn)),
        ("rndv-thresh-set", &[("UCX_RNDV_THRESH", "0"), ("UCX_TLS", "rc_v,cuda_copy")], Some(Fail)),
        ("rndv-thresh-set", &[("UCX_RNDV_THRESH", "inf")], None),
        ("no-effect", &[("UCX_MAX_RNDV_RAILS", "4")], Some(Warn)),
        ("no-effect", &[("UCX_MAX_RMA_RAILS", "4")], None),
        // C8, C9
        ("gpu-direct-off", &[("UCX_IB_GPU_DIRECT_RDMA", "no")], Some(Fail)),
        ("gpu-direct-off", &[("UCX_IB_GPU_DIRECT_RDMA", "try")], None),
        ("gpu-direct-required", &[("UCX_IB_GPU_DIRECT_RDMA", "yes")], Some(Fine)),
        ("invalid-value", &[("UCX_IB_GPU_DIRECT_RDMA", "true")], Some(Fail)),
        ("invalid-value", &[("UCX_MEMTYPE_CACHE", "true")], Some(Warn)),
        ("invalid-value", &[("UCX_RNDV_SCHEME", "zcopy")], Some(Fail)),
        ("invalid-value", &[("UCX_RC_TIMEOUT", "10 minutes")], Some(Fail)),
        ("invalid-value", &[("UCX_MEMTYPE_CACHE", "n"), ("UCX_RC_TIMEOUT", "600s")], None),
        // C10
        ("gid-index", &[("UCX_IB_GID_INDEX", "3")], Some(Warn)),
        ("gid-index", &[("UCX_IB_GID_INDEX", "3"), ("UCX_IB_ROCE_SUBNETS", "10.0.0.0/8")], Some(Fail)),
        ("gid-index", &[("UCX_IB_GID_INDEX", "auto")], None),
        // C14
        ("unknown-variable", &[("UCX_NET_DEVICE", "mlx5_0:1")], Some(Warn)),
        ("unknown-variable", &[("NIXL_PLUGINS_DIR", "/x")], Some(Warn)),
        ("unknown-variable", &[("VLLM_NIXL_SIDE_CHANEL_HOST", "10.0.0.1")], Some(Warn)),
        ("unknown-variable", &[("UCX_MEMTYPE_REG_WHOLE", "n")], Some(Warn)),
        ("unknown-variable", &[("MC_INTRA_NVLINK", "1")], Some(Warn)),
        ("unknown-variable", &[("UCX_STATS_DEST", "file")], Some(Warn)),
        ("unknown-variable", &[("UCX_RC_MLX5_TIMEOUT", "1s"), ("NIXL_PLUGIN_DIR", "/x")], None),
        ("no-effect", &[("UCX_IB_REG_METHODS", "odp")], Some(Warn)),
        ("no-effect", &[("UCX_IB_ADDR_TYPE", "eth")], Some(Warn)),
        ("no-effect", &[("UCX_IB_ADDR_TYPE", "ib_global")], None),
        // C15 to C18
        ("transport-not-in-build", &[("UCX_TLS", "dc,cuda_copy")], Some(Warn)),
        ("transport-not-in-build", &[("UCX_TLS", "dc,rc,cuda_copy")], None),
        ("proto-disabled", &[("UCX_PROTO_ENABLE", "n")], Some(Fail)),
        ("proto-disabled", &[("UCX_UNIFIED_MODE", "y")], Some(Fail)),
        ("proto-disabled", &[("UCX_PROTO_ENABLE", "y"), ("UCX_UNIFIED_MODE", "n")], None),
        ("ucx-can-abort", &[("UCX_LOG_FILE", "/tmp/ucx.log")], Some(Warn)),
        ("ucx-can-abort", &[("UCX_LOG_FILE", "/tmp/ucx.%p.log")], None),
        ("ucx-can-abort", &[("UCX_LOG_FILE", "stderr")], None),
        ("ucx-can-abort", &[("UCX_HANDLE_ERRORS", "freeze")], Some(Fail)),
        ("ucx-can-abort", &[("UCX_LOG_LEVEL_TRIGGER", "warn")], Some(Fail)),
        ("debug-output", &[("UCX_LOG_LEVEL", "debug")], Some(Warn)),
        ("debug-output", &[("UCX_LOG_LEVEL", "info"), ("NCCL_DEBUG", "INFO")], None),
        // C19 to C21
        ("side-channel-host", &[("VLLM_NIXL_SIDE_CHANNEL_HOST", "127.0.0.1")], Some(Fail)),
        ("side-channel-host", &[("VLLM_NIXL_SIDE_CHANNEL_HOST", "10.1.2.3")], None),
        ("nixl-metadata", &[("NIXL_ETCD_ENDPOINTS", "")], Some(Fail)),
        (
            "nixl-metadata",
            &[("NIXL_ETCD_ENDPOINTS", "http://e:2379"), ("NIXL_TCPSTORE_ENDPOINT", "t:1")],
            Some(Fail),
        ),
        ("nixl-metadata", &[("NIXL_ETCD_ENDPOINTS", "http://e:2379")], None),
        ("invalid-value", &[("NIXL_TELEMETRY_ENABLE", "maybe")], Some(Fail)),
        ("invalid-value", &[("NIXL_TELEMETRY_EXPORTER", "influx")], Some(Fail)),
        (
            "invalid-value",
            &[("NIXL_TELEMETRY_ENABLE", "true"), ("NIXL_TELEMETRY_EXPORTER", "prometheus")],
            None,
        ),
        // C22, C23
        ("libfabric-unused", &[("FI_PROVIDER", "efa")], None),
        ("efa-rdma-off", &[("FI_EFA_USE_DEVICE_RDMA", "0")], Some(Fail)),
        ("efa-rdma-off", &[("FI_PROVIDER", "tcp")], Some(Fail)),
        ("efa-rdma-off", &[("FI_PROVIDER", "efa"), ("FI_EFA_USE_DEVICE_RDMA", "1")], None),
        // C25, C26
        ("mooncake-forced", &[("MC_FORCE_TCP", "0")], Some(Warn)),
        ("nccl-setting", &[("NCCL_IB_DISABLE", "1")], Some(Fail)),
        ("nccl-setting", &[("NCCL_IB_DISABLE", "0")], None),
        ("nccl-setting", &[("NCCL_MNNVL_ENABLE", "1"), ("NCCL_CUMEM_ENABLE", "0")], Some(Fail)),
        ("invalid-value", &[("NCCL_IB_DISABLE", "true")], Some(Fail)),
        // C27 to C29
        ("nvlink-unused", &[("UCX_TLS", "^cuda_ipc")], Some(Fine)),
        ("nvlink-unused", &[("UCX_TLS", "rc,cuda_copy,cuda_ipc")], None),
        ("hidden-config", &[("NIXL_CONFIG_FILE", "/etc/n.toml")], Some(Warn)),
        ("warnings-hidden", &[("UCX_WARN_UNUSED_ENV_VARS", "n")], Some(Warn)),
        ("warnings-hidden", &[("UCX_LOG_LEVEL", "error")], Some(Warn)),
        ("warnings-hidden", &[("UCX_WARN_UNUSED_ENV_VARS", "y")], None),
        // selectors of other engines
        ("backend-selector", &[("SGLANG_DISAGGREGATION_NIXL_BACKEND", "LIBFABRIC")], Some(Warn)),
        ("nccl-does-not-steer", &[("NCCL_IB_HCA", "mlx5_0")], Some(Warn)),
        ("nccl-does-not-steer", &[("NCCL_IB_HCA", "mlx5_0"), ("UCX_NET_DEVICES", "mlx5_0:1")], None),
        ("placeholder", &[("UCX_NET_DEVICES", "<your-hca>:1")], Some(Fail)),
    ];
    for (id, variables, expected) in rows {
        // FI_ variables set off their rule only without EFA devices, which is the case here.
        let expected = if *id == "libfabric-unused" { Some(Warn) } else { *expected };
        assert_eq!(status(id, variables), expected, "{id}: {variables:?}");
    }
}

#[test]
fn a_clean_graph_has_no_finding_but_the_way_to_the_active_test() {
    let report = report(&both(&[("UCX_TLS", "rc,cuda_copy,cuda_ipc")]));
    let ids: Vec<&str> = report.findings.iter().map(|f| f.id.as_str()).collect();
    assert_eq!(ids, ["static-check-passed", "static-check-passed"]);
    assert!(report.findings[0].next_step.contains("kvwire initiator"));
    assert_eq!(report.counts.fail, 0);
}

#[test]
fn rules_that_depend_on_a_version_say_so_or_know_it() {
    let text = both(&[("UCX_TLS", "dc,cuda_copy")]);
    let with = |nixl: &str| {
        let versions = Versions { nixl: Version::read(nixl), ..Versions::default() };
        let options = Options { versions, ..Options::default() };
        let report = check(&[PathBuf::from("-")], &mut text.as_bytes(), &options);
        found(&report, "transport-not-in-build").map(|f| f.status)
    };
    assert_eq!(with("1.0.0"), None);
    assert_eq!(with("1.4.1"), Some(Fail));
    let open = report(&text);
    assert!(found(&open, "transport-not-in-build").is_some_and(|f| f.title.contains("depends")));
    let tagged = text.replace("vllm-runtime:1.3.0", "vllm-runtime:1.3.0-nixl1.4.1");
    assert_eq!(found(&report(&tagged), "transport-not-in-build").map(|f| f.status), Some(Fail));
}

#[test]
fn what_must_agree_is_shown_side_by_side_when_it_does_not() {
    let entry = |v: &str| format!("- {{name: UCX_TLS, value: {v:?}}}\n");
    let report = report(&graph(&entry("rc,cuda_copy"), &entry("rc_v,cuda_copy")));
    let finding = found(&report, "roles-differ").expect("a difference");
    assert_eq!(finding.status, Fail);
    assert!(finding.evidence[0].starts_with("prefill") && finding.evidence[0].contains("rc,cuda_copy"));
    assert!(finding.evidence[1].starts_with("decode") && finding.evidence[1].contains("rc_v,cuda_copy"));
    let same = super::report(&graph(&entry("rc,cuda_copy"), &entry("cuda_copy,rc")));
    assert!(found(&same, "roles-differ").is_none(), "the order of transports does not matter");
}

#[test]
fn a_backend_on_one_side_only_is_no_backend() {
    let text = both(&[]).replacen(
        "\"kv_role\":\"kv_both\"",
        "\"kv_role\":\"kv_both\",\"kv_connector_extra_config\":{\"backends\":[\"LIBFABRIC\"]}",
        1,
    );
    let report = report(&text);
    let finding = found(&report, "roles-differ").expect("a difference");
    assert!(finding.title.contains("LIBFABRIC") && finding.title.contains("UCX"), "{}", finding.title);
}

#[test]
fn backend_parameters_that_are_read_differently_are_told() {
    for (extra, hit) in [
        ("\"ucx_devices\":\"mlx5_0\"", true),
        ("\"engine_config\":\"TLS=rc,cuda_copy\"", true),
        ("\"device_list\":\"mlx5_0:1\"", true),
        ("\"device_list\":\"mlx5_0, mlx5_1\"", false),
        ("\"num_threads\":8", false),
    ] {
        let text = both(&[]).replace(
            "\"kv_role\":\"kv_both\"",
            &format!("\"kv_role\":\"kv_both\",\"kv_connector_extra_config\":{{{extra}}}"),
        );
        assert_eq!(found(&report(&text), "backend-param").is_some(), hit, "{extra}");
    }
}

#[test]
fn what_the_pod_lacks_is_told() {
    let clean = both(&[]);
    let rows: &[(&str, &str, &str, Option<Status>)] = &[
        ("rdma/ib: \"1\"", "example.com/x: \"1\"", "no-fabric-resource", Some(Fail)),
        ("{add: [IPC_LOCK]}", "{add: [NET_ADMIN]}", "memlock", Some(Warn)),
        ("{add: [IPC_LOCK]}", "{add: [CAP_IPC_LOCK]}", "memlock", None),
        ("gpu: \"1\"", "gpu: \"8\"", "rdma-fewer-than-gpus", None),
        (
            "gpu: \"1\", custom: {rdma/ib: \"1\"}",
            "gpu: \"8\", custom: {rdma/ib: \"2\"}",
            "rdma-fewer-than-gpus",
            Some(Warn),
        ),
        ("resources: {limits:", "resources: {claims: [{name: c}], limits:", "claim-incomplete", Some(Fail)),
        (
            "subComponentType:",
            "sharedMemory: {size: 8Mi}\n      subComponentType:",
            "shared-memory-small",
            Some(Fail),
        ),
        ("rdma/ib", "vpc.amazonaws.com/efa", "efa-with-ucx", Some(Warn)),
        ("rdma/ib", "vpc.amazonaws.com/efa", "efa-needs-privileged", Some(Warn)),
    ];
    for (from, to, id, expected) in rows {
        assert!(clean.contains(from), "{from}");
        let report = report(&clean.replace(from, to));
        assert_eq!(found(&report, id).map(|f| f.status), *expected, "{id}: {to}");
    }
}

#[test]
fn networks_that_are_attached_and_not_requested_are_told() {
    let annotations = "extraPodMetadata: {annotations: {networking.gke.io/interfaces: '[{\"interfaceName\":\"eth2\",\"network\":\"rdma-0\"},{\"interfaceName\":\"eth3\",\"network\":\"rdma-1\"}]'}}\n      subComponentType:";
    let text = both(&[])
        .replace("subComponentType:", annotations)
        .replace("rdma/ib", "networking.gke.io.networks/rdma-0");
    let report = report(&text);
    let finding = found(&report, "gke-networks").expect("rdma-1 is not requested");
    assert!(finding.title.contains("rdma-1"));
    assert_eq!(report.findings.iter().filter(|f| f.id == "gke-networks").count(), 2);
}

#[test]
fn shell_lines_that_never_start_the_worker_are_told() {
    let script = |script: &str| {
        both(&[]).replace("command: [python3, -m, dynamo.vllm]", "command: [bash, -c]").replace(
            "args: [--kv-transfer-config, '{\"kv_connector\":\"NixlConnector\",\"kv_role\":\"kv_both\"}']",
            &format!("args: [{script:?}]"),
        )
    };
    let ids = |text: &str| -> Vec<String> {
        report(&script(text)).findings.into_iter().filter(|f| f.status != Fine).map(|f| f.id).collect()
    };
    let run = "python3 -m dynamo.vllm --disaggregation-mode prefill --kv-transfer-config '{\"kv_connector\":\"NixlConnector\"}'";
    assert!(ids(&format!("ulimit -l unlimited {run}")).contains(&"worker-never-starts".to_owned()));
    assert_eq!(ids(&format!("ulimit -l unlimited && {run}")), ["ulimit-stops-worker", "ulimit-stops-worker"]);
    assert_eq!(ids(&format!("ulimit -l unlimited || true; {run}")), Vec::<String>::new());
    assert_eq!(ids(&format!("ulimit -l unlimited; {run}")), Vec::<String>::new());
    assert!(ids(&format!("{run} \\  --x")).contains(&"stray-argument".to_owned()));
    assert!(ids(&format!("pip install libucx-cu12 && {run}")).contains(&"ucx-without-verbs".to_owned()));
}

#[test]
fn lists_are_read_as_ucx_reads_them() {
    let mode = |value: &str| lists::parse(value).mode;
    assert_eq!(mode("a,b"), Mode::Allow);
    assert_eq!(mode("^a,b"), Mode::Deny);
    assert_eq!(mode("all"), Mode::All);
    assert_eq!(mode("^all"), Mode::All);
    assert_eq!(mode("all,x"), Mode::Refused);
    assert_eq!(mode("^"), Mode::Empty);
    let list = lists::parse("a,^b");
    assert!(list.allows("a") && !list.allows("b") && !list.allows("c"));
    assert!(lists::parse("^a,^b").allows("b"), "the second ^ excludes nothing");
    assert!(!lists::parse("^a,b").allows("b"));
    assert!(lists::parse("ib").allows("srd") && lists::parse("rc_x").allows("rc_mlx5"));
    assert!(!lists::parse("rc_x").allows("rc_verbs") && !lists::parse("\\rc").allows("rc_mlx5"));
    assert!(!lists::parse("ud_mlx5:aux").allows("ud_mlx5"), "only for setting up");
}

#[test]
fn a_rule_can_be_switched_off_and_is_then_listed() {
    let text = both(&[("UCX_RNDV_THRESH", "0")]);
    let options = Options {
        waivers: vec![
            Waiver { id: "rndv-thresh-set".to_owned(), by: "--ignore".to_owned() },
            Waiver { id: "no-such-rule".to_owned(), by: "--ignore".to_owned() },
        ],
        ..Options::default()
    };
    let by_flag = check(&[PathBuf::from("-")], &mut text.as_bytes(), &options);
    assert!(found(&by_flag, "rndv-thresh-set").is_none());
    assert_eq!(by_flag.switched_off.len(), 2);
    assert!(found(&by_flag, "waiver-unknown").is_some_and(|f| f.title.contains("no-such-rule")));
    let commented = text.replace("value: \"0\"}", "value: \"0\"}  # kvwire: ignore=rndv-thresh-set");
    let by_comment = report(&commented);
    assert!(found(&by_comment, "rndv-thresh-set").is_none());
    assert!(by_comment.switched_off[0].by.contains("comment"));
    let elsewhere = report(&format!("# kvwire: ignore=rndv-thresh-set\n{text}"));
    assert!(found(&elsewhere, "rndv-thresh-set").is_some(), "a comment covers its own line and the next");
    let whole = report(&format!("# kvwire: ignore-file=rndv-thresh-set\n{text}"));
    assert!(found(&whole, "rndv-thresh-set").is_none());
}

#[test]
fn a_configuration_names_rules_and_refuses_what_it_does_not_know() {
    use super::super::{Configuration, ConfigurationError};
    let text =
        "check:\n  env:\n    ignore:\n      - one-rail\n      - {id: memlock, reason: set by the node}\n";
    let configuration = Configuration::read("c.yaml", text).expect("a configuration");
    assert_eq!(configuration.waivers[1].by, "c.yaml:5: set by the node");
    assert_eq!(
        Configuration::read("c.yaml", "check:\n  enf: {}\n"),
        Err(ConfigurationError::Key { line: 2, key: "enf".to_owned() })
    );
}

#[test]
fn the_checks_of_the_read_only_check_are_there_with_its_names() {
    let report = report(&both(&[("UCX_TLS", "rc,cuda_copy"), ("NCCL_IB_DISABLE", "0")]));
    let check = |name: &str| report.checks.iter().find(|c| c.name == name);
    assert!(check("env:UCX_TLS").is_some_and(|c| c.status == Fine && c.detail.starts_with("rc,cuda_copy (")));
    assert!(check("env:NCCL_IB_DISABLE").is_some());
    let transport = check("env:disagg-transport").expect("what is missing");
    assert_eq!(transport.status, Warn);
    assert!(transport.detail.contains("UCX_NET_DEVICES") && !transport.detail.contains("UCX_TLS"));
    assert_eq!(report.counts.ok, report.checks.iter().filter(|c| c.status == Fine).count());
    assert_eq!(worker(&report, "prefill").status, Fine);
}
