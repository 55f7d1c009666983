//! The twenty-two traps, T1 to T22, that a search for text falls into: each with what is true.

use super::super::{Engine, Report, Role};
use super::{both, found, graph, report, value, worker};
use crate::Status;

type Trap = (u32, &'static str, String, fn(&Report) -> bool);

fn pod(body: &str) -> String {
    format!(
        "kind: Pod\nmetadata: {{name: decode}}\nspec:\n  containers:\n    - name: c\n      image: vllm/vllm-openai:v1\n{body}"
    )
}

fn script(text: &str) -> String {
    both(&[("UCX_TLS", "tcp,cuda_copy")])
        .replace("command: [python3, -m, dynamo.vllm]", "command: [bash, -c]")
        .replace(
            "args: [--kv-transfer-config, '{\"kv_connector\":\"NixlConnector\",\"kv_role\":\"kv_both\"}']",
            &format!("args: [{text:?}]"),
        )
}

fn status(report: &Report, id: &str) -> Option<Status> {
    found(report, id).map(|f| f.status)
}

#[allow(clippy::too_many_lines, reason = "one table")]
fn traps() -> Vec<Trap> {
    let run = "python3 -m dynamo.vllm --disaggregation-mode prefill --kv-transfer-config '{\"kv_connector\":\"NixlConnector\"}'";
    vec![
        (
            1,
            "an alias is a second worker",
            "kind: DynamoGraphDeployment\nmetadata: {name: g}\nspec:\n  services:\n    PrefillWorker: &w\n      extraPodSpec: {mainContainer: {image: vllm-runtime:1, env: &e [{name: UCX_TLS, value: rc}]}}\n    DecodeWorker: *w\n    Third: {extraPodSpec: {mainContainer: {image: vllm-runtime:1, env: *e}}}\n".to_owned(),
            |r| value(r, "DecodeWorker", "UCX_TLS") == Some("rc") && worker(r, "DecodeWorker").role == Role::Decode && value(r, "Third", "UCX_TLS") == Some("rc"),
        ),
        (2, "padded braces", pod("      env: [ { name:  UCX_TLS ,  value:  'rc,cuda_copy' } ]\n"), |r| value(r, "decode", "UCX_TLS") == Some("rc,cuda_copy")),
        (2, "a list without quotes in braces", pod("      env: [{name: UCX_TLS, value: rc,cuda_copy}]\n"), |r| value(r, "decode", "UCX_TLS") == Some("rc") && status(r, "env-stray-key") == Some(Status::Fail)),
        (3, "comments are not settings", pod("      env:\n        # - {name: UCX_MODULE_DIR, value: /x}\n        # UCX_NET_DEVICES: mlx5_0:1\n        - {name: UCX_TLS, value: rc}  # not UCX_LOG_LEVEL=debug\n"), |r| worker(r, "decode").env.len() == 1),
        (4, "a deletion is no setting", graph("- {name: MC_FORCE_TCP, $patch: delete}\n", ""), |r| value(r, "prefill", "MC_FORCE_TCP").is_none() && worker(r, "prefill").removed == ["MC_FORCE_TCP"] && status(r, "mooncake-forced").is_none()),
        (
            5,
            "a slash in a JSON patch",
            "kind: Kustomization\npatches:\n  - target: {kind: Deployment, name: decode}\n    patch: |\n      - {op: add, path: /spec/template/spec/containers/0/resources/limits/rdma~1ib, value: 1}\n".to_owned(),
            |r| worker(r, "decode").fabric == "rdma/ib: 1",
        ),
        (6, "from elsewhere is not absent", pod("      envFrom: [{secretRef: {name: s}}, {configMapRef: {name: elsewhere}}]\n      env: [{name: UCX_NET_DEVICES, valueFrom: {secretKeyRef: {name: s, key: k}}}]\n"), |r| worker(r, "decode").unseen == ["Secret s", "ConfigMap elsewhere"] && r.checks.iter().any(|c| c.name == "env:disagg-transport" && c.status == Status::Unknown)),
        (6, "a prefix of a source", "kind: ConfigMap\nmetadata: {name: m}\ndata: {TLS: rc}\n---\n".to_owned() + &pod("      envFrom: [{prefix: UCX_, configMapRef: {name: m}}]\n"), |r| value(r, "decode", "UCX_TLS") == Some("rc")),
        (7, "a ConfigMap after the one that uses it", pod("      env: [{name: UCX_TLS, valueFrom: {configMapKeyRef: {name: m, key: tls}}}]\n") + "---\nkind: ConfigMap\nmetadata: {name: m}\ndata: {tls: rc}\n", |r| value(r, "decode", "UCX_TLS") == Some("rc")),
        (8, "an export wins", script(&format!("export UCX_TLS=rc,cuda_copy; {run}")), |r| value(r, "decode", "UCX_TLS") == Some("rc,cuda_copy")),
        (8, "a default yields", script(&format!("export UCX_TLS=${{UCX_TLS:-rc}}; {run}")), |r| value(r, "decode", "UCX_TLS") == Some("tcp,cuda_copy")),
        (8, "a command's output is unknown", script(&format!("export UCX_TLS=$(cat /tls); {run}")), |r| worker(r, "decode").env.iter().any(|s| s.name == "UCX_TLS" && !s.known)),
        (8, "a shell's reference in env stays", graph("- {name: UCX_NET_DEVICES, value: '${HCA}'}\n", ""), |r| status(r, "env-not-expanded") == Some(Status::Fail)),
        (8, "a name that only the image sets stays", graph("- {name: NIXL_PLUGIN_DIR, value: '$(HOME)/p'}\n", ""), |r| status(r, "env-not-expanded") == Some(Status::Warn) && value(r, "prefill", "NIXL_PLUGIN_DIR") == Some("$(HOME)/p")),
        (9, "folded lines swallow the worker", pod("      command: [sh, -c]\n      args:\n        - >-\n          ulimit -l unlimited\n          vllm serve m\n          --kv-transfer-config '{\"kv_connector\":\"NixlConnector\"}'\n"), |r| status(r, "worker-never-starts") == Some(Status::Fail)),
        (9, "a backslash in folded lines", pod("      command: [sh, -c]\n      args:\n        - >-\n          vllm serve m \\\n          --kv-transfer-config '{\"kv_connector\":\"NixlConnector\"}'\n"), |r| status(r, "stray-argument") == Some(Status::Fail)),
        (9, "ulimit before && needs a capability", script(&format!("ulimit -l unlimited && {run}")), |r| status(r, "ulimit-stops-worker") == Some(Status::Warn)),
        (9, "set -e does the same", script(&format!("set -Eeuo pipefail\nulimit -l unlimited\n{run}")), |r| status(r, "ulimit-stops-worker") == Some(Status::Warn)),
        (9, "|| true does not", script(&format!("ulimit -l unlimited || true\n{run}")), |r| status(r, "ulimit-stops-worker").is_none()),
        (10, "a list with ^ allows the rest", both(&[("UCX_TLS", "^cuda_ipc")]), |r| status(r, "tcp-fallback-possible") == Some(Status::Warn) && status(r, "tls-without-rdma").is_none()),
        (10, "^= of NCCL", both(&[("NCCL_IB_HCA", "^=mlx5_0,mlx5_1")]), |r| status(r, "device-name-unknown").is_none()),
        (10, "aliases and exact names", both(&[("UCX_TLS", "ib,cuda")]), |r| status(r, "tls-without-rdma").is_none() && status(r, "tls-without-cuda").is_none()),
        (10, "ranges of devices", both(&[("UCX_NET_DEVICES", "mlx5_[0-3]:1")]), |r| status(r, "device-name-unknown").is_none()),
        (11, "a flag as one word, with blanks in its JSON", pod("      command: [vllm, serve, m]\n      args: ['--kv_transfer_config={ \"kv_connector\" : \"NixlConnector\" , \"kv_role\": \"kv_consumer\" }']\n"), |r| worker(r, "decode").kv_transfer == "NIXL with UCX" && worker(r, "decode").role == Role::Decode),
        (11, "a flag in parts", pod("      command: [vllm, serve, m]\n      args: [--kv-transfer-config.kv_connector, NixlConnector]\n"), |r| worker(r, "decode").kv_transfer == "NIXL with UCX"),
        (12, "one idea, other names", both(&[]).replace("rdma/ib: \"1\"", "rdma/shared_ib: 1"), |r| worker(r, "prefill").fabric == "rdma/shared_ib: 1"),
        (12, "a virtual function", both(&[]).replace("rdma/ib", "nvidia.com/sriov-rdma-vf"), |r| status(r, "no-fabric-resource").is_none()),
        (12, "a ticket is no count", both(&[]).replace("gpu: \"1\"", "gpu: 8"), |r| status(r, "rdma-fewer-than-gpus").is_none()),
        (12, "the host's devices", both(&[]).replace("rdma/ib: \"1\"", "x: \"1\"").replace("extraPodSpec:\n", "extraPodSpec:\n        volumes: [{name: ib, hostPath: {path: /dev/infiniband}}]\n"), |r| status(r, "no-fabric-resource").is_none()),
        (13, "half a claim", both(&[]).replace("extraPodSpec:\n", "extraPodSpec:\n        resourceClaims: [{name: nic, resourceClaimTemplateName: rdma}]\n"), |r| status(r, "claim-incomplete") == Some(Status::Fail)),
        (13, "both halves", both(&[]).replace("resources: {", "resources: {claims: [{name: nic}], ").replace("extraPodSpec:\n", "extraPodSpec:\n        resourceClaims: [{name: nic, resourceClaimTemplateName: rdma}]\n"), |r| status(r, "claim-incomplete").is_none()),
        (14, "64 MiB of a plain pod", pod("      resources: {limits: {nvidia.com/gpu: 8, rdma/ib: 1}}\n      command: [vllm, serve, m, --kv-transfer-config, '{\"kv_connector\":\"NixlConnector\"}']\n").replace("kind: Pod\nmetadata: {name: decode}\nspec:", "kind: Pod\nmetadata: {name: decode}\nspec:\n  hostPID: false"), |r| status(r, "shared-memory-small") == Some(Status::Warn)),
        (14, "a memory volume", pod("      resources: {limits: {nvidia.com/gpu: 8}}\n      volumeMounts: [{name: shm, mountPath: /dev/shm}]\n      command: [vllm, serve, m, --kv-transfer-config, '{\"kv_connector\":\"NixlConnector\"}']\n  volumes: [{name: shm, emptyDir: {medium: Memory}}]\n"), |r| status(r, "shared-memory-small").is_none()),
        (14, "too small a size", both(&[]).replace("subComponentType:", "sharedMemorySize: 8Mi\n      subComponentType:"), |r| status(r, "shared-memory-small") == Some(Status::Fail)),
        (14, "the operator's own size", both(&[]), |r| status(r, "shared-memory-small").is_none()),
        (15, "a capability with its prefix", both(&[]).replace("IPC_LOCK", "CAP_IPC_LOCK"), |r| status(r, "memlock").is_none()),
        (15, "privileged implies it", both(&[]).replace("{capabilities: {add: [IPC_LOCK]}}", "{privileged: true}"), |r| status(r, "memlock").is_none()),
        (16, "yes and numbers are no text", graph("- {name: UCX_MEMTYPE_CACHE, value: yes}\n- {name: UCX_MAX_RMA_RAILS, value: 010}\n", ""), |r| r.findings.iter().filter(|f| f.id == "env-not-text").count() == 2),
        (16, "y is one", graph("- {name: NIXL_TELEMETRY_ENABLE, value: y}\n", "- {name: NIXL_TELEMETRY_ENABLE, value: y}\n"), |r| status(r, "env-not-text").is_none() && status(r, "invalid-value").is_none()),
        (16, "quotes within a value", both(&[("UCX_TLS", "\"rc\",cuda_copy")]), |r| status(r, "list-grammar") == Some(Status::Fail)),
        (16, "true is no boolean of UCX", both(&[("UCX_IB_PCI_RELAXED_ORDERING", "true")]), |r| status(r, "invalid-value") == Some(Status::Fail)),
        (17, "placeholders", pod("      command: [vllm, serve, m, --kv-transfer-config, '{\"kv_connector\":\"NixlConnector\"}']\n      env: [{name: UCX_NET_DEVICES, value: <your-hca>}]\n").replace("vllm/vllm-openai:v1", "<your-registry>/vllm:1"), |r| r.findings.iter().filter(|f| f.id == "placeholder").count() == 2),
        (17, "a chart that is not rendered", "kind: Pod\nspec:\n  {{- if .Values.x }}\n  containers: []\n  {{- end }}\n".to_owned(), |r| status(r, "template") == Some(Status::Unknown) && status(r, "file-not-yaml").is_none()),
        (17, "a template in a value", both(&[("UCX_TLS", "{{ .Values.tls }}")]), |r| worker(r, "prefill").env.iter().all(|s| !s.known) && status(r, "value-unknown") == Some(Status::Unknown)),
        (18, "sides that differ are shown together", graph("- {name: UCX_TLS, value: 'rc,cuda_copy'}\n", "- {name: UCX_TLS, value: 'rc_v,cuda_copy'}\n"), |r| found(r, "roles-differ").is_some_and(|f| f.evidence.len() == 2 && f.evidence[0].contains("rc,cuda_copy") && f.evidence[1].contains("rc_v,cuda_copy"))),
        (18, "types of the KV cache", both(&[]).replacen("args: [", "args: [--kv-cache-dtype, fp8, ", 1).replace("args: [--kv-transfer", "args: [--kv-cache-dtype, auto, --kv-transfer"), |r| found(r, "roles-differ").is_some_and(|f| f.title.contains("KV cache type") && f.evidence[0].contains("fp8") && f.evidence[1].contains("auto"))),
        (18, "images", both(&[]).replacen("vllm-runtime:1.3.0", "vllm-runtime:1.2.0", 1), |r| found(r, "roles-differ").is_some_and(|f| f.evidence[0].contains("1.2.0") && f.evidence[1].contains("1.3.0"))),
        (19, "a frontend gets the graph's variables and is none", both(&[]).replace("  services:\n", "  envs: [{name: UCX_TLS, value: tcp}]\n  services:\n    Frontend:\n      componentType: frontend\n      extraPodSpec: {mainContainer: {image: vllm-runtime:1.3.0}}\n"), |r| worker(r, "Frontend").role == Role::NotAWorker && r.findings.iter().all(|f| !f.workers.contains(&"Frontend".to_owned()))),
        (20, "a part is unknown", "kind: DynamoGraphDeployment\nmetadata: {name: g}\nspec: {services: {DecodeWorker: {extraPodSpec: {mainContainer: {env: [{name: UCX_LOG_LEVEL, value: warn}]}}}}}\n".to_owned(), |r| worker(r, "DecodeWorker").status == Status::Unknown),
        (20, "the whole without a fabric fails", both(&[]).replace("rdma/ib", "x/y"), |r| worker(r, "decode").status == Status::Fail),
        (21, "lists of one replica that drift apart", "kind: LeaderWorkerSet\nmetadata: {name: l}\nspec: {leaderWorkerTemplate: {leaderTemplate: {spec: {containers: [{name: c, image: vllm/vllm-openai, env: [{name: UCX_TLS, value: rc}]}]}}, workerTemplate: {spec: {containers: [{name: c, image: vllm/vllm-openai}]}}}}\n".to_owned(), |r| status(r, "ranks-differ") == Some(Status::Warn)),
        (22, "vLLM does not read SGLang's selector", both(&[("SGLANG_DISAGGREGATION_NIXL_BACKEND", "LIBFABRIC")]), |r| status(r, "backend-selector") == Some(Status::Warn) && worker(r, "decode").kv_transfer == "NIXL with UCX" && worker(r, "decode").engine == Engine::Vllm),
        (22, "SGLang reads its own", "kind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n    - name: c\n      image: x\n      command: [python3, -m, sglang.launch_server, --disaggregation-mode, decode, --disaggregation-transfer-backend, nixl]\n      env: [{name: SGLANG_DISAGGREGATION_NIXL_BACKEND, value: LIBFABRIC}]\n".to_owned(), |r| worker(r, "p").kv_transfer == "NIXL with LIBFABRIC"),
    ]
}

#[test]
fn no_trap_is_fallen_into() {
    for (number, says, text, holds) in traps() {
        let report = report(&text);
        assert!(holds(&report), "T{number} {says}:\n{text}\n{:#?}\n{:#?}", report.workers, report.findings);
    }
}

#[test]
fn no_trap_is_left_out() {
    let numbers: std::collections::BTreeSet<u32> = traps().iter().map(|t| t.0).collect();
    assert_eq!(numbers, (1..=22).collect());
}
