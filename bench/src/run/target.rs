//! The target: serves what the initiator's plan needs, and takes its verdict.

use std::time::Duration;

use checks::Node;
use coordinator::Role;

use super::message::{Message, TargetOpened};
use super::stop::Stop;
use super::supervisor::Supervisor;
use crate::engine::protocol::{Command, Event};
use crate::engine::{Engine, Phase};
use crate::plan::Plan;
use crate::terminal::Terminal;
use crate::verdict::Outcome;

/// Opening NIXL and registering memory, at most.
pub(crate) const OPEN_DEADLINE: Duration = Duration::from_secs(60);
/// Time the initiator has to end the run after this side has failed.
const LAST_WORD: Duration = Duration::from_secs(5);

/// What a target needs to know before its initiator tells it the plan.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) supervisor: Supervisor,
    pub(crate) node: Node,
    pub(crate) nixl_lib: Option<String>,
    pub(crate) terminal: Terminal,
    plan: Option<Box<Plan>>,
}

impl Target {
    pub(crate) fn new(
        supervisor: Supervisor,
        node: Node,
        nixl_lib: Option<String>,
        terminal: Terminal,
    ) -> Self {
        Self { supervisor, node, nixl_lib, terminal, plan: None }
    }

    /// Serves one run and says how it came out.
    pub(crate) async fn run(mut self) -> Outcome {
        let outcome = match self.serve().await {
            Ok(outcome) => outcome,
            Err(stop) => self.give_up(&stop).await,
        };
        self.supervisor.end_engine(outcome == Outcome::Trusted).await;
        // Ignored: the run is over, and a rendezvous that is gone needs no goodbye.
        let _ = self.supervisor.session.leave("the run is over").await;
        outcome
    }

    /// Tells the initiator why this side cannot go on, and waits for its verdict.
    async fn give_up(&mut self, stop: &Stop) -> Outcome {
        if let Stop::PeerEnded { outcome, .. } = stop {
            return *outcome;
        }
        // A stuck engine must not hold on to the wire while the other side is told.
        self.supervisor.end_engine(false).await;
        let failed = Message::Failed { finding: Box::new(stop.finding()), outcome: stop.outcome() };
        if self.supervisor.tell(&failed).await.is_err() {
            return stop.outcome();
        }
        loop {
            match tokio::time::timeout(LAST_WORD, self.supervisor.next()).await {
                Ok(Ok(Message::Over { outcome, .. })) => return outcome,
                // What was asked before the failure was known is not answered any more.
                Ok(Ok(_)) => {}
                Ok(Err(_)) | Err(_) => return stop.outcome(),
            }
        }
    }

    async fn serve(&mut self) -> Result<Outcome, Stop> {
        loop {
            let message = self.supervisor.next().await?;
            let answer = match message {
                Message::Over { outcome, .. } => return Ok(outcome),
                Message::Begin { plan } => self.open(plan).await?,
                Message::Prepare { case, epoch, end } => {
                    self.work(Command::Prepare { case, epoch, end }, Phase::Preparing).await?;
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
                other => return Err(super::supervisor::unexpected(Ok(other))),
            };
            self.supervisor.tell(&answer).await?;
        }
    }

    async fn work(&mut self, command: Command, phase: Phase) -> Result<Event, Stop> {
        let deadline = self.plan.as_ref().map_or(OPEN_DEADLINE, |plan| plan.longest_command());
        self.supervisor.work(&command, phase, deadline).await
    }

    async fn open(&mut self, plan: Box<Plan>) -> Result<Message, Stop> {
        self.supervisor.engine =
            Some(Engine::spawn(Role::Target, &plan.ucx_env, &self.terminal).map_err(Stop::Engine)?);
        let agent = format!("kvwire-target-{}", std::process::id());
        let command = Command::Open { agent, nixl_lib: self.nixl_lib.clone(), plan: plan.clone() };
        self.plan = Some(plan);
        match self.supervisor.work(&command, Phase::Opening, OPEN_DEADLINE).await? {
            Event::Opened(opened) => {
                self.node.nixl = Some(opened.nixl);
                Ok(Message::Opened(Box::new(TargetOpened {
                    node: self.node.clone(),
                    region: opened.region,
                    metadata: opened.metadata,
                    phases: opened.phases,
                })))
            }
            other => Err(wrong_event(&other)),
        }
    }
}

/// An engine that answers a question nobody asked.
pub(crate) fn wrong_event(event: &Event) -> Stop {
    let text = format!("{event:?}");
    let name: String = text.chars().take_while(char::is_ascii_alphanumeric).collect();
    Stop::Confused(format!("the engine answered with {name}, which was not asked"))
}
