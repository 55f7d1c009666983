//! The result while it grows: every case is listed as not run until it has run, and each change is on disk.

use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use checks::{Finding, Node, Route, Status};

use super::scope::Scope;
use super::stop::Stop;
use crate::engine::timed_ns as ns;
use crate::measure::descriptor_cost::descriptor_costs;
use crate::plan::{Case, Part, Plan};
use crate::report::json;
use crate::report::model::{
    CaseResult, CaseStatus, Descriptors, KvCase, MINOR, NodeDifference, Outcome as Stated, Phase, Placement,
    Registration, Rendezvous, ResultFile, Run, SCHEMA, Side, Sides, Verdict, Verification,
};
use crate::verdict::{Outcome, judge};
use crate::workload::KvShape;

/// Cases that one finding names, at most.
const CASES_NAMED: usize = 8;

/// A result and where it is kept.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) result: ResultFile,
    output: Option<PathBuf>,
    scope: Scope,
    begin: Instant,
}

impl Record {
    /// A result in which nothing has run yet. `begin` is when the program started.
    pub(crate) fn new(
        run_id: &str,
        plan: Plan,
        scope: Scope,
        output: Option<PathBuf>,
        begin: Instant,
    ) -> Self {
        let cases = plan.cases.iter().map(|case| not_run(case, plan.depth, "not reached")).collect();
        let result = ResultFile {
            schema: SCHEMA.to_owned(),
            minor: MINOR,
            run: Run {
                id: run_id.to_owned(),
                started_at: humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
                recorded_by: Side::Initiator,
                command_line: command_line(),
                duration_ns: 0,
                complete: false,
            },
            verdict: Verdict {
                outcome: Stated::Inconclusive,
                summary: "the run has not ended".to_owned(),
                scope: scope.text(),
                first_fix: None,
                exit_code: Outcome::Inconclusive.exit().code(),
            },
            plan,
            nodes: Sides::default(),
            node_differences: Vec::new(),
            memory: Sides::default(),
            placement: Sides::default(),
            startup: Sides::default(),
            registration: Sides::default(),
            expectation: None,
            cases,
            rendezvous: Rendezvous::default(),
            descriptor_costs: Vec::new(),
            findings: Vec::new(),
        };
        Self { result, output, scope, begin }
    }

    /// Notes who the initiator is and how it came up.
    pub(crate) fn initiator(&mut self, node: Node, placements: Vec<Placement>, phases: &[(String, u64)]) {
        self.result.registration.initiator = self.registration(phases);
        self.result.startup.initiator = Some(named(phases));
        self.result.memory.initiator = Some(Placement::memory_of(&placements));
        self.result.placement.initiator = Some(placements);
        self.scope.settle(&self.result.placement);
        self.result.nodes.initiator = Some(node);
    }

    /// Notes who the target is and how it came up.
    pub(crate) fn target(&mut self, node: Node, placements: Vec<Placement>, phases: &[(String, u64)]) {
        self.result.registration.target = self.registration(phases);
        self.result.startup.target = Some(named(phases));
        self.result.memory.target = Some(Placement::memory_of(&placements));
        self.result.placement.target = Some(placements);
        self.scope.settle(&self.result.placement);
        self.result.nodes.target = Some(node);
    }

    /// The GPUs that a part's payload lies on, on the initiator's and on the target's side.
    pub(crate) fn gpus_of(&self, part: &Part) -> [Option<String>; 2] {
        let of_rank = |side: &Option<Vec<Placement>>, rank: u32| {
            Some(side.as_ref()?.get(rank as usize)?.gpu.as_ref()?.uuid.clone())
        };
        let Sides { initiator, target } = &self.result.placement;
        [of_rank(initiator, part.rank), of_rank(target, part.peer)]
    }

    fn registration(&self, phases: &[(String, u64)]) -> Option<Registration> {
        let (_, ns) = phases.iter().find(|(name, _)| name == "register")?;
        let plan = &self.result.plan;
        Some(Registration { bytes: plan.pool_bytes.saturating_mul(u64::from(plan.ranks)), ns: *ns })
    }

    /// Notes who the target says it is, before its engine is open.
    pub(crate) fn known_target(&mut self, node: Node) {
        self.result.nodes.target = Some(node);
    }

    /// Notes who the initiator is, before its engine is open.
    pub(crate) fn initiator_node(&mut self, node: Node) {
        self.result.nodes.initiator = Some(node);
    }

    /// Marks what the two nodes differ in.
    pub(crate) fn node_differences(&mut self, differences: Vec<NodeDifference>) {
        self.result.node_differences = differences;
    }

    /// Notes where and how the two sides met.
    pub(crate) fn rendezvous(&mut self, place: &str, initiator: Option<Route>, target: Option<Route>) {
        self.result.rendezvous = Rendezvous { place: place.to_owned(), initiator, target };
    }

    /// Notes the target's end of the initiator's connection, where the target serves the rendezvous.
    pub(crate) fn target_route(&mut self, route: Option<Route>) {
        let known = &mut self.result.rendezvous.target;
        *known = known.take().or(route);
    }

    /// Adds a start-up step of the initiator.
    pub(crate) fn startup(&mut self, name: &str, ns: u64) {
        let phases = self.result.startup.initiator.get_or_insert_default();
        phases.push(Phase { name: name.to_owned(), ns });
    }

    /// Time since the program started, in nanoseconds.
    pub(crate) fn elapsed_ns(&self) -> u64 {
        ns(self.begin.elapsed())
    }

    /// Notes a judgement.
    pub(crate) fn finding(&mut self, finding: Finding) {
        self.result.findings.push(finding);
    }

    /// Notes a judgement of a case, or names one more case in the one that says the same. The lines of evidence that begin
    /// with `case` tell which.
    pub(crate) fn finding_of_case(&mut self, finding: Finding) {
        let names_case = |line: &&String| line.starts_with("case ");
        let same = |old: &&mut Finding| old.id == finding.id && old.title == finding.title;
        let Some(old) = self.result.findings.iter_mut().find(same) else { return self.finding(finding) };
        for line in finding.evidence.iter().filter(names_case) {
            let named = old.evidence.iter().filter(names_case).count();
            if named < CASES_NAMED && !old.evidence.contains(line) {
                old.evidence.insert(named, line.clone());
            }
        }
    }

    /// Notes how the case ended that the run stopped in, and writes the result. Earlier rounds of it stand, unless
    /// it failed.
    ///
    /// # Errors
    /// The result cannot be written.
    pub(crate) fn stopped_in(&mut self, index: usize, case: CaseResult) -> Result<(), Stop> {
        if let Some(place) = self.result.cases.get_mut(index) {
            if place.status == CaseStatus::NotRun {
                *place = case;
            } else if case.status == CaseStatus::Fail && place.status == CaseStatus::Pass {
                place.status = CaseStatus::Fail;
                place.reason = case.reason;
                place.bandwidth_bytes_per_s = None;
            }
        }
        self.save()
    }

    /// Says when cases were measured fewer times than the plan says, though at least once.
    pub(crate) fn missing_repetitions(&mut self) {
        let wanted = self.result.plan.repeat as usize;
        let fewest = self.result.cases.iter().map(|case| case.repetitions.len()).min().unwrap_or(0);
        if fewest == 0 || fewest >= wanted {
            return;
        }
        let title = format!("the cases were measured {fewest} times at least, not {wanted} times");
        self.finding(
            Finding::new("repetitions-missing", Status::Warn, title)
                .next_step("give the run more time (--total-time), or fewer rounds (--repeat)"),
        );
    }

    /// Replaces a case and writes the result.
    ///
    /// # Errors
    /// The result cannot be written.
    pub(crate) fn case(&mut self, index: usize, case: CaseResult) -> Result<(), Stop> {
        if let Some(place) = self.result.cases.get_mut(index) {
            *place = case;
        }
        self.save()
    }

    /// Takes in another timed loop of a case and writes the result. The first one replaces the case that had not
    /// run.
    ///
    /// # Errors
    /// The result cannot be written.
    pub(crate) fn repetition(&mut self, index: usize, mut case: CaseResult) -> Result<(), Stop> {
        let at_ns = self.elapsed_ns();
        match self.result.cases.get_mut(index) {
            Some(place) if place.status != CaseStatus::NotRun => place.absorb(case, at_ns),
            Some(place) => {
                case.begin_repetitions(at_ns);
                *place = case;
            }
            None => {}
        }
        self.save()
    }

    /// Marks every case that has not run with the reason.
    pub(crate) fn mark_not_run(&mut self, from: usize, reason: &str) {
        for case in self.result.cases.iter_mut().skip(from).filter(|c| c.status == CaseStatus::NotRun) {
            case.reason = Some(reason.to_owned());
        }
    }

    /// Closes a run that stopped, with the reason as its last finding.
    pub(crate) fn close_with(&mut self, stop: &Stop, at: &str) -> Outcome {
        self.mark_not_run(0, &stop.finding(at).title);
        self.finding(stop.finding(at));
        self.close(Some(stop.outcome()))
    }

    /// Makes a result that the initiator sent this side's own, and writes it.
    pub(crate) fn adopt(
        mut result: ResultFile,
        own_findings: Vec<Finding>,
        output: Option<PathBuf>,
        begin: Instant,
    ) -> Self {
        let known: Vec<String> = result.findings.iter().map(|f| f.title.clone()).collect();
        result.findings.extend(own_findings.into_iter().filter(|f| !known.contains(&f.title)));
        result.run.recorded_by = Side::Target;
        result.run.command_line = command_line();
        let scope = Scope::said(result.verdict.scope.clone());
        Self { result, output, scope, begin }
    }

    /// The target writes this one.
    pub(crate) fn of_target(&mut self) {
        self.result.run.recorded_by = Side::Target;
    }

    /// Writes the result as it is.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn keep(&mut self) -> Result<(), Stop> {
        self.save()
    }

    /// Judges the run and writes the result for the last time.
    pub(crate) fn close(&mut self, stopped: Option<Outcome>) -> Outcome {
        self.result.run.complete = stopped.is_none();
        self.result.descriptor_costs = descriptor_costs(&self.result.cases);
        let (mut outcome, verdict) = judge(&self.result, &self.scope.text(), stopped);
        self.result.verdict = verdict;
        if let Err(stop) = self.save() {
            outcome = outcome.max(stop.outcome());
            self.result.findings.push(stop.finding("writing the result"));
            self.result.verdict = judge(&self.result, &self.scope.text(), Some(outcome)).1;
        }
        outcome
    }

    fn save(&mut self) -> Result<(), Stop> {
        self.result.run.duration_ns = self.elapsed_ns();
        match &self.output {
            Some(path) => json::write(path, &self.result).map_err(|e| Stop::Output(e.to_string())),
            None => Ok(()),
        }
    }
}

/// The command line as typed, with the token of a join address left out.
fn command_line() -> Vec<String> {
    std::env::args_os().map(|word| without_token(&word.to_string_lossy())).collect()
}

fn without_token(word: &str) -> String {
    match (word.find("tcp://"), word.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => {
            format!("{}***{}", &word[..scheme + "tcp://".len()], &word[at..])
        }
        _ => word.to_owned(),
    }
}

fn named(phases: &[(String, u64)]) -> Vec<Phase> {
    phases.iter().map(|(name, ns)| Phase { name: name.clone(), ns: *ns }).collect()
}

/// A case that has not run, and why.
pub(crate) fn not_run(case: &Case, depth: u32, reason: &str) -> CaseResult {
    CaseResult {
        name: case.to_string(),
        op: case.op,
        shape: case.kv.as_ref().map_or_else(|| "uniform".to_owned(), |shape| shape.kind.clone()),
        kv: case.kv.as_ref().filter(|shape| !shape.is_sweep()).map(|shape| kv_case(shape)),
        block_bytes: case.block_bytes,
        batch: case.batch,
        depth: case.slots(depth),
        status: CaseStatus::NotRun,
        reason: Some(reason.to_owned()),
        descriptors: Descriptors { requested: u64::from(case.batch), posted: None },
        transfers: 0,
        payload_bytes: 0,
        wall_ns: 0,
        bandwidth_bytes_per_s: None,
        cold_ns: None,
        prep: None,
        post: None,
        wire: None,
        total: None,
        notify: None,
        lists_ns: None,
        lists: None,
        notified: None,
        notified_resolution_ns: None,
        scheduled: None,
        unserved: 0,
        off_cpu_ns: None,
        warmup_transfers: 0,
        verification: Verification::default(),
        nixl_telemetry: None,
        transport: None,
        ended_by: None,
        repetitions: Vec::new(),
        parts: Vec::new(),
        limit: None,
    }
}

fn kv_case(shape: &KvShape) -> KvCase {
    KvCase {
        model: shape.model.clone(),
        layout: shape.layout.clone(),
        kv_dtype: shape.element.clone(),
        prefill_tp: shape.prefill_tp,
        decode_tp: shape.decode_tp,
        prefill_ranks_per_decode_rank: shape.sources,
        block_tokens: shape.block_tokens,
        prompts: shape.prompts.clone(),
        fragmentation_permille: shape.fragmentation_permille,
        placements: shape.placements,
        prepared_descriptors: shape.descriptors_in_pool(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_on_the_command_line_does_not_reach_the_result() {
        assert_eq!(without_token("tcp://secret@h:1/run"), "tcp://***@h:1/run");
        assert_eq!(without_token("--rendezvous=tcp://secret@h:1"), "--rendezvous=tcp://***@h:1");
        assert_eq!(without_token("tcp://h:1/run"), "tcp://h:1/run");
        assert_eq!(without_token("a@b"), "a@b");
    }
}
