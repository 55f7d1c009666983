//! The table of faults: what is done, when, and how both sides are to end. `docs/faults.md` is made of it.

use std::time::Duration;

use kvwire_tests::Side;
use rustix::process::Signal;

use crate::scene::{LEASE, Meet, Phase, Scene};

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Kill(Side),
    Stop(Side),
    KillEngine(Side),
    StopEngine(Side),
    Terminate(Side),
    Interrupt(Side),
    LinkDown,
    LossFrom(Side),
    EtcdKilled,
    EtcdSilent,
}

/// How a side is to end.
#[derive(Debug, Clone)]
pub(crate) struct Ends {
    /// Exit code; 137 for a process that was killed.
    pub(crate) code: i32,
    /// What the first line prints after the verdict. `…` stands for any text, `{run}` and `{engine}` for the phase.
    pub(crate) says: String,
}

/// One line of the table.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) fault: Fault,
    pub(crate) meet: Meet,
    pub(crate) phases: &'static [Phase],
    /// The side that is there in [`Phase::Join`].
    pub(crate) first: Side,
    pub(crate) target: Option<Ends>,
    pub(crate) initiator: Option<Ends>,
}

/// The longest that a side may go on after the fault, as the page states it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(LEASE.as_secs() + 5);

const RUNNING: &[Phase] = &[Phase::Registration, Phase::WarmUp, Phase::TimedLoop, Phase::Verification];
/// Where the rendezvous is kept makes no difference to the engines: one phase shows it.
const TIMED: &[Phase] = &[Phase::TimedLoop];
const JOIN: &[Phase] = &[Phase::Join];

fn ends(says: impl Into<String>) -> Option<Ends> {
    Some(Ends { code: 3, says: says.into() })
}

const KILLED: Option<Ends> = Some(Ends { code: 128 + 9, says: String::new() });

fn lost(side: Side) -> Option<Ends> {
    ends(format!("lost {} on … (process …)…({{run}})", side.name()))
}

/// Every row.
pub(crate) fn table() -> Vec<Row> {
    let mut rows = Vec::new();
    for (meet, phases) in [(Meet::Tcp, RUNNING), (Meet::Etcd, TIMED)] {
        for side in [Side::Target, Side::Initiator] {
            let mut row = |fault, of_side: Option<Ends>, of_other: Option<Ends>| {
                let (target, initiator) =
                    if side == Side::Target { (of_side, of_other) } else { (of_other, of_side) };
                rows.push(Row { fault, meet, phases, first: Side::Target, target, initiator });
            };
            let name = side.name();
            row(Fault::Kill(side), KILLED, lost(side));
            // Whoever comes back too late learns that the run went on without it.
            row(Fault::Stop(side), ends("…"), lost(side));
            let killed = || ends(format!("{name} engine, {{engine}}: killed by SIGKILL (signal 9)"));
            row(Fault::KillEngine(side), killed(), killed());
            let stopped = || {
                ends(format!(
                    "{name} engine, {{engine}}: somebody stopped the process (SIGSTOP or a debugger)"
                ))
            };
            row(Fault::StopEngine(side), stopped(), stopped());
            let interrupted = |by: &str| ends(format!("the {name} was interrupted by {by} ({{run}})"));
            row(Fault::Terminate(side), interrupted("SIGTERM"), interrupted("SIGTERM"));
            row(Fault::Interrupt(side), interrupted("SIGINT (Ctrl-C)"), interrupted("SIGINT (Ctrl-C)"));
        }
    }
    for fault in [Fault::LinkDown, Fault::LossFrom(Side::Target), Fault::LossFrom(Side::Initiator)] {
        rows.push(Row {
            fault,
            meet: Meet::Tcp,
            phases: RUNNING,
            first: Side::Target,
            target: lost(Side::Initiator),
            initiator: lost(Side::Target),
        });
    }
    for fault in [Fault::EtcdKilled, Fault::EtcdSilent] {
        let gone = || ends("control plane lost: …({run})");
        let row = Row {
            fault,
            meet: Meet::Etcd,
            phases: RUNNING,
            first: Side::Target,
            target: gone(),
            initiator: gone(),
        };
        rows.push(row);
    }
    rows.extend(joining());
    rows
}

/// Faults while one side waits for the other.
fn joining() -> Vec<Row> {
    let mut rows = Vec::new();
    for (meet, first) in
        [(Meet::Tcp, Side::Target), (Meet::Tcp, Side::Initiator), (Meet::Etcd, Side::Initiator)]
    {
        let mut row = |fault, of_first: Option<Ends>| {
            let (target, initiator) = if first == Side::Target { (of_first, None) } else { (None, of_first) };
            rows.push(Row { fault, meet, phases: JOIN, first, target, initiator });
        };
        let interrupted = |by: &str| ends(format!("the {} was interrupted by {by} (join)", first.name()));
        row(Fault::Terminate(first), interrupted("SIGTERM"));
        row(Fault::Interrupt(first), interrupted("SIGINT (Ctrl-C)"));
        row(Fault::Kill(first), KILLED);
        if meet == Meet::Etcd {
            row(Fault::EtcdKilled, ends("control plane lost: …"));
            row(Fault::EtcdSilent, ends("control plane lost: …"));
        }
    }
    rows
}

impl Row {
    pub(crate) fn of(&self, side: Side) -> Option<&Ends> {
        match side {
            Side::Target => self.target.as_ref(),
            Side::Initiator => self.initiator.as_ref(),
        }
    }
}

impl Fault {
    /// For the page.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Kill(side) => format!("SIGKILL of the {}", side.name()),
            Self::Stop(side) => {
                format!("SIGSTOP of the {}, continued after the other side's end", side.name())
            }
            Self::KillEngine(side) => format!("SIGKILL of the {}'s engine", side.name()),
            Self::StopEngine(side) => format!("SIGSTOP of the {}'s engine", side.name()),
            Self::Terminate(side) => format!("SIGTERM to the {}", side.name()),
            Self::Interrupt(side) => format!("Ctrl-C at the {}", side.name()),
            Self::LinkDown => "link down".to_owned(),
            Self::LossFrom(side) => format!("everything that the {} sends is lost", side.name()),
            Self::EtcdKilled => "etcd killed".to_owned(),
            Self::EtcdSilent => "etcd silent for longer than the lease time".to_owned(),
        }
    }

    /// Does it.
    pub(crate) fn strike(self, scene: &mut Scene) {
        match self {
            Self::Kill(side) => supervisor(scene, side, Signal::KILL),
            Self::Stop(side) => supervisor(scene, side, Signal::STOP),
            Self::Terminate(side) => supervisor(scene, side, Signal::TERM),
            Self::Interrupt(side) => supervisor(scene, side, Signal::INT),
            Self::KillEngine(side) => engine(scene, side, Signal::KILL),
            Self::StopEngine(side) => engine(scene, side, Signal::STOP),
            Self::LinkDown => scene.hosts.cut(),
            Self::LossFrom(side) => scene.hosts.lose_from(side),
            Self::EtcdKilled => scene.etcd.as_mut().expect("etcd runs").kill(),
            Self::EtcdSilent => scene.etcd.as_ref().expect("etcd runs").signal(Signal::STOP),
        }
    }
}

fn supervisor(scene: &mut Scene, side: Side, signal: Signal) {
    let live = scene.live(side);
    live.signal(live.pid(), signal);
}

fn engine(scene: &mut Scene, side: Side, signal: Signal) {
    let live = scene.live(side);
    let pid = live.engine(side.name());
    live.signal(pid, signal);
}

impl Ends {
    /// What is to be printed in this phase.
    pub(crate) fn pattern(&self, phase: Phase) -> String {
        self.says.replace("{run}", &phase.of_run()).replace("{engine}", phase.of_engine())
    }
}

/// Whether `text` begins with `pattern`, in which `…` stands for any text.
pub(crate) fn begins_with(text: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    true
}
