//! The thirty cross rules, C1 to C30: what each says, a manifest that breaks it, and one beside it that does not.

use super::super::rules::RULES;
use super::super::{Options, Version, Versions, check};
use super::{both, found, graph, report};
use crate::Status::{self, Fail, Ok as Fine, Unknown, Warn};

struct Case {
    number: u32,
    says: &'static str,
    id: &'static str,
    status: Status,
    /// Breaks the rule.
    broken: String,
    /// The nearest manifest that does not.
    kept: String,
}

fn case(
    number: u32,
    says: &'static str,
    id: &'static str,
    status: Status,
    broken: String,
    kept: String,
) -> Case {
    Case { number, says, id, status, broken, kept }
}

/// A graph whose sides have these variables each.
fn sides(prefill: &[(&str, &str)], decode: &[(&str, &str)]) -> String {
    let list = |v: &[(&str, &str)]| {
        v.iter().map(|(n, v)| format!("- {{name: {n}, value: {v:?}}}\n")).collect::<String>()
    };
    graph(&list(prefill), &list(decode))
}

/// The graph with NIXL parameters of vLLM's connector.
fn params(json: &str) -> String {
    both(&[]).replace(
        "\"kv_role\":\"kv_both\"",
        &format!("\"kv_role\":\"kv_both\",\"kv_connector_extra_config\":{{{json}}}"),
    )
}

fn efa(variables: &[(&str, &str)]) -> String {
    both(variables).replace("rdma/ib", "vpc.amazonaws.com/efa")
}

fn sglang(variables: &[(&str, &str)]) -> String {
    both(variables).replace("dynamo.vllm", "dynamo.sglang").replace(
        "args: [--kv-transfer-config, '{\"kv_connector\":\"NixlConnector\",\"kv_role\":\"kv_both\"}']",
        "args: [--disaggregation-mode, prefill, --disaggregation-transfer-backend, mooncake]",
    )
}

fn with_pod(text: &str, pod: &str) -> String {
    text.replace("extraPodSpec:\n", &format!("extraPodSpec:\n        {pod}\n"))
}

/// A Deployment for each role with `pod` in its template, under plain vLLM.
fn deployments(pod: &str) -> String {
    let one = |role: &str| {
        format!(
            "kind: Deployment\nmetadata: {{name: {role}}}\nspec:\n  selector: {{}}\n  template:\n    metadata: {{labels: {{llm-d.ai/role: {role}}}}}\n    spec:\n      {pod}\n      containers:\n        - name: c\n          image: vllm/vllm-openai:v1\n          securityContext: {{capabilities: {{add: [IPC_LOCK]}}}}\n          resources: {{limits: {{nvidia.com/gpu: 1, rdma/ib: 1}}}}\n          command: [vllm, serve, m, --kv-transfer-config, '{{\"kv_connector\":\"NixlConnector\"}}']\n          env:\n            - {{name: VLLM_NIXL_SIDE_CHANNEL_HOST, valueFrom: {{fieldRef: {{fieldPath: status.podIP}}}}}}\n"
        )
    };
    format!("{}---\n{}", one("prefill"), one("decode"))
}

#[allow(clippy::too_many_lines, reason = "one table")]
fn cases() -> Vec<Case> {
    let clean = || both(&[("UCX_TLS", "rc,cuda_copy,cuda_ipc")]);
    let ipc = "compute-domain-channel";
    let mnnvl = |tls: &str| {
        let claimed = both(&[("UCX_TLS", tls)])
            .replace("resources: {", &format!("resources: {{claims: [{{name: {ipc}}}], "));
        with_pod(&claimed, &format!("resourceClaims: [{{name: {ipc}, resourceClaimTemplateName: t}}]"))
    };
    vec![
        case(
            1,
            "UCX_TLS names no RDMA",
            "tls-without-rdma",
            Fail,
            both(&[("UCX_TLS", "tcp,cuda_copy")]),
            clean(),
        ),
        case(
            1,
            "NVLink alone needs its claim",
            "imex-claim-missing",
            Fail,
            both(&[("UCX_TLS", "cuda_copy,cuda_ipc,tcp")]),
            mnnvl("cuda_copy,cuda_ipc"),
        ),
        case(2, "UCX_TLS without cuda_copy", "tls-without-cuda", Fail, both(&[("UCX_TLS", "rc")]), clean()),
        case(
            2,
            "UCX_TLS takes cuda away",
            "tls-without-cuda",
            Fail,
            both(&[("UCX_TLS", "^cuda,tcp")]),
            both(&[("UCX_TLS", "^cuda_ipc,tcp")]),
        ),
        case(
            3,
            "^ inside a list",
            "list-grammar",
            Fail,
            both(&[("UCX_TLS", "rc,cuda_copy,^tcp")]),
            both(&[("UCX_TLS", "^tcp,sm")]),
        ),
        case(3, "capitals in a list", "list-grammar", Fail, both(&[("UCX_TLS", "RC,cuda_copy")]), clean()),
        case(
            3,
            "blanks in a list of devices",
            "list-grammar",
            Fail,
            both(&[("UCX_NET_DEVICES", "mlx5_0:1, mlx5_1:1")]),
            both(&[("UCX_NET_DEVICES", "mlx5_0:1,mlx5_1:1")]),
        ),
        case(
            4,
            "tcp beside RDMA",
            "tcp-fallback-possible",
            Warn,
            both(&[("UCX_TLS", "^cuda_ipc")]),
            both(&[("UCX_TLS", "^cuda_ipc"), ("UCX_PROTO_EMULATION_ENABLE", "n")]),
        ),
        case(
            5,
            "interfaces only",
            "net-devices-without-rdma",
            Fail,
            both(&[("UCX_NET_DEVICES", "eth0")]),
            both(&[("UCX_NET_DEVICES", "mlx5_0:1")]),
        ),
        case(
            5,
            "devices that the pod does not ask for",
            "devices-not-requested",
            Fail,
            efa(&[("UCX_NET_DEVICES", "mlx5_0:1")]),
            both(&[("UCX_NET_DEVICES", "mlx5_0:1")]),
        ),
        case(
            6,
            "a finite UCX_RNDV_THRESH",
            "rndv-thresh-set",
            Warn,
            both(&[("UCX_RNDV_THRESH", "8192")]),
            both(&[("UCX_RNDV_THRESH", "inf")]),
        ),
        case(
            6,
            "and cards without invalidation",
            "rndv-thresh-set",
            Fail,
            both(&[("UCX_RNDV_THRESH", "0"), ("UCX_NET_DEVICES", "bnxt_re0:1")]),
            clean(),
        ),
        case(
            7,
            "rails of rendezvous",
            "no-effect",
            Warn,
            both(&[("UCX_MAX_RNDV_RAILS", "4")]),
            both(&[("UCX_MAX_RMA_RAILS", "4")]),
        ),
        case(7, "fragments of rendezvous", "no-effect", Warn, both(&[("UCX_RNDV_FRAG_SIZE", "4m")]), clean()),
        case(7, "tag matching", "no-effect", Warn, both(&[("UCX_TM_THRESH", "1k")]), clean()),
        case(
            7,
            "listening sockets",
            "no-effect",
            Warn,
            both(&[("UCX_SOCKADDR_TLS_PRIORITY", "tcp")]),
            clean(),
        ),
        case(
            8,
            "GPUDirect off",
            "gpu-direct-off",
            Fail,
            both(&[("UCX_IB_GPU_DIRECT_RDMA", "off")]),
            both(&[("UCX_IB_GPU_DIRECT_RDMA", "try")]),
        ),
        case(
            8,
            "GPUDirect required",
            "gpu-direct-required",
            Fine,
            both(&[("UCX_IB_GPU_DIRECT_RDMA", "yes")]),
            both(&[("UCX_IB_GPU_DIRECT_RDMA", "try")]),
        ),
        case(
            9,
            "true is no boolean of UCX",
            "invalid-value",
            Fail,
            both(&[("UCX_CUDA_IPC_ENABLE_MNNVL", "true")]),
            both(&[("UCX_CUDA_IPC_ENABLE_MNNVL", "y")]),
        ),
        case(
            10,
            "a pinned GID and subnets",
            "gid-index",
            Fail,
            both(&[("UCX_IB_GID_INDEX", "3"), ("UCX_IB_ROCE_SUBNETS", "10.0.0.0/8")]),
            both(&[("UCX_IB_ROCE_SUBNETS", "10.0.0.0/8")]),
        ),
        case(
            10,
            "a pinned GID",
            "gid-index",
            Warn,
            both(&[("UCX_IB_GID_INDEX", "3")]),
            both(&[("UCX_IB_GID_INDEX", "auto")]),
        ),
        case(
            10,
            "an NCCL that does not find its GID",
            "gid-index",
            Warn,
            both(&[]).replace("rdma/ib", "rdma/roce").replace("1.3.0", "1.3.0-nccl2.19.3"),
            both(&[]).replace("rdma/ib", "rdma/roce").replace("1.3.0", "1.3.0-nccl2.27.3"),
        ),
        case(
            11,
            "traffic classes of the two sides",
            "roles-differ",
            Warn,
            sides(&[("UCX_IB_TRAFFIC_CLASS", "106")], &[("UCX_IB_TRAFFIC_CLASS", "96")]),
            both(&[("UCX_IB_TRAFFIC_CLASS", "106")]),
        ),
        case(
            11,
            "traffic classes of UCX and NCCL",
            "qos-differs",
            Warn,
            both(&[("UCX_IB_TRAFFIC_CLASS", "106"), ("NCCL_IB_TC", "96")]),
            both(&[("UCX_IB_TRAFFIC_CLASS", "106"), ("NCCL_IB_TC", "106")]),
        ),
        case(
            11,
            "service levels of UCX and NCCL",
            "qos-differs",
            Warn,
            both(&[("UCX_IB_SL", "3"), ("NCCL_IB_SL", "0")]),
            both(&[("UCX_IB_SL", "3"), ("NCCL_IB_SL", "3")]),
        ),
        case(
            12,
            "UCX_TLS of the two sides",
            "roles-differ",
            Fail,
            sides(&[("UCX_TLS", "rc,cuda_copy")], &[("UCX_TLS", "ud,rc_v,cuda_copy")]),
            clean(),
        ),
        case(
            12,
            "kinds of devices of the two sides",
            "roles-differ",
            Fail,
            sides(&[("UCX_NET_DEVICES", "mlx5_0:1")], &[("UCX_NET_DEVICES", "eth0")]),
            sides(&[("UCX_NET_DEVICES", "mlx5_0:1")], &[("UCX_NET_DEVICES", "mlx5_4:1")]),
        ),
        case(
            12,
            "error handling of the two sides",
            "roles-differ",
            Fail,
            params("\"ucx_error_handling_mode\":\"none\"").replacen("\"none\"", "\"peer\"", 1),
            params("\"ucx_error_handling_mode\":\"none\""),
        ),
        case(
            12,
            "backends of the two sides",
            "roles-differ",
            Fail,
            params("\"backends\":[\"UCX\"]").replacen("[\"UCX\"]", "[\"LIBFABRIC\"]", 1),
            params("\"backends\":[\"UCX\"]"),
        ),
        case(
            12,
            "protocol selection of the two sides",
            "roles-differ",
            Fail,
            sides(&[("UCX_ADDRESS_VERSION", "v1")], &[("UCX_ADDRESS_VERSION", "v2")]),
            both(&[("UCX_ADDRESS_VERSION", "v2")]),
        ),
        case(
            13,
            "a setting on one side only",
            "roles-asymmetric",
            Warn,
            sides(&[("UCX_RC_TIMEOUT", "2s")], &[]),
            both(&[("UCX_RC_TIMEOUT", "2s")]),
        ),
        case(
            13,
            "leader and worker of one replica",
            "ranks-differ",
            Warn,
            ranks("rc,cuda_copy", "rc_x,cuda_copy"),
            ranks("rc,cuda_copy", "rc,cuda_copy"),
        ),
        case(
            14,
            "a name that does not exist",
            "unknown-variable",
            Warn,
            both(&[("UCX_NET_DEVICE", "mlx5_0:1")]),
            both(&[("UCX_NET_DEVICES", "mlx5_0:1")]),
        ),
        case(
            14,
            "a name that was removed",
            "no-effect",
            Warn,
            both(&[("UCX_IB_REG_METHODS", "odp,rcache")]),
            clean(),
        ),
        case(
            14,
            "NIXL's own misspelt",
            "unknown-variable",
            Warn,
            both(&[("NIXL_PLUGINS_DIR", "/p")]),
            both(&[("NIXL_PLUGIN_DIR", "/p")]),
        ),
        case(
            14,
            "vLLM's own misspelt",
            "unknown-variable",
            Warn,
            both(&[("VLLM_NIXL_SIDE_CHANEL_PORT", "1")]),
            both(&[("VLLM_NIXL_SIDE_CHANNEL_PORT", "5600")]),
        ),
        case(
            14,
            "a value that is never looked at",
            "no-effect",
            Warn,
            both(&[("UCX_IB_ADDR_TYPE", "eth")]),
            both(&[("UCX_IB_ADDR_TYPE", "ib_global")]),
        ),
        case(
            14,
            "libfabric's",
            "unknown-variable",
            Warn,
            efa(&[("FI_HMEM_CUDA_ENABLE_XFER", "1")]),
            efa(&[("FI_HMEM_CUDA_USE_DMABUF", "1")]),
        ),
        case(
            14,
            "statistics of a build that nobody has",
            "unknown-variable",
            Warn,
            both(&[("UCX_STATS_DEST", "f")]),
            clean(),
        ),
        case(14, "Mooncake's", "unknown-variable", Warn, both(&[("MC_INTRA_NVLINK", "1")]), clean()),
        case(
            14,
            "a parameter that is never read",
            "backend-param",
            Warn,
            params("\"ucx_devices\":\"mlx5_0\""),
            params("\"num_threads\":8"),
        ),
        case(
            15,
            "transports that no package has",
            "transport-not-in-build",
            Fail,
            both(&[("UCX_TLS", "dc,cuda_copy")]).replace("1.3.0", "1.3.0-nixl1.4.1"),
            both(&[("UCX_TLS", "dc,rc,cuda_copy")]).replace("1.3.0", "1.3.0-nixl1.4.1"),
        ),
        case(
            16,
            "UCX_PROTO_ENABLE=n",
            "proto-disabled",
            Fail,
            both(&[("UCX_PROTO_ENABLE", "n")]),
            both(&[("UCX_PROTO_ENABLE", "y")]),
        ),
        case(
            17,
            "a log file that processes share",
            "ucx-can-abort",
            Warn,
            both(&[("UCX_LOG_FILE", "/tmp/l")]),
            both(&[("UCX_LOG_FILE", "/tmp/l.%p")]),
        ),
        case(
            17,
            "a crash that hangs",
            "ucx-can-abort",
            Fail,
            both(&[("UCX_HANDLE_ERRORS", "freeze")]),
            both(&[("UCX_HANDLE_ERRORS", "bt")]),
        ),
        case(
            17,
            "a warning that ends the process",
            "ucx-can-abort",
            Fail,
            both(&[("UCX_LOG_LEVEL_TRIGGER", "warn")]),
            both(&[("UCX_LOG_LEVEL_TRIGGER", "fatal")]),
        ),
        case(
            18,
            "UCX's debug output",
            "debug-output",
            Warn,
            both(&[("UCX_LOG_LEVEL", "trace")]),
            both(&[("UCX_LOG_LEVEL", "info")]),
        ),
        case(
            18,
            "UCX's tables",
            "debug-output",
            Warn,
            both(&[("UCX_PROTO_INFO", "y")]),
            both(&[("UCX_PROTO_INFO", "n")]),
        ),
        case(
            18,
            "NCCL's trace",
            "debug-output",
            Warn,
            both(&[("NCCL_DEBUG", "TRACE")]),
            both(&[("NCCL_DEBUG", "INFO")]),
        ),
        case(
            18,
            "NIXL's trace",
            "debug-output",
            Warn,
            both(&[("NIXL_LOG_LEVEL", "TRACE")]),
            both(&[("NIXL_LOG_LEVEL", "INFO")]),
        ),
        case(
            19,
            "a side channel on loopback",
            "side-channel-host",
            Fail,
            both(&[("VLLM_NIXL_SIDE_CHANNEL_HOST", "localhost")]),
            deployments("terminationGracePeriodSeconds: 1"),
        ),
        case(
            19,
            "one port on one host network",
            "side-channel-port",
            Fail,
            deployments("hostNetwork: true"),
            deployments("hostNetwork: false"),
        ),
        case(
            20,
            "an empty etcd",
            "nixl-metadata",
            Fail,
            both(&[("NIXL_ETCD_ENDPOINTS", "")]),
            both(&[("NIXL_ETCD_ENDPOINTS", "http://e:2379")]),
        ),
        case(
            20,
            "two stores",
            "nixl-metadata",
            Fail,
            both(&[("NIXL_ETCD_ENDPOINTS", "http://e:1"), ("NIXL_TCPSTORE_ENDPOINT", "t:1")]),
            both(&[("NIXL_TCPSTORE_ENDPOINT", "t:1")]),
        ),
        case(
            20,
            "namespaces of the two sides",
            "roles-differ",
            Fail,
            sides(&[("NIXL_ETCD_NAMESPACE", "/a/")], &[("NIXL_ETCD_NAMESPACE", "/b/")]),
            both(&[("NIXL_ETCD_NAMESPACE", "/a/")]),
        ),
        case(
            21,
            "a boolean of NIXL",
            "invalid-value",
            Fail,
            both(&[("NIXL_TELEMETRY_ENABLE", "maybe")]),
            both(&[("NIXL_TELEMETRY_ENABLE", "y")]),
        ),
        case(
            21,
            "an exporter of NIXL",
            "invalid-value",
            Fail,
            both(&[("NIXL_TELEMETRY_EXPORTER", "influx")]),
            both(&[("NIXL_TELEMETRY_EXPORTER", "prometheus")]),
        ),
        case(
            21,
            "a configuration file of NIXL",
            "hidden-config",
            Warn,
            both(&[("NIXL_CONFIG_FILE", "/etc/n.toml")]),
            clean(),
        ),
        case(22, "EFA and UCX", "efa-with-ucx", Warn, efa(&[]), both(&[])),
        case(
            22,
            "EFA and a list without srd",
            "efa-with-ucx",
            Fail,
            efa(&[("UCX_TLS", "rc,cuda_copy")]),
            both(&[("UCX_TLS", "rc,cuda_copy")]),
        ),
        case(
            22,
            "libfabric's settings and UCX",
            "libfabric-unused",
            Warn,
            both(&[("FI_PROVIDER", "efa")]),
            both(&[]),
        ),
        case(
            23,
            "EFA without RDMA",
            "efa-rdma-off",
            Fail,
            efa(&[("FI_EFA_USE_DEVICE_RDMA", "0")]),
            efa(&[("FI_EFA_USE_DEVICE_RDMA", "1")]),
        ),
        case(
            23,
            "libfabric over TCP",
            "efa-rdma-off",
            Fail,
            efa(&[("FI_PROVIDER", "sockets")]),
            efa(&[("FI_PROVIDER", "efa")]),
        ),
        case(
            24,
            "commas in engine_config",
            "backend-param",
            Warn,
            params("\"engine_config\":\"TLS=rc,cuda\""),
            params("\"engine_config\":\"MAX_RMA_RAILS=4\""),
        ),
        case(
            24,
            "ports in device_list",
            "backend-param",
            Warn,
            params("\"device_list\":\"mlx5_0:1\""),
            params("\"device_list\":\"mlx5_0, mlx5_1\""),
        ),
        case(
            24,
            "interfaces in device_list",
            "backend-param",
            Warn,
            params("\"device_list\":\"eth0\""),
            params("\"device_list\":\"mlx5_0\""),
        ),
        case(
            25,
            "Mooncake forced to TCP by any value",
            "mooncake-forced",
            Fail,
            sglang(&[("MC_FORCE_TCP", "0")]),
            sglang(&[]),
        ),
        case(
            25,
            "two forces",
            "mooncake-forced",
            Fail,
            sglang(&[("MC_FORCE_TCP", "1"), ("MC_FORCE_HCA", "1")]),
            sglang(&[("MC_FORCE_HCA", "1")]),
        ),
        case(
            26,
            "NCCL without RDMA",
            "nccl-setting",
            Fail,
            both(&[("NCCL_IB_DISABLE", "1")]),
            both(&[("NCCL_IB_DISABLE", "0")]),
        ),
        case(
            26,
            "NCCL over sockets",
            "nccl-setting",
            Fail,
            both(&[("NCCL_NET", "socket")]),
            both(&[("NCCL_NET", "IB")]),
        ),
        case(
            26,
            "NCCL without NVLink",
            "nccl-setting",
            Fail,
            both(&[("NCCL_P2P_LEVEL", "LOC")]),
            both(&[("NCCL_P2P_LEVEL", "NVL")]),
        ),
        case(
            26,
            "NCCL without GPUDirect",
            "nccl-setting",
            Fail,
            both(&[("NCCL_NET_GDR_LEVEL", "LOC")]),
            both(&[("NCCL_NET_GDR_LEVEL", "PHB")]),
        ),
        case(
            26,
            "a word where NCCL reads a number",
            "invalid-value",
            Fail,
            both(&[("NCCL_CUMEM_ENABLE", "on")]),
            both(&[("NCCL_CUMEM_ENABLE", "1")]),
        ),
        case(
            26,
            "multi-node NVLink without its memory",
            "nccl-setting",
            Fail,
            both(&[("NCCL_MNNVL_ENABLE", "1"), ("NCCL_CUMEM_ENABLE", "0")]),
            both(&[("NCCL_MNNVL_ENABLE", "1")]),
        ),
        case(27, "cuda_ipc excluded", "nvlink-unused", Fine, both(&[("UCX_TLS", "^cuda_ipc")]), clean()),
        case(
            27,
            "multi-node NVLink off where the nodes have it",
            "nvlink-unused",
            Warn,
            with_pod(
                &both(&[("UCX_CUDA_IPC_ENABLE_MNNVL", "n")]),
                "nodeSelector: {nvidia.com/gpu.product: NVIDIA-GB200}",
            ),
            with_pod(
                &both(&[("UCX_CUDA_IPC_ENABLE_MNNVL", "n")]),
                "nodeSelector: {nvidia.com/gpu.product: NVIDIA-H200}",
            ),
        ),
        case(
            27,
            "reads between GPUs without NVLink",
            "pcie-get-emulated",
            Fine,
            with_pod(&both(&[]), "nodeSelector: {nvidia.com/gpu.product: NVIDIA-L40S}"),
            with_pod(
                &both(&[("UCX_CUDA_IPC_ENABLE_GET_ZCOPY", "on")]),
                "nodeSelector: {nvidia.com/gpu.product: NVIDIA-L40S}",
            ),
        ),
        case(
            28,
            "a settings file that is mounted",
            "hidden-config",
            Warn,
            mounted("/etc/ucx/ucx.conf"),
            mounted("/etc/other.conf"),
        ),
        case(
            28,
            "a settings file in a ConfigMap",
            "hidden-config",
            Warn,
            in_map("nixl.cfg"),
            in_map("model.cfg"),
        ),
        case(
            29,
            "warnings about names hidden",
            "warnings-hidden",
            Warn,
            both(&[("UCX_WARN_UNUSED_ENV_VARS", "n")]),
            both(&[("UCX_WARN_UNUSED_ENV_VARS", "y")]),
        ),
        case(
            29,
            "warnings about values hidden",
            "warnings-hidden",
            Warn,
            both(&[("UCX_WARN_INVALID_CONFIG", "no")]),
            clean(),
        ),
        case(
            29,
            "all warnings hidden",
            "warnings-hidden",
            Warn,
            both(&[("UCX_LOG_LEVEL", "fatal")]),
            both(&[("UCX_LOG_LEVEL", "warn")]),
        ),
        case(
            30,
            "a UCX without verbs",
            "ucx-without-verbs",
            Fail,
            installs("libucx-cu12", "UCX_IB_SL"),
            installs("nixl-cu12", "UCX_IB_SL"),
        ),
    ]
}

fn mounted(path: &str) -> String {
    both(&[]).replace(
        "          env:\n",
        &format!("          volumeMounts: [{{name: v, mountPath: {path}, subPath: x}}]\n          env:\n"),
    )
}

fn in_map(key: &str) -> String {
    let text = with_pod(&mounted("/etc"), "volumes: [{name: v, configMap: {name: m}}]");
    format!("{text}---\nkind: ConfigMap\nmetadata: {{name: m}}\ndata: {{{key}: 'x = 1'}}\n")
}

fn installs(package: &str, variable: &str) -> String {
    both(&[(variable, "1")]).replace("command: [python3, -m, dynamo.vllm]", "command: [sh, -c]").replace(
        "args: [--kv-transfer-config, '{\"kv_connector\":\"NixlConnector\",\"kv_role\":\"kv_both\"}']",
        &format!("args: ['pip install {package} && python3 -m dynamo.vllm --disaggregation-mode decode']"),
    )
}

fn ranks(leader: &str, worker: &str) -> String {
    let part = |name: &str, tls: &str| {
        format!(
            "    {name}:\n      metadata: {{labels: {{llm-d.ai/role: decode}}}}\n      spec: {{containers: [{{name: c, image: vllm/vllm-openai, env: [{{name: UCX_TLS, value: '{tls}'}}]}}]}}\n"
        )
    };
    format!(
        "kind: LeaderWorkerSet\nmetadata: {{name: l}}\nspec:\n  leaderWorkerTemplate:\n    size: 2\n{}{}",
        part("leaderTemplate", leader),
        part("workerTemplate", worker)
    )
}

#[test]
fn each_cross_rule_finds_what_breaks_it_and_leaves_its_neighbour_alone() {
    for case in cases() {
        let Case { number, says, id, status, broken, kept } = case;
        let report_of = report(&broken);
        let hit = report_of.findings.iter().any(|f| f.id == id && f.status == status);
        let all: Vec<String> =
            report_of.findings.iter().map(|f| format!("{:?} {} {}", f.status, f.id, f.title)).collect();
        assert!(hit, "C{number} {says}: no {status:?} {id} in {all:#?}\n{broken}");
        let report_of = report(&kept);
        let hit = report_of.findings.iter().find(|f| f.id == id && f.status == status);
        assert!(hit.is_none(), "C{number} {says}: {hit:?} in\n{kept}");
    }
}

#[test]
fn what_is_wrong_comes_with_a_reason_and_with_text_to_paste() {
    // What to do about these is not in the manifest, or it is the reader's to know.
    let open = ["hidden-config", "placeholder", "no-fabric-resource"];
    for case in cases() {
        for finding in report(&case.broken).findings {
            if matches!(finding.status, Warn | Fail) {
                let what = format!("C{} {}: {finding:#?}", case.number, case.says);
                assert!(
                    !finding.why.is_empty()
                        && (!finding.fix.is_empty() || open.contains(&finding.id.as_str())),
                    "{what}"
                );
            }
        }
    }
}

#[test]
fn no_cross_rule_is_left_out() {
    let numbers: std::collections::BTreeSet<u32> = cases().iter().map(|c| c.number).collect();
    assert_eq!(numbers, (1..=30).collect());
    for case in cases() {
        assert!(RULES.iter().any(|rule| rule.id == case.id), "{}", case.id);
    }
}

#[test]
fn rules_beyond_the_cross_rules_hold_as_well() {
    let same_node = "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {nvidia.com/dynamo-component: prefill}}}]}}";
    let alone = |text: String| text.replace("rdma/ib", "example.com/x");
    let domain = |nodes: u32, second: &str| {
        let claimed = both(&[]).replace("resources: {", "resources: {claims: [{name: d}], ");
        let text = with_pod(&claimed, "resourceClaims: [{name: d, resourceClaimTemplateName: one}]");
        let at = text.rfind("resourceClaimTemplateName: one").expect("the second claim");
        let text = alone(format!("{}resourceClaimTemplateName: {second}{}", &text[..at], &text[at + 30..]));
        let of = |name: &str, nodes: u32| {
            format!(
                "---\nkind: ComputeDomain\nmetadata: {{name: {name}}}\nspec: {{numNodes: {nodes}, channel: {{resourceClaimTemplate: {{name: {name}}}}}}}\n"
            )
        };
        format!("{text}{}{}", of("one", nodes), of("two", 0))
    };
    let rows: Vec<(&str, &str, Option<Status>, String)> = vec![
        ("pods of one node without anything in common", "same-node-isolation", Some(Fail), with_pod(&alone(both(&[])), same_node)),
        ("a pod of another name", "same-node-isolation", None, with_pod(&alone(both(&[])), &same_node.replace("prefill}", "other}"))),
        ("a network card for both", "same-node-isolation", None, with_pod(&both(&[]), same_node)),
        ("EFA within a node", "same-node-isolation", Some(Warn), with_pod(&efa(&[]), same_node)),
        ("processes and IPC shared with the host", "same-node-isolation", None, with_pod(&alone(both(&[])), &format!("hostPID: true\n        hostIPC: true\n        {same_node}"))),
        ("one node by its name", "same-node-isolation", Some(Fail), with_pod(&alone(both(&[])), "nodeName: gpu-7")),
        ("a preference", "same-node-isolation", Some(Warn), with_pod(&alone(both(&[])), "affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchExpressions: [{key: nvidia.com/dynamo-component-type, operator: In, values: [worker]}]}}}]}}")),
        ("one ComputeDomain with room", "compute-domain", None, domain(2, "one")),
        ("one ComputeDomain without room", "compute-domain", Some(Warn), domain(1, "one")),
        ("two ComputeDomains", "compute-domain", Some(Fail), domain(9, "two")),
        ("an exact name without ud", "tls-without-wireup", Some(Warn), both(&[("UCX_TLS", "rc_mlx5,cuda_copy")])),
        ("an exact name with ud", "tls-without-wireup", None, both(&[("UCX_TLS", "rc_mlx5,ud_mlx5:aux,cuda_copy")])),
        ("expandable segments", "memory-not-exportable", Some(Fail), both(&[("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64,expandable_segments:True")])),
        ("other settings of the allocator", "memory-not-exportable", None, both(&[("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:False")])),
        ("a reference to the image's variable", "env-not-expanded", Some(Warn), both(&[("LD_LIBRARY_PATH", "/opt:$(LD_LIBRARY_PATH)")])),
        ("a reference to what stands before", "env-not-expanded", None, both(&[("UCX_LOG_FILE", "stderr"), ("NIXL_PLUGIN_DIR", "$(UCX_LOG_FILE)")])),
        ("a parameter that KVBM refuses", "backend-selector", Some(Fail), both(&[("DYN_KVBM_NIXL_BACKEND_UCX_PARAM_X", "1")])),
        ("a backend of KVBM", "backend-selector", None, both(&[("DYN_KVBM_NIXL_BACKEND_UCX", "true")])),
        ("EFA's shared memory", "efa-rdma-off", Some(Warn), efa(&[("FI_EFA_ENABLE_SHM_TRANSFER", "1")])),
        ("a handshake that compares nothing", "backend-param", Some(Warn), params("\"enforce_handshake_compat\":false")),
        ("no connector", "not-disaggregated", Some(Unknown), "kind: Pod\nmetadata: {name: decode}\nspec: {containers: [{name: c, image: vllm/vllm-openai:v1}]}\n".to_owned()),
    ];
    for (what, id, expected, text) in rows {
        assert_eq!(found(&report(&text), id).map(|f| f.status), expected, "{what}\n{text}");
    }
}

#[test]
fn a_side_of_tensorrt_llm_without_a_transceiver_is_told() {
    let text = |config: &str| {
        format!(
            "kind: DynamoGraphDeployment\nmetadata: {{name: g}}\nspec:\n  services:\n    decode:\n      subComponentType: decode\n      resources: {{limits: {{gpu: '1', custom: {{rdma/ib: '1'}}}}}}\n      extraPodSpec:\n        volumes: [{{name: v, configMap: {{name: m}}}}]\n        mainContainer:\n          image: trtllm-runtime:1\n          volumeMounts: [{{name: v, mountPath: /c}}]\n          command: [python3, -m, dynamo.trtllm]\n          args: [--extra-engine-args, /c/d.yaml]\n---\nkind: ConfigMap\nmetadata: {{name: m}}\ndata:\n  d.yaml: |\n    {config}\n"
        )
    };
    let off = report(&text("backend: pytorch"));
    assert_eq!(found(&off, "kv-transfer-off").map(|f| f.status), Some(Fail));
    assert_eq!(
        found(&report(&text("cache_transceiver_config: {backend: DEFAULT}")), "kv-transfer-off"),
        None
    );
}

#[test]
fn a_version_in_the_image_or_from_the_caller_decides_what_depends_on_it() {
    let with = |text: &str, versions: Versions| {
        let options = Options { versions, ..Options::default() };
        check(&["-".into()], &mut text.as_bytes(), &options)
    };
    let nixl = |v: &str| Versions { nixl: Version::read(v), ..Versions::default() };
    let status =
        |text: &str, versions: Versions, id: &str| found(&with(text, versions), id).map(|f| f.status);
    let text = efa(&[]);
    assert_eq!(status(&text, nixl("1.0.0"), "efa-with-ucx"), Some(Warn), "UCX 1.20 has RDMA over srd");
    let old = Versions { ucx: Version::read("1.19.0"), ..Versions::default() };
    assert_eq!(status(&text, old, "efa-with-ucx"), Some(Fail), "UCX 1.19 emulates it");
    let strict = both(&[("UCX_TLS", "^cuda_ipc"), ("UCX_PROTO_EMULATION_ENABLE", "n")]);
    assert_eq!(status(&strict, old, "tcp-fallback-possible"), Some(Warn), "before 1.21 it is not looked at");
    let removed = both(&[("UCX_IB_REG_METHODS", "odp")]);
    let ancient = Versions { ucx: Version::read("1.15.0"), ..Versions::default() };
    assert_eq!(status(&removed, ancient, "no-effect"), None, "1.15 still had it");
    assert_eq!(status(&removed, nixl("1.5.1"), "no-effect"), Some(Warn));
}
