//! An open engine: one agent, one registered pool, and the commands that use them.

use std::cell::{Cell, OnceCell};
use std::collections::BTreeMap;
use std::time::Instant;

use nixl::{Agent, AgentConfig, Registration, Remote, RemoteRegion};

use super::case::{CaseRun, Lists};
use super::desk::{Bells, Desk, mark};
use super::library::{Loaded, identity};
use super::lookout::Lookout;
use super::protocol::{Blob, Check, Command, End, EngineError, ErrorKind, Event, Opened, PeerRank, Verified};
use super::seating::Taking;
use super::timed::ns;
use crate::memory::pattern::{
    Block, CheckError, EndWords, Expected, Key, Mismatch, Region, Stamp, WORD_BYTES,
};
use crate::memory::{Pool, PoolError, Seat};
use crate::plan::{Case, Op, Part, Plan};
use crate::workload::{KvShape, Where};

/// The backend that kvwire is about.
pub(crate) const BACKEND: &str = "UCX";

/// What every command of an open engine works on.
pub(crate) struct Session<'a> {
    pub(crate) agent: &'a Agent,
    pub(crate) registration: &'a Registration<'a>,
    pub(crate) pool: &'a Pool,
    pub(crate) plan: &'a Plan,
    /// This engine's rank on its side.
    pub(crate) rank: u32,
    peers: OnceCell<Vec<Peer<'a>>>,
}

/// A rank across, once its metadata is loaded.
pub(crate) struct Peer<'a> {
    rank: u32,
    pub(crate) remote: Remote<'a>,
    pub(crate) region: RemoteRegion,
    /// Notifications sent to it since the engine was opened.
    pub(crate) notifications_sent: Cell<u64>,
}

/// How an engine is to open.
pub(crate) struct Opening {
    /// Name of its agent.
    pub(crate) name: String,
    /// Whether it progresses NIXL while it waits for commands.
    pub(crate) polls: bool,
    /// Its rank on its side.
    pub(crate) rank: u32,
    pub(crate) plan: Box<Plan>,
    pub(crate) seat: Box<Seat>,
    /// The cores that it is pinned to.
    pub(crate) cpus: Option<String>,
}

/// Opens NIXL, says so, and serves commands until the pipe ends.
///
/// # Errors
/// Nothing could be opened. Later failures are answers to the commands that met them.
pub(crate) fn serve(desk: &mut Desk, loaded: &Loaded, opening: Opening) -> Result<(), EngineError> {
    let Opening { name, polls, rank, plan, seat, cpus } = opening;
    let plan = plan.as_ref();
    let mut phases = vec![("load".to_owned(), loaded.load_ns)];
    let taking = Taking::begin(&seat, plan.pool_bytes, cpus)?;
    let agent = timed(&mut phases, "agent", || {
        Agent::new(
            &loaded.library,
            &name,
            &AgentConfig { progress_thread: false, progress_delay_us: 0, telemetry: true },
        )
        .map_err(nixl_failed)
    })?;
    require_backend(&agent)?;
    let backend = timed(&mut phases, "backend", || {
        agent.create_backend(BACKEND, &BTreeMap::new()).map_err(nixl_failed)
    })?;
    let (pool, placement) = timed(&mut phases, "allocate", || taking.finish())?;
    let registration = timed(&mut phases, "register", || {
        match &pool {
            Pool::Host(memory) => agent.register(&backend, memory),
            Pool::Gpu(pool) => agent.register(&backend, pool.memory()),
        }
        .map_err(nixl_failed)
    })?;
    let metadata = agent.local_metadata().map_err(nixl_failed)?;
    desk.answer(&Event::Opened(Box::new(Opened {
        nixl: identity(loaded),
        placement,
        region: registration.region(),
        metadata: Blob(metadata),
        phases,
    })));
    if polls {
        desk.poll();
    }
    let session = Session {
        agent: &agent,
        registration: &registration,
        pool: &pool,
        plan,
        rank,
        peers: OnceCell::new(),
    };
    session.work(desk);
    // The process leaves without destructors: what is still registered goes with it.
    Ok(())
}

/// A NIXL without the plugin is told apart from one whose plugin fails.
pub(crate) fn require_backend(agent: &Agent) -> Result<(), EngineError> {
    let plugins = agent.plugins().map_err(nixl_failed)?;
    if plugins.iter().any(|name| name == BACKEND) {
        return Ok(());
    }
    let listed = if plugins.is_empty() { "none".to_owned() } else { plugins.join(", ") };
    Err(EngineError {
        kind: ErrorKind::NixlUnusable,
        message: format!("this NIXL has no {BACKEND} backend plugin; the plugins it lists: {listed}"),
    })
}

#[expect(clippy::needless_pass_by_value, reason = "an adapter for `map_err`")]
pub(crate) fn nixl_failed(error: nixl::Error) -> EngineError {
    EngineError { kind: ErrorKind::Nixl, message: error.to_string() }
}

pub(crate) fn out_of_order(what: &str) -> EngineError {
    EngineError { kind: ErrorKind::Protocol, message: format!("{what} came out of order") }
}

fn timed<T>(
    phases: &mut Vec<(String, u64)>,
    name: &str,
    work: impl FnOnce() -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    let begin = Instant::now();
    let done = work()?;
    phases.push((name.to_owned(), ns(begin.elapsed())));
    Ok(done)
}

impl<'a> Session<'a> {
    /// The memory of a part, from where it begins.
    pub(crate) fn words(&self, part: &Part) -> Region<'a> {
        self.pool.region().after_byte(part.base)
    }

    /// The data of a part at an epoch.
    pub(crate) fn key(&self, part: &Part, epoch: u32) -> Key {
        Key::new(part.seed(self.plan.seed), epoch)
    }

    /// A rank across.
    ///
    /// # Errors
    /// It is not connected.
    pub(crate) fn peer(&self, rank: u32) -> Result<&Peer<'a>, EngineError> {
        let found = self.peers.get().and_then(|peers| peers.iter().find(|peer| peer.rank == rank));
        found.ok_or_else(|| out_of_order("a transfer before the connection"))
    }

    /// Serves commands until the pipe ends. A case holds its requests from its warm-up to the next one.
    fn work(&self, desk: &mut Desk) {
        let mut next = desk.next(self.agent);
        while let Some(command) = next {
            next = match command {
                Command::WarmUp { parts, epoch } => self.hold(&parts, epoch, desk),
                other => {
                    let event = self.simple(desk, &other).unwrap_or_else(Event::Failed);
                    desk.answer(&event);
                    desk.next(self.agent)
                }
            };
        }
    }

    /// Warms a case up and serves commands while its requests exist; gives back the one that starts the next case.
    fn hold(&self, parts: &[Part], epoch: u32, desk: &mut Desk) -> Option<Command> {
        let lists: Vec<Lists<'_>> = match parts.iter().map(|part| Lists::prepare(self, part)).collect() {
            Ok(lists) => lists,
            Err(error) => return self.refuse(error, desk),
        };
        let mut runs = Vec::new();
        let mut warm = Vec::new();
        for lists in &lists {
            match CaseRun::warm_up(self, lists, epoch) {
                Ok((run, warmed)) => {
                    runs.push(run);
                    warm.push(warmed);
                }
                Err(error) => return self.refuse(error, desk),
            }
        }
        desk.answer(&Event::Warm(warm));
        loop {
            let event = match desk.next(self.agent)? {
                command @ Command::WarmUp { .. } => return Some(command),
                Command::Measure { epoch, start_at_ns } => {
                    CaseRun::measure(&mut runs, self, epoch, start_at_ns).map(Event::Measured)
                }
                Command::MarkWrites => {
                    let marked = runs.iter_mut().map(|run| run.mark_writes(self));
                    marked.collect::<Result<_, _>>().map(Event::Marked)
                }
                other => self.simple(desk, &other),
            };
            desk.answer(&event.unwrap_or_else(Event::Failed));
        }
    }

    fn refuse(&self, error: EngineError, desk: &mut Desk) -> Option<Command> {
        desk.answer(&Event::Failed(error));
        desk.next(self.agent)
    }

    fn simple(&self, desk: &mut Desk, command: &Command) -> Result<Event, EngineError> {
        let begin = Instant::now();
        match command {
            Command::Connect { peers } => self.connect(peers)?,
            Command::Prepare { parts, epoch } => {
                parts.iter().try_for_each(|(part, end)| self.prepare(part, *epoch, *end))?;
            }
            Command::Verify { checks, epoch } => {
                let verified = checks.iter().map(|check| self.verify(check, *epoch));
                return verified.collect::<Result<_, _>>().map(Event::Verified);
            }
            Command::Listen => desk.listen(self.bells()),
            Command::LookOut { parts, epoch } => desk.look_out(Lookout::new(self, parts, *epoch)?),
            Command::Looked { expected, timeout_ms } => {
                let seen = desk.looked(self.agent, *expected, *timeout_ms).map_err(nixl_failed)?;
                let seen = seen.ok_or_else(|| out_of_order("the question for what nobody looked at"))?;
                return seen.judge(self).map(Event::Looked);
            }
            Command::Mark => mark(),
            Command::CopySpeed { bytes } => {
                let bytes_per_s = super::copy_speed::measure(self.pool, *bytes)?;
                return Ok(Event::CopySpeed { bytes_per_s });
            }
            Command::Heard { expected, timeout_ms } => {
                let notifications = desk.hear(self.agent, *expected, *timeout_ms).map_err(nixl_failed)?;
                return Ok(Event::Heard { notifications });
            }
            Command::Measure { .. } | Command::MarkWrites => {
                return Err(out_of_order("a timed loop without a warm-up"));
            }
            Command::Inspect { .. }
            | Command::LookForGpus
            | Command::TryOut { .. }
            | Command::Open { .. }
            | Command::WarmUp { .. } => {
                return Err(out_of_order("a command for a fresh engine"));
            }
        }
        Ok(Event::Done { ns: ns(begin.elapsed()) })
    }

    fn connect(&self, peers: &[PeerRank]) -> Result<(), EngineError> {
        let load = |peer: &PeerRank| {
            let remote = self.agent.load_remote(&peer.metadata.0).map_err(nixl_failed)?;
            let (rank, region) = (peer.rank, peer.region);
            Ok(Peer { rank, remote, region, notifications_sent: Cell::new(0) })
        };
        let peers = peers.iter().map(load).collect::<Result<_, EngineError>>()?;
        self.peers.set(peers).map_err(|_| out_of_order("a second connection"))
    }

    /// The words that show the ranks of the initiator how many notifications this engine has taken.
    fn bells(&self) -> Option<Bells> {
        let first = usize::try_from(self.plan.bell()? / WORD_BYTES).ok()?;
        Some(Bells { pool: self.pool.clone(), first })
    }

    /// A shape may be the peer's; one that leaves the pool is refused.
    pub(crate) fn check_shape(&self, part: &Part, shape: &KvShape) -> Result<(), EngineError> {
        let end = self.plan.bell().unwrap_or(self.plan.pool_bytes);
        if end.checked_sub(part.base).is_some_and(|left| shape.fits(left)) {
            return Ok(());
        }
        let message = format!("{} does not fit the pool of {} bytes", shape.title(), self.plan.pool_bytes);
        Err(EngineError { kind: ErrorKind::Protocol, message })
    }

    fn prepare(&self, part: &Part, epoch: u32, end: End) -> Result<(), EngineError> {
        let case = &part.case;
        let ranges: Vec<(u64, u64)> = match &case.kv {
            Some(shape) => {
                self.check_shape(part, shape)?;
                // All blocks of the pool, also those that no placement uses: what strays into the prompt is then known.
                let at = if end == End::Source { Where::Source } else { Where::Destination };
                vec![(0, shape.region_bytes(at))]
            }
            None => (0..self.plan.depth).flat_map(|slot| case.ranges(slot)).collect(),
        };
        match end {
            End::Source => self.pool.fill(part.base, &ranges, self.key(part, epoch)),
            End::Consumer => self.pool.poison(part.base, &ranges, epoch),
        }
        .map_err(pool_failed)
    }

    fn verify(&self, check: &Check, epoch: u32) -> Result<Verified, EngineError> {
        let Check { part, stamps } = check;
        if let Some(shape) = &part.case.kv {
            self.check_shape(part, shape)?;
            return super::rounds::verify(self, check, shape, epoch);
        }
        let mut bytes = 0;
        for slot in 0..self.plan.depth {
            let stamp = stamps.get(slot as usize).filter(|end| end.stamped).map(|end| end.iteration);
            match self.check_slot(part, epoch, slot, stamp)? {
                Ok(checked) => bytes += checked,
                Err(mismatch) => return Ok(Verified { bytes, mismatch: Some(mismatch) }),
            }
        }
        Ok(Verified { bytes, mismatch: None })
    }

    /// Compares the memory of one slot; the inner result is the judgement on the data.
    pub(crate) fn check_slot(
        &self,
        part: &Part,
        epoch: u32,
        slot: u32,
        stamp: Option<u32>,
    ) -> Result<Result<u64, Mismatch>, EngineError> {
        let blocks = blocks(&part.case, slot);
        let ends = EndWords::in_destination(self.words(part), &blocks).map_err(layout)?;
        let stamp = ends.zip(stamp).map(|(ends, iteration)| ends.as_stamp(iteration));
        self.check_blocks(part, &blocks, epoch, stamp)
    }

    /// Compares what `blocks` must have brought; the inner result is the judgement on the data.
    pub(crate) fn check_blocks(
        &self,
        part: &Part,
        blocks: &[Block],
        epoch: u32,
        stamp: Option<Stamp>,
    ) -> Result<Result<u64, Mismatch>, EngineError> {
        let expected = Expected { key: self.key(part, epoch), poison_salt: epoch, stamp };
        match self.pool.verify(part.base, blocks, &expected) {
            Ok(bytes) => Ok(Ok(bytes)),
            Err(CheckError::Data(mismatch)) => Ok(Err(*mismatch)),
            Err(CheckError::Layout(error)) => Err(layout(error)),
            Err(CheckError::Memory(message)) => Err(EngineError { kind: ErrorKind::Gpu, message }),
        }
    }
}

/// The descriptors of one slot as the pattern sees them: the same offsets on both sides.
pub(crate) fn blocks(case: &Case, slot: u32) -> Vec<Block> {
    case.ranges(slot).map(|(offset, bytes)| Block { source: offset, destination: offset, bytes }).collect()
}

fn pool_failed(error: PoolError) -> EngineError {
    match error {
        PoolError::Layout(error) => layout(error),
        PoolError::Gpu(message) => EngineError { kind: ErrorKind::Gpu, message },
    }
}

pub(crate) fn layout(error: crate::memory::pattern::SpanError) -> EngineError {
    EngineError { kind: ErrorKind::Protocol, message: format!("the case does not fit the pool: {error}") }
}

/// Which end of a direction's transfers the memory is, on either side.
pub(crate) fn ends(op: Op) -> (End, End) {
    match op {
        Op::Read => (End::Consumer, End::Source),
        Op::Write | Op::Both => (End::Source, End::Consumer),
    }
}
