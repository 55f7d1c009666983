//! Which backend carries the KV cache, and whether what selects it is read.

use super::super::lists::{self, Device};
use super::super::selection::Library;
use super::super::value::{is_off, is_on};
use super::super::version::Version;
use super::super::worker::{Engine, Role, Worker};
use super::{Findings, Scene, entry, finding};
use crate::Status;

pub(super) fn check(scene: &Scene<'_>, worker: &Worker, out: &mut Findings<'_>) {
    side_channel(scene, worker, out);
    metadata(worker, out);
    efa(scene, worker, out);
    params(worker, out);
    mooncake(worker, out);
    verbs_free_ucx(worker, out);
    unconfigured(worker, out);
    segments(worker, out);
    let env = &worker.env;
    if let Some(setting) = env.get("NCCL_IB_HCA")
        && worker.selection.is_nixl_ucx()
        && env.lacks("UCX_NET_DEVICES")
    {
        let title = format!(
            "NCCL_IB_HCA={} does not steer the KV cache, and UCX_NET_DEVICES is not set",
            setting.shown()
        );
        let names = setting.text().unwrap_or("").trim_start_matches(['^', '=']);
        let excludes = setting.text().is_some_and(|v| v.starts_with('^'));
        let fix = entry("UCX_NET_DEVICES", &format!("{}{names}", if excludes { "^" } else { "" }));
        out.about(finding("nccl-does-not-steer", Status::Warn, title).fix(fix), setting, "", worker);
    }
    if let (Some(setting), Library::Nixl(_)) = (env.get("UCX_TLS"), &worker.selection.library)
        && !worker.selection.is_nixl_ucx()
    {
        let title = format!("UCX_ variables have no effect on {}", worker.selection.word());
        out.about(finding("no-effect", Status::Warn, title), setting, "UCX_TLS", worker);
    }
}

fn side_channel(scene: &Scene<'_>, worker: &Worker, out: &mut Findings<'_>) {
    if worker.engine != Engine::Vllm || !matches!(worker.selection.library, Library::Nixl(_)) {
        return;
    }
    const FIX: &str =
        "- name: VLLM_NIXL_SIDE_CHANNEL_HOST\n  valueFrom:\n    fieldRef:\n      fieldPath: status.podIP";
    match worker.env.get("VLLM_NIXL_SIDE_CHANNEL_HOST") {
        Some(setting) => {
            let local = setting.text().is_some_and(|v| {
                v == "localhost" || v.starts_with("127.") || matches!(v, "0.0.0.0" | "::1" | "::" | "")
            });
            if local {
                let title = format!(
                    "VLLM_NIXL_SIDE_CHANNEL_HOST={}: a peer on another node reaches itself there",
                    setting.shown()
                );
                out.about(finding("side-channel-host", Status::Fail, title).fix(FIX), setting, "", worker);
            }
        }
        // Dynamo's vLLM worker fills it in when it is unset.
        None if !worker.dynamo && worker.partial.is_none() => {
            let status = match (worker.env.lacks("VLLM_NIXL_SIDE_CHANNEL_HOST"), scene.has_both_sides(worker))
            {
                (false, _) => Status::Unknown,
                (true, true) => Status::Fail,
                (true, false) => Status::Warn,
            };
            let title = "VLLM_NIXL_SIDE_CHANNEL_HOST is not set: vLLM offers localhost to its peers";
            out.add(finding("side-channel-host", status, title).fix(FIX), worker.span, Some(worker));
        }
        None => {}
    }
}

fn metadata(worker: &Worker, out: &mut Findings<'_>) {
    let Some(setting) = worker.env.get("NIXL_ETCD_ENDPOINTS") else { return };
    if setting.text() == Some("") {
        let title = "NIXL_ETCD_ENDPOINTS is empty: the NIXL agent fails";
        out.about(finding("nixl-metadata", Status::Fail, title), setting, "", worker);
    }
    if worker.env.get("NIXL_TCPSTORE_ENDPOINT").is_some() {
        let title = "NIXL_ETCD_ENDPOINTS and NIXL_TCPSTORE_ENDPOINT exclude each other: the NIXL agent fails";
        out.about(finding("nixl-metadata", Status::Fail, title), setting, "", worker);
    }
}

fn efa(scene: &Scene<'_>, worker: &Worker, out: &mut Findings<'_>) {
    let env = &worker.env;
    let resource = worker.pod.resources.iter().find(|r| r.name.ends_with("/efa"));
    if let Some(resource) = resource
        && worker.selection.is_nixl_ucx()
        && !worker.selection.is_libfabric()
    {
        let versions = scene.versions(worker);
        let (status, what) = match versions.ucx_from(Version(1, 20, 0)) {
            Some(false) => (Status::Fail, "this UCX emulates RDMA on EFA"),
            Some(true) => (Status::Warn, "it needs srd, and libefa in the image"),
            None => (
                Status::Warn,
                "depends on UCX: before 1.20 RDMA is emulated, after it needs srd and libefa in the image",
            ),
        };
        let title =
            format!("EFA devices are requested, and KV cache goes through NIXL's UCX backend: {what}");
        out.add(
            finding("efa-with-ucx", status, title).fix(selector_fix(worker.engine)),
            resource.span,
            Some(worker),
        );
    }
    let first_fi = env.settings().iter().find(|s| s.name.starts_with("FI_") && s.name != "FI_LOG_LEVEL");
    if let Some(setting) = first_fi
        && worker.selection.is_nixl_ucx()
        && !worker.selection.is_libfabric()
        && resource.is_none()
        && worker.partial.is_none()
    {
        let title = format!("{} and other FI_ variables have no effect on NIXL's UCX backend", setting.name);
        let found = finding("libfabric-unused", Status::Warn, title).fix(selector_fix(worker.engine));
        out.about(found, setting, &setting.name, worker);
    }
    if let Some(setting) = env.get("FI_EFA_USE_DEVICE_RDMA")
        && setting.text().is_some_and(|v| is_off(v) || v == "false")
    {
        let title = "FI_EFA_USE_DEVICE_RDMA is off: every RDMA operation is emulated";
        let fix = entry("FI_EFA_USE_DEVICE_RDMA", "1");
        out.about(finding("efa-rdma-off", Status::Fail, title).fix(fix), setting, "", worker);
    }
    if let Some(setting) = env.get("FI_PROVIDER")
        && let Some(value) = setting.text()
        && value.split(',').any(|p| matches!(p, "tcp" | "sockets"))
    {
        let title = format!("FI_PROVIDER={value}: libfabric uses TCP");
        out.about(
            finding("efa-rdma-off", Status::Fail, title).fix(entry("FI_PROVIDER", "efa")),
            setting,
            "",
            worker,
        );
    }
    if let Some(setting) = env.get("FI_EFA_ENABLE_SHM_TRANSFER").filter(|_| resource.is_some())
        && setting.text().is_some_and(|v| is_on(v) || v == "true")
    {
        let title = "FI_EFA_ENABLE_SHM_TRANSFER is on: GPU buffers were reported as corrupted under load";
        let fix = entry("FI_EFA_ENABLE_SHM_TRANSFER", "0");
        out.about(finding("efa-rdma-off", Status::Warn, title).fix(fix), setting, "", worker);
    }
    let uses_efa = resource.is_some() || worker.selection.is_libfabric();
    // What an active test moves, it says itself: host memory where it has no GPU.
    let host_memory = worker.launch.is_active_test() && worker.gpus().is_none();
    if uses_efa && !host_memory && !worker.pod.privileged && worker.launch.span.line > 0 {
        let span = resource.map_or(worker.span, |r| r.span);
        let title = "EFA, and the container is not privileged: registering GPU memory may fail";
        let fix = "securityContext:\n  privileged: true";
        out.add(finding("efa-needs-privileged", Status::Warn, title).fix(fix), span, Some(worker));
    }
}

/// What selects LIBFABRIC for an engine, to paste.
pub(super) fn selector_fix(engine: Engine) -> &'static str {
    match engine {
        Engine::Vllm => {
            "--kv-transfer-config '{\"kv_connector\":\"NixlConnector\",\"kv_role\":\"kv_both\",\"kv_connector_extra_config\":{\"backends\":[\"LIBFABRIC\"]}}'"
        }
        Engine::Sglang => "- name: SGLANG_DISAGGREGATION_NIXL_BACKEND\n  value: LIBFABRIC",
        Engine::TensorRtLlm => "- name: TRTLLM_NIXL_KVCACHE_BACKEND\n  value: LIBFABRIC",
        Engine::Dynamo | Engine::Plain => {
            "# choose LIBFABRIC by the engine's own selector, see `kvwire explain backend-selector`"
        }
    }
}

fn params(worker: &Worker, out: &mut Findings<'_>) {
    for (key, value, span) in &worker.selection.params {
        let what = match key.as_str() {
            "ucx_devices" => "NIXL never reads ucx_devices; use UCX_NET_DEVICES".to_owned(),
            "engine_config" if value.contains(',') => {
                format!("NIXL splits engine_config at every comma, also inside a value: {value}")
            }
            "device_list" => {
                let odd =
                    value.split(", ").find(|t| t.contains(':') || lists::device(t) == Device::Interface);
                match odd {
                    Some(token) => format!("NIXL appends :1 to every name of device_list: {token}:1 does not exist"),
                    None if value.contains(',') && !value.contains(", ") => {
                        "device_list is split at a comma with a blank; here it stays one name, which still matches every port".to_owned()
                    }
                    None => continue,
                }
            }
            "enforce_handshake_compat" if value == "false" => {
                "enforce_handshake_compat is false: sides with different versions or layouts are not told apart".to_owned()
            }
            "ucx_error_handling_mode" if !matches!(value.as_str(), "peer" | "none") => {
                format!("ucx_error_handling_mode is peer or none; with {value} NIXL gets no backend")
            }
            _ => continue,
        };
        let fix = match key.as_str() {
            "ucx_devices" | "device_list" => entry("UCX_NET_DEVICES", &value.replace(", ", ",")),
            "engine_config" => engine_config(value),
            "enforce_handshake_compat" => "\"enforce_handshake_compat\": true".to_owned(),
            _ => "\"ucx_error_handling_mode\": \"peer\"".to_owned(),
        };
        let needle = out.sources.locate(*span, key);
        out.add(finding("backend-param", Status::Warn, what).fix(fix), needle, Some(worker));
    }
}

/// The same as variables, which keep their commas.
fn engine_config(value: &str) -> String {
    let mut settings: Vec<(String, String)> = Vec::new();
    for part in value.split(',') {
        match (part.split_once('='), settings.last_mut()) {
            (Some((name, value)), _) => settings.push((format!("UCX_{}", name.trim()), value.to_owned())),
            (None, Some((_, last))) => last.push_str(&format!(",{part}")),
            (None, None) => {}
        }
    }
    settings.iter().map(|(name, value)| entry(name, value)).collect::<Vec<_>>().join("\n")
}

fn mooncake(worker: &Worker, out: &mut Findings<'_>) {
    let env = &worker.env;
    let nixl = matches!(worker.selection.library, Library::Nixl(_));
    if let Some(setting) = env.get("MC_FORCE_TCP") {
        let status = if nixl { Status::Warn } else { Status::Fail };
        let title = format!("MC_FORCE_TCP={} forces Mooncake to TCP; any value does", setting.shown());
        out.about(finding("mooncake-forced", status, title), setting, "MC_FORCE_TCP", worker);
    }
    let forced: Vec<&str> = ["MC_FORCE_TCP", "MC_FORCE_MNNVL", "MC_FORCE_HCA"]
        .into_iter()
        .filter(|n| env.get(n).is_some())
        .collect();
    if let (&[first, second, ..], Some(setting)) = (forced.as_slice(), forced.get(1).and_then(|n| env.get(n)))
    {
        let title = format!("{first} and {second} are both set: the first one decides");
        out.about(finding("mooncake-forced", Status::Warn, title), setting, second, worker);
    }
}

/// A side of TensorRT-LLM whose configuration is in the input and names no backend.
fn unconfigured(worker: &Worker, out: &mut Findings<'_>) {
    if let Some(span) = worker.selection.unconfigured
        && matches!(worker.role, Role::Prefill | Role::Decode)
    {
        let title =
            "the configuration file names no cache_transceiver_config.backend: this side moves no KV cache";
        let fix = "cache_transceiver_config:\n  backend: DEFAULT";
        out.add(finding("kv-transfer-off", Status::Fail, title).fix(fix), span, Some(worker));
    }
}

/// Memory of PyTorch that NIXL and Mooncake cannot export.
fn segments(worker: &Worker, out: &mut Findings<'_>) {
    for name in ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"] {
        let Some(setting) = worker.env.get(name) else { continue };
        let is_set = setting
            .text()
            .is_some_and(|v| v.replace(' ', "").to_ascii_lowercase().contains("expandable_segments:true"));
        if is_set && !matches!(worker.selection.library, Library::Other(_)) {
            let title =
                format!("{name} asks for expandable segments, which cuda_ipc and dma-buf cannot export");
            out.about(
                finding("memory-not-exportable", Status::Fail, title),
                setting,
                "expandable_segments",
                worker,
            );
        }
    }
}

/// `pip install libucx-cu12` over NIXL's own UCX.
fn verbs_free_ucx(worker: &Worker, out: &mut Findings<'_>) {
    for command in &worker.launch.commands {
        let installs = command.words.iter().any(|w| w.text == "install");
        let Some(word) = command.words.iter().find(|w| w.text.starts_with("libucx")) else { continue };
        if installs {
            let uses = worker.env.settings().iter().any(|s| s.name.starts_with("UCX_IB_"));
            let status = if uses { Status::Fail } else { Status::Warn };
            let title =
                format!("{} is UCX without RDMA; loaded in place of NIXL's own it leaves TCP", word.text);
            let span = out.sources.locate(word.span, &word.text);
            let fix = "pip install nixl-cu12";
            out.add(finding("ucx-without-verbs", status, title).fix(fix), span, Some(worker));
        }
    }
}
