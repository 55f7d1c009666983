//! The witness of a run: reads counters around each timed loop on both sides, takes UCX's tables from the engine's
//! log, and has the class of wire judged.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use checks::{Finding, Node, Status};

use super::message::{Message, Testimony};
use super::reader::{Reader, ways_of};
use super::record::Record;
use super::stop::Stop;
use super::supervisor::Supervisor;
use crate::engine::protocol::{Command, Event};
use crate::engine::{Engine, Phase};
use crate::plan::{Op, Part, Plan};
use crate::proof::counters::{Reading, Ways};
use crate::proof::ucx::{Trouble, findings};
use crate::proof::{
    Ability, CaseFacts, Class, EngineOfSide, Expected, GpuOfSide, GpusOfSides, Meets, Setting, Transport,
    expected, explain, judge, limit, limit_of_all, meets, out_of_reach, rails, strict_doubt, too_slow,
    two_copies, unproven, unusable_ports,
};
use crate::report::model::{CaseResult, CaseStatus, Limit, MeasuredPart, Placement};

/// The longest time for which background traffic is watched before a loop.
const QUIET_MAX: Duration = Duration::from_millis(50);
/// Its share of the time of a case, where that is short.
const QUIET_SHARE: u32 = 10;
/// Reading counters or the log takes milliseconds.
const DEADLINE: Duration = Duration::from_secs(10);

/// What this side can say besides its counters: its means, and what UCX logged so far.
pub(super) async fn testify(
    side: &str,
    strict: bool,
    given: &BTreeMap<String, String>,
    placements: &[Placement],
    supervisor: &mut Supervisor,
) -> Result<Testimony, Stop> {
    settle_logs(supervisor).await?;
    let engines = supervisor.engines.iter().filter_map(Engine::pid).collect();
    let mut ability = Ability::of_this_host(engines, placements);
    ability.environment.extend(given.iter().map(|(key, value)| (key.clone(), value.clone())));
    Ok(Testimony { ability, findings: logged(side, strict, placements, supervisor, true) })
}

/// Waits until everything is read that the engines have logged.
async fn settle_logs(supervisor: &mut Supervisor) -> Result<(), Stop> {
    supervisor.work_all(&Command::Mark, Phase::Evidence, DEADLINE).await?;
    for engine in &supervisor.engines {
        engine.settle_log().await;
    }
    Ok(())
}

/// What UCX logged so far on this side, as findings. What several ranks logged is told once.
fn logged(
    side: &str,
    strict: bool,
    placements: &[Placement],
    supervisor: &Supervisor,
    run_went_on: bool,
) -> Vec<Finding> {
    let mut lines = Vec::new();
    for engine in &supervisor.engines {
        let own = engine.with_ucx_log(|log| log.trouble().to_vec());
        let new: Vec<_> = own.into_iter().filter(|line| !lines.contains(line)).collect();
        lines.extend(new);
    }
    // An older UCX reports the variable of `--strict` as unused; `strict-not-possible` says so in more words.
    let ours = |text: &str| strict && text.ends_with(": UCX_PROTO_EMULATION_ENABLE");
    // Interfaces without an address are no devices of UCX, and it was kvwire that named them.
    let added: Vec<&str> = placements.iter().flat_map(Placement::interfaces_added).collect();
    let ours = |line: &Trouble| {
        ours(&line.text)
            || line.missing_devices().is_some_and(|names| names.iter().all(|n| added.contains(n)))
    };
    let lines: Vec<_> = lines.into_iter().filter(|line| !ours(line)).collect();
    findings(side, &lines, run_went_on)
}

/// What a part transferred between two readings of the counters.
#[derive(Debug, Clone)]
pub(super) struct Moved {
    pub(super) part: Part,
    pub(super) transfers: u64,
    pub(super) bytes: u64,
}

/// The initiator's witness.
#[derive(Debug)]
pub(super) struct Witness {
    reader: Reader,
    means: Option<Means>,
    initiator: Vec<Reading>,
    target: Vec<Reading>,
    /// Speed of a copy in memory in bytes per second, rank by rank, by the bytes copied.
    copies: BTreeMap<u64, Vec<f64>>,
}

/// Both sides' means, and what follows from them.
#[derive(Debug)]
struct Means {
    initiator: Ability,
    target: Ability,
    expected: Expected,
    one_network: bool,
    /// That the initiator's engines may use.
    cores: u32,
}

impl Witness {
    pub(super) fn new() -> Self {
        Self {
            reader: Reader::new(),
            means: None,
            initiator: Vec::new(),
            target: Vec::new(),
            copies: BTreeMap::new(),
        }
    }

    /// Learns both sides' means and decides what is expected. Both engines are open.
    pub(super) async fn open(
        &mut self,
        supervisor: &mut Supervisor,
        plan: &Plan,
        record: &mut Record,
    ) -> Result<(), Stop> {
        let placements = record.result.placement.initiator.clone().unwrap_or_default();
        self.reader.know(&placements);
        let mut ours = testify("initiator", plan.strict, &plan.engine_env(), &placements, supervisor).await?;
        let theirs = ask(supervisor, &Message::Testify).await?;
        let Message::Testimony(mut theirs) = theirs else { return Err(out_of_order()) };
        let nodes = &record.result.nodes;
        let (Some(initiator), Some(target)) = (nodes.initiator.clone(), nodes.target.clone()) else {
            return Err(out_of_order());
        };
        for (node, ability) in [(&initiator, &mut ours.ability), (&target, &mut theirs.ability)] {
            ability.ucx_version = node.nixl.as_ref().and_then(|nixl| nixl.ucx_version.clone());
        }
        let (here, there) = ((&initiator, &ours.ability), (&target, &theirs.ability));
        let pairs = plan.pairs();
        let expected = expected(plan.expect, here, there, &pairs);
        let mut found = unusable_ports(&expected, &ours.ability, &theirs.ability);
        found.extend(out_of_reach(here, there, &pairs));
        for (side, ability) in [("initiator", &ours.ability), ("target", &theirs.ability)] {
            let version = ability.ucx_version.as_deref();
            found.extend(plan.strict.then(|| strict_doubt(side, version)).flatten());
            found.extend(two_copies(side, &ability.ucx_copies));
        }
        found.into_iter().for_each(|finding| record.finding(finding));
        record.result.expectation = Some(expected.clone());
        self.means = Some(Means {
            one_network: one_network(&initiator, &target),
            cores: initiator.cpus_usable,
            initiator: ours.ability,
            target: theirs.ability,
            expected,
        });
        Ok(())
    }

    /// Watches what moves while nothing is asked for, and reads just before the timed loop of a case in that direction.
    pub(super) async fn before(
        &mut self,
        supervisor: &mut Supervisor,
        plan: &Plan,
        op: Op,
    ) -> Result<(), Stop> {
        let [ours, theirs] = ways_of(op).map(Some);
        self.initiator.clear();
        self.target.clear();
        // The peer is asked outside of this side's windows: its answers are no background, and no payload.
        self.ask_target(supervisor, theirs).await?;
        self.initiator.push(self.reader.read(supervisor, ours).await);
        tokio::time::sleep(QUIET_MAX.min(plan.case_time() / QUIET_SHARE)).await;
        self.initiator.push(self.reader.read(supervisor, None).await);
        self.ask_target(supervisor, theirs).await?;
        // One reading of the target ends its quiet window and begins its loop.
        self.target.extend(self.target.last().cloned());
        self.initiator.push(self.reader.read(supervisor, ours).await);
        Ok(())
    }

    /// Reads just after the timed loop.
    pub(super) async fn after(&mut self, supervisor: &mut Supervisor) -> Result<(), Stop> {
        self.initiator.push(self.reader.read(supervisor, None).await);
        self.ask_target(supervisor, None).await?;
        settle_logs(supervisor).await
    }

    async fn ask_target(&mut self, supervisor: &mut Supervisor, sample: Option<Ways>) -> Result<(), Stop> {
        match ask(supervisor, &Message::Count { sample }).await? {
            Message::Counted(reading) => {
                self.target.push(*reading);
                Ok(())
            }
            _ => Err(out_of_order()),
        }
    }

    /// Judges a part of a case and notes what follows from it. `moved` is what all parts moved between the readings: the
    /// counters are those of the host. `name` is what findings call it.
    ///
    /// # Errors
    /// The engines could not say how fast memory copies.
    pub(super) async fn judge(
        &mut self,
        supervisor: &mut Supervisor,
        (name, part): (&str, &Part),
        moved: &[Moved],
        result: &mut CaseResult,
        record: &mut Record,
    ) -> Result<(), Stop> {
        let engine = supervisor.engines.get(part.rank as usize);
        let (Some(means), Some(engine)) = (&self.means, engine) else { return Ok(()) };
        let plan = &record.result.plan;
        let placements = record.result.placement.initiator.as_deref().unwrap_or_default();
        let logged = logged("initiator", plan.strict, placements, supervisor, true);
        let case = &part.case;
        let same: Vec<&Moved> = moved.iter().filter(|moved| moved.part.case.op == case.op).collect();
        let payload_bytes = same.iter().map(|moved| moved.bytes).sum();
        let (initiator, target) = (&means.initiator.of_rank(part.rank), &means.target.of_rank(part.peer));
        let (transport, row) = engine.with_ucx_log(|log| {
            let table = log.table(case.op.ucx_name());
            let operation_bytes = match result.descriptors.posted {
                Some(posted) if posted > 0 => case.transfer_bytes(0) / posted,
                _ => case.block_bytes,
            };
            let facts = CaseFacts {
                op: case.op,
                operation_bytes,
                payload_bytes,
                transfers: same.iter().map(|moved| moved.transfers).sum(),
                depth: result.depth.saturating_mul(plan.ranks),
                table,
                endpoint: log.endpoint(),
                initiator: self.initiator.as_slice().try_into().ok(),
                target: self.target.as_slice().try_into().ok(),
                one_network: means.one_network,
                gpus: means.gpus(part, &same, payload_bytes),
                engines: engines(part, &same, payload_bytes),
            };
            (judge(&facts), table.and_then(|table| table.row(operation_bytes)).cloned())
        });
        let gpu = initiator.gpu(part.rank);
        let setting = Setting { initiator, target, given: &plan.ucx_env, logged: &logged, op: case.op, gpu };
        let expected = means.expected.of(part.pair());
        let verdict = meets(&transport, &expected);
        let found = match verdict {
            Meets::Below => Some(explain(name, &expected, &transport, &setting)),
            Meets::Unknown => Some(unproven(name, &transport, &setting)),
            Meets::Yes | Meets::Anything => doubtful(name, &transport),
        };
        let found: Vec<Finding> =
            found.into_iter().chain(rails(name, &transport, row.as_ref(), &setting)).collect();
        if result.status == CaseStatus::Pass {
            found.into_iter().for_each(|finding| record.finding_of_case(finding));
        }
        if result.status == CaseStatus::Pass {
            let copied = self.copied(supervisor, part, &transport).await?;
            let sides = self.means.as_ref().map(|means| (&means.initiator, &means.target));
            result.limit = sides.and_then(|sides| limit(&transport, part, sides, copied));
        }
        result.transport = Some(Transport { meets_expectation: verdict.stated(), ..transport });
        Ok(())
    }

    /// What all parts of a case can reach together.
    pub(super) fn limit_of_all(&self, parts: &[MeasuredPart]) -> Option<Limit> {
        let means = self.means.as_ref()?;
        let parts: Vec<(&Part, &CaseResult)> = parts.iter().map(|m| (&m.part, &m.result)).collect();
        limit_of_all(&parts, (&means.initiator, &means.target), means.cores)
    }

    /// How fast memory copies what one transfer moves, where that is what bounds a part. Each size is measured once, by all
    /// ranks at once: they also share their memory when they transfer.
    async fn copied(
        &mut self,
        supervisor: &mut Supervisor,
        part: &Part,
        transport: &Transport,
    ) -> Result<Option<f64>, Stop> {
        if transport.class != Class::Shm {
            return Ok(None);
        }
        let bytes = part.case.transfer_bytes(0);
        let copies = match self.copies.entry(bytes) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let command = Command::CopySpeed { bytes };
                let events = supervisor.work_all(&command, Phase::Evidence, DEADLINE).await?;
                let speeds = events.into_iter().map(|event| match event {
                    Event::CopySpeed { bytes_per_s } => Ok(bytes_per_s),
                    other => Err(super::target::wrong_event(&other)),
                });
                unknown.insert(speeds.collect::<Result<_, _>>()?)
            }
        };
        Ok(copies.get(part.rank as usize).copied())
    }

    /// Notes what UCX logged on this side; on the other one too while it can be asked.
    pub(super) async fn close(&self, supervisor: &mut Supervisor, record: &mut Record) -> Result<(), Stop> {
        let (strict, wanted) = (record.result.plan.strict, record.result.plan.min_efficiency_percent);
        let mut found = too_slow(&record.result.cases, wanted);
        let placements = record.result.placement.initiator.as_deref().unwrap_or_default();
        found.extend(testify("initiator", strict, &BTreeMap::new(), placements, supervisor).await?.findings);
        if let Message::Testimony(theirs) = ask(supervisor, &Message::Testify).await? {
            found.extend(theirs.findings);
        }
        found.into_iter().for_each(|finding| record.finding(finding));
        Ok(())
    }

    /// Notes what UCX logged on this side before the run failed.
    pub(super) fn note_failure(&self, supervisor: &Supervisor, record: &mut Record) {
        let strict = record.result.plan.strict;
        let placements = record.result.placement.initiator.clone().unwrap_or_default();
        logged("initiator", strict, &placements, supervisor, false)
            .into_iter()
            .for_each(|finding| record.finding(finding));
    }
}

/// A class that is known, with evidence that is not all of one mind.
fn doubtful(case: &str, transport: &Transport) -> Option<Finding> {
    let doubt = transport.doubt.as_ref().filter(|_| transport.class != Class::Unknown)?;
    let finding = Finding::new(
        "transport-evidence",
        Status::Warn,
        format!("{} carried the bytes, with a doubt: {doubt}", transport.class),
    );
    Some(finding.evidence([format!("case {case}")]).next_step(
        "measure longer or with larger blocks, on a host without other traffic, and without UCX_PROTO_INFO of your own",
    ))
}

impl Means {
    /// The GPUs of a part, and which share of the payload of all parts in its direction, `moved`, each of them moves.
    fn gpus(&self, part: &Part, moved: &[&Moved], payload_bytes: u64) -> GpusOfSides {
        let on = |side: &Ability, uuid: &str, of: fn(&Part) -> u32| GpuOfSide {
            uuid: uuid.to_owned(),
            share: share(moved, |part| uuid_of(side, of(part)) == Some(uuid), payload_bytes),
        };
        let others = |side: &Ability, rank: u32, of: fn(&Part) -> u32| {
            let own = uuid_of(side, rank);
            let all: BTreeSet<&str> =
                moved.iter().filter_map(|moved| uuid_of(side, of(&moved.part))).collect();
            all.into_iter().filter(|uuid| Some(*uuid) != own).map(|uuid| on(side, uuid, of)).collect()
        };
        let ours: fn(&Part) -> u32 = |part| part.rank;
        let theirs: fn(&Part) -> u32 = |part| part.peer;
        let Self { initiator, target, .. } = self;
        GpusOfSides {
            initiator: uuid_of(initiator, part.rank).map(|uuid| on(initiator, uuid, ours)),
            target: uuid_of(target, part.peer).map(|uuid| on(target, uuid, theirs)),
            others: [others(initiator, part.rank, ours), others(target, part.peer, theirs)],
        }
    }
}

/// The engines of a part, and which share of the payload of all parts in its direction each of them moves.
fn engines(part: &Part, moved: &[&Moved], payload_bytes: u64) -> [EngineOfSide; 2] {
    let own = |rank, of: fn(&Part) -> u32| EngineOfSide {
        rank,
        share: share(moved, |other| of(other) == rank, payload_bytes),
    };
    [own(part.rank, |part| part.rank), own(part.peer, |part| part.peer)]
}

/// The whole GPU of a rank, as `GPU-…`.
fn uuid_of(side: &Ability, rank: u32) -> Option<&str> {
    side.gpu(rank).map(|gpu| gpu.gpu_uuid.as_str())
}

/// The share of a payload that some of its parts moved.
fn share(moved: &[&Moved], some: impl Fn(&Part) -> bool, payload_bytes: u64) -> f64 {
    let bytes: u64 = moved.iter().filter(|moved| some(&moved.part)).map(|moved| moved.bytes).sum();
    bytes as f64 / payload_bytes.max(1) as f64
}

fn one_network(a: &Node, b: &Node) -> bool {
    a.same_host(b) && a.namespaces.net.is_some() && a.namespaces.net == b.namespaces.net
}

async fn ask(supervisor: &mut Supervisor, message: &Message) -> Result<Message, Stop> {
    supervisor.ask(message, Phase::Evidence, DEADLINE).await
}

fn out_of_order() -> Stop {
    Stop::Confused("the target answered something that was not asked".to_owned())
}
