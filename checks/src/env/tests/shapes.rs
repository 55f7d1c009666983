//! The shapes in which environments are written, and the traps in them.

use std::fs;
use std::path::PathBuf;

use super::super::{Engine, Options, Role, check};
use super::{both, found, graph, report, value, worker};
use crate::Status;

#[test]
fn the_operator_merges_graph_service_and_container_in_that_order() {
    let text = "
kind: DynamoGraphDeployment
metadata: {name: g}
spec:
  envs: [{name: A, value: graph}, {name: UCX_TLS, value: graph}, {name: NIXL_LOG_LEVEL, value: WARN}]
  services:
    decode:
      subComponentType: decode
      envs: [{name: UCX_TLS, value: service}, {name: UCX_NET_DEVICES, value: service}]
      extraPodSpec:
        mainContainer:
          image: x
          env: [{name: UCX_NET_DEVICES, value: container}]
          command: [sh, -c]
          args: ['export UCX_MAX_RMA_RAILS=4; NIXL_LOG_LEVEL=${NIXL_LOG_LEVEL:-INFO} UCX_LOG_LEVEL=${UCX_LOG_LEVEL:-info} python3 -m dynamo.vllm']
";
    let report = report(text);
    let is = |name: &str| value(&report, "decode", name);
    assert_eq!(is("UCX_TLS"), Some("service"));
    assert_eq!(is("UCX_NET_DEVICES"), Some("container"));
    assert_eq!(is("UCX_MAX_RMA_RAILS"), Some("4"));
    assert_eq!(is("NIXL_LOG_LEVEL"), Some("WARN"), "a default yields to what is set");
    assert_eq!(is("UCX_LOG_LEVEL"), Some("info"));
    let tls = worker(&report, "decode").env.iter().find(|s| s.name == "UCX_TLS").unwrap();
    assert_eq!(tls.origin, "service env");
    assert_eq!(tls.overrides, ["graph env (-:5)"]);
}

#[test]
fn merge_keys_aliases_and_documents_in_any_order_are_resolved() {
    let text = "
kind: Deployment
metadata: {name: w}
spec:
  selector: {}
  template:
    spec:
      containers:
        - &base
          name: prefill
          image: vllm/vllm-openai:v1
          env:
            - {name: UCX_TLS, valueFrom: {configMapKeyRef: {name: net, key: tls}}}
        - <<: *base
          name: second
---
kind: ConfigMap
metadata: {name: net}
data: {tls: 'rc,cuda_copy'}
";
    let report = report(text);
    assert_eq!(report.workers.len(), 2);
    assert!(report.workers.iter().all(|w| w.env[0].value == "rc,cuda_copy" && w.engine == Engine::Vllm));
}

#[test]
fn a_list_without_quotes_in_braces_is_cut_and_told() {
    let report = report(&graph("- {name: UCX_TLS, value: rc,cuda_copy}\n", ""));
    let finding = found(&report, "env-stray-key").expect("a stray key");
    assert_eq!(finding.status, Status::Fail);
    assert!(finding.fix.contains("\"rc,cuda_copy\""), "{}", finding.fix);
    assert_eq!(value(&report, "prefill", "UCX_TLS"), Some("rc"));
}

#[test]
fn values_that_kubernetes_refuses_or_leaves_alone_are_told() {
    let env = "- {name: UCX_MEMTYPE_CACHE, value: yes}\n- {name: UCX_MAX_RMA_RAILS, value: 4}\n- {name: UCX_NET_DEVICES, value: '${HCA}:1'}\n";
    let report = report(&graph(env, env));
    let of = |id: &str| report.findings.iter().filter(|f| f.id == id).count();
    assert_eq!(of("env-not-text"), 4);
    assert_eq!(of("env-not-expanded"), 2);
}

#[test]
fn references_follow_the_rules_of_kubernetes() {
    let env = "- {name: HCA, value: mlx5_3}\n- {name: UCX_NET_DEVICES, value: '$(HCA):1'}\n- {name: UCX_LOG_FILE, value: '$$(HCA)/%p'}\n- {name: UCX_TLS, value: '$(LATER)'}\n- {name: LATER, value: rc}\n";
    let report = report(&graph(env, env));
    assert_eq!(value(&report, "prefill", "UCX_NET_DEVICES"), Some("mlx5_3:1"));
    assert_eq!(value(&report, "prefill", "UCX_LOG_FILE"), Some("$(HCA)/%p"));
    assert_eq!(value(&report, "prefill", "UCX_TLS"), Some("$(LATER)"), "what comes later is not replaced");
}

#[test]
fn a_value_that_may_come_from_a_secret_is_unknown_and_never_absent() {
    let env = "- {name: UCX_TLS, valueFrom: {secretKeyRef: {name: s, key: k}}}\n";
    let first = report(&graph(env, env));
    assert!(found(&first, "value-unknown").is_some());
    assert!(!worker(&first, "prefill").env[0].known);
    let text = both(&[]).replace("subComponentType:", "envFromSecret: s\n      subComponentType:");
    let second = report(&text);
    let transport = second.checks.iter().find(|c| c.name == "env:disagg-transport").unwrap();
    assert_eq!(transport.status, Status::Unknown);
    assert_eq!(worker(&second, "prefill").unseen, ["Secret s"]);
}

#[test]
fn what_only_a_shell_knows_is_unknown() {
    let text = both(&[("UCX_NET_DEVICES", "mlx5_0:1")])
        .replace("command: [python3, -m, dynamo.vllm]", "command: [bash, -c]")
        .replace("args: [--kv-transfer-config, '{\"kv_connector\":\"NixlConnector\",\"kv_role\":\"kv_both\"}']",
            "args: ['UCX_NET_DEVICES=\"$(nvidia-smi topo -m | awk x)\"; export UCX_NET_DEVICES; if [ -n \"$X\" ]; then export UCX_TLS=tcp; fi; python3 -m dynamo.vllm']");
    let report = report(&text);
    let env = &worker(&report, "prefill").env;
    let known = |name: &str| env.iter().find(|s| s.name == name).map(|s| s.known);
    assert_eq!(known("UCX_NET_DEVICES"), Some(false));
    assert_eq!(known("UCX_TLS"), Some(false), "a branch may run or not");
}

#[test]
fn flags_are_read_in_every_spelling() {
    let json = "{\"kv_connector\":\"NixlConnector\",\"kv_role\":\"kv_producer\"}";
    for args in [
        format!("[serve, m, --kv-transfer-config, '{json}']"),
        format!("[serve, m, '--kv-transfer-config={json}']"),
        format!("[serve, m, '--kv_transfer_config={json}']"),
        "[serve, m, '--kv-transfer-config=$(KV)']".to_owned(),
    ] {
        let text = format!(
            "kind: Pod\nmetadata: {{name: p}}\nspec:\n  containers:\n    - name: c\n      image: x\n      command: [vllm]\n      args: {args}\n      env: [{{name: KV, value: '{json}'}}]\n"
        );
        let report = report(&text);
        let view = worker(&report, "p");
        assert_eq!((view.role, view.kv_transfer.as_str()), (Role::Prefill, "NIXL with UCX"), "{args}");
    }
}

#[test]
fn sidecars_routers_and_init_containers_are_no_workers() {
    let text = "
kind: Deployment
metadata: {name: d}
spec:
  selector: {}
  template:
    spec:
      initContainers: [{name: routing-proxy, image: vllm/x, env: [{name: UCX_TLS, value: tcp}]}]
      containers:
        - {name: routing-proxy, image: vllm/x, env: [{name: UCX_TLS, value: tcp}]}
        - {name: logs, image: fluentd}
        - {name: vllm, image: x, command: [vllm, serve, m]}
";
    let report = report(text);
    assert_eq!(report.workers.iter().map(|w| w.container.as_str()).collect::<Vec<_>>(), ["vllm"]);
}

#[test]
fn other_operators_and_lists_are_read() {
    let text = "
kind: List
items:
  - kind: ClusterServingRuntime
    metadata: {name: rt}
    spec:
      engineConfig: {runner: {name: r, image: 'lmsysorg/sglang:v1', env: [{name: UCX_TLS, value: 'rc,cuda_copy'}]}}
      decoderConfig:
        leader: {runner: {name: r, image: 'lmsysorg/sglang:v1'}}
        worker: {runner: {name: r, image: 'lmsysorg/sglang:v1'}}
  - kind: LeaderWorkerSet
    metadata: {name: lws}
    spec:
      leaderWorkerTemplate:
        size: 4
        leaderTemplate:
          metadata: {labels: {llm-d.ai/role: decode}}
          spec: {containers: [{name: c, image: vllm/vllm-openai}]}
        workerTemplate:
          metadata: {labels: {llm-d.ai/role: decode}}
          spec: {containers: [{name: c, image: vllm/vllm-openai}]}
";
    let report = report(text);
    let roles: Vec<(&str, Role)> = report.workers.iter().map(|w| (w.name.as_str(), w.role)).collect();
    assert_eq!(
        roles,
        [
            ("rt", Role::Prefill),
            ("rt (leader)", Role::Decode),
            ("rt (worker)", Role::Decode),
            ("lws (leader)", Role::Decode),
            ("lws (worker)", Role::Decode),
        ]
    );
}

#[test]
fn places_are_exact_to_the_column() {
    let report = report(&both(&[("UCX_TLS", "rc,CUDA_copy")]));
    let finding = found(&report, "list-grammar").expect("a finding");
    let source = finding.source.as_ref().expect("a place");
    let line = report.line("-", source.line).expect("the line");
    let part: String = line
        .chars()
        .skip(source.column as usize - 1)
        .take((source.end_column - source.column) as usize)
        .collect();
    assert_eq!(part, "CUDA_copy");
}

#[test]
fn the_same_file_through_two_paths_is_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.yaml");
    fs::write(&file, both(&[])).unwrap();
    let paths: Vec<PathBuf> = vec![folder.path().to_owned(), file];
    assert_eq!(check(&paths, &mut std::io::empty(), &Options::default()).workers.len(), 2);
}
