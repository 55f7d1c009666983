//! The target: serves what the initiator's plan needs, and takes its verdict.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use checks::{Finding, Node};
use coordinator::Role;

use super::join::Met;
use super::message::{Message, TargetOpened};
use super::record::Record;
use super::scope::Scope;
use super::seats::{self, Chooser};
use super::stop::Stop;
use super::supervisor::Supervisor;
use super::witness::{Reader, testify};
use crate::engine::protocol::{Command, Event};
use crate::engine::{Engine, Phase};
use crate::plan::Plan;
use crate::report::model::{CaseResult, Placement, ResultFile};
use crate::terminal::Terminal;
use crate::verdict::Outcome;

/// Opening NIXL and registering memory, at most.
pub(crate) const OPEN_DEADLINE: Duration = Duration::from_secs(60);
/// Time the initiator has to end the run after this side has failed.
const LAST_WORD: Duration = Duration::from_secs(5);

/// The serving side of a run.
#[derive(Debug)]
pub(crate) struct Target {
    supervisor: Supervisor,
    node: Node,
    findings: Vec<Finding>,
    nixl_lib: Option<String>,
    environment: Environment,
    /// GPUs that this side's own user names.
    own_gpus: Vec<String>,
    /// Where the engine sits, once it is open.
    placement: Option<Placement>,
    /// The initiator is on this host too.
    one_host: bool,
    terminal: Terminal,
    plan: Option<Box<Plan>>,
    reader: Reader,
    /// What the initiator has measured so far: kept here too, should it be lost.
    finished: BTreeMap<usize, CaseResult>,
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
    /// Why it did not come to its end.
    pub(crate) stop: Option<Stop>,
    /// The user wants no further run.
    pub(crate) interrupted: bool,
}

impl Target {
    /// The serving side of a run whose two sides have met.
    pub(crate) fn new(met: Met, nixl_lib: Option<String>, terminal: Terminal) -> Self {
        Self {
            one_host: met.own.node.same_host(&met.peer.node),
            own_gpus: Vec::new(),
            placement: None,
            supervisor: met.supervisor,
            node: met.own.node,
            findings: met.findings,
            nixl_lib,
            environment: Environment::OfThePlan,
            terminal,
            plan: None,
            reader: Reader::new(),
            finished: BTreeMap::new(),
        }
    }

    /// Takes only what concerns UCX from a plan that came over the network, and `own` on top.
    pub(crate) fn with_own_environment(mut self, own: BTreeMap<String, String>) -> Self {
        self.environment = Environment::Own(own);
        self
    }

    /// Takes these GPUs, in turn, instead of those that the plan names.
    pub(crate) fn with_own_gpus(mut self, gpus: Vec<String>) -> Self {
        self.own_gpus = gpus;
        self
    }

    /// Serves one run and says how it came out. `begin` is when this side started.
    pub(crate) async fn run(mut self, run_id: &str, output: Option<PathBuf>, begin: Instant) -> Ended {
        let (outcome, result, stop) = match self.serve().await {
            // Its result says why, and holds what was measured until then.
            Ok((outcome, result)) | Err(Stop::PeerEnded { outcome, result: result @ Some(_), .. }) => {
                (outcome, result, None)
            }
            Err(stop) => {
                let (outcome, result) = self.give_up(&stop).await;
                (outcome, result, Some(stop))
            }
        };
        self.supervisor.end_engine(outcome == Outcome::Trusted).await;
        let at = self.supervisor.at();
        self.supervisor.part(None).await;
        if let Some(stop) = &stop {
            self.findings.push(stop.finding(&at));
        }
        let interrupted = matches!(stop, Some(Stop::Interrupted { .. }));
        let (outcome, record) = match (result, self.plan) {
            (Some(result), _) => {
                let mut record = Record::adopt(*result, self.findings, output, begin);
                let kept = record.keep();
                let worst = kept.map_or_else(|stop| stop.outcome().max(outcome), |()| outcome);
                (worst, Some(record))
            }
            (None, Some(plan)) => {
                let scope = Scope::said("the target's view of a run that did not come to its end".to_owned());
                let mut record = Record::new(run_id, *plan, scope, output, begin);
                record.known_target(self.node);
                record.of_target();
                for (index, case) in self.finished {
                    // Ignored: the result is written again, and a failure reported, when it is closed.
                    let _ = record.case(index, case);
                }
                record.mark_not_run(0, "the initiator did not report it");
                self.findings.into_iter().for_each(|finding| record.finding(finding));
                (record.close(Some(outcome)), Some(record))
            }
            (None, None) => (outcome, None),
        };
        Ended { outcome, record, stop, interrupted }
    }

    /// Tells the initiator why this side cannot go on, and waits for its verdict.
    async fn give_up(&mut self, stop: &Stop) -> (Outcome, Option<Box<ResultFile>>) {
        // A stuck engine must not hold on to the wire while the other side is told.
        self.supervisor.end_engine(false).await;
        let own = (stop.outcome(), None);
        let finding = stop.finding(&self.supervisor.at());
        let failed = Message::Failed { finding: Box::new(finding), outcome: stop.outcome() };
        match tokio::time::timeout(LAST_WORD, self.supervisor.last_word(&failed)).await {
            Ok(Ok(Message::Over { outcome, result, .. })) => (outcome, result),
            _ => own,
        }
    }

    async fn serve(&mut self) -> Result<(Outcome, Option<Box<ResultFile>>), Stop> {
        loop {
            let message = self.supervisor.next().await?;
            let answer = match message {
                Message::Over { outcome, result, .. } => return Ok((outcome, result)),
                Message::Finished { index, result } => {
                    self.finished.insert(index, *result);
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
                        testify(
                            "target",
                            strict,
                            &self.given(),
                            self.placement.as_ref(),
                            &mut self.supervisor,
                        )
                        .await?,
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
        let environment = self.environment.with(&plan.engine_env());
        self.plan = Some(plan.clone());
        let chooser = Chooser {
            role: Role::Target,
            wish: &plan.memory,
            own_gpus: &self.own_gpus,
            environment: &environment,
            // On one host the initiator's engine has the first GPU.
            number: usize::from(self.one_host),
            terminal: &self.terminal,
        };
        let seat = chooser.choose(&mut self.supervisor).await?;
        let environment = seats::environment(&seat, environment);
        self.supervisor.engine =
            Some(Engine::spawn(Role::Target, &environment, &self.terminal).map_err(Stop::Engine)?);
        let agent = format!("kvwire-target-{}", std::process::id());
        let command =
            Command::Open { agent, nixl_lib: self.nixl_lib.clone(), polls: true, plan, seat: Box::new(seat) };
        match self.supervisor.work(&command, Phase::Opening, OPEN_DEADLINE).await? {
            Event::Opened(opened) => {
                self.node.nixl = Some(opened.nixl);
                self.placement = Some(opened.placement.clone());
                Ok(Message::Opened(Box::new(TargetOpened {
                    node: self.node.clone(),
                    placement: opened.placement,
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
