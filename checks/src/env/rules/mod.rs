//! The rules. Each looks at one worker or at the two sides together and states findings.

mod arrived;
mod backend;
mod entries;
mod names;
mod pairs;
mod placement;
mod pods;
mod registry;
mod shells;
mod transport;
mod verdict;

pub use registry::{RULES, Rule, rule};

use std::collections::{HashMap, HashSet};

use super::catalogue::catalogue;
use super::environment::Setting;
use super::find::Surroundings;
use super::kustomize::PART;
use super::secret;
use super::source::Sources;
use super::version::Versions;
use super::worker::{Role, Worker};
use super::yaml::Span;
use crate::{Finding, Status};

/// Findings of one kind that are reported for one worker.
const FINDINGS_MAX: usize = 20_000;

/// All that rules may look at.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    /// All workers that are judged.
    pub workers: &'a [Worker],
    /// What stands around them.
    pub around: &'a Surroundings,
    /// The texts.
    pub sources: &'a Sources,
    /// What the caller says about versions.
    pub given: Versions,
    /// Groups with a prefill and a decode worker.
    complete: HashSet<String>,
}

impl<'a> Scene<'a> {
    /// The workers, what is around them, and who belongs together.
    pub(super) fn new(
        workers: &'a [Worker],
        around: &'a Surroundings,
        sources: &'a Sources,
        given: Versions,
    ) -> Self {
        let mut scene = Self { workers, around, sources, given, complete: HashSet::new() };
        let of = |role: Role| -> HashSet<String> {
            workers.iter().filter(|w| w.role == role).map(|w| scene.group(w)).collect()
        };
        scene.complete = of(Role::Prefill).intersection(&of(Role::Decode)).cloned().collect();
        scene
    }

    /// Versions of a worker's libraries.
    pub(super) fn versions(&self, worker: &Worker) -> Versions {
        Versions::of(worker.image.as_ref().map(|i| i.text.as_str()), self.given)
    }

    /// What belongs together with a worker: one graph, or what lies in one folder.
    pub(super) fn group(&self, worker: &Worker) -> String {
        let file = self.sources.file(worker.span.file);
        if worker.is_process {
            // The pods that were asked for belong together.
            return "\0".to_owned();
        }
        if worker.dynamo {
            return format!("{}\0{}", file.map_or("", |f| f.name.as_str()), worker.object);
        }
        match file.and_then(|f| f.path.as_ref()) {
            Some(path) => path.parent().map_or(String::new(), |p| p.display().to_string()),
            None => "-".to_owned(),
        }
    }

    /// True when both sides of the transfer are in the input.
    pub(super) fn has_both_sides(&self, worker: &Worker) -> bool {
        self.complete.contains(&self.group(worker))
    }

    /// True when the pod has a claim on a channel of multi-node NVLink.
    pub(super) fn has_imex(&self, worker: &Worker) -> bool {
        let named = |name: &str| {
            let name = name.to_ascii_lowercase();
            name.contains("imex") || name.contains("compute-domain") || name.contains("computedomain")
        };
        worker.pod.pod_claims.iter().any(|(claim, template)| {
            named(&claim.text)
                || named(template)
                || self.around.compute_domains.iter().any(|(name, _, _)| name == template)
        })
    }

    /// What gives the pod an RDMA device, for people; none when nothing does.
    pub(super) fn fabric(&self, worker: &Worker) -> Option<String> {
        if let Some(resource) = worker.pod.resources.iter().find(|r| is_fabric(&r.name)) {
            return Some(format!("{}: {}", resource.name, resource.amount));
        }
        for (claim, template) in &worker.pod.pod_claims {
            let classes =
                self.around.claims.iter().find(|(name, _)| name == template).map(|(_, c)| c.as_str());
            let words = format!("{} {template} {}", claim.text, classes.unwrap_or("")).to_ascii_lowercase();
            if ["rdma", "nic", "roce", "efa", "infiniband", "sriov", "hca"].iter().any(|w| words.contains(w))
            {
                return Some(format!("claim {}", claim.text));
            }
        }
        if worker.pod.host_paths.iter().any(|p| p.starts_with("/dev/infiniband")) {
            return Some("hostPath /dev/infiniband".to_owned());
        }
        (worker.pod.host_network && worker.pod.privileged)
            .then(|| "the host's network and devices (hostNetwork and privileged)".to_owned())
    }
}

/// True for a resource that stands for network devices with RDMA.
pub(super) fn is_fabric(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    lower.contains('/')
        && ["rdma", "/efa", "infiniband", "roce", "sriov", "mlnx", "hca", "/ib", "hostdev"]
            .iter()
            .any(|w| lower.contains(w))
}

/// Collects findings; the same one for several workers is stated once.
#[derive(Debug)]
pub(super) struct Findings<'a> {
    sources: &'a Sources,
    list: Vec<(Finding, Span)>,
    index: HashMap<(String, Span, String), usize>,
}

impl<'a> Findings<'a> {
    /// None yet.
    pub(super) fn new(sources: &'a Sources) -> Self {
        Self { sources, list: Vec::new(), index: HashMap::new() }
    }

    /// Adds a finding at a place.
    pub(super) fn add(&mut self, finding: Finding, span: Span, worker: Option<&Worker>) {
        let key = (finding.id.clone(), span, finding.title.clone());
        let name = worker.map(|w| w.name.clone());
        if let Some(&i) = self.index.get(&key) {
            let known = &mut self.list[i].0;
            if let Some(name) = name
                && !known.workers.contains(&name)
            {
                known.workers.push(name);
            }
            known.status = worse(known.status, finding.status);
            return;
        }
        if self.list.len() >= FINDINGS_MAX {
            return;
        }
        let mut finding = hidden(finding).source(self.sources.span(span));
        // Whatever was not built may put another value in its place.
        if finding.status == Status::Fail && worker.is_some_and(|w| w.partial.as_deref() == Some(PART)) {
            finding.status = Status::Warn;
        }
        if let Some(rule) = rule(&finding.id) {
            if finding.why.is_empty() {
                rule.why.clone_into(&mut finding.why);
            }
            if finding.next_step.is_empty() && finding.fix.is_empty() {
                rule.remedy.clone_into(&mut finding.next_step);
            }
        }
        finding.workers.extend(name);
        self.index.insert(key, self.list.len());
        self.list.push((finding, span));
    }

    /// Adds a finding about a setting, at the part of its value that `needle` names.
    pub(super) fn about(&mut self, finding: Finding, setting: &Setting, needle: &str, worker: &Worker) {
        let span = self.sources.locate(setting.span, &setting.name);
        let span = if needle.is_empty() {
            let shown = setting.text().unwrap_or("");
            if shown.is_empty() { span } else { self.sources.locate(setting.span, shown) }
        } else {
            self.sources.locate(setting.span, needle)
        };
        let finding = match finding.status {
            Status::Warn | Status::Fail if finding.fix.is_empty() => {
                let fix = usual_fix(&finding.id, &setting.name);
                finding.fix(fix)
            }
            _ => finding,
        };
        let evidence = format!("{}={} ({})", setting.name, setting.shown(), setting.origin);
        let finding = if finding.evidence.is_empty() { finding.evidence([evidence]) } else { finding };
        self.add(finding, span, Some(worker));
    }

    /// All findings with their places, in order of appearance.
    pub(super) fn into_inner(self) -> Vec<(Finding, Span)> {
        self.list
    }

    /// The findings so far.
    pub(super) fn list(&self) -> &[(Finding, Span)] {
        &self.list
    }
}

/// The same without credentials, wherever a rule quotes a value.
fn hidden(mut finding: Finding) -> Finding {
    for text in [&mut finding.title, &mut finding.detail, &mut finding.next_step, &mut finding.fix] {
        *text = secret::text(text);
    }
    for line in &mut finding.evidence {
        *line = secret::text(line);
    }
    finding
}

/// The worse of two, for a gate.
pub fn worse(a: Status, b: Status) -> Status {
    let rank = |s: Status| match s {
        Status::Fail => 4,
        Status::Warn => 3,
        Status::Unknown => 2,
        Status::Ok => 1,
        Status::Skipped => 0,
    };
    if rank(a) >= rank(b) { a } else { b }
}

/// One side of a difference, for a line of its own.
fn side(out: &Findings<'_>, worker: &Worker, shown: &str, span: Span) -> String {
    let place = out.sources.span(span).map_or(String::new(), |s| format!("  ({}:{})", s.file, s.line));
    format!("{:<8} {}: {shown}{place}", worker.role.word(), worker.name)
}

/// A finding of a rule.
fn finding(id: &str, status: Status, title: impl Into<String>) -> Finding {
    debug_assert!(rule(id).is_some(), "{id} is in no registry");
    Finding::new(id, status, secret::text(&title.into()))
}

/// An environment entry to paste.
fn entry(name: &str, value: &str) -> String {
    format!("- name: {name}\n  value: \"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The usual fix for a setting: its default where one is known that is right, else nothing in its place. Empty for rules
/// whose fix is not about the setting itself.
fn usual_fix(id: &str, name: &str) -> String {
    const BY_DEFAULT: &[&str] = &[
        "gid-index",
        "proto-disabled",
        "ucx-can-abort",
        "debug-output",
        "warnings-hidden",
        "one-rail",
        "invalid-value",
        "net-devices-without-rdma",
    ];
    if matches!(id, "placeholder" | "hidden-config" | "env-not-expanded" | "value-unknown") {
        return String::new();
    }
    let default = catalogue().get(name).map_or("", |known| known.default);
    if BY_DEFAULT.contains(&id) && !default.is_empty() {
        entry(name, default)
    } else {
        format!("# {name} is left out on purpose")
    }
}

/// True when the worker may use NIXL's UCX backend, as far as the input says.
fn may_use_ucx(worker: &Worker) -> bool {
    use super::selection::Library;
    match &worker.selection.library {
        Library::Nixl(backends) => backends.iter().any(|b| b == "UCX"),
        Library::Unknown => true,
        Library::Other(name) => name.contains("UCX") || name.contains("LMCache"),
        Library::Mooncake => false,
    }
}

/// Runs all rules.
pub(super) fn judge(scene: &Scene<'_>) -> Vec<(Finding, Span)> {
    let mut findings = Findings::new(scene.sources);
    for worker in scene.workers.iter().filter(|w| w.is_judged()) {
        entries::check(scene, worker, &mut findings);
        shells::check(worker, &mut findings);
        names::check(scene, worker, &mut findings);
        if verdict::is_apart(worker) {
            transport::check(scene, worker, &mut findings);
            backend::check(scene, worker, &mut findings);
            pods::check(scene, worker, &mut findings);
        }
    }
    pairs::check(scene, &mut findings);
    placement::sizes(scene, &mut findings);
    arrived::check(scene, &mut findings);
    verdict::check(scene, &mut findings);
    findings.into_inner()
}
