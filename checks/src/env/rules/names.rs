//! Names and values of variables, against the catalogue.

use super::super::catalogue::{Catalogue, Effect, Owner, catalogue};
use super::super::environment::Setting;
use super::super::find::SETTINGS_FILES;
use super::super::selection::Library;
use super::super::value;
use super::super::version::Version;
use super::super::worker::{Engine, Worker};
use super::{Findings, Scene, entry, finding};
use crate::Status;

pub(super) fn check(scene: &Scene<'_>, worker: &Worker, out: &mut Findings<'_>) {
    let catalogue = catalogue();
    for setting in worker.env.settings() {
        name(scene, catalogue, setting, worker, out);
        typed(catalogue, setting, worker, out);
        hygiene(setting, worker, out);
        nccl(setting, worker, out);
    }
    for name in ["UCX_MODULE_DIR", "NIXL_CONFIG_FILE", "UCX_CONFIG_DIR", "NCCL_CONF_FILE"] {
        if let Some(setting) = worker.env.get(name)
            && name != "UCX_MODULE_DIR"
        {
            let title = format!("{name}: settings of a file that was not checked");
            out.about(finding("hidden-config", Status::Warn, title), setting, "", worker);
        }
    }
    let mounts = worker.pod.mounts.iter().map(|(path, _)| (path, path.text.rsplit('/').next().unwrap_or("")));
    let in_maps = worker.pod.settings_files.iter().map(|(path, file)| (path, *file));
    for (path, file) in mounts.chain(in_maps).filter(|(_, file)| SETTINGS_FILES.contains(file)) {
        let title = format!("{file} is mounted at {}: its settings were not checked", path.text);
        out.add(finding("hidden-config", Status::Warn, title), path.span, Some(worker));
    }
}

fn name(
    scene: &Scene<'_>,
    catalogue: &Catalogue,
    setting: &Setting,
    worker: &Worker,
    out: &mut Findings<'_>,
) {
    let name = setting.name.as_str();
    if let Some(known) = catalogue.get(name) {
        let nixl = matches!(worker.selection.library, Library::Nixl(_) | Library::Unknown);
        let (id, title) = match known.effect {
            Effect::UnknownName => {
                ("unknown-variable", format!("{name} is read by no program: {}", clause(known.why)))
            }
            Effect::Removed => match scene.versions(worker).ucx.zip(Version::read(known.until)) {
                Some((ucx, until)) if ucx < until => return,
                _ => ("no-effect", format!("{name} does nothing: {}", clause(known.why))),
            },
            Effect::NoEffect => ("no-effect", format!("{name} does nothing: {}", clause(known.why))),
            Effect::NoEffectNixl if nixl => {
                let why = if known.why.is_empty() { "it does not steer put and get" } else { known.why };
                ("no-effect", format!("{name} does nothing for NIXL's data: {}", clause(why)))
            }
            Effect::Deprecated if name == "UCX_IB_ADDR_TYPE" => match setting.text() {
                Some("ib_global" | "ib_site_local") | None => return,
                Some(_) => {
                    ("no-effect", format!("{name}={} does nothing: {}", setting.shown(), clause(known.why)))
                }
            },
            Effect::Deprecated => ("no-effect", format!("{name} is deprecated in UCX")),
            _ => return too_new(scene, setting, worker, known.since, known.read_by, out),
        };
        let mut found = finding(id, Status::Warn, title);
        if let Some(better) = replacement(name) {
            found = found.fix(entry(better, &setting.shown()));
        }
        out.about(found, setting, name, worker);
        return;
    }
    // Only of UCX are all names known.
    if name.starts_with("UCX_") && !catalogue.knows(name) {
        let near = catalogue.nearest(name);
        let hint = near.map_or(String::new(), |n| format!("; is {n} meant?"));
        let mut found =
            finding("unknown-variable", Status::Warn, format!("UCX has no variable {name}{hint}"));
        if let Some(near) = near {
            found = found.fix(entry(near, &setting.shown()));
        }
        out.about(found, setting, name, worker);
    } else if ["NIXL_", "VLLM_NIXL_", "SGLANG_DISAGG", "TRTLLM_NIXL_"].iter().any(|p| name.starts_with(p))
        && let Some(near) = catalogue.nearest(name)
    {
        let title = format!("{name} is not known; is {near} meant?");
        let found = finding("unknown-variable", Status::Warn, title).fix(entry(near, &setting.shown()));
        out.about(found, setting, name, worker);
    } else if name.starts_with("DYN_KVBM_NIXL_BACKEND_") && name.contains("_PARAM") {
        let title = format!("{name}: Dynamo's KVBM takes no parameters of a backend and ends with an error");
        out.about(finding("backend-selector", Status::Fail, title), setting, name, worker);
    } else if name.starts_with("NIXL_") {
        let title = format!("NIXL has no variable {name}");
        out.about(finding("unknown-variable", Status::Warn, title), setting, name, worker);
    }
    wrong_reader(setting, worker, out);
}

/// A variable that the version in use does not have yet.
fn too_new(
    scene: &Scene<'_>,
    setting: &Setting,
    worker: &Worker,
    since: &str,
    read_by: &str,
    out: &mut Findings<'_>,
) {
    let versions = scene.versions(worker);
    let have = match read_by {
        "ucx" => versions.ucx,
        "nixl" => versions.nixl,
        _ => None,
    };
    if let (Some(have), Some(since)) = (have, Version::read(since))
        && have < since
    {
        let title = format!("{} does nothing: it exists since {since}, and this is {have}", setting.name);
        out.about(finding("no-effect", Status::Warn, title), setting, &setting.name, worker);
    }
    wrong_reader(setting, worker, out);
}

/// A selector of another engine.
fn wrong_reader(setting: &Setting, worker: &Worker, out: &mut Findings<'_>) {
    let name = setting.name.as_str();
    let reader = if name.starts_with("VLLM_NIXL_") {
        Engine::Vllm
    } else if name.starts_with("SGLANG_DISAGGREGATION_NIXL") {
        Engine::Sglang
    } else if name.starts_with("TRTLLM_NIXL") || name.starts_with("TRTLLM_USE_") {
        Engine::TensorRtLlm
    } else {
        return;
    };
    if matches!(worker.engine, Engine::Vllm | Engine::Sglang | Engine::TensorRtLlm) && worker.engine != reader
    {
        let title = format!("{name} is for {}, and this worker runs {}", reader.word(), worker.engine.word());
        out.about(finding("backend-selector", Status::Warn, title), setting, name, worker);
    }
}

/// A sentence that goes on after a colon: without its capital, unless a name begins it, and without its full stop.
fn clause(sentence: &str) -> String {
    let mut chars = sentence.chars();
    let (first, second) = (chars.next(), chars.clone().next());
    let lower = first
        .filter(|_| second.is_some_and(|c| c.is_lowercase() || c == ' '))
        .map(|c| c.to_ascii_lowercase());
    let head = lower.or(first).map_or(String::new(), String::from);
    format!("{head}{}", chars.as_str().trim_end_matches('.'))
}

fn replacement(name: &str) -> Option<&'static str> {
    Some(match name {
        "UCX_MAX_RNDV_RAILS" | "UCX_MAX_RNDV_LANES" => "UCX_MAX_RMA_RAILS",
        "NIXL_PLUGINS_DIR" => "NIXL_PLUGIN_DIR",
        "UCX_MEMTYPE_REG_WHOLE" => "UCX_MEMTYPE_REG_WHOLE_ALLOC_TYPES",
        "MC_INTRA_NVLINK" => "MC_INTRANODE_NVLINK",
        "NIXL_LIBFABRIC_USE_DEVICE_RDMA" => "FI_EFA_USE_DEVICE_RDMA",
        "VLLM_NIXL_SIDE_CHANEL_HOST" => "VLLM_NIXL_SIDE_CHANNEL_HOST",
        "VLLM_NIXL_SIDE_CHANEL_PORT" => "VLLM_NIXL_SIDE_CHANNEL_PORT",
        _ => return None,
    })
}

/// The type of a value, and what its reader does with a bad one.
fn typed(catalogue: &Catalogue, setting: &Setting, worker: &Worker, out: &mut Findings<'_>) {
    let (Some(known), Some(text)) = (catalogue.get(&setting.name), setting.text()) else { return };
    if matches!(known.effect, Effect::UnknownName | Effect::NoEffect | Effect::Removed) {
        return;
    }
    if text.contains(['<', '{']) {
        // A placeholder, which is a finding of its own.
        return;
    }
    let Some(accepted) = value::problem(known.kind, text) else { return };
    let (status, effect) = match (known.read_by, known.owner) {
        ("ucx", Owner::Global) => (Status::Warn, "UCX ignores the value in silence"),
        ("ucx", Owner::Context) => (Status::Fail, "UCX refuses the value, and NIXL gets no UCX backend"),
        ("ucx", Owner::Md) => {
            (Status::Fail, "UCX drops the whole component in silence: RDMA or GPU memory is gone")
        }
        ("ucx", Owner::Iface) => (Status::Fail, "the UCX worker fails, and NIXL gets no UCX backend"),
        ("ucx", Owner::Other) => (Status::Warn, "UCX refuses or ignores the value"),
        ("nixl", _) if known.kind == "nixlbool" || known.name == "NIXL_TELEMETRY_EXPORTER" => {
            (Status::Fail, "the NIXL agent fails")
        }
        ("nccl", _) if known.kind == "int" => (Status::Fail, "NCCL takes it for 0 in silence"),
        ("trtllm", _) if known.kind == "sized" => (Status::Fail, "TensorRT-LLM refuses it"),
        ("trtllm", _) => (Status::Warn, "TensorRT-LLM takes it for off or for the default"),
        _ => (Status::Warn, "it is ignored or refused"),
    };
    let title = format!("{}={}: {effect}; it takes {accepted}", setting.name, setting.shown());
    let mut found = finding("invalid-value", status, title);
    let lower = text.to_ascii_lowercase();
    let boolean = matches!(known.kind, "bool" | "ternary" | "switch" | "ternary_auto" | "on_off_auto");
    if boolean && matches!(lower.as_str(), "true" | "enable" | "enabled" | "on") {
        found = found.fix(entry(&setting.name, "y"));
    } else if boolean && matches!(lower.as_str(), "false" | "disable" | "disabled" | "off") {
        found = found.fix(entry(&setting.name, "n"));
    } else if known.kind == "one" && matches!(lower.as_str(), "true" | "yes" | "on" | "y") {
        found = found.fix(entry(&setting.name, "1"));
    }
    out.about(found, setting, "", worker);
}

/// Logs, traces, and what hides warnings.
fn hygiene(setting: &Setting, worker: &Worker, out: &mut Findings<'_>) {
    let Some(text) = setting.text() else { return };
    let lower = text.to_ascii_lowercase();
    let name = setting.name.as_str();
    let is = |words: &[&str]| words.contains(&lower.as_str());
    let loud: &[&str] = &["debug", "trace", "req", "data", "async", "func", "poll"];
    let (id, status, what) = match name {
        "UCX_LOG_LEVEL" if is(loud) => ("debug-output", Status::Warn, "UCX logs every operation"),
        "UCX_LOG_LEVEL" if is(&["error", "fatal"]) => {
            ("warnings-hidden", Status::Warn, "warnings about missing devices and transports are not printed")
        }
        "UCX_PROTO_INFO" if is(&["y", "yes", "on", "1"]) => {
            ("debug-output", Status::Warn, "UCX prints its protocol tables for every endpoint")
        }
        "NCCL_DEBUG" if is(&["trace"]) => ("debug-output", Status::Warn, "NCCL traces every call"),
        "NIXL_LOG_LEVEL" if is(&["trace"]) => ("debug-output", Status::Warn, "NIXL traces every call"),
        "UCX_WARN_UNUSED_ENV_VARS" | "UCX_WARN_INVALID_CONFIG" if value::is_off(text) => (
            "warnings-hidden",
            Status::Warn,
            "UCX does not warn about names, devices and transports that do not exist",
        ),
        "UCX_LOG_FILE"
            if !text.is_empty()
                && !text.contains("%p")
                && !"stdout".starts_with(&lower)
                && !"stderr".starts_with(&lower) =>
        {
            (
                "ucx-can-abort",
                Status::Warn,
                "UCX aborts when it cannot write the file, and processes of one pod overwrite it: use %p, and a folder that exists",
            )
        }
        "UCX_HANDLE_ERRORS" if lower.contains("freeze") || lower.contains("debug") => {
            ("ucx-can-abort", Status::Fail, "a crashed worker hangs instead of ending, and is not restarted")
        }
        "UCX_LOG_LEVEL_TRIGGER" if !is(&["fatal"]) => {
            ("ucx-can-abort", Status::Fail, "UCX ends the process at messages that are no fault")
        }
        _ => return,
    };
    out.about(finding(id, status, format!("{name}={}: {what}", setting.shown())), setting, "", worker);
}

fn nccl(setting: &Setting, worker: &Worker, out: &mut Findings<'_>) {
    let Some(text) = setting.text() else { return };
    let what = match (setting.name.as_str(), text) {
        ("NCCL_IB_DISABLE", "1") => "NCCL uses sockets instead of RDMA",
        ("NCCL_NET", net) if net.eq_ignore_ascii_case("socket") => "NCCL uses sockets instead of RDMA",
        ("NCCL_P2P_DISABLE", "1") | ("NCCL_P2P_LEVEL", "LOC") => "NCCL does not use NVLink",
        ("NCCL_NET_GDR_LEVEL", "LOC") => "NCCL does not use GPUDirect RDMA",
        ("NCCL_MNNVL_ENABLE", "1") if worker.env.text("NCCL_CUMEM_ENABLE") == Some("0") => {
            "multi-node NVLink needs NCCL_CUMEM_ENABLE, which is 0"
        }
        ("NCCL_IB_HCA" | "NCCL_EXCLUDE_IB_HCA", list) => {
            use super::super::lists::{Device, device};
            let odd = list.split(',').find(|d| {
                !d.trim_start_matches(['^', '=']).is_empty()
                    && device(d.trim_start_matches(['^', '='])) == Device::Unknown
            });
            if let Some(odd) = odd.filter(|d| d.chars().any(|c| c.is_ascii_digit())) {
                let title = format!("{}: {odd} has the form of no known device", setting.name);
                let kept: Vec<&str> = list.split(',').filter(|d| *d != odd).collect();
                let fix = entry(&setting.name, &kept.join(","));
                out.about(finding("device-name-unknown", Status::Warn, title).fix(fix), setting, odd, worker);
            }
            return;
        }
        _ => return,
    };
    let title = format!("{}={}: {what}", setting.name, setting.shown());
    out.about(finding("nccl-setting", Status::Fail, title), setting, "", worker);
}
