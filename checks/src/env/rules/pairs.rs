//! Prefill and decode, side by side.

use std::collections::BTreeMap;

use super::super::lists;
use super::super::selection::Library;
use super::super::worker::{Role, Worker};
use super::super::yaml::Span;
use super::{Findings, Scene, finding};
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
    "UCX_IB_TRAFFIC_CLASS",
    "UCX_IB_SL",
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
        }
    }
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

fn side(out: &Findings<'_>, worker: &Worker, shown: &str, span: Span) -> String {
    let place = out.sources.span(span).map_or(String::new(), |s| format!("  ({}:{})", s.file, s.line));
    format!("{:<8} {}: {shown}{place}", worker.role.word(), worker.name)
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
                out.about(found, b, "", decode);
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
        out.add(found, b.span, Some(decode));
    }
    if prefill.engine != decode.engine && prefill.launch.program.is_some() && decode.launch.program.is_some()
    {
        let title = format!("prefill runs {} and decode {}", prefill.engine.word(), decode.engine.word());
        let found = finding("roles-differ", Status::Fail, title).worker(&prefill.name);
        out.add(found, decode.span, Some(decode));
    }
    for (name, value, span) in &a.shared {
        let other = b.shared.iter().find(|(n, _, _)| n == name);
        if let Some((_, other, at)) = other.filter(|(_, other, _)| other != value) {
            let status = if *name == "model" { Status::Warn } else { Status::Fail };
            let title = format!("{name} differs between prefill and decode: {value} and {other}");
            let lines = [side(out, prefill, value, *span), side(out, decode, other, *at)];
            let found = finding("roles-differ", status, title).evidence(lines).worker(&prefill.name);
            out.add(found, out.sources.locate(*at, other), Some(decode));
        }
    }
}

fn images((prefill, decode): (&Worker, &Worker), out: &mut Findings<'_>) {
    let (Some(a), Some(b)) = (&prefill.image, &decode.image) else { return };
    if a.text != b.text {
        let title = "prefill and decode run different images, and may have different NIXL and UCX";
        let lines = [side(out, prefill, &a.text, a.span), side(out, decode, &b.text, b.span)];
        let found = finding("roles-differ", Status::Warn, title).evidence(lines).worker(&prefill.name);
        out.add(found, b.span, Some(decode));
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
        let found = finding("side-channel-port", Status::Fail, title).worker(&prefill.name);
        let span = decode.env.get(NAME).map_or(decode.span, |s| s.span);
        out.add(found, span, Some(decode));
    }
}
