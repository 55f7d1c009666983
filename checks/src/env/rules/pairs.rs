//! Prefill and decode, side by side.

use std::collections::BTreeMap;

use super::super::environment::Setting;
use super::super::lists::{self, Device, Mode};
use super::super::selection::Library;
use super::super::worker::{Engine, Role, Worker};
use super::super::yaml::Span;
use super::backend::selector_fix;
use super::{Findings, Scene, entry, finding, placement, side};
use crate::Status;

/// What must be the same on both sides.
const SAME: &[&str] = &[
    "UCX_TLS",
    "UCX_PROTO_ENABLE",
    "UCX_UNIFIED_MODE",
    "UCX_ADDRESS_VERSION",
    "NIXL_ETCD_NAMESPACE",
    "NIXL_ETCD_ENDPOINTS",
    "VLLM_KV_CACHE_LAYOUT",
    "VLLM_SSM_CONV_STATE_LAYOUT",
    "UCX_IB_PKEY",
    "UCX_IB_GPU_DIRECT_RDMA",
    "UCX_CUDA_IPC_ENABLE_MNNVL",
];

pub(super) fn check(scene: &Scene<'_>, out: &mut Findings<'_>) {
    let mut groups: BTreeMap<String, (Vec<&Worker>, Vec<&Worker>)> = BTreeMap::new();
    for worker in scene.workers {
        let group = groups.entry(scene.group(worker)).or_default();
        match worker.role {
            Role::Prefill => group.0.push(worker),
            Role::Decode => group.1.push(worker),
            _ => {}
        }
    }
    for (prefill, decode) in groups.values() {
        for pair in pairs(prefill, decode) {
            settings(pair, out);
            selections(pair, out);
            images(pair, out);
            ports(pair, out);
            devices(pair, out);
            placement::check(scene, pair, out);
        }
    }
    ranks(scene, out);
}

/// Every decode worker with the first prefill worker, and the other way round: enough to see a difference.
fn pairs<'a>(prefill: &[&'a Worker], decode: &[&'a Worker]) -> Vec<(&'a Worker, &'a Worker)> {
    let (Some(first_prefill), Some(first_decode)) = (prefill.first(), decode.first()) else {
        return Vec::new();
    };
    let mut pairs: Vec<_> = decode.iter().map(|d| (*first_prefill, *d)).collect();
    pairs.extend(prefill.iter().skip(1).map(|p| (*p, *first_decode)));
    pairs
}

fn settings((prefill, decode): (&Worker, &Worker), out: &mut Findings<'_>) {
    let steers = |name: &str| {
        ["UCX_", "NIXL_", "VLLM_KV_", "VLLM_SSM", "FI_", "MC_"].iter().any(|p| name.starts_with(p))
    };
    // Each pod may have its own of these.
    let own = |name: &str| {
        name.contains("LOG")
            || name.contains("TELEMETRY")
            || name.contains("SIDE_CHANNEL")
            || name == "NIXL_PLUGIN_DIR"
            || name.ends_with("NET_DEVICES")
    };
    let mut names: Vec<&str> =
        prefill.env.settings().iter().chain(decode.env.settings()).map(|s| s.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names.into_iter().filter(|n| steers(n) && !own(n)) {
        let (a, b) = (prefill.env.get(name), decode.env.get(name));
        match (a, b) {
            (Some(a), Some(b)) => {
                let (Some(x), Some(y)) = (a.text(), b.text()) else { continue };
                if x == y || (name == "UCX_TLS" && same_transports(x, y)) {
                    continue;
                }
                let must = SAME.contains(&name);
                let status = if must { Status::Fail } else { Status::Warn };
                let title =
                    format!("{name} differs between prefill and decode: {} and {}", a.shown(), b.shown());
                let lines = [side(out, prefill, &a.shown(), a.span), side(out, decode, &b.shown(), b.span)];
                let found = finding("roles-differ", status, title).evidence(lines).worker(&prefill.name);
                out.about(found.fix(entry(name, &a.shown())), b, "", decode);
            }
            (Some(one), None) | (None, Some(one)) => {
                let (with, without) = if a.is_some() { (prefill, decode) } else { (decode, prefill) };
                if without.env.removed.iter().any(|r| r.text == name) {
                    continue;
                }
                // A Secret may set it on the other side as well: that is not known.
                let status = if without.env.lacks(name) { Status::Warn } else { Status::Unknown };
                let unseen = if status == Status::Unknown { ", as far as the input says" } else { "" };
                let title = format!("{name} is set on {} only{unseen}", with.role.word());
                let lines =
                    [side(out, with, &one.shown(), one.span), side(out, without, "not set", without.span)];
                let found = finding("roles-asymmetric", status, title).evidence(lines).worker(&without.name);
                let found = found.fix(entry(name, &one.shown()));
                out.about(found, one, name, with);
            }
            (None, None) => {}
        }
    }
}

fn same_transports(a: &str, b: &str) -> bool {
    let (a, b) = (lists::parse(a), lists::parse(b));
    if a.mode != b.mode {
        return false;
    }
    let sorted = |list: &lists::AllowList| {
        let mut tokens = list.tokens.clone();
        tokens.sort();
        tokens
    };
    sorted(&a) == sorted(&b)
}

fn selections((prefill, decode): (&Worker, &Worker), out: &mut Findings<'_>) {
    let (a, b) = (&prefill.selection, &decode.selection);
    let differ = match (&a.library, &b.library) {
        (Library::Unknown, _) | (_, Library::Unknown) => false,
        (Library::Nixl(x), Library::Nixl(y)) => !x.iter().any(|backend| y.contains(backend)),
        (x, y) => x != y,
    };
    if differ {
        let title = format!("prefill and decode have no common backend: {} and {}", a.word(), b.word());
        let lines = [side(out, prefill, &a.word(), a.span), side(out, decode, &b.word(), b.span)];
        let found = finding("roles-differ", Status::Fail, title).evidence(lines).worker(&prefill.name);
        out.add(found.fix(selector_fix(decode.engine)), b.span, Some(decode));
    }
    const MODE: &str = "ucx_error_handling_mode";
    let mode = |w: &Worker| {
        w.selection.params.iter().find(|(key, _, _)| key == MODE).map(|(_, v, s)| (v.clone(), *s))
    };
    let (x, y) = (mode(prefill), mode(decode));
    let word = |m: &Option<(String, Span)>| m.as_ref().map_or("peer".to_owned(), |(v, _)| v.clone());
    if word(&x) != word(&y) {
        let title = format!("{MODE} differs between prefill and decode: {} and {}", word(&x), word(&y));
        let at = |m: &Option<(String, Span)>, w: &Worker| m.as_ref().map_or(w.span, |(_, span)| *span);
        let lines =
            [side(out, prefill, &word(&x), at(&x, prefill)), side(out, decode, &word(&y), at(&y, decode))];
        let found = finding("roles-differ", Status::Fail, title).evidence(lines).worker(&prefill.name);
        let fix = format!("\"{MODE}\": \"{}\"", word(&x));
        out.add(found.fix(fix), at(&y, decode), Some(decode));
    }
    if prefill.engine != decode.engine && prefill.launch.program.is_some() && decode.launch.program.is_some()
    {
        let title = format!("prefill runs {} and decode {}", prefill.engine.word(), decode.engine.word());
        let program = match prefill.engine {
            Engine::Sglang => "python3 -m sglang.launch_server",
            Engine::TensorRtLlm => "trtllm-serve",
            _ => "vllm serve",
        };
        let found = finding("roles-differ", Status::Fail, title).fix(program).worker(&prefill.name);
        out.add(found, decode.span, Some(decode));
    }
    for (name, value, span) in &a.shared {
        let other = b.shared.iter().find(|(n, _, _)| n == name);
        if let Some((_, other, at)) = other.filter(|(_, other, _)| other != value) {
            let status = if *name == "model" { Status::Warn } else { Status::Fail };
            let title = format!("{name} differs between prefill and decode: {value} and {other}");
            let lines = [side(out, prefill, value, *span), side(out, decode, other, *at)];
            let found = finding("roles-differ", status, title).evidence(lines).worker(&prefill.name);
            let flag = match (*name, decode.engine) {
                ("KV cache type", _) => "--kv-cache-dtype",
                ("block size", Engine::Sglang) => "--page-size",
                ("block size", _) => "--block-size",
                (_, Engine::Vllm | Engine::Plain | Engine::Dynamo) => "--model",
                _ => "--model-path",
            };
            out.add(found.fix(format!("{flag} {value}")), out.sources.locate(*at, other), Some(decode));
        }
    }
}

fn images((prefill, decode): (&Worker, &Worker), out: &mut Findings<'_>) {
    let (Some(a), Some(b)) = (&prefill.image, &decode.image) else { return };
    if a.text != b.text {
        let title = "prefill and decode run different images, and may have different NIXL and UCX";
        let lines = [side(out, prefill, &a.text, a.span), side(out, decode, &b.text, b.span)];
        let found = finding("roles-differ", Status::Warn, title).evidence(lines).worker(&prefill.name);
        out.add(found.fix(format!("image: {}", a.text)), b.span, Some(decode));
    }
}

/// On one host's network two workers must not listen at the same port.
fn ports((prefill, decode): (&Worker, &Worker), out: &mut Findings<'_>) {
    const NAME: &str = "VLLM_NIXL_SIDE_CHANNEL_PORT";
    if !(prefill.pod.host_network && decode.pod.host_network) {
        return;
    }
    let base = |w: &Worker| w.env.get(NAME).map_or(Some(5600), |s| s.text()?.parse::<u32>().ok());
    let ranks = |w: &Worker| {
        w.launch.flag(&["data-parallel-size", "dp"]).and_then(|f| f.value.parse().ok()).unwrap_or(1)
    };
    let (Some(a), Some(b)) = (base(prefill), base(decode)) else { return };
    if a < b + ranks(decode) && b < a + ranks(prefill) {
        let title =
            format!("prefill and decode both take side channel port {} on the host's network", a.max(b));
        let fix = entry(NAME, &(a + ranks(prefill)).to_string());
        let found = finding("side-channel-port", Status::Fail, title).fix(fix).worker(&prefill.name);
        let span = decode.env.get(NAME).map_or(decode.span, |s| s.span);
        out.add(found, span, Some(decode));
    }
}

/// Both sides may name their own devices; those of one kind cannot reach those of the other.
fn devices((prefill, decode): (&Worker, &Worker), out: &mut Findings<'_>) {
    const NAME: &str = "UCX_NET_DEVICES";
    let kind = |w: &Worker| {
        let list = lists::parse(w.env.text(NAME)?);
        let names: Vec<Device> = list.tokens.iter().map(|t| lists::device(t)).collect();
        if list.mode != Mode::Allow || names.contains(&Device::Unknown) {
            return None;
        }
        Some(names.contains(&Device::Rdma))
    };
    if let (Some(a), Some(b), Some(x), Some(y)) =
        (prefill.env.get(NAME), decode.env.get(NAME), kind(prefill), kind(decode))
        && x != y
    {
        let title = format!(
            "{NAME} names RDMA devices on one side and interfaces on the other: {} and {}",
            a.shown(),
            b.shown()
        );
        let lines = [side(out, prefill, &a.shown(), a.span), side(out, decode, &b.shown(), b.span)];
        let found = finding("roles-differ", Status::Fail, title).evidence(lines).worker(&prefill.name);
        out.about(found.fix(entry(NAME, "all")), b, "", decode);
    }
}

/// Containers of one object on one side, as leader and workers are: they serve one replica together.
fn ranks(scene: &Scene<'_>, out: &mut Findings<'_>) {
    let mut objects: BTreeMap<(u32, &str, Role), Vec<&Worker>> = BTreeMap::new();
    for worker in scene.workers.iter().filter(|w| w.is_judged() && !w.dynamo) {
        objects.entry((worker.span.file, &worker.object, worker.role)).or_default().push(worker);
    }
    for workers in objects.values() {
        let [first, rest @ ..] = workers.as_slice() else { continue };
        for other in rest {
            for setting in first.env.settings().iter().filter(|s| steers_ranks(&s.name)) {
                let theirs = other.env.get(&setting.name);
                let differs = match (setting.text(), theirs) {
                    (Some(x), Some(theirs)) => theirs.text().is_some_and(|y| x != y),
                    (_, None) => other.env.lacks(&setting.name),
                    (None, Some(_)) => false,
                };
                if !differs {
                    continue;
                }
                let shown = theirs.map_or("not set".to_owned(), Setting::shown);
                let title = format!(
                    "{} differs within {}: {} and {shown}",
                    setting.name,
                    first.object,
                    setting.shown()
                );
                let at = theirs.map_or(other.span, |t| t.span);
                let lines = [side(out, first, &setting.shown(), setting.span), side(out, other, &shown, at)];
                let found = finding("ranks-differ", Status::Warn, title).evidence(lines).worker(&first.name);
                let found = found.fix(entry(&setting.name, &setting.shown()));
                out.add(found, at, Some(other));
            }
        }
    }
}

fn steers_ranks(name: &str) -> bool {
    (name.starts_with("UCX_") || name.starts_with("NIXL_"))
        && !name.contains("LOG")
        && !name.contains("TELEMETRY")
}
