//! The target: serves what the initiator's plan needs, and takes its verdict.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use checks::Finding;
use coordinator::{Role, RunId};

use super::join::{Met, Missed};
use super::message::{Hello, Message, TargetOpened};
use super::record::Record;
use super::stop::Stop;
use super::supervisor::Supervisor;
use super::witness::{Reader, testify};
use crate::engine::protocol::{Command, Event};
use crate::engine::{Engine, Phase};
use crate::plan::Plan;
use crate::report::model::ResultFile;
use crate::terminal::Terminal;
use crate::verdict::Outcome;

/// Opening NIXL and registering memory, at most.
pub(crate) const OPEN_DEADLINE: Duration = Duration::from_secs(60);

/// The serving side of a run.
#[derive(Debug)]
pub(crate) struct Target {
    supervisor: Supervisor,
    own: Hello,
    peer: Hello,
    findings: Vec<Finding>,
    nixl_lib: Option<String>,
    environment: Environment,
    terminal: Terminal,
    plan: Option<Box<Plan>>,
    reader: Reader,
    keeping: Keeping,
    /// What this side knows of the run, with what the initiator has measured so far: kept here too, should it be lost.
    /// Begins with the plan.
    record: Option<Record>,
}

/// Where this side keeps the result of which run. `begin` is when this side started.
#[derive(Debug)]
pub(crate) struct Keeping {
    pub(crate) run: RunId,
    pub(crate) output: Option<PathBuf>,
    pub(crate) begin: Instant,
}

/// What the initiator does once memory is ready: the first filling of a case is for its warm-up.
fn phase_after_filling(epoch: u32) -> Phase {
    if epoch % 2 == 1 { Phase::WarmUp } else { Phase::TimedLoop }
}

/// Which environment this side's engine gets.
#[derive(Debug)]
enum Environment {
    /// What the plan says: both sides are one command of one user.
    OfThePlan,
    /// What this side's user says, and what of the plan concerns UCX alone.
    Own(BTreeMap<String, String>),
}

/// How a run ended on this side.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) outcome: Outcome,
    /// The result; `None` when this side never learned the plan.
    pub(crate) record: Option<Record>,
    /// Why it did not come to its end, and where it was.
    pub(crate) stop: Option<Missed>,
    /// The user wants no further run.
    pub(crate) interrupted: bool,
}

impl Target {
    /// The serving side of a run whose two sides have met.
    pub(crate) fn new(met: Met, nixl_lib: Option<String>, terminal: Terminal, keeping: Keeping) -> Self {
        Self {
            supervisor: met.supervisor,
            own: met.own,
            peer: met.peer,
            findings: met.findings,
            nixl_lib,
            environment: Environment::OfThePlan,
            terminal,
            plan: None,
            reader: Reader::new(),
            keeping,
            record: None,
        }
    }

    /// Takes only what concerns UCX from a plan that came over the network, and `own` on top.
    pub(crate) fn with_own_environment(mut self, own: BTreeMap<String, String>) -> Self {
        self.environment = Environment::Own(own);
        self
    }

    /// Serves one run and says how it came out.
    pub(crate) async fn run(mut self) -> Ended {
        let (outcome, result, stop) = match self.serve().await {
            // Its result says why, and holds what was measured until then.
            Ok((outcome, result)) | Err(Stop::PeerEnded { outcome, result: result @ Some(_), .. }) => {
                (outcome, result, None)
            }
            Err(stop) => {
                let (outcome, result) = self.give_up(&stop).await;
                (outcome, result, Some(Missed { stop, at: self.supervisor.phase() }))
            }
        };
        self.supervisor.end_engine(outcome == Outcome::Trusted).await;
        if let Some(Missed { stop, .. }) = &stop {
            self.findings.push(stop.finding(&self.supervisor.at()));
        }
        self.supervisor.part(None).await;
        let interrupted = stop.as_ref().is_some_and(|missed| matches!(missed.stop, Stop::Interrupted { .. }));
        let (outcome, record) = match (result, self.record) {
            (Some(result), _) => {
                let Keeping { output, begin, .. } = self.keeping;
                let mut record = Record::adopt(*result, self.findings, output, begin);
                let kept = record.keep();
                let worst = kept.map_or_else(|stop| stop.outcome().max(outcome), |()| outcome);
                (worst, Some(record))
            }
            (None, Some(mut record)) => {
                record.mark_not_run(0, "the initiator did not report it");
                record.result.findings = self.findings;
                (record.close(Some(outcome)), Some(record))
            }
            (None, None) => (outcome, None),
        };
        Ended { outcome, record, stop, interrupted }
    }

    /// Begins the result on this side, as soon as it is known what is to be measured.
    fn begin_record(&mut self, plan: &Plan) -> Result<(), Stop> {
        let Keeping { run, output, begin } = &self.keeping;
        let scope = "the target's view of a run that did not come to its end".to_owned();
        let mut record = Record::new(run.as_str(), plan.clone(), scope, output.clone(), *begin);
        record.of_target();
        record.rendezvous(&self.own.place, self.peer.route.clone(), self.own.route.clone());
        record.initiator_node(self.peer.node.clone());
        record.known_target(self.own.node.clone());
        self.findings.iter().for_each(|finding| record.finding(finding.clone()));
        self.record.insert(record).keep()
    }

    /// Tells the initiator why this side cannot go on, and waits for its verdict.
    async fn give_up(&mut self, stop: &Stop) -> (Outcome, Option<Box<ResultFile>>) {
        self.supervisor.stopping(stop);
        // A stuck engine must not hold on to the wire while the other side is told.
        self.supervisor.end_engine(false).await;
        let own = (stop.outcome(), None);
        let finding = stop.finding(&self.supervisor.at());
        let failed = Message::Failed { finding: Box::new(finding), outcome: stop.outcome() };
        match self.supervisor.last_word(&failed).await {
            Some(Message::Over { outcome, result, .. }) => (outcome, result),
            _ => own,
        }
    }

    async fn serve(&mut self) -> Result<(Outcome, Option<Box<ResultFile>>), Stop> {
        loop {
            let message = self.supervisor.next().await?;
            let answer = match message {
                Message::Over { outcome, result, .. } => return Ok((outcome, result)),
                Message::Finished { index, result } => {
                    if let Some(record) = &mut self.record {
                        record.case(index, *result)?;
                    }
                    continue;
                }
                Message::Begin { plan } => {
                    let opened = self.open(plan).await?;
                    self.supervisor.wait_in(Phase::Connecting);
                    opened
                }
                Message::Prepare { case, epoch, end } => {
                    self.supervisor.enter(case.to_string());
                    self.work(Command::Prepare { case, epoch, end }, Phase::Preparing).await?;
                    self.supervisor.wait_in(phase_after_filling(epoch));
                    Message::Done
                }
                Message::Listen => {
                    self.work(Command::Listen, Phase::Preparing).await?;
                    Message::Done
                }
                Message::Verify { case, epoch, stamps } => {
                    match self.work(Command::Verify { case, epoch, stamps }, Phase::Verification).await? {
                        Event::Verified(verified) => Message::Verified(verified),
                        other => return Err(wrong_event(&other)),
                    }
                }
                Message::Heard { expected, timeout_ms } => {
                    match self.work(Command::Heard { expected, timeout_ms }, Phase::Verification).await? {
                        Event::Heard { notifications } => Message::HeardNotifications { notifications },
                        other => return Err(wrong_event(&other)),
                    }
                }
                Message::Count => Message::Counted(Box::new(self.reader.read(&self.supervisor).await)),
                Message::Testify => {
                    let strict = self.plan.as_ref().is_some_and(|plan| plan.strict);
                    Message::Testimony(Box::new(
                        testify("target", strict, &self.given(), &mut self.supervisor).await?,
                    ))
                }
                other => return Err(super::supervisor::unexpected(Ok(other))),
            };
            self.supervisor.tell(&answer).await?;
        }
    }

    /// The environment that this side's engine got on top of its own.
    fn given(&self) -> BTreeMap<String, String> {
        self.plan.as_ref().map(|plan| self.environment.with(&plan.engine_env())).unwrap_or_default()
    }

    async fn work(&mut self, command: Command, phase: Phase) -> Result<Event, Stop> {
        let deadline = self.plan.as_ref().map_or(OPEN_DEADLINE, |plan| plan.memory_command());
        self.supervisor.work(&command, phase, deadline).await
    }

    async fn open(&mut self, plan: Box<Plan>) -> Result<Message, Stop> {
        self.begin_record(&plan)?;
        let environment = self.environment.with(&plan.engine_env());
        self.supervisor.engine =
            Some(Engine::spawn(Role::Target, &environment, &self.terminal).map_err(Stop::Engine)?);
        let agent = format!("kvwire-target-{}", std::process::id());
        let command =
            Command::Open { agent, nixl_lib: self.nixl_lib.clone(), polls: true, plan: plan.clone() };
        self.plan = Some(plan);
        match self.supervisor.work(&command, Phase::Opening, OPEN_DEADLINE).await? {
            Event::Opened(opened) => {
                self.own.node.nixl = Some(opened.nixl);
                if let Some(record) = &mut self.record {
                    record.target(self.own.node.clone(), &opened.phases);
                }
                Ok(Message::Opened(Box::new(TargetOpened {
                    route: self.own.route.clone(),
                    node: self.own.node.clone(),
                    region: opened.region,
                    metadata: opened.metadata,
                    phases: opened.phases,
                })))
            }
            other => Err(wrong_event(&other)),
        }
    }
}

impl Environment {
    /// The environment of an engine for a plan that asks for `planned`.
    fn with(&self, planned: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        match self {
            Self::OfThePlan => planned.clone(),
            Self::Own(own) => {
                let mut environment = planned.clone();
                environment.retain(|name, _| concerns_ucx_alone(name));
                environment.extend(own.clone());
                environment
            }
        }
    }
}

/// A peer may tune UCX, and nothing else: a name that makes a process load or write files is not the peer's to set.
fn concerns_ucx_alone(name: &str) -> bool {
    const REACH_FURTHER: [&str; 5] =
        ["UCX_MODULE_DIR", "UCX_MODULES", "UCX_LOG_FILE", "UCX_STATS_DEST", "UCX_PROFILE_FILE"];
    name.starts_with("UCX_") && !REACH_FURTHER.contains(&name)
}

/// An engine that answers a question nobody asked.
pub(crate) fn wrong_event(event: &Event) -> Stop {
    let text = format!("{event:?}");
    let name: String = text.chars().take_while(char::is_ascii_alphanumeric).collect();
    Stop::Confused(format!("the engine answered with {name}, which was not asked"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_may_set_what_concerns_ucx_alone_and_the_own_user_wins() {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let planned = map(&[
            ("UCX_TLS", "tcp"),
            ("LD_PRELOAD", "/x"),
            ("UCX_MODULE_DIR", "/x"),
            ("UCX_NET_DEVICES", "a"),
        ]);
        let own = Environment::Own(map(&[("UCX_NET_DEVICES", "b"), ("LD_LIBRARY_PATH", "/y")]));
        let expected = map(&[("UCX_TLS", "tcp"), ("UCX_NET_DEVICES", "b"), ("LD_LIBRARY_PATH", "/y")]);
        assert_eq!(own.with(&planned), expected);
        assert_eq!(Environment::OfThePlan.with(&planned), planned);
    }
}
