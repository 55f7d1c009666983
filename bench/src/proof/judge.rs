//! The judgement: from evidence to a class. A pure function; `docs/proof.md` states its rules.

mod sampled;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::class::Class;
use super::counters::{Counter, Kind, Reading, SocketBytes, Unit, owner};
use super::ucx::{Row, Table};
use crate::measure::units::ByteSize;
use crate::plan::Op;
use sampled::{Estimate, Pcie, receives};

/// A wire carried the bytes when it accounts for at least this part of the payload.
const CARRIED: f64 = 0.5;
/// A wire did not carry the bytes when it accounts for at most this part.
const IDLE: f64 = 0.1;
/// A device below this part of the payload is not listed.
const LISTED: f64 = 0.02;
/// IP and TCP headers, in bytes: with one transfer at a time each needs a packet of its own.
const HEADERS: u64 = 40;
/// Traffic that a run makes by itself between two readings: heartbeats of the rendezvous and of UCX, in bytes.
const OWN_TALK: f64 = 8192.0;
/// The interface of connections within a host.
const LOOPBACK: &str = "lo";
/// Background of more than this part of the payload hides what a counter says.
const LOUD: f64 = 0.25;

/// Which wire carried a case, and why kvwire says so.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Transport {
    /// The class of wire.
    pub(crate) class: Class,
    /// For `emulated`: the wire below; null otherwise, and where it is not known.
    pub(crate) over: Option<Class>,
    /// The devices that carried bytes, as the initiator saw them, and the target's where it has others.
    pub(crate) devices: Vec<DeviceShare>,
    /// Everything that the class rests on.
    pub(crate) evidence: Vec<Evidence>,
    /// What is missing or does not fit together; null when all evidence agrees.
    pub(crate) doubt: Option<String>,
    /// Whether the class is at least what was expected; null when nothing was expected or the class is not known.
    pub(crate) meets_expectation: Option<bool>,
}

impl Transport {
    /// From the worst to the best: what is below the expectation, then what is not known, then by class.
    pub(crate) fn standing(&self) -> (u8, u8) {
        let met = match (self.meets_expectation, self.class) {
            (Some(false), _) => 0,
            (_, Class::Unknown) => 1,
            _ => 2,
        };
        (met, self.class.rank())
    }
}

/// One device's part of the payload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DeviceShare {
    /// `initiator` or `target`.
    pub(crate) side: String,
    /// As UCX names it, for example `mlx5_0:1`; `memory` for shared memory.
    pub(crate) device: String,
    /// UCX's name of the transport; null where only a counter knows the device.
    pub(crate) transport: Option<String>,
    /// Bytes counted in the direction of the payload, background taken off; null where nothing counts them.
    pub(crate) bytes: Option<u64>,
    /// Part of the payload in percent, at most 100 over all devices of a side; null where nothing counts it. An estimate
    /// where `bytes` is null: the rates of the link were sampled.
    pub(crate) share_percent: Option<f64>,
}

/// One piece of evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Evidence {
    /// Where it comes from.
    pub(crate) source: Source,
    /// `initiator` or `target`.
    pub(crate) side: String,
    /// What was read, as it was read where that is short.
    pub(crate) text: String,
}

/// Where evidence comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Source {
    /// The row of UCX's protocol table for this operation and size.
    UcxProtocolTable,
    /// UCX's line about the endpoint. It lists what could be used and proves nothing.
    UcxEndpoint,
    /// The kernel's count of the engine's own TCP connections.
    TcpConnections,
    /// Counters of a device.
    DeviceCounters,
    /// Rates of a link that nothing counts, sampled while the loop ran.
    SampledRates,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UcxProtocolTable => "UCX protocol table",
            Self::UcxEndpoint => "UCX endpoint line",
            Self::TcpConnections => "TCP connections",
            Self::DeviceCounters => "counters",
            Self::SampledRates => "sampled rates",
        })
    }
}

/// What is known about one case.
#[derive(Debug)]
pub(crate) struct CaseFacts<'a> {
    pub(crate) op: Op,
    /// Bytes of one operation as UCX sees it.
    pub(crate) operation_bytes: u64,
    /// Bytes of payload between the last two readings, and in how many transfers.
    pub(crate) payload_bytes: u64,
    pub(crate) transfers: u64,
    /// Transfers in flight at once.
    pub(crate) depth: u32,
    /// The initiator's table for the operation, and its endpoint line.
    pub(crate) table: Option<&'a Table>,
    pub(crate) endpoint: Option<&'a str>,
    /// Readings at both ends of the quiet window and at both ends of the loop.
    pub(crate) initiator: Option<&'a [Reading; 4]>,
    pub(crate) target: Option<&'a [Reading; 4]>,
    /// Both sides read the same counters: one host, one network namespace.
    pub(crate) one_network: bool,
    /// The GPUs that the payload lies on.
    pub(crate) gpus: GpusOfSides,
    /// The engines of the initiator's and of the target's rank.
    pub(crate) engines: [EngineOfSide; 2],
}

/// The engine of a rank that is judged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EngineOfSide {
    pub(crate) rank: u32,
    /// The share of the payload between the readings that is this engine's own.
    pub(crate) share: f64,
}

/// The GPU of each side; `None` for host memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct GpusOfSides {
    pub(crate) initiator: Option<GpuOfSide>,
    pub(crate) target: Option<GpuOfSide>,
    /// Those of the initiator's and of the target's other ranks, each once.
    pub(crate) others: [Vec<GpuOfSide>; 2],
}

/// A GPU that payload lies on.
#[derive(Debug, Clone)]
pub(crate) struct GpuOfSide {
    /// `GPU-…`.
    pub(crate) uuid: String,
    /// The share of the payload between the readings that lies on it: other ranks have theirs.
    pub(crate) share: f64,
}

impl GpusOfSides {
    /// Both sides' payload lies on one GPU: neither NVLink nor PCIe is in between.
    fn is_one(&self) -> bool {
        let uuid = |gpu: &Option<GpuOfSide>| gpu.as_ref().map(|gpu| gpu.uuid.clone());
        self.initiator.is_some() && uuid(&self.initiator) == uuid(&self.target)
    }
}

/// Bytes, packets and background of one device in the direction of the payload.
struct Flow<'a> {
    counter: &'a Counter,
    /// Part of the payload that it accounts for; may be above 1.
    part: f64,
    bytes: f64,
    background: f64,
}

/// Each wire by the counters of both sides.
struct Wires {
    rdma: Told,
    tcp: Told,
    nvlink: Told,
    pcie: Pcie,
}

/// What the counters of one side say.
struct Seen<'a> {
    side: &'static str,
    rdma: Vec<Flow<'a>>,
    net: Vec<Flow<'a>>,
    /// Part of the payload on each, without what the links of other ranks' GPUs account for.
    rdma_part: Option<f64>,
    net_part: Option<f64>,
    nvlink: Vec<Flow<'a>>,
    pcie: Vec<Flow<'a>>,
    /// The same link by its rates, where nothing counts it.
    sampled: Option<Estimate>,
    /// Bytes of the payload that are its engine's own.
    own_bytes: u64,
    /// Part of them in the engine's TCP connections.
    connections: Option<f64>,
    /// The same of connections within the host, and their bytes.
    local: Option<(f64, u64)>,
    /// The run's own talk is as loud as this little payload.
    small: bool,
    /// Background on the network is too loud for it.
    loud: bool,
}

/// One wire, by the counters of one or both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Carried,
    Idle,
    /// Something in between, or too little payload.
    Unclear,
    /// Nothing counts it.
    Silent,
}

/// Says which wire carried a case.
pub(crate) fn judge(facts: &CaseFacts<'_>) -> Transport {
    let sides: Vec<Seen<'_>> = [("initiator", facts.initiator), ("target", facts.target)]
        .into_iter()
        .filter_map(|(side, readings)| Some(seen(side, facts, readings?)))
        .collect();
    let row = facts.table.and_then(|table| table.row(facts.operation_bytes));
    let mut evidence = Vec::new();
    evidence.extend(table_evidence(facts, row));
    evidence.extend(facts.endpoint.map(|line| Evidence {
        source: Source::UcxEndpoint,
        side: "initiator".to_owned(),
        text: line.to_owned(),
    }));
    for side in &sides {
        evidence.extend(counter_evidence(side, facts));
    }
    let hidden = |side: &Seen<'_>| side.small || side.loud;
    let rdma = told(&sides, |side| side.rdma_part, hidden);
    // What is loud on the network does not cross the links of a GPU.
    let nvlink = told(&sides, |side| wire_part(&side.nvlink), |side| side.small);
    let by_rate = |side: &Seen<'_>| side.sampled.as_ref().and_then(Estimate::part);
    let crowded = |side: &Seen<'_>| side.sampled.as_ref().is_some_and(Estimate::is_crowded);
    let pcie = told(
        &sides,
        |side| wire_part(&side.pcie).or_else(|| by_rate(side)),
        |side| side.small || crowded(side),
    );
    let pcie = Pcie::new(pcie, sides.iter().filter_map(|side| side.sampled.as_ref()));
    let connections = |side: &Seen<'_>| side.connections.or(side.net_part);
    // Connections are the engine's own, and so exact.
    let tcp = told(&sides, connections, |side| side.connections.is_none() && hidden(side));
    let said = row.map(|row| says(row, facts.gpus.is_one()));
    let (class, over, doubt) = decide(said, facts.table.is_some(), &Wires { rdma, tcp, nvlink, pcie });
    let wire = over.unwrap_or(class);
    Transport {
        class,
        over,
        devices: devices(wire, row, &sides, facts.one_network),
        evidence,
        doubt,
        meets_expectation: None,
    }
}

/// Counters beat the log; where they are silent the log stands for what needs no counter; the rest is unknown.
fn decide(said: Option<Said>, has_table: bool, wires: &Wires) -> (Class, Option<Class>, Option<String>) {
    let carried: Vec<Class> =
        [(wires.rdma, Class::Rdma), (wires.tcp, Class::Tcp), (wires.nvlink, Class::Nvlink)]
            .into_iter()
            .filter(|(told, _)| *told == Told::Carried)
            .map(|(_, class)| class)
            .collect();
    let doubt = |text: String| Some(text);
    match (said, carried.as_slice()) {
        (_, [first, second, ..]) => {
            let text = format!("counters of {first} and of {second} both account for the payload");
            (Class::Unknown, None, doubt(text))
        }
        (Some(said), [wire]) if said.wire == Some(*wire) || (*wire == Class::Nvlink && said.is_gpu()) => {
            if said.emulated {
                (Class::Emulated, Some(*wire), None)
            } else {
                (*wire, None, None)
            }
        }
        (Some(said), [wire]) => {
            let text = format!("UCX's table says {said}, and the counters say {wire}: counters count");
            let emulated = said.emulated.then_some(*wire);
            (if said.emulated { Class::Emulated } else { *wire }, emulated, doubt(text))
        }
        (None, [Class::Tcp]) => {
            let text = "UCX's table for this operation is missing: software emulation is not excluded";
            (Class::Tcp, None, doubt(text.to_owned()))
        }
        (None, [wire]) => {
            let text = format!(
                "the counters say {wire}, and UCX's table for this operation is missing: software emulation is not excluded"
            );
            (Class::Unknown, None, doubt(text))
        }
        (None, []) => {
            let text = if has_table {
                "UCX's table has no row for this size"
            } else {
                "UCX's table for this operation is missing, and no counter accounts for the payload"
            };
            (Class::Unknown, None, doubt(text.to_owned()))
        }
        (Some(said), []) => without_counters(&said, wires),
    }
}

/// The table says something, and no counter accounts for the payload.
fn without_counters(said: &Said, wires: &Wires) -> (Class, Option<Class>, Option<String>) {
    let Wires { rdma, tcp, nvlink, pcie } = wires;
    let unknown = |text: String| (Class::Unknown, None, Some(text));
    let told = match said.wire {
        Some(Class::Shm) => {
            // Memory leaves no counter: what proves it is that nothing else moved.
            let doubt = (*tcp == Told::Unclear || *rdma == Told::Unclear)
                .then(|| "counters cannot tell: there is other traffic, or too little payload".to_owned());
            let class = if said.emulated { Class::Emulated } else { Class::Shm };
            return (class, said.emulated.then_some(Class::Shm), doubt);
        }
        Some(Class::Tcp) => *tcp,
        Some(Class::Rdma) => *rdma,
        // RDMA from a GPU crosses its PCIe link as well: that counter says nothing for other lanes.
        Some(Class::PcieP2p) if pcie.carried(*nvlink) && !said.emulated => {
            return (Class::PcieP2p, None, None);
        }
        Some(Class::PcieP2p) if !said.emulated => {
            return unknown(format!("UCX's table says {said}, and {}", pcie.lacks()));
        }
        _ => {
            return unknown(format!("UCX's table says {said}, and nothing counts what it carries"));
        }
    };
    match (told, said.wire) {
        (Told::Idle, _) => unknown(format!("UCX's table says {said}, and its counters did not move")),
        (Told::Silent, _) => unknown(format!("UCX's table says {said}, and no counter of it can be read")),
        (_, Some(Class::Tcp)) => {
            let class = if said.emulated { Class::Emulated } else { Class::Tcp };
            let doubt = "counters cannot tell: there is other traffic, or too little payload".to_owned();
            (class, said.emulated.then_some(Class::Tcp), Some(doubt))
        }
        _ => unknown(format!(
            "UCX's table says {said}, and its counters account for only a part, or cannot tell"
        )),
    }
}

/// What a row of the table says.
struct Said {
    wire: Option<Class>,
    emulated: bool,
    lanes: String,
}

impl Said {
    /// NVLink and PCIe have the same lanes.
    fn is_gpu(&self) -> bool {
        self.wire == Some(Class::PcieP2p)
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lanes)
    }
}

fn says(row: &Row, one_gpu: bool) -> Said {
    // Lanes of different kinds: the weakest one bounds the whole.
    let class = |name: &str| match Class::of_transport(name)? {
        // Two processes share the memory of one GPU: nothing that a counter sees lies in between.
        Class::PcieP2p if one_gpu => Some(Class::Shm),
        class => Some(class),
    };
    let classes = row.lanes.iter().map(|lane| class(&lane.transport));
    let wire =
        classes.collect::<Option<Vec<Class>>>().and_then(|all| all.into_iter().min_by_key(|c| c.rank()));
    let lanes: Vec<String> = row.lanes.iter().map(|l| format!("{}/{}", l.transport, l.device)).collect();
    Said { wire, emulated: row.is_emulated(), lanes: lanes.join(", ") }
}

fn told<'a>(
    sides: &[Seen<'a>],
    part: impl Fn(&Seen<'a>) -> Option<f64>,
    hidden: impl Fn(&Seen<'a>) -> bool,
) -> Told {
    let each: Vec<Told> = sides
        .iter()
        .filter_map(|side| {
            let part = part(side)?;
            Some(match part {
                _ if hidden(side) => Told::Unclear,
                p if p >= CARRIED => Told::Carried,
                p if p <= IDLE => Told::Idle,
                _ => Told::Unclear,
            })
        })
        .collect();
    let clear: Vec<Told> = each.iter().copied().filter(|told| *told != Told::Unclear).collect();
    match (each.as_slice(), clear.as_slice()) {
        ([], _) => Told::Silent,
        (_, [one, rest @ ..]) if rest.iter().all(|other| other == one) => *one,
        _ => Told::Unclear,
    }
}

fn wire_part(flows: &[Flow<'_>]) -> Option<f64> {
    (!flows.is_empty()).then(|| flows.iter().map(|flow| flow.part).sum())
}

fn seen<'a>(side: &'static str, facts: &CaseFacts<'_>, readings: &'a [Reading; 4]) -> Seen<'a> {
    let receives = receives(facts.op, side);
    let expected = expected_bytes(facts);
    let (gpu, number) =
        if side == "initiator" { (&facts.gpus.initiator, 0) } else { (&facts.gpus.target, 1) };
    // Other GPUs have links too: what they carry is not this payload, and host memory has none.
    let is_ours = |counter: &Counter| match counter.kind {
        Kind::Nvlink | Kind::Pcie => gpu.as_ref().is_some_and(|gpu| gpu.uuid == owner(counter)),
        Kind::Rdma | Kind::Net => true,
    };
    let of_kind = |kind: Kind| -> Vec<Flow<'a>> {
        let counters = readings[3].counters.iter().filter(|c| c.kind == kind && !c.stacked && is_ours(c));
        let share = match kind {
            Kind::Nvlink | Kind::Pcie => gpu.as_ref().map_or(1.0, |gpu| gpu.share),
            Kind::Rdma | Kind::Net => 1.0,
        };
        let flows = counters.filter_map(|counter| flow(counter, readings, receives, facts));
        flows.map(|flow| Flow { part: flow.part / share.max(f64::MIN_POSITIVE), ..flow }).collect()
    };
    let (rdma, pcie) = (of_kind(Kind::Rdma), of_kind(Kind::Pcie));
    let sampled = gpu.as_ref().filter(|_| pcie.is_empty());
    let sampled = sampled.and_then(|gpu| Estimate::of(gpu, readings, receives, facts));
    let below: Vec<&str> =
        rdma.iter().filter(|f| f.part > IDLE).filter_map(|f| f.counter.interface.as_deref()).collect();
    let mut net = of_kind(Kind::Net);
    net.retain(|flow| !below.contains(&flow.counter.device.as_str()));
    let background: f64 = net.iter().map(|flow| flow.background).sum();
    let EngineOfSide { rank, share } = facts.engines[number];
    let told_apart = readings[2..].iter().all(|reading| reading.engines.len() > rank as usize);
    let own_bytes = facts.payload_bytes as f64 * if told_apart { share } else { 1.0 };
    let sockets = |reading: &Reading| reading.sockets_of(rank);
    let sockets = sockets(&readings[2]).zip(sockets(&readings[3])).filter(|_| own_bytes > 0.0);
    let part = |bytes: u64| bytes as f64 / own_bytes;
    let moved = |of: fn(&SocketBytes) -> [u64; 2]| {
        let (before, after) = sockets.map(|(before, after)| (of(&before), of(&after)))?;
        Some(after[usize::from(receives)].saturating_sub(before[usize::from(receives)]))
    };
    let connections = moved(|s| [s.sent, s.received]).map(part);
    let local = moved(|s| [s.local_sent, s.local_received]).map(|bytes| (part(bytes), bytes));
    let nvlink = of_kind(Kind::Nvlink);
    let of_links = |other: &GpuOfSide| {
        let links = readings[3].counters.iter().filter(|c| c.kind == Kind::Nvlink && owner(c) == other.uuid);
        let part: f64 = links.filter_map(|link| flow(link, readings, receives, facts)).map(|f| f.part).sum();
        part.min(other.share)
    };
    let on_links: f64 = facts.gpus.others[number].iter().map(of_links).sum();
    let own_share = gpu.as_ref().filter(|_| wire_part(&nvlink) >= Some(CARRIED)).map(|gpu| gpu.share);
    let shared = |flows: &[Flow<'_>]| Some(of_shared(wire_part(flows)?, own_share, on_links));
    Seen {
        side,
        rdma_part: shared(&rdma),
        net_part: shared(&net),
        own_bytes: own_bytes.round() as u64,
        rdma,
        net,
        nvlink,
        pcie,
        sampled,
        connections,
        local,
        small: expected < OWN_TALK,
        loud: background > expected * LOUD,
    }
}

/// A part of the payload of all ranks that devices carried which they share, as one of what this rank may have moved there.
/// `on_links` is what the links of other ranks' GPUs account for. `own_share` is this rank's share, where its own GPU's
/// links account for it: then what is left to the others is taken off.
fn of_shared(part: f64, own_share: Option<f64>, on_links: f64) -> f64 {
    let rest = 1.0 - on_links;
    match own_share {
        Some(own) => (part - (rest - own).max(0.0)).max(0.0),
        None if rest > IDLE => part / rest,
        None => part,
    }
}

/// What a network would count at least.
fn expected_bytes(facts: &CaseFacts<'_>) -> f64 {
    let packets = facts.transfers / u64::from(facts.depth.max(1));
    facts.payload_bytes.saturating_add(packets.saturating_mul(HEADERS)) as f64
}

/// `None` when the device was not there all the time, or its counter went back.
fn flow<'a>(
    counter: &'a Counter,
    readings: &[Reading; 4],
    receives: bool,
    facts: &CaseFacts<'_>,
) -> Option<Flow<'a>> {
    let value = |c: &Counter| if receives { c.received } else { c.sent };
    let at = |reading: &Reading| {
        let same = |c: &&Counter| c.kind == counter.kind && c.device == counter.device;
        reading.counters.iter().find(same).map(value)
    };
    let values = (at(&readings[0])?, at(&readings[1])?, at(&readings[2])?);
    let counted = value(counter).checked_sub(values.2)? as f64;
    let took_ns = |from: usize, to: usize| readings[to].at_ns.saturating_sub(readings[from].at_ns) as f64;
    let (quiet_ns, loop_ns) = (took_ns(0, 1), took_ns(2, 3));
    let rate = if quiet_ns > 0.0 { values.1.checked_sub(values.0)? as f64 / quiet_ns } else { 0.0 };
    let background = (rate * loop_ns).min(counted);
    let net = counted - background;
    let (part, unit) = match counter.unit {
        Unit::Bytes => (net / (facts.payload_bytes.max(1)) as f64, 1.0),
        Unit::Packets { payload_max } => {
            let each = facts.payload_bytes / facts.transfers.max(1);
            let needed = facts.transfers.saturating_mul(each.div_ceil(payload_max.max(1)).max(1));
            let payload = facts.payload_bytes as f64 / needed.max(1) as f64;
            (net / needed.max(1) as f64, payload)
        }
    };
    Some(Flow { counter, part, bytes: net * unit, background: background * unit })
}

fn devices(wire: Class, row: Option<&Row>, sides: &[Seen<'_>], one_network: bool) -> Vec<DeviceShare> {
    let mut devices = Vec::new();
    for side in sides {
        let flows = match wire {
            Class::Nvlink => {
                devices.extend(of_gpu(side, &side.nvlink, row));
                continue;
            }
            Class::PcieP2p => {
                let by_rate = side.sampled.as_ref().and_then(|estimate| estimate.device(side.side, row));
                devices.extend(of_gpu(side, &side.pcie, row).or(by_rate));
                continue;
            }
            Class::Rdma => &side.rdma,
            Class::Tcp => &side.net,
            _ => continue,
        };
        if one_network && side.side == "target" {
            continue;
        }
        // Connections within the host are exact; other traffic of `lo` is not in them.
        let local = side.local.filter(|(part, _)| wire == Class::Tcp && *part >= LISTED);
        let elsewhere = side.connections.zip(side.local).map(|(all, (part, _))| all - part);
        let told = |flow: &&Flow<'_>| {
            let exact = wire == Class::Tcp && side.local.is_some();
            let here = !exact || (flow.counter.device != LOOPBACK && elsewhere.is_some_and(|p| p >= LISTED));
            flow.part >= LISTED && here
        };
        let carried: Vec<&Flow<'_>> = flows.iter().filter(told).collect();
        let all = carried.iter().map(|flow| flow.part).sum::<f64>() + local.map_or(0.0, |(part, _)| part);
        devices.extend(local.map(|(part, bytes)| DeviceShare {
            side: side.side.to_owned(),
            device: LOOPBACK.to_owned(),
            transport: transport_of(row, wire, LOOPBACK),
            bytes: Some(bytes),
            share_percent: Some((part / all.max(1.0) * 1000.0).round() / 10.0),
        }));
        devices.extend(carried.into_iter().map(|flow| DeviceShare {
            side: side.side.to_owned(),
            device: flow.counter.device.clone(),
            transport: transport_of(row, wire, &flow.counter.device),
            bytes: Some(flow.bytes.round() as u64),
            share_percent: Some((flow.part / all.max(1.0) * 1000.0).round() / 10.0),
        }));
    }
    if devices.is_empty() && wire != Class::Unknown {
        let lanes = row.map(|row| row.lanes.as_slice()).unwrap_or_default();
        devices.extend(lanes.iter().map(|lane| DeviceShare {
            side: "initiator".to_owned(),
            device: lane.device.clone(),
            transport: Some(lane.transport.clone()),
            bytes: None,
            share_percent: None,
        }));
        devices.dedup();
    }
    devices
}

/// The links of a side's GPU as one device. Each link stands in the evidence.
fn of_gpu(side: &Seen<'_>, flows: &[Flow<'_>], row: Option<&Row>) -> Option<DeviceShare> {
    let part: f64 = flows.iter().map(|flow| flow.part).sum();
    let first = flows.first().filter(|_| part >= LISTED)?;
    Some(DeviceShare {
        side: side.side.to_owned(),
        device: owner(first.counter).to_owned(),
        transport: transport_of(row, Class::PcieP2p, owner(first.counter)),
        bytes: Some(flows.iter().map(|flow| flow.bytes).sum::<f64>().round() as u64),
        share_percent: Some((part.min(1.0) * 1000.0).round() / 10.0),
    })
}

/// The transport of the lane on this device, else of the first lane of this class: UCX names the interface that owns
/// an address, and the kernel may send over another one.
fn transport_of(row: Option<&Row>, wire: Class, device: &str) -> Option<String> {
    let lanes = &row?.lanes;
    let same = lanes.iter().find(|lane| lane.device == device);
    let kin = || lanes.iter().find(|lane| Class::of_transport(&lane.transport) == Some(wire));
    same.or_else(kin).map(|lane| lane.transport.clone())
}

fn table_evidence(facts: &CaseFacts<'_>, row: Option<&Row>) -> Option<Evidence> {
    let table = facts.table?;
    let text = match row {
        Some(row) => {
            let lane = |lane: &super::ucx::Lane| match lane.percent {
                Some(percent) => format!("{percent} % on {}/{}", lane.transport, lane.device),
                None => format!("{}/{}", lane.transport, lane.device),
            };
            let lanes: Vec<String> = row.lanes.iter().map(lane).collect();
            format!("{} over {}, for {} ({})", row.how, lanes.join(", "), table.selection, table.endpoint)
        }
        None => format!("no protocol for {} bytes of {}", facts.operation_bytes, table.selection),
    };
    Some(Evidence { source: Source::UcxProtocolTable, side: "initiator".to_owned(), text })
}

fn counter_evidence(seen: &Seen<'_>, facts: &CaseFacts<'_>) -> Vec<Evidence> {
    let payload = ByteSize(facts.payload_bytes);
    let percent = |part: f64| format!("{:.1} % of the payload ({payload})", part * 100.0);
    let mut evidence = Vec::new();
    evidence.extend(seen.connections.map(|part| Evidence {
        source: Source::TcpConnections,
        side: seen.side.to_owned(),
        text: format!(
            "the engine's TCP connections moved {:.1} % of its payload ({})",
            part * 100.0,
            ByteSize(seen.own_bytes)
        ),
    }));
    let flows = || seen.rdma.iter().chain(&seen.nvlink).chain(&seen.pcie).chain(&seen.net);
    let still =
        |flow: &&Flow<'_>| flow.part < LISTED && flow.background < LISTED * facts.payload_bytes as f64;
    let idle: Vec<&str> = flows().filter(still).map(|flow| flow.counter.device.as_str()).collect();
    if !idle.is_empty() {
        evidence.push(Evidence {
            source: Source::DeviceCounters,
            side: seen.side.to_owned(),
            text: format!("none of the payload ({payload}) on {}", idle.join(", ")),
        });
    }
    evidence.extend(flows().filter(|flow| !still(flow)).map(|flow| Evidence {
        source: Source::DeviceCounters,
        side: seen.side.to_owned(),
        text: format!(
            "{}: {:.0} bytes in the direction of the payload, {}; {:.0} bytes of background taken off ({})",
            flow.counter.device,
            flow.bytes,
            percent(flow.part),
            flow.background,
            flow.counter.source
        ),
    }));
    evidence.extend(seen.sampled.as_ref().map(|estimate| estimate.evidence(seen.side, facts)));
    evidence
}

#[cfg(test)]
mod tests;
