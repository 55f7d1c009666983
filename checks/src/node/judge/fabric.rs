//! The NVLink fabric: whether a node's GPUs have joined one, and which.

use super::Subject;
use crate::finding::{Finding, Status};
use crate::node::evidence::Evidence;

const ID: &str = "nvlink-fabric";

/// What one GPU knows of its fabric, or all of them together.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Membership {
    /// `completed`, `not started`, `not supported`, …
    state: String,
    /// NVML's code for how joining ended, in words of `nvidia-smi` or as a number; `None` before it ended.
    status: Option<String>,
    clique: Option<String>,
    cluster: Option<String>,
    /// What is wrong with a fabric that was joined.
    degraded: Vec<&'static str>,
    line: String,
}

impl Membership {
    fn is_joined(&self) -> bool {
        self.state == "completed"
            && self.status.as_deref().is_none_or(|status| matches!(status, "0" | "success"))
    }

    fn is_supported(&self) -> bool {
        !matches!(self.state.as_str(), "not supported" | "n/a")
    }
}

/// `clique 3 of cluster 1a2b…`, for the comparison of two nodes: only GPUs of one clique share NVLink.
pub(super) fn words(evidence: &Evidence) -> String {
    match memberships(evidence) {
        None => "not known".to_owned(),
        Some(all) if !all.iter().any(Membership::is_supported) => "none".to_owned(),
        Some(all) => {
            let mut told: Vec<String> = all
                .iter()
                .map(|one| {
                    let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "?".to_owned());
                    format!("{}, clique {} of cluster {}", one.state, known(&one.clique), known(&one.cluster))
                })
                .collect();
            told.sort();
            told.dedup();
            told.join("; ")
        }
    }
}

pub(super) fn judge(subject: &Subject<'_>) -> Finding {
    if subject.driver.is_none() {
        return Finding::new(ID, Status::Skipped, "no NVIDIA driver here");
    }
    let Some(all) = memberships(subject.evidence) else {
        return Finding::new(
            ID,
            Status::Unknown,
            format!("the fabric's state was not told: {}", super::gpu::why_no_nvml(subject)),
        )
        .next_step("look at `nvidia-smi -q`: under Fabric, State must be Completed and Status Success");
    };
    let lines = || all.iter().map(|one| one.line.clone());
    if all.iter().any(|one| one.state.starts_with("not known")) {
        return Finding::new(ID, Status::Unknown, "the driver did not tell the fabric's state")
            .evidence(lines());
    }
    if !all.iter().any(Membership::is_supported) {
        return Finding::new(
            ID,
            Status::Skipped,
            "the GPUs of this node are of no NVLink fabric (no NVSwitch, or the driver has no such state)",
        );
    }
    if !all.iter().all(Membership::is_joined) {
        return Finding::new(ID, Status::Fail, "a GPU has not joined its NVLink fabric")
            .detail("NVLink is not used then, also not within the node, and CUDA may fail to start")
            .evidence(lines())
            .next_step("have an administrator look at the fabric manager (systemctl status nvidia-fabricmanager) or, between nodes, at IMEX; after a restart of it the GPUs need a reset");
    }
    let degraded: Vec<&str> = all.iter().flat_map(|one| one.degraded.iter().copied()).collect();
    if !degraded.is_empty() {
        return Finding::new(ID, Status::Warn, "the NVLink fabric was joined and is degraded")
            .detail(degraded.join(", "))
            .evidence(lines())
            .next_step("have an administrator look at `nvidia-smi -q` (Fabric, Health) and at the switches");
    }
    Finding::new(ID, Status::Ok, "every GPU has joined its NVLink fabric")
        .detail("two nodes share NVLink only with the same cluster and clique")
        .evidence(lines())
}

/// As NVML or `nvidia-smi -q` tells it; `None` when neither did.
fn memberships(evidence: &Evidence) -> Option<Vec<Membership>> {
    if let Some(text) = evidence.text("probe:nvml/fabric") {
        return Some(text.lines().map(of_nvml).collect());
    }
    let text = evidence.text("probe:nvidia-smi-fabric")?;
    let mut all = Vec::new();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim().to_ascii_lowercase();
        match key.trim() {
            "State" => all.push(Membership {
                line: format!("State {value}"),
                state: value,
                status: None,
                clique: None,
                cluster: None,
                degraded: Vec::new(),
            }),
            key => {
                let Some(last) = all.last_mut() else { continue };
                last.line.push_str(&format!(", {key} {value}"));
                match key {
                    "Status" => last.status = Some(value),
                    "CliqueId" => last.clique = Some(value),
                    "ClusterUUID" => last.cluster = Some(value.replace('-', "")),
                    "Bandwidth" if value == "degraded" => last.degraded.push("degraded bandwidth"),
                    _ => {}
                }
            }
        }
    }
    (!all.is_empty()).then_some(all)
}

/// `gpu 0 state completed, status 0, clique 3, cluster 1a…, health 0x155`
fn of_nvml(line: &str) -> Membership {
    let told = line.splitn(3, ' ').nth(2).unwrap_or_default();
    let field = |key: &str| {
        told.split(", ").find_map(|part| part.strip_prefix(key)).map(|value| value.trim().to_owned())
    };
    let health = field("health 0x").and_then(|mask| u32::from_str_radix(&mask, 16).ok()).unwrap_or(0);
    Membership {
        state: field("state ").unwrap_or_else(|| told.to_owned()),
        status: field("status "),
        clique: field("clique "),
        cluster: field("cluster "),
        degraded: degraded(health),
        line: line.to_owned(),
    }
}

/// NVML's health mask (`NVML_GPU_FABRIC_HEALTH_MASK_*` of nvml.h): two bits a question, of which 1 is yes, and four for the
/// configuration, of which 0 and 1 are good.
fn degraded(mask: u32) -> Vec<&'static str> {
    const QUESTIONS: [(u32, &str); 4] = [
        (0, "degraded bandwidth"),
        (2, "a route is being recovered"),
        (4, "a route is unhealthy"),
        (6, "recovering from a timeout"),
    ];
    let mut found: Vec<&str> =
        QUESTIONS.iter().filter(|(shift, _)| mask >> shift & 0b11 == 1).map(|(_, words)| *words).collect();
    if mask >> 8 & 0b1111 > 1 {
        found.push("wrong configuration");
    }
    found
}
