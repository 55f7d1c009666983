//! The target: serves what the initiator's plan needs, and takes its verdict.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use checks::{Finding, NixlIdentity};
use coordinator::{Role, RunId};

use super::join::{Met, Missed};
use super::message::{Hello, Message, TargetOpened};
use super::reader::Reader;
use super::record::Record;
use super::scope::Scope;
use super::seats::{self, Chooser};
use super::stop::Stop;
use super::supervisor::{Supervisor, makes_no_sense};
use super::witness::testify;
use crate::engine::lookout::Looks;
use crate::engine::protocol::{Check, Command, End, Event, Opened, PeerRank, Verified};
use crate::engine::{Engine, Phase, ends};
use crate::memory::Seat;
use crate::plan::{Case, Part, Plan};
use crate::proof::{gpu_link, gpus_here};
use crate::report::model::{Placement, ResultFile};
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
    /// GPUs that this side's own user names.
    own_gpus: Vec<String>,
    /// Where each engine sits, once they are open.
    placements: Vec<Placement>,
    /// The initiator is on this host too.
    one_host: bool,
    terminal: Terminal,
    plan: Option<Box<Plan>>,
    reader: Reader,
    /// The ranks of this side that look at marked WRITEs, part by part.
    looking: Vec<u32>,
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
            one_host: met.own.node.same_host(&met.peer.node),
            own_gpus: Vec::new(),
            placements: Vec::new(),
            supervisor: met.supervisor,
            own: met.own,
            peer: met.peer,
            findings: met.findings,
            nixl_lib,
            environment: Environment::OfThePlan,
            terminal,
            plan: None,
            reader: Reader::new(),
            looking: Vec::new(),
            keeping,
            record: None,
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
        self.supervisor.end_engines(outcome == Outcome::Trusted).await;
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
        let scope = Scope::said("the target's view of a run that did not come to its end".to_owned());
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
        self.supervisor.end_engines(false).await;
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
                Message::Prepare { case, epoch } => {
                    self.supervisor.enter(case.to_string());
                    self.work(self.fillings(&case, epoch), Phase::Preparing).await?;
                    self.supervisor.wait_in(phase_after_filling(epoch));
                    Message::Done
                }
                Message::Listen => {
                    let listen = self.supervisor.engines.iter().map(|_| Command::Listen).collect();
                    self.work(listen, Phase::Preparing).await?;
                    Message::Done
                }
                Message::Verify { checks, epoch } => Message::Verified(self.verify(&checks, epoch).await?),
                Message::LookOut { parts, epoch } => {
                    self.look_out(&parts, epoch).await?;
                    Message::Done
                }
                Message::Looked { expected, timeout_ms } => {
                    Message::Seen(self.looked(expected, timeout_ms).await?)
                }
                Message::Heard { expected, timeout_ms } => {
                    let hear = expected.into_iter().map(|expected| Command::Heard { expected, timeout_ms });
                    let mut notifications = Vec::new();
                    for event in self.work(hear.collect(), Phase::Verification).await? {
                        match event {
                            Event::Heard { notifications: heard } => notifications.push(heard),
                            other => return Err(wrong_event(&other)),
                        }
                    }
                    Message::HeardNotifications { notifications }
                }
                Message::Count { sample } => {
                    Message::Counted(Box::new(self.reader.read(&self.supervisor, sample).await))
                }
                Message::Testify => {
                    let strict = self.plan.as_ref().is_some_and(|plan| plan.strict);
                    Message::Testimony(Box::new(
                        testify("target", strict, &self.given(), &self.placements, &mut self.supervisor)
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

    /// What each rank fills or poisons before a case. Ranks of the initiator that meet here share one memory.
    fn fillings(&self, case: &Case, epoch: u32) -> Vec<Command> {
        let parts = self.plan.as_ref().map(|plan| plan.parts(case)).unwrap_or_default();
        let of_rank = |rank: u32| {
            let mut mine: Vec<(Part, End)> = Vec::new();
            for part in parts.iter().filter(|part| part.peer == rank) {
                if !mine.iter().any(|(known, _)| known.base == part.base) {
                    mine.push((part.clone(), ends(part.case.op).1));
                }
            }
            Command::Prepare { parts: mine, epoch }
        };
        (0..).zip(&self.supervisor.engines).map(|(rank, _)| of_rank(rank)).collect()
    }

    /// Has each rank compare what arrived there. The answers come in the order of the questions.
    async fn verify(&mut self, checks: &[Check], epoch: u32) -> Result<Vec<Verified>, Stop> {
        let of_rank = |rank: u32| {
            let mine = checks.iter().filter(|check| check.part.peer == rank).cloned().collect();
            Command::Verify { checks: mine, epoch }
        };
        let commands = (0..).zip(&self.supervisor.engines).map(|(rank, _)| of_rank(rank)).collect();
        let mut found = Vec::new();
        for event in self.work(commands, Phase::Verification).await? {
            match event {
                Event::Verified(verified) => found.push(verified.into_iter()),
                other => return Err(wrong_event(&other)),
            }
        }
        let next = |check: &Check| found.get_mut(check.part.peer as usize).and_then(Iterator::next);
        let verified: Option<Vec<Verified>> = checks.iter().map(next).collect();
        verified.ok_or_else(|| makes_no_sense("a rank that this side does not have".to_owned()))
    }

    /// Has each rank look at the marked WRITEs of the parts that arrive there.
    async fn look_out(&mut self, parts: &[Part], epoch: u32) -> Result<(), Stop> {
        self.looking = parts.iter().map(|part| part.peer).collect();
        let of_rank = |rank: u32| {
            let mine = parts.iter().filter(|part| part.peer == rank).cloned().collect();
            Command::LookOut { parts: mine, epoch }
        };
        let commands = (0..).zip(&self.supervisor.engines).map(|(rank, _)| of_rank(rank)).collect();
        self.work(commands, Phase::Looking).await.map(drop)
    }

    /// What each rank saw of them, in the order of the parts.
    async fn looked(&mut self, expected: Vec<u64>, timeout_ms: u64) -> Result<Vec<Looks>, Stop> {
        let look = expected.into_iter().map(|expected| Command::Looked { expected, timeout_ms });
        let mut seen = Vec::new();
        for event in self.work(look.collect(), Phase::Looking).await? {
            match event {
                Event::Looked(looks) => seen.push(looks.into_iter()),
                other => return Err(wrong_event(&other)),
            }
        }
        let next = |rank: &u32| seen.get_mut(*rank as usize).and_then(Iterator::next);
        let looks: Option<Vec<Looks>> = self.looking.iter().map(next).collect();
        looks.ok_or_else(|| makes_no_sense("a rank that this side does not have".to_owned()))
    }

    async fn work(&mut self, commands: Vec<Command>, phase: Phase) -> Result<Vec<Event>, Stop> {
        let deadline = self.plan.as_ref().map_or(OPEN_DEADLINE, |plan| plan.memory_command());
        self.supervisor.work(&commands, phase, deadline).await
    }

    async fn open(&mut self, plan: Box<Plan>) -> Result<Message, Stop> {
        if !plan.ranks_are_sound() {
            return Err(makes_no_sense(format!("a plan of {} ranks", plan.ranks)));
        }
        self.begin_record(&plan)?;
        let environment = self.environment.with(&plan.engine_env());
        let chooser = Chooser {
            role: Role::Target,
            wish: &plan.memory,
            own_gpus: &self.own_gpus,
            environment: &environment,
            ranks: plan.ranks as usize,
            after_the_other: self.one_host,
            terminal: &self.terminal,
        };
        self.plan = Some(plan.clone());
        let seats = chooser.choose(&mut self.supervisor).await?;
        let environments: Vec<_> =
            seats.iter().map(|seat| seats::environment(seat, environment.clone())).collect();
        let engines = Engine::spawn_ranks(Role::Target, &environments, &self.terminal);
        self.supervisor.engines = engines.map_err(Stop::Engine)?;
        let commands = open_commands("target", true, self.nixl_lib.as_ref(), &plan, seats);
        let events = self.supervisor.work(&commands, Phase::Opening, OPEN_DEADLINE).await?;
        let OpenedSide { nixl, ranks, placements, phases } = opened(events)?;
        self.own.node.nixl = Some(nixl);
        self.placements.clone_from(&placements);
        self.reader.know(&placements);
        if let Some(record) = &mut self.record {
            record.target(self.own.node.clone(), placements.clone(), &phases);
        }
        let (route, node) = (self.own.route.clone(), self.own.node.clone());
        Ok(Message::Opened(Box::new(TargetOpened { route, node, placements, ranks, phases })))
    }
}

/// The opening command of each rank of a side, which has a seat each.
pub(crate) fn open_commands(
    side: &str,
    polls: bool,
    nixl_lib: Option<&String>,
    plan: &Plan,
    seats: Vec<Seat>,
) -> Vec<Command> {
    let open = |(rank, seat): (u32, Seat)| Command::Open {
        agent: format!("kvwire-{side}-{}-{rank}", std::process::id()),
        nixl_lib: nixl_lib.cloned(),
        polls,
        rank,
        plan: Box::new(plan.clone()),
        seat: Box::new(seat),
    };
    (0..).zip(seats).map(open).collect()
}

/// What a side's engines said when they were open.
pub(crate) struct OpenedSide {
    pub(crate) nixl: NixlIdentity,
    pub(crate) ranks: Vec<PeerRank>,
    /// Where each rank sits.
    pub(crate) placements: Vec<Placement>,
    /// Phases of opening by name, with the time of the slowest rank in nanoseconds.
    pub(crate) phases: Vec<(String, u64)>,
}

/// Puts together what the engines of a side said, rank by rank.
///
/// # Errors
/// One said something else.
pub(crate) fn opened(events: Vec<Event>) -> Result<OpenedSide, Stop> {
    let (mut nixl, mut ranks, mut placements) = (None, Vec::new(), Vec::new());
    let mut phases: Vec<(String, u64)> = Vec::new();
    for (rank, event) in (0..).zip(events) {
        let Event::Opened(opened) = event else { return Err(wrong_event(&event)) };
        let Opened { nixl: loaded, placement, region, metadata, phases: took } = *opened;
        nixl.get_or_insert(loaded);
        ranks.push(PeerRank { rank, metadata, region });
        placements.push(placement);
        for (name, ns) in took {
            match phases.iter_mut().find(|(known, _)| *known == name) {
                Some((_, slowest)) => *slowest = ns.max(*slowest),
                None => phases.push((name, ns)),
            }
        }
    }
    let nixl = nixl.ok_or_else(|| Stop::Confused("no engine is open".to_owned()))?;
    tell_links(&mut placements);
    Ok(OpenedSide { nixl, ranks, placements, phases })
}

/// Says what the PCIe link of each GPU carries. The engines have just copied over it, so that it is trained up.
fn tell_links(placements: &mut [Placement]) {
    let mut used = placements.iter_mut().filter_map(|placement| placement.gpu.as_mut()).peekable();
    if used.peek().is_none() {
        return;
    }
    let gpus = gpus_here();
    for gpu in used {
        if let Some(link) = gpu_link(&gpus, &gpu.gpu_uuid) {
            gpu.pcie_bytes_per_s = Some(link.bytes_per_s.round() as u64);
            gpu.pcie = Some(link.source);
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
