//! What the static check says, for every output format.

use std::collections::{BTreeMap, HashMap};

use schemars::JsonSchema;
use serde::Serialize;

use super::contract::{self, Check, Counts};
use super::rules::{Scene, worse};
use super::waive::{self, Waiver};
use super::worker::{Engine, Role, Worker};
use super::yaml::Span;
use crate::{Finding, SourceSpan, Status};

/// The name and major version of the JSON form.
pub(super) const SCHEMA: &str = "kvwire.check/1";

/// The whole report.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Report {
    /// `kvwire.check/1`.
    pub schema: &'static str,
    /// The checks of the read-only interconnect check, and one for each finding.
    pub checks: Vec<Check>,
    /// How they came out.
    pub counts: Counts,
    /// One sentence. Never that a wire is good.
    pub verdict: String,
    /// Each worker with what its process will see.
    pub workers: Vec<WorkerView>,
    /// Everything that was found, in order of file and line.
    pub findings: Vec<Finding>,
    /// Findings of rules that are switched off.
    pub switched_off: Vec<Switched>,
    /// Files that were read.
    pub files: usize,
    /// Processes of running pods that were judged.
    pub processes: usize,
    /// Source lines by file and line, without secrets; for people, not in the JSON.
    #[serde(skip)]
    pub lines: BTreeMap<(String, u32), String>,
}

/// One worker.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct WorkerView {
    /// Its name.
    pub name: String,
    /// The object it stands in.
    pub object: String,
    /// Its container.
    pub container: String,
    /// `prefill`, `decode`, `both`, `unknown` or `not_a_worker`.
    #[schemars(with = "String")]
    pub role: Role,
    /// What says so.
    pub role_from: String,
    /// `vllm`, `sglang`, `tensorrt-llm`, `dynamo` or `plain`.
    #[schemars(with = "String")]
    pub engine: Engine,
    /// What carries its KV cache.
    pub kv_transfer: String,
    /// What gives it an RDMA device or NVLink; empty when nothing does.
    pub fabric: String,
    /// The worst that was found about it.
    pub status: Status,
    /// It is only partly stated, and why; empty when it is whole.
    pub partial: String,
    /// Where it begins.
    pub source: Option<SourceSpan>,
    /// What its process will see, as far as it decides the wire.
    pub env: Vec<SettingView>,
    /// Sources of variables that were not seen.
    pub unseen: Vec<String>,
    /// Variables that a patch removes.
    pub removed: Vec<String>,
}

/// One variable of a worker.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SettingView {
    /// Its name.
    pub name: String,
    /// Its value, without secrets.
    pub value: String,
    /// False when it is set and the input does not say to what.
    pub known: bool,
    /// What set it.
    pub origin: String,
    /// Where.
    pub source: Option<SourceSpan>,
    /// What it overrides.
    pub overrides: Vec<String>,
}

/// A finding of a rule that is switched off.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Switched {
    /// The finding as it would have been.
    pub finding: Finding,
    /// What switches it off: a flag, the configuration, or a comment with its place.
    pub by: String,
}

impl Report {
    pub(super) fn make(scene: &Scene<'_>, found: Vec<(Finding, Span)>, waivers: &[Waiver]) -> Self {
        let mut found = found;
        let judged = scene.workers.iter().filter(|w| w.is_judged()).count();
        if judged == 0 && !scene.sources.files().is_empty() {
            let title = "no worker was found in the input";
            let finding = Finding::new("no-workers", Status::Unknown, title)
                .next_step("give the manifests of the prefill and decode workers");
            found.push((finding, Span::default()));
        }
        found.sort_by_key(|(f, span)| (span.file, span.line, span.column, f.id.clone()));
        let lines = found
            .iter()
            .filter_map(|(f, span)| {
                let source = f.source.as_ref()?;
                Some(((source.file.clone(), source.line), scene.sources.shown_line(span.file, source.line)?))
            })
            .collect();
        let all: Vec<Finding> = found.into_iter().map(|(f, _)| f).collect();
        let (findings, switched_off) = waive::apply(all, waivers, scene.sources);
        let told = Told::of(&findings);
        let workers = scene.workers.iter().map(|w| view(scene, w, &told)).collect();
        let checks = contract::checks(scene, &findings);
        let counts = contract::count(&checks);
        Self {
            schema: SCHEMA,
            verdict: contract::verdict(counts, judged),
            checks,
            counts,
            workers,
            findings,
            switched_off,
            files: scene.sources.files().iter().filter(|source| !source.is_process).count(),
            processes: scene.workers.iter().filter(|worker| worker.is_process).count(),
            lines,
        }
    }

    /// The worst status of all findings.
    pub fn worst(&self) -> Status {
        self.checks.iter().fold(Status::Ok, |sum, c| worse(sum, c.status))
    }

    /// Workers that were judged.
    pub fn judged(&self) -> usize {
        self.workers.iter().filter(|w| w.role != Role::NotAWorker).count()
    }

    /// A source line for people.
    pub fn line(&self, file: &str, line: u32) -> Option<&str> {
        self.lines.get(&(file.to_owned(), line)).map(String::as_str)
    }
}

/// What was found about workers, by their name and file.
struct Told<'a>(HashMap<(&'a str, &'a str), (Status, bool)>);

impl<'a> Told<'a> {
    fn of(findings: &'a [Finding]) -> Self {
        let mut told = HashMap::new();
        for finding in findings {
            let file = finding.source.as_ref().map_or("", |s| s.file.as_str());
            for worker in &finding.workers {
                let (worst, idle) = told.entry((worker.as_str(), file)).or_insert((Status::Ok, false));
                if finding.status == Status::Skipped {
                    *idle |= finding.id == "not-disaggregated";
                } else {
                    *worst = worse(*worst, finding.status);
                }
            }
        }
        Self(told)
    }

    /// The worst, and whether it moves no KV cache.
    fn about(&self, worker: &str, file: &str) -> (Status, bool) {
        let at = |file| self.0.get(&(worker, file)).copied().unwrap_or((Status::Ok, false));
        let (here, anywhere) = (at(file), at(""));
        (worse(here.0, anywhere.0), here.1 || anywhere.1)
    }
}

fn view(scene: &Scene<'_>, worker: &Worker, told: &Told<'_>) -> WorkerView {
    let file = scene.sources.file(worker.span.file).map_or("", |f| f.name.as_str());
    let (status, idle) = told.about(&worker.name, file);
    let status = if worker.is_judged() && !(idle && status == Status::Ok) { status } else { Status::Skipped };
    let decides = |name: &str| {
        super::catalogue::catalogue().get(name).is_some()
            || ["UCX_", "NIXL_", "NCCL_", "FI_", "MC_"].iter().any(|p| name.starts_with(p))
    };
    let env = worker.env.settings().iter().filter(|s| decides(&s.name)).map(|s| SettingView {
        name: s.name.clone(),
        value: s.shown(),
        known: s.text().is_some(),
        origin: s.origin.to_owned(),
        source: scene.sources.span(s.span),
        overrides: s
            .overrides
            .iter()
            .map(|(origin, span)| {
                scene
                    .sources
                    .span(*span)
                    .map_or((*origin).to_owned(), |p| format!("{origin} ({}:{})", p.file, p.line))
            })
            .collect(),
    });
    let imex = scene.has_imex(worker).then(|| "multi-node NVLink (IMEX claim)".to_owned());
    WorkerView {
        name: worker.name.clone(),
        object: worker.object.clone(),
        container: worker.container.clone(),
        role: worker.role,
        role_from: worker.role_from.clone(),
        engine: worker.engine,
        kv_transfer: worker.selection.word(),
        fabric: [scene.fabric(worker), imex].into_iter().flatten().collect::<Vec<_>>().join(", "),
        status,
        partial: worker.partial.clone().unwrap_or_default(),
        source: scene.sources.span(worker.span),
        env: env.collect(),
        unseen: worker.env.open.iter().map(|o| o.text.clone()).collect(),
        removed: worker.env.removed.iter().map(|r| r.text.clone()).collect(),
    }
}
