//! What UCX's settings leave of the wires.

use super::super::environment::Setting;
use super::super::lists::{self, AllowList, Device, Mode, RDMA};
use super::super::value::{is_off, is_on};
use super::super::version::Version;
use super::super::worker::{Engine, Worker};
use super::{Findings, Scene, entry, finding, is_fabric, may_use_ucx};
use crate::Status;

pub(super) fn check(scene: &Scene<'_>, worker: &Worker, out: &mut Findings<'_>) {
    if !may_use_ucx(worker) {
        return;
    }
    let tls = worker.env.text("UCX_TLS").map(|v| lists::parse(v).check_transports());
    if let Some(tls) = &tls {
        grammar("UCX_TLS", tls, worker, out);
        transports(scene, worker, tls, out);
    }
    devices(worker, tls.as_ref(), out);
    for name in ["UCX_SHM_DEVICES", "UCX_ACC_DEVICES", "UCX_SELF_DEVICES"] {
        if let Some(value) = worker.env.text(name) {
            grammar(name, &lists::parse(value), worker, out);
        }
    }
    single_settings(scene, worker, tls.as_ref(), out);
}

fn grammar(name: &str, list: &AllowList, worker: &Worker, out: &mut Findings<'_>) {
    let Some(setting) = worker.env.get(name) else { return };
    let fixed = repaired(setting.text().unwrap_or(""));
    for odd in &list.odd {
        let status = if odd.serious { Status::Fail } else { Status::Warn };
        let mut found = finding("list-grammar", status, format!("{name}: {}", odd.effect));
        // Text that is hidden must not come back in another case.
        let shown = setting.text() == Some(setting.shown().as_str());
        if shown && fixed != setting.text().unwrap_or("") && !fixed.is_empty() {
            found = found.fix(entry(name, &fixed));
        }
        out.about(found, setting, &odd.token, worker);
    }
}

/// The list that was probably meant.
fn repaired(value: &str) -> String {
    let names: Vec<String> = value
        .split(',')
        .map(|t| t.trim().trim_matches(['"', '\'']).to_owned())
        .filter(|t| !t.is_empty() && t != "^")
        .collect();
    let negated: Vec<&str> = names.iter().filter_map(|n| n.strip_prefix('^')).collect();
    // A list that both allows and excludes: what it allows is enough.
    let plain: Vec<&str> = names.iter().map(String::as_str).filter(|n| !n.starts_with('^')).collect();
    let lower = |list: &[&str]| {
        list.iter()
            .map(|n| if n.contains(':') { (*n).to_owned() } else { n.to_ascii_lowercase() })
            .filter(|n| n != "all" || list.len() == 1)
            .collect::<Vec<_>>()
            .join(",")
    };
    if value.starts_with('^') {
        let mut all = negated;
        all.extend(plain);
        format!("^{}", lower(&all))
    } else {
        lower(&plain)
    }
}

fn transports(scene: &Scene<'_>, worker: &Worker, tls: &AllowList, out: &mut Findings<'_>) {
    let Some(setting) = worker.env.get("UCX_TLS") else { return };
    if matches!(tls.mode, Mode::Empty | Mode::Refused) {
        return;
    }
    let rdma = tls.allows_any(RDMA);
    let cuda_ipc = tls.allows("cuda_ipc");
    let tcp = tls.allows("tcp");
    let mnnvl_off = worker.env.text("UCX_CUDA_IPC_ENABLE_MNNVL").is_some_and(is_off);
    if !rdma {
        let imex = scene.has_imex(worker);
        let by_tcp = if tcp { "KV cache between nodes takes TCP" } else { "no wire between nodes is left" };
        if imex && cuda_ipc && !mnnvl_off {
            let title = "UCX_TLS leaves multi-node NVLink alone: the network cards are not used";
            out.about(finding("nvlink-unused", Status::Ok, title), setting, "", worker);
        } else if cuda_ipc && !mnnvl_off && worker.is_process {
            let title = format!(
                "UCX_TLS counts on NVLink; whether the pod has an IMEX channel is not in its environment. Without one {by_tcp}"
            );
            let next =
                format!("kvwire check node --pod {}: see imex-channels and nvlink-fabric", worker.name);
            let found = finding("imex-claim-missing", Status::Unknown, title).next_step(next);
            out.about(found, setting, "", worker);
        } else if cuda_ipc && !mnnvl_off {
            let status = certain(scene, worker);
            let title =
                format!("UCX_TLS counts on NVLink, and the pod has no claim on an IMEX channel: {by_tcp}");
            let fix = "resourceClaims:\n  - name: compute-domain-channel\n    resourceClaimTemplateName: <ComputeDomain's template>\n# and in the container\nresources:\n  claims:\n    - name: compute-domain-channel";
            out.about(finding("imex-claim-missing", status, title).fix(fix), setting, "", worker);
        } else {
            let only_ud = tls.allows_any(&["ud_mlx5", "ud_verbs"]);
            let title = if only_ud {
                "UCX_TLS leaves only ud, which has no put and get: NIXL's transfers are emulated in software"
                    .to_owned()
            } else {
                format!("UCX_TLS leaves no RDMA transport: {by_tcp}")
            };
            let fix = entry("UCX_TLS", "rc,cuda_copy,cuda_ipc");
            out.about(finding("tls-without-rdma", Status::Fail, title).fix(fix), setting, "", worker);
        }
    }
    if !tls.allows("cuda_copy") {
        let what = match scene.versions(worker).nixl_from(Version(1, 5, 0)) {
            Some(true) => "NIXL refuses to start on a GPU node",
            Some(false) => "UCX takes GPU memory for host memory, and registration fails",
            None => {
                "depends on NIXL: 1.5 and later refuse to start on a GPU node, older ones fail at registration"
            }
        };
        let value = setting.text().unwrap_or("");
        let fixed = match tls.mode {
            Mode::Deny => {
                let kept: Vec<&str> = tls
                    .tokens
                    .iter()
                    .map(String::as_str)
                    .filter(|t| !matches!(*t, "cuda" | "cuda_copy"))
                    .collect();
                if kept.is_empty() { "all".to_owned() } else { format!("^{}", kept.join(",")) }
            }
            _ => format!("{value},cuda_copy"),
        };
        let title = format!("UCX_TLS is without cuda_copy: {what}");
        out.about(
            finding("tls-without-cuda", Status::Fail, title).fix(entry("UCX_TLS", &fixed)),
            setting,
            "",
            worker,
        );
    }
    if tcp && (rdma || cuda_ipc) {
        fallback(scene, worker, tls, out);
    }
    if !cuda_ipc && tls.allows("cuda_copy") && rdma {
        let title =
            "UCX_TLS excludes cuda_ipc: NVLink is not used for KV cache, within a node or between nodes";
        out.about(finding("nvlink-unused", Status::Ok, title), setting, "cuda_ipc", worker);
    }
    missing_from_build(scene, worker, tls, out);
    without_wireup(worker, tls, out);
    if worker.pod.resources.iter().any(|r| r.name.ends_with("/efa")) && rdma && !tls.allows("srd") {
        let title = "UCX_TLS leaves out srd, the only transport of UCX that EFA has";
        let fix = entry("UCX_TLS", "srd,cuda_copy,cuda_ipc");
        out.about(finding("efa-with-ucx", Status::Fail, title).fix(fix), setting, "", worker);
    }
}

/// An exact name brings no `ud`, over which connections are set up.
fn without_wireup(worker: &Worker, tls: &AllowList, out: &mut Findings<'_>) {
    let Some(setting) = worker.env.get("UCX_TLS").filter(|_| tls.mode == Mode::Allow) else { return };
    let bare = |token: &str| token.trim_start_matches('\\').trim_end_matches(":aux").to_owned();
    let sets_up =
        ["ib", "rc", "rc_x", "rc_v", "ud", "ud_x", "ud_v", "ud_mlx5", "ud_verbs", "dc", "dc_x", "tcp", "all"];
    let exact = ["rc_mlx5", "rc_verbs", "dc_mlx5"];
    if tls
        .tokens
        .iter()
        .any(|t| !t.starts_with('\\') && sets_up.contains(&bare(t).as_str()) || bare(t).starts_with("ud_"))
    {
        return;
    }
    if let Some(token) = tls.tokens.iter().find(|t| exact.contains(&bare(t).as_str())) {
        let alias = match bare(token).as_str() {
            "rc_mlx5" => "rc_x",
            "rc_verbs" => "rc_v",
            _ => "dc",
        };
        let title =
            format!("UCX_TLS: {token} is an exact name and brings no ud, over which connections are set up");
        let fix = entry("UCX_TLS", &setting.text().unwrap_or("").replace(token.as_str(), alias));
        out.about(finding("tls-without-wireup", Status::Warn, title).fix(fix), setting, token, worker);
    }
}

/// Before 2.21 NCCL takes the first address of a RoCE port, which is rarely the right one.
fn old_nccl(scene: &Scene<'_>, worker: &Worker, out: &mut Findings<'_>) {
    let roce = |name: &str| name.contains("roce") || name.starts_with("networking.gke.io.networks/rdma");
    let on_roce = worker.pod.resources.iter().any(|r| roce(&r.name.to_ascii_lowercase()));
    let Some(nccl) = scene.versions(worker).nccl.filter(|v| *v < Version(2, 21, 0)) else { return };
    if on_roce && worker.env.lacks("NCCL_IB_GID_INDEX") {
        let title = format!(
            "NCCL {nccl} on RoCE without NCCL_IB_GID_INDEX: before 2.21 it does not find the right address by itself"
        );
        let fix = entry("NCCL_IB_GID_INDEX", "3");
        let span = worker.image.as_ref().map_or(worker.span, |image| image.span);
        out.add(finding("gid-index", Status::Warn, title).fix(fix), span, Some(worker));
    }
}

fn same_class(ucx: &Setting, nccl: &Setting, worker: &Worker, out: &mut Findings<'_>) {
    let number = |s: &Setting| s.text().and_then(|t| t.parse::<u32>().ok());
    if let (Some(a), Some(b)) = (number(ucx), number(nccl))
        && a != b
    {
        let title = format!(
            "{}={a} and {}={b}: KV cache and collectives ask for different classes",
            ucx.name, nccl.name
        );
        let fix = entry(&nccl.name, &a.to_string());
        out.about(finding("qos-differs", Status::Warn, title).fix(fix), ucx, "", worker);
    }
}

/// Fail where both sides are in the input and this is all there is; else only a warning.
fn certain(scene: &Scene<'_>, worker: &Worker) -> Status {
    if worker.partial.is_none() && scene.has_both_sides(worker) { Status::Fail } else { Status::Warn }
}

fn fallback(scene: &Scene<'_>, worker: &Worker, tls: &AllowList, out: &mut Findings<'_>) {
    let Some(setting) = worker.env.get("UCX_TLS") else { return };
    let strict = worker.env.text("UCX_PROTO_EMULATION_ENABLE").is_some_and(is_off);
    let works = scene.versions(worker).ucx_from(Version(1, 21, 0));
    if strict && works != Some(false) {
        return;
    }
    let how = match tls.mode {
        Mode::Deny => "UCX_TLS excludes some transports and allows all others, tcp with them",
        Mode::All => "UCX_TLS allows everything, tcp with it",
        _ => "UCX_TLS allows tcp",
    };
    let without: Vec<&str> = tls.tokens.iter().map(String::as_str).filter(|t| *t != "tcp").collect();
    let fixed = match tls.mode {
        Mode::Allow => without.join(","),
        Mode::Deny => format!("^{},tcp", tls.tokens.join(",")),
        _ => "rc,cuda_copy,cuda_ipc".to_owned(),
    };
    let title = format!("{how}: when the fast wire is missing, KV cache goes over TCP without an error");
    let found = finding("tcp-fallback-possible", Status::Warn, title).fix(entry("UCX_TLS", &fixed));
    out.about(found, setting, if tls.mode == Mode::Allow { "tcp" } else { "" }, worker);
}

fn missing_from_build(scene: &Scene<'_>, worker: &Worker, tls: &AllowList, out: &mut Findings<'_>) {
    let Some(setting) = worker.env.get("UCX_TLS") else { return };
    if tls.mode != Mode::Allow {
        return;
    }
    let versions = scene.versions(worker);
    let others = tls.allows_any(&["rc_mlx5", "rc_verbs", "srd", "rc_gda"]);
    let gone = tls.tokens.iter().find(|t| t.starts_with("dc") || t.starts_with("gga"));
    if let (Some(token), false) = (gone, others) {
        let (status, what) = match versions.nixl_from(Version(1, 4, 0)) {
            Some(true) => (Status::Fail, "this NIXL's package has neither dc nor gga"),
            Some(false) => return,
            None => (Status::Warn, "depends on NIXL: packages from 1.4 on have neither dc nor gga"),
        };
        let title = format!("UCX_TLS has no RDMA transport but {token}: {what}");
        let fix = entry("UCX_TLS", "rc,cuda_copy,cuda_ipc");
        out.about(finding("transport-not-in-build", status, title).fix(fix), setting, token, worker);
    }
    let named = |name: &str| tls.tokens.iter().any(|t| t == name);
    if named("gdr_copy")
        && !named("cuda_copy")
        && !named("cuda")
        && versions.nixl_from(Version(1, 3, 0)) != Some(false)
    {
        let title =
            "UCX_TLS names gdr_copy as the only helper for GPU memory; NIXL packages from 1.3 on have none";
        let fix = entry("UCX_TLS", "rc,cuda_copy,cuda_ipc");
        out.about(
            finding("transport-not-in-build", Status::Fail, title).fix(fix),
            setting,
            "gdr_copy",
            worker,
        );
    }
}

fn devices(worker: &Worker, tls: Option<&AllowList>, out: &mut Findings<'_>) {
    let Some(setting) = worker.env.get("UCX_NET_DEVICES") else { return };
    let Some(value) = setting.text() else { return };
    let list = lists::parse(value);
    grammar("UCX_NET_DEVICES", &list, worker, out);
    let names: Vec<&str> =
        list.tokens.iter().map(|t| t.trim()).filter(|t| !t.is_empty() && *t != "all").collect();
    for name in &names {
        if lists::device(name) == Device::Unknown && !name.starts_with('^') && !name.contains('*') {
            let title = format!("UCX_NET_DEVICES: {name} has the form of no known device");
            let kept: Vec<&str> = names.iter().filter(|n| *n != name).copied().collect();
            let fixed = meant(name).map_or_else(|| kept.join(","), |meant| value.replace(name, &meant));
            let fix = entry("UCX_NET_DEVICES", if fixed.is_empty() { "all" } else { &fixed });
            out.about(finding("device-name-unknown", Status::Warn, title).fix(fix), setting, name, worker);
        } else if name.ends_with(":0") {
            let title = format!("UCX_NET_DEVICES: {name}: ports count from 1");
            let fix = entry("UCX_NET_DEVICES", &value.replace(":0", ":1"));
            out.about(finding("device-port", Status::Fail, title).fix(fix), setting, name, worker);
        }
    }
    if list.mode != Mode::Allow {
        return;
    }
    let rdma: Vec<&&str> = names.iter().filter(|n| lists::device(n) == Device::Rdma).collect();
    let wanted = tls.is_none_or(|t| t.allows_any(RDMA));
    if rdma.is_empty()
        && names.iter().all(|n| lists::device(n) == Device::Interface)
        && wanted
        && !names.is_empty()
    {
        let title =
            format!("UCX_NET_DEVICES names network interfaces only ({value}): every RDMA device is excluded");
        out.about(finding("net-devices-without-rdma", Status::Fail, title), setting, "", worker);
    }
    if !rdma.is_empty() && !wanted {
        let title = "UCX_NET_DEVICES names RDMA devices, and UCX_TLS allows no RDMA transport";
        out.about(finding("net-devices-without-rdma", Status::Fail, title), setting, "", worker);
    }
    unrequested(worker, setting, &names, out);
    if let (&[only], Some(gpus @ 2..)) = (names.as_slice(), worker.gpus())
        && lists::device(only) == Device::Rdma
        && !only.contains('[')
    {
        let title = format!("UCX_NET_DEVICES pins {only} for all {gpus} GPUs of the pod, wherever they sit");
        out.about(finding("one-rail", Status::Warn, title), setting, "", worker);
    }
}

/// The device that a name was meant for: the same with one letter less.
fn meant(name: &str) -> Option<String> {
    let without =
        |skip: usize| name.char_indices().filter(|(i, _)| *i != skip).map(|(_, c)| c).collect::<String>();
    name.char_indices().map(|(i, _)| without(i)).find(|n| lists::device(n) == Device::Rdma)
}

/// Devices of EFA where another fabric is requested, and the other way round.
fn unrequested(worker: &Worker, setting: &Setting, names: &[&str], out: &mut Findings<'_>) {
    let fabric: Vec<&str> =
        worker.pod.resources.iter().map(|r| r.name.as_str()).filter(|name| is_fabric(name)).collect();
    if fabric.is_empty() || worker.pod.privileged || worker.partial.is_some() {
        return;
    }
    let is_efa = |name: &&&str| name.starts_with("rdmap") || name.starts_with("efa_");
    let gives_efa = fabric.iter().any(|name| name.ends_with("/efa"));
    let gives_other = fabric.iter().any(|name| !name.ends_with("/efa"));
    let rdma = || names.iter().filter(|name| lists::device(name) == Device::Rdma);
    let stranger = rdma().find(|name| if is_efa(name) { !gives_efa } else { !gives_other });
    // `rdmap1s0` is also how some hosts name other cards: of those only the resource is sure.
    if let Some(stranger) = stranger.filter(|name| !is_efa(name) || !gives_other) {
        let title = format!("UCX_NET_DEVICES: {stranger} is no device of {}", fabric.join(" or "));
        let fix = entry("UCX_NET_DEVICES", "all");
        out.about(finding("devices-not-requested", Status::Fail, title).fix(fix), setting, stranger, worker);
    }
}

fn single_settings(scene: &Scene<'_>, worker: &Worker, tls: Option<&AllowList>, out: &mut Findings<'_>) {
    let env = &worker.env;
    if let Some(setting) = env.get("UCX_RNDV_THRESH")
        && let Some(value) = setting.text()
        && !value.eq_ignore_ascii_case("inf")
    {
        let no_handling =
            worker.selection.params.iter().any(|(k, v, _)| k == "ucx_error_handling_mode" && v == "none");
        let without = ["bnxt_re", "irdma", "rdmap", "efa_"];
        let lossy = worker.pod.resources.iter().any(|r| r.name.contains("/efa"))
            || env.text("UCX_NET_DEVICES").is_some_and(|v| without.iter().any(|d| v.starts_with(d)))
            || tls.is_some_and(|t| {
                t.mode == Mode::Allow && t.allows_any(&["rc_verbs", "srd"]) && !t.allows("rc_mlx5")
            });
        let status = if lossy { Status::Fail } else { Status::Warn };
        if !no_handling {
            let title = format!(
                "UCX_RNDV_THRESH={value} replaces the inf that NIXL sets: lanes without RMA invalidation (rc_verbs, srd, cma, tcp) are lost"
            );
            let fix = entry("UCX_RNDV_THRESH", "inf");
            out.about(finding("rndv-thresh-set", status, title).fix(fix), setting, "", worker);
        }
    }
    if let Some(setting) = env.get("UCX_IB_GPU_DIRECT_RDMA") {
        match setting.text() {
            Some(value) if is_off(value) => {
                let title = "GPUDirect RDMA is off: network cards cannot reach GPU memory";
                let fix = entry("UCX_IB_GPU_DIRECT_RDMA", "try");
                out.about(finding("gpu-direct-off", Status::Fail, title).fix(fix), setting, "", worker);
            }
            Some(value) if is_on(value) => {
                let title =
                    "GPUDirect RDMA is required: a node without nvidia_peermem and dma-buf loses its cards";
                out.about(finding("gpu-direct-required", Status::Ok, title), setting, "", worker);
            }
            _ => {}
        }
    }
    if let Some(setting) = env.get("UCX_IB_GID_INDEX")
        && setting.text().is_some_and(|v| v != "auto")
    {
        let both = env.text("UCX_IB_ROCE_SUBNETS").is_some_and(|v| v != "all");
        let (status, title) = if both {
            (Status::Fail, "UCX_IB_GID_INDEX and UCX_IB_ROCE_SUBNETS exclude each other")
        } else {
            (Status::Warn, "UCX_IB_GID_INDEX pins a RoCE address by its number, which differs between pods")
        };
        out.about(finding("gid-index", status, title), setting, "", worker);
    }
    if env.get("UCX_IB_GID_INDEX").is_none() {
        old_nccl(scene, worker, out);
    }
    if let (Some(ucx), Some(nccl)) = (env.get("UCX_IB_TRAFFIC_CLASS"), env.get("NCCL_IB_TC")) {
        same_class(ucx, nccl, worker, out);
    }
    if let (Some(ucx), Some(nccl)) = (env.get("UCX_IB_SL"), env.get("NCCL_IB_SL")) {
        same_class(ucx, nccl, worker, out);
    }
    for (name, bad, what) in [
        (
            "UCX_PROTO_ENABLE",
            is_off as fn(&str) -> bool,
            "NIXL transfers fail without UCX's protocol selection",
        ),
        ("UCX_UNIFIED_MODE", is_on, "unified mode assumes the same devices on prefill and decode nodes"),
    ] {
        if let Some(setting) = env.get(name)
            && setting.text().is_some_and(bad)
        {
            let title = format!("{name}={}: {what}", setting.shown());
            out.about(finding("proto-disabled", Status::Fail, title), setting, "", worker);
        }
    }
    if let Some(setting) = env.get("UCX_CUDA_IPC_ENABLE_MNNVL")
        && setting.text().is_some_and(is_off)
        && (scene.has_imex(worker)
            || product(worker).is_some_and(|p| p.contains("GB200") || p.contains("GB300")))
    {
        let title = "UCX_CUDA_IPC_ENABLE_MNNVL is off, and the nodes have multi-node NVLink";
        out.about(finding("nvlink-unused", Status::Warn, title), setting, "", worker);
    }
    get_without_nvlink(worker, tls, out);
    if let Some(setting) = env.get("UCX_MODULES")
        && let Some(value) = setting.text()
    {
        let list = lists::parse(value);
        let takes = |name: &str| match list.mode {
            Mode::Deny => list.tokens.iter().any(|t| t.trim_end_matches('*') == name),
            Mode::Allow => !list.tokens.iter().any(|t| t.trim_end_matches('*') == name),
            _ => false,
        };
        if takes("cuda") {
            let title =
                format!("UCX_MODULES={value} takes the cuda module away: GPU memory is unknown to UCX");
            out.about(finding("tls-without-cuda", Status::Fail, title), setting, "", worker);
        }
        if takes("ib") {
            let title = format!("UCX_MODULES={value} takes the ib module away: no RDMA");
            out.about(finding("tls-without-rdma", Status::Fail, title), setting, "", worker);
        }
    }
}

/// The GPU that the pod asks its node for.
fn product(worker: &Worker) -> Option<String> {
    let stated = worker
        .pod
        .node_labels
        .iter()
        .find(|(key, _)| key.ends_with("gpu.product") || key.ends_with("accelerator"));
    stated.map(|(_, value)| value.to_ascii_uppercase())
}

/// GPUs that have no NVLink at all, as their names say.
const PCIE_ONLY: &[&str] =
    &["PCIE", "L40", "L4", "L20", "T4", "A10", "A16", "A2", "RTX-4000", "RTX-5000", "RTX-PRO"];

/// Without NVLink UCX switches reads over cuda_ipc off; an engine that pulls then reads by emulation within a node.
fn get_without_nvlink(worker: &Worker, tls: Option<&AllowList>, out: &mut Findings<'_>) {
    let pulls = worker.engine == Engine::Vllm && worker.selection.is_nixl_ucx();
    let Some(product) = product(worker).filter(|_| pulls && tls.is_none_or(|t| t.allows("cuda_ipc"))) else {
        return;
    };
    let words: Vec<&str> = product.split(['-', '_', ' ']).collect();
    let is_pcie = PCIE_ONLY.iter().any(|name| {
        words.contains(name)
            || (name.contains('-') && product.contains(name))
            || words.iter().any(|w| w.strip_suffix('S') == Some(name))
    });
    let is_on = worker.env.text("UCX_CUDA_IPC_ENABLE_GET_ZCOPY").is_some_and(is_on);
    if is_pcie && !is_on {
        let title = format!(
            "{product} has no NVLink, and vLLM pulls: within a node reads over cuda_ipc are emulated"
        );
        let fix = entry("UCX_CUDA_IPC_ENABLE_GET_ZCOPY", "on");
        out.add(finding("pcie-get-emulated", Status::Ok, title).fix(fix), worker.span, Some(worker));
    }
}
