//! The seventeen shapes, S1 to S17, in which a worker's environment is stated: what the check reads in each.

use super::super::{Engine, Report, Role};
use super::{found, report, worker};
use crate::Status;

/// What a shape must give: a worker, its role and engine, and a variable with its value; none for one that is set to what
/// the files do not say.
struct Shape {
    number: u32,
    says: &'static str,
    text: &'static str,
    worker: &'static str,
    role: Role,
    engine: Engine,
    variable: (&'static str, Option<&'static str>),
    kv: &'static str,
}

const SHAPES: &[Shape] = &[
    Shape {
        number: 1,
        says: "a container of a graph",
        text: "kind: DynamoGraphDeployment\nmetadata: {name: g}\nspec:\n  services:\n    VllmDecodeWorker:\n      subComponentType: decode\n      extraPodSpec:\n        mainContainer:\n          image: vllm-runtime:1\n          args: ['python3 -m dynamo.vllm --disaggregation-mode decode']\n          env: [{name: UCX_TLS, value: 'rc,cuda_copy'}]\n",
        worker: "VllmDecodeWorker",
        role: Role::Decode,
        engine: Engine::Vllm,
        variable: ("UCX_TLS", Some("rc,cuda_copy")),
        kv: "not stated",
    },
    Shape {
        number: 2,
        says: "a graph and a service",
        text: "kind: DynamoGraphDeployment\nmetadata: {name: g}\nspec:\n  envs: [{name: UCX_TLS, value: graph}, {name: UCX_MAX_RMA_RAILS, value: '4'}]\n  services:\n    prefill:\n      subComponentType: prefill\n      envs: [{name: UCX_TLS, value: service}]\n      extraPodSpec: {mainContainer: {image: trtllm-runtime:1, command: [python3, -m, dynamo.trtllm]}}\n",
        worker: "prefill",
        role: Role::Prefill,
        engine: Engine::TensorRtLlm,
        variable: ("UCX_TLS", Some("service")),
        kv: "not stated",
    },
    Shape {
        number: 3,
        says: "components of the newer graph",
        text: "apiVersion: nvidia.com/v1beta1\nkind: DynamoGraphDeployment\nmetadata: {name: g}\nspec:\n  env: [{name: UCX_TLS, value: graph}]\n  components:\n    - name: Frontend\n      type: frontend\n    - name: w\n      type: decode\n      podTemplate:\n        spec:\n          containers:\n            - {name: sidecar, image: x, env: [{name: UCX_TLS, value: wrong}]}\n            - {name: main, image: 'sglang-runtime:1', command: [python3, -m, dynamo.sglang], env: [{name: UCX_TLS, value: main}]}\n",
        worker: "w",
        role: Role::Decode,
        engine: Engine::Sglang,
        variable: ("UCX_TLS", Some("main")),
        kv: "not stated",
    },
    Shape {
        number: 4,
        says: "variables from a Secret",
        text: "kind: DynamoGraphDeployment\nmetadata: {name: g}\nspec:\n  services:\n    decode:\n      subComponentType: decode\n      envFromSecret: transport\n      extraPodSpec: {mainContainer: {image: vllm-runtime:1, command: [python3, -m, dynamo.vllm], env: [{name: UCX_TLS, value: rc}]}}\n",
        worker: "decode",
        role: Role::Decode,
        engine: Engine::Vllm,
        variable: ("UCX_TLS", Some("rc")),
        kv: "not stated",
    },
    Shape {
        number: 5,
        says: "a value in a ConfigMap, and a flag that names it",
        text: "kind: ConfigMap\nmetadata: {name: kv}\ndata: {config: '{\"kv_connector\":\"NixlConnector\",\"kv_role\":\"kv_consumer\"}'}\n---\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n    - name: c\n      image: x\n      command: [vllm, serve, m, --kv-transfer-config=$(KV_TRANSFER_CONFIG)]\n      env: [{name: KV_TRANSFER_CONFIG, valueFrom: {configMapKeyRef: {name: kv, key: config}}}, {name: UCX_TLS, value: rc}]\n",
        worker: "p",
        role: Role::Decode,
        engine: Engine::Vllm,
        variable: ("UCX_TLS", Some("rc")),
        kv: "NIXL with UCX",
    },
    Shape {
        number: 6,
        says: "the address of the pod",
        text: "kind: Pod\nmetadata: {name: decode}\nspec:\n  containers:\n    - name: c\n      image: vllm/vllm-openai:v1\n      command: [vllm, serve, m, --kv-transfer-config, '{\"kv_connector\":\"NixlConnector\"}']\n      env: [{name: VLLM_NIXL_SIDE_CHANNEL_HOST, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]\n",
        worker: "decode",
        role: Role::Decode,
        engine: Engine::Vllm,
        variable: ("VLLM_NIXL_SIDE_CHANNEL_HOST", None),
        kv: "NIXL with UCX",
    },
    Shape {
        number: 7,
        says: "JSON in a variable that a shell puts in",
        text: "kind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n    - name: c\n      image: x\n      command: [sh, -c]\n      args: ['exec python3 -m dynamo.vllm --is-prefill-worker --kv-transfer-config \"${KV_TRANSFER_CONFIG}\"']\n      env: [{name: KV_TRANSFER_CONFIG, value: '{\"kv_connector\": \"NixlConnector\", \"kv_connector_extra_config\": {\"backends\": [\"LIBFABRIC\"]}}'}, {name: FI_PROVIDER, value: efa}]\n",
        worker: "p",
        role: Role::Prefill,
        engine: Engine::Vllm,
        variable: ("FI_PROVIDER", Some("efa")),
        kv: "NIXL with LIBFABRIC",
    },
    Shape {
        number: 8,
        says: "JSON over several lines of a script",
        text: "kind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n    - name: c\n      image: x\n      command: [bash, -lc]\n      args:\n        - |\n          export UCX_TLS=rc,cuda_copy\n          vllm serve m \\\n            --kv_transfer_config '{\n              \"kv_connector\": \"NixlConnector\",\n              \"kv_role\": \"kv_producer\"\n            }' \\\n            --port 8000\n",
        worker: "p",
        role: Role::Prefill,
        engine: Engine::Vllm,
        variable: ("UCX_TLS", Some("rc,cuda_copy")),
        kv: "NIXL with UCX",
    },
    Shape {
        number: 9,
        says: "role and backend in a file from a ConfigMap",
        text: "kind: Pod\nmetadata: {name: p}\nspec:\n  volumes: [{name: v, configMap: {name: m}}]\n  containers:\n    - name: c\n      image: x\n      command: [python3, -m, sglang.launch_server, --config, /etc/engine/run.yaml]\n      volumeMounts: [{name: v, mountPath: /etc/engine}]\n      env: [{name: UCX_TLS, value: rc}]\n---\nkind: ConfigMap\nmetadata: {name: m}\ndata:\n  run.yaml: |\n    disaggregation-mode: prefill\n    disaggregation-transfer-backend: nixl\n",
        worker: "p",
        role: Role::Prefill,
        engine: Engine::Sglang,
        variable: ("UCX_TLS", Some("rc")),
        kv: "NIXL with UCX",
    },
    Shape {
        number: 10,
        says: "a value that a command computes",
        text: "kind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n    - name: c\n      image: x\n      command: [bash, -c]\n      args:\n        - |\n          UCX_NET_DEVICES=\"$(nvidia-smi topo -m | awk '/mlx5/ {print $1}')\"\n          export UCX_NET_DEVICES\n          export UCX_TLS=${UCX_TLS:-rc,cuda_copy}\n          exec python3 -m dynamo.vllm --disaggregation-mode decode\n",
        worker: "p",
        role: Role::Decode,
        engine: Engine::Vllm,
        variable: ("UCX_NET_DEVICES", None),
        kv: "not stated",
    },
    Shape {
        number: 11,
        says: "assignments in front of the engine, behind ulimit",
        text: "kind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n    - name: c\n      image: x\n      securityContext: {privileged: true}\n      command: [sh, -c, 'ulimit -l unlimited && UCX_TLS=rc NIXL_LOG_LEVEL=INFO python -m dynamo.sglang --disaggregation-mode=decode --disaggregation-transfer-backend=nixl']\n      env: [{name: UCX_TLS, value: tcp}]\n",
        worker: "p",
        role: Role::Decode,
        engine: Engine::Sglang,
        variable: ("UCX_TLS", Some("rc")),
        kv: "NIXL with UCX",
    },
    Shape {
        number: 12,
        says: "a leader and its workers, each with its own list",
        text: "kind: LeaderWorkerSet\nmetadata: {name: l}\nspec:\n  leaderWorkerTemplate:\n    size: 2\n    leaderTemplate:\n      metadata: {labels: {llm-d.ai/role: prefill}}\n      spec: {containers: [{name: c, image: vllm/vllm-openai, env: [{name: UCX_TLS, value: rc}]}]}\n    workerTemplate:\n      metadata: {labels: {llm-d.ai/role: prefill}}\n      spec: {containers: [{name: c, image: vllm/vllm-openai, env: [{name: UCX_TLS, value: rc_x}]}]}\n",
        worker: "l (worker)",
        role: Role::Prefill,
        engine: Engine::Vllm,
        variable: ("UCX_TLS", Some("rc_x")),
        kv: "not stated",
    },
    Shape {
        number: 13,
        says: "a plain StatefulSet",
        text: "kind: StatefulSet\nmetadata: {name: s}\nspec:\n  selector: {}\n  template:\n    metadata: {labels: {llm-d.ai/role: decode}}\n    spec:\n      containers:\n        - name: vllm\n          image: vllm/vllm-openai:v0.11\n          args: [--kv-transfer-config, '{\"kv_connector\":\"NixlConnector\"}']\n          env: [{name: UCX_TLS, value: rc}]\n",
        worker: "s",
        role: Role::Decode,
        engine: Engine::Vllm,
        variable: ("UCX_TLS", Some("rc")),
        kv: "NIXL with UCX",
    },
    Shape {
        number: 14,
        says: "values of a chart: containers below a role, beside a proxy",
        text: "decode:\n  containers:\n    - {name: routing-proxy, image: p, env: [{name: UCX_TLS, value: wrong}]}\n    - {name: vllm, image: 'vllm/vllm-openai:v1', args: [--kv-transfer-config, '{\"kv_connector\":\"NixlConnector\"}'], env: [{name: UCX_TLS, value: rc}]}\n",
        worker: "decode",
        role: Role::Decode,
        engine: Engine::Vllm,
        variable: ("UCX_TLS", Some("rc")),
        kv: "NIXL with UCX",
    },
    Shape {
        number: 14,
        says: "values of a chart: a role of LMCache",
        text: "servingEngineSpec:\n  modelSpec:\n    - name: d\n      lmcacheConfig: {enabled: true, nixlRole: receiver}\n      env: [{name: UCX_TLS, value: rc}]\n",
        worker: "d",
        role: Role::Decode,
        engine: Engine::Plain,
        variable: ("UCX_TLS", Some("rc")),
        kv: "not stated",
    },
    Shape {
        number: 14,
        says: "a scenario with templates of its own",
        text: "scenario:\n  - name: pd\n    modelservice:\n      prefill:\n        replicas: ${PREFILL_REPLICAS}\n        extraEnvVars:\n          - name: UCX_TLS\n            value: \"rc,cuda_copy\"\n          - name: UCX_NET_DEVICES\n            value: \"${HCAS}\"\n        vllm:\n          customCommand: |\n            vllm serve ${MODEL} --kv-transfer-config '{\"kv_connector\":\"NixlConnector\"}'\n",
        worker: "scenario.modelservice.prefill",
        role: Role::Prefill,
        engine: Engine::Vllm,
        variable: ("UCX_TLS", Some("rc,cuda_copy")),
        kv: "NIXL with UCX",
    },
    Shape {
        number: 15,
        says: "patches in a kustomization",
        text: "kind: Kustomization\npatches:\n  - target: {kind: Deployment, name: decode}\n    patch: |-\n      - op: add\n        path: /spec/template/spec/containers/0/env/-\n        value: {name: UCX_TLS, value: 'rc,cuda_copy'}\n",
        worker: "decode",
        role: Role::Decode,
        engine: Engine::Plain,
        variable: ("UCX_TLS", Some("rc,cuda_copy")),
        kv: "not stated",
    },
    Shape {
        number: 16,
        says: "another operator: engine and decoder",
        text: "kind: InferenceService\nmetadata: {name: i}\nspec:\n  engineConfig: {leader: {runner: {name: r, image: 'lmsysorg/sglang:v1', env: [{name: UCX_TLS, value: a}]}}}\n  decoderConfig: {leader: {runner: {name: r, image: 'lmsysorg/sglang:v1', env: [{name: UCX_TLS, value: b}]}}}\n",
        worker: "i (leader)",
        role: Role::Prefill,
        engine: Engine::Sglang,
        variable: ("UCX_TLS", Some("a")),
        kv: "not stated",
    },
    Shape {
        number: 16,
        says: "KServe: the template beside a prefill part decodes",
        text: "kind: LLMInferenceService\nmetadata: {name: k}\nspec:\n  template:\n    containers: [{name: main, image: 'vllm/vllm-openai:v1', args: ['--model={{ .Spec.Model.Name }}'], env: [{name: UCX_TLS, value: d}]}]\n  prefill:\n    template:\n      containers: [{name: main, image: 'vllm/vllm-openai:v1', env: [{name: UCX_TLS, value: p}]}]\n",
        worker: "k",
        role: Role::Decode,
        engine: Engine::Vllm,
        variable: ("UCX_TLS", Some("d")),
        kv: "not stated",
    },
    Shape {
        number: 16,
        says: "KServe: several nodes a side",
        text: "kind: LLMInferenceServiceConfig\nmetadata: {name: k}\nspec:\n  worker:\n    containers: [{name: main, image: 'vllm/vllm-openai:v1', env: [{name: UCX_TLS, value: d}]}]\n  prefill:\n    worker:\n      containers: [{name: main, image: 'vllm/vllm-openai:v1', env: [{name: UCX_TLS, value: '{{ .Values.tls }}'}]}]\n",
        worker: "k (prefill worker)",
        role: Role::Prefill,
        engine: Engine::Vllm,
        variable: ("UCX_TLS", None),
        kv: "not stated",
    },
    Shape {
        number: 17,
        says: "a profile of a provider",
        text: "provider: some-ib\nkv_backend: UCX\ndevice: {rdma/ib: 1}\nenv: {UCX_TLS: '{{ tls }}', UCX_NET_DEVICES: 'mlx5_0:1'}\ntarget: {match: [prefill, decode]}\n",
        worker: "some-ib",
        role: Role::Both,
        engine: Engine::Plain,
        variable: ("UCX_NET_DEVICES", Some("mlx5_0:1")),
        kv: "NIXL with UCX",
    },
];

#[test]
fn each_shape_gives_its_worker_its_role_and_its_variables() {
    for shape in SHAPES {
        let name = format!("S{} {}", shape.number, shape.says);
        let report = report(shape.text);
        let view = report.workers.iter().find(|w| w.name == shape.worker);
        let Some(view) = view else { panic!("{name}: {:#?}", report.workers) };
        assert_eq!(
            (view.role, view.engine, view.kv_transfer.as_str()),
            (shape.role, shape.engine, shape.kv),
            "{name}"
        );
        let (variable, value) = shape.variable;
        let setting = view.env.iter().find(|s| s.name == variable);
        let Some(setting) = setting else { panic!("{name}: {:#?}", view.env) };
        assert_eq!(setting.known.then_some(setting.value.as_str()), value, "{name}");
        assert!(setting.source.as_ref().is_some_and(|s| s.line > 0), "{name}: {setting:?}");
    }
}

#[test]
fn no_shape_is_left_out() {
    let numbers: std::collections::BTreeSet<u32> = SHAPES.iter().map(|s| s.number).collect();
    assert_eq!(numbers, (1..=17).collect());
}

#[test]
fn what_is_no_object_is_never_judged_as_if_it_were_whole() {
    let no_verdict = |report: &Report, name: &str| {
        !worker(report, name).partial.is_empty() && found(report, "no-fabric-resource").is_none()
    };
    for shape in SHAPES.iter().filter(|s| matches!(s.number, 14 | 15 | 17)) {
        let report = report(shape.text);
        assert!(no_verdict(&report, shape.worker), "S{} {}", shape.number, shape.says);
        assert!(found(&report, "partial-manifest").is_some_and(|f| f.status == Status::Unknown));
        assert!(found(&report, "static-check-passed").is_none());
    }
}
