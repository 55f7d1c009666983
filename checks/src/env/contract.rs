//! The checks of the read-only interconnect check that operators know (`check_interconnect.py env`): its names,
//! statuses, counts and verdict, taken from what the manifests really say.

use schemars::JsonSchema;
use serde::Serialize;

use super::environment::Content;
use super::rules::Scene;
use super::worker::Worker;
use crate::{Finding, Status};

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Check {
    /// `env:UCX_TLS`, `env:disagg-transport`, or `env:` and the id of a finding.
    pub name: String,
    /// How it came out.
    pub status: Status,
    /// The value and why it matters, or what was found.
    pub detail: String,
}

/// How many checks came out how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Counts {
    /// As it should be.
    pub ok: usize,
    /// Should be known.
    pub warn: usize,
    /// Wrong.
    pub fail: usize,
    /// Not looked at.
    pub skipped: usize,
    /// Could not be decided.
    pub unknown: usize,
}

/// The catalogued variables, and whether KV transfer between nodes rests on them.
const VARIABLES: &[(&str, bool)] = &[
    ("UCX_TLS", true),
    ("UCX_NET_DEVICES", true),
    ("UCX_IB_GPU_DIRECT_RDMA", true),
    ("UCX_RNDV_SCHEME", false),
    ("NIXL_PLUGIN_DIR", false),
    ("NCCL_IB_HCA", true),
    ("NCCL_SOCKET_IFNAME", true),
    ("NCCL_IB_DISABLE", true),
    ("NCCL_NET_GDR_LEVEL", false),
    ("NCCL_P2P_LEVEL", false),
    ("NCCL_IB_GID_INDEX", false),
];

/// Makes the checks.
pub(super) fn checks(scene: &Scene<'_>, findings: &[Finding]) -> Vec<Check> {
    let mut checks = Vec::new();
    let readable = !scene.sources.files().is_empty();
    // A pod that was asked for and could not be looked into has a finding of its own.
    let pod = findings.iter().any(|f| matches!(f.id.as_str(), "pod-exec" | "process-environment"));
    if !readable && !pod {
        let detail = "no manifest was found or could be read".to_owned();
        checks.push(Check { name: "env".to_owned(), status: Status::Fail, detail });
    }
    let workers: Vec<&Worker> = scene.workers.iter().filter(|w| w.is_judged()).collect();
    let mut missing = Vec::new();
    let mut unseen = false;
    for (name, critical) in VARIABLES {
        match stated(scene, name) {
            Some(value) => {
                let why = super::catalogue::catalogue().get(name).map_or("", |e| e.why);
                let detail = format!("{value} ({why})");
                checks.push(Check { name: format!("env:{name}"), status: Status::Ok, detail });
            }
            None if *critical => {
                unseen |= workers.iter().any(|w| !w.env.open.is_empty());
                missing.push(*name);
            }
            None => {}
        }
    }
    if readable {
        let only_tests = !workers.is_empty() && workers.iter().all(|w| w.launch.is_active_test());
        checks.push(if only_tests { left_to_ucx(&missing) } else { disagg_transport(&missing, unseen) });
    }
    for finding in findings.iter().filter(|f| f.status != Status::Skipped) {
        let place = finding.source.as_ref().map_or(String::new(), |s| format!("{}:{}: ", s.file, s.line));
        checks.push(Check {
            name: format!("env:{}", finding.id),
            status: finding.status,
            detail: format!("{place}{}", finding.title),
        });
    }
    checks
}

/// The values that workers see, by what they are; none when no worker has the variable.
fn stated(scene: &Scene<'_>, name: &str) -> Option<String> {
    let mut values: Vec<String> = Vec::new();
    for setting in scene.workers.iter().filter_map(|w| w.env.get(name)) {
        let shown = match &setting.content {
            Content::Text(_) => setting.shown(),
            Content::Unknown(why) => format!("<dynamic: {why}>"),
        };
        if !values.contains(&shown) {
            values.push(shown);
        }
    }
    (!values.is_empty()).then(|| values.join(" | "))
}

fn disagg_transport(missing: &[&str], unseen: bool) -> Check {
    let name = "env:disagg-transport".to_owned();
    if missing.is_empty() {
        let detail = "every variable that disaggregated serving rests on is stated".to_owned();
        return Check { name, status: Status::Ok, detail };
    }
    let list = missing.join(", ");
    if unseen {
        let detail = format!(
            "not stated, and perhaps set by a Secret or ConfigMap that is not in the input: {list}; confirm with node and nixl"
        );
        return Check { name, status: Status::Unknown, detail };
    }
    let detail = format!(
        "not stated in the manifest: {list}; may be baked into the image: confirm with node and nixl"
    );
    Check { name, status: Status::Warn, detail }
}

/// kvwire's own pods state none of them on purpose.
fn left_to_ucx(missing: &[&str]) -> Check {
    let detail = format!("left to UCX, and the run's result says what it took: {}", missing.join(", "));
    Check { name: "env:disagg-transport".to_owned(), status: Status::Skipped, detail }
}

/// Counts checks.
pub(super) fn count(checks: &[Check]) -> Counts {
    let of = |status: Status| checks.iter().filter(|c| c.status == status).count();
    Counts {
        ok: of(Status::Ok),
        warn: of(Status::Warn),
        fail: of(Status::Fail),
        skipped: of(Status::Skipped),
        unknown: of(Status::Unknown),
    }
}

/// The sentence at the end. It never says that a wire is good.
pub(super) fn verdict(counts: Counts, judged: usize) -> String {
    if counts.fail > 0 {
        "transport blockers were found: disaggregated serving will not be correct or fast as written"
            .to_owned()
    } else if judged == 0 {
        "no worker was found: nothing was judged".to_owned()
    } else if counts.warn > 0 {
        "potential gaps: verify before trusting disaggregated serving".to_owned()
    } else {
        "no gaps were detected in the files; only the active test can prove the wire".to_owned()
    }
}
