//! The table of faults: what is done, when, and how both sides are to end. `docs/faults.md` is made of it.

use std::time::Duration;

use kvwire_tests::Side;

use crate::fault::{Fault, Outage, Words};
use crate::scene::{LEASE, LONG_LEASE, Meet, PHASES, Phase};

/// How a side is to end.
#[derive(Debug, Clone)]
pub(crate) enum Ends {
    /// With exit code 3 and this in its first line. `…` stands for any text, `{run}` and `{engine}` for the phase.
    Says(String),
    /// With exit code 3 and one of the two: what it learns first decides.
    Either(String, String),
    /// It was killed.
    Killed,
    /// It is not there.
    Absent,
}

/// What comes of a fault.
#[derive(Debug, Clone)]
pub(crate) enum Comes {
    /// Both sides end.
    End { target: Ends, initiator: Ends },
    /// The run is not disturbed.
    Nothing,
}

/// One line of the table.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) fault: Fault,
    pub(crate) meet: Meet,
    pub(crate) phases: &'static [Phase],
    /// The side that is there in [`Phase::Join`].
    pub(crate) first: Side,
    pub(crate) comes: Comes,
}

/// The longest that a side may go on after the fault, as the page states it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(LEASE.as_secs() + 5);

const JOIN: &[Phase] = &[Phase::Join];
const HELLO: &[Phase] = &[Phase::Hello];
const RUNNING: &[Phase] = &[Phase::Registration, Phase::WarmUp, Phase::TimedLoop, Phase::Verification];
const MET: &[Phase] =
    &[Phase::Hello, Phase::Registration, Phase::WarmUp, Phase::TimedLoop, Phase::Verification];
const EACH: &[Phase] = &PHASES;
/// Where the rendezvous is kept makes no difference to the engines: one phase shows it.
const TIMED: &[Phase] = &[Phase::TimedLoop];

fn says(text: impl Into<String>) -> Ends {
    Ends::Says(text.into())
}

fn lost(side: Side) -> Ends {
    says(lost_text(side))
}

fn lost_text(side: Side) -> String {
    format!("lost {} on … (process …)…({{run}})", side.name())
}

/// Whoever comes back too late learns that the run went on without it.
fn too_late() -> Ends {
    says("…")
}

/// `of_side` is how `side` ends, `of_other` the other one.
fn end(side: Side, of_side: Ends, of_other: Ends) -> Comes {
    match side {
        Side::Target => Comes::End { target: of_side, initiator: of_other },
        Side::Initiator => Comes::End { target: of_other, initiator: of_side },
    }
}

fn both(ends: &Ends) -> Comes {
    Comes::End { target: ends.clone(), initiator: ends.clone() }
}

/// Every row.
pub(crate) fn table() -> Vec<Row> {
    let mut rows = Vec::new();
    for side in [Side::Target, Side::Initiator] {
        rows.extend(ended(Meet::Tcp, MET, RUNNING, side));
        rows.extend(ended(Meet::Etcd, TIMED, TIMED, side));
    }
    rows.extend(hello_of_the_interrupted());
    for fault in [
        Fault::LinkDown,
        Fault::LossFrom(Side::Target),
        Fault::LossFrom(Side::Initiator),
        Fault::Words(Words::Silence),
    ] {
        let comes = Comes::End { target: lost(Side::Initiator), initiator: lost(Side::Target) };
        rows.push(Row { fault, meet: Meet::Tcp, phases: MET, first: Side::Target, comes });
    }
    for words in [Words::Garbage, Words::Giant, Words::Half] {
        let fault = Fault::Words(words);
        rows.push(Row { fault, meet: Meet::Tcp, phases: MET, first: Side::Target, comes: Comes::Nothing });
    }
    for side in [Side::Target, Side::Initiator] {
        for fault in [Fault::ControlDown(side), Fault::ControlLossFrom(side)] {
            let control_plane = "control plane lost: …({run})";
            let own = match fault {
                // It still hears etcd, and so may hear that the other side, which saw its lease end, has left.
                Fault::ControlLossFrom(_) => Ends::Either(control_plane.to_owned(), lost_text(side.other())),
                _ => says(control_plane),
            };
            let comes = end(side, own, lost(side));
            rows.push(Row { fault, meet: Meet::Etcd, phases: TIMED, first: Side::Target, comes });
        }
    }
    for outage in [Outage::Killed, Outage::Silent] {
        let comes = both(&says("control plane lost: …({run})"));
        let fault = Fault::Etcd(outage);
        rows.push(Row { fault, meet: Meet::Etcd, phases: EACH, first: Side::Initiator, comes });
    }
    for outage in [Outage::WithData, Outage::Empty] {
        let fault = Fault::Etcd(outage);
        rows.push(Row { fault, meet: Meet::Etcd, phases: EACH, first: Side::Target, comes: Comes::Nothing });
    }
    rows.extend(joining());
    rows
}

/// A side, or its engine, is ended or stopped.
fn ended(
    meet: Meet,
    phases: &'static [Phase],
    with_engines: &'static [Phase],
    side: Side,
) -> impl Iterator<Item = Row> {
    let name = side.name();
    let killed = says(format!("{name} engine, {{engine}}: killed by SIGKILL (signal 9)"));
    let stopped =
        says(format!("{name} engine, {{engine}}: somebody stopped the process (SIGSTOP or a debugger)"));
    let interrupted = |by| both(&says(format!("the {name} was interrupted by {by} ({{run}})")));
    [
        (Fault::Kill(side), phases, end(side, Ends::Killed, lost(side))),
        (Fault::Stop(side), phases, end(side, too_late(), lost(side))),
        (Fault::KillEngine(side), with_engines, both(&killed)),
        (Fault::StopEngine(side), with_engines, both(&stopped)),
        (Fault::Terminate(side), with_engines, interrupted("SIGTERM")),
        (Fault::Interrupt(side), with_engines, interrupted("SIGINT (Ctrl-C)")),
    ]
    .into_iter()
    .map(move |(fault, phases, comes)| Row { fault, meet, phases, first: Side::Target, comes })
}

/// Who is interrupted while the hellos are on their way says so in a goodbye; the initiator's is held back with its
/// hello.
fn hello_of_the_interrupted() -> Vec<Row> {
    let mut rows = Vec::new();
    for (by, faults) in [
        ("SIGTERM", [Fault::Terminate(Side::Target), Fault::Terminate(Side::Initiator)]),
        ("SIGINT (Ctrl-C)", [Fault::Interrupt(Side::Target), Fault::Interrupt(Side::Initiator)]),
    ] {
        let [target, initiator] = faults;
        let of = |side: Side| says(format!("the {} was interrupted by {by} (hello)", side.name()));
        let goodbye = says(format!("target on … (process …) has left: interrupted by {by} (hello)"));
        for (fault, comes) in [
            (target, Comes::End { target: of(Side::Target), initiator: goodbye }),
            (initiator, Comes::End { target: lost(Side::Initiator), initiator: of(Side::Initiator) }),
        ] {
            rows.push(Row { fault, meet: Meet::Tcp, phases: HELLO, first: Side::Target, comes });
        }
    }
    rows
}

/// Faults while one side waits for the other.
fn joining() -> Vec<Row> {
    let mut rows = Vec::new();
    for (meet, first) in
        [(Meet::Tcp, Side::Target), (Meet::Tcp, Side::Initiator), (Meet::Etcd, Side::Initiator)]
    {
        let mut row = |fault, comes| rows.push(Row { fault, meet, phases: JOIN, first, comes });
        let interrupted = |by: &str| {
            let says = says(format!("the {} was interrupted by {by} (join)", first.name()));
            end(first, says, Ends::Absent)
        };
        row(Fault::Terminate(first), interrupted("SIGTERM"));
        row(Fault::Interrupt(first), interrupted("SIGINT (Ctrl-C)"));
        row(Fault::Kill(first), end(first, Ends::Killed, Ends::Absent));
        if meet == Meet::Etcd {
            let gone = says("control plane lost: …no longer knows this process's lease…(join)");
            row(Fault::Stop(first), end(first, gone, Ends::Absent));
        } else {
            // It waits on, and the run is made once the other side is there.
            for fault in [Fault::Stop(first), Fault::LinkDown, Fault::LossFrom(first)] {
                row(fault, Comes::Nothing);
            }
        }
    }
    rows
}

impl Row {
    /// How a side is to end in this phase; `None` where it is not there, or is not disturbed.
    pub(crate) fn of(&self, side: Side, phase: Phase) -> Option<&Ends> {
        let Comes::End { target, initiator } = &self.comes else { return None };
        let ends = if side == Side::Target { target } else { initiator };
        let absent = matches!(ends, Ends::Absent) || (phase == Phase::Join && side != self.first);
        (!absent).then_some(ends)
    }

    /// The lease time of its runs. What a run is to live through takes some of it, and a busy machine takes some more.
    pub(crate) fn lease(&self) -> Duration {
        match self.comes {
            Comes::Nothing if matches!(self.fault, Fault::Etcd(_) | Fault::Words(_)) => LONG_LEASE,
            _ => LEASE,
        }
    }
}

impl Ends {
    /// The exit code.
    pub(crate) fn code(&self) -> i32 {
        if matches!(self, Self::Killed) { 128 + 9 } else { 3 }
    }

    /// What is to be printed in this phase.
    pub(crate) fn patterns(&self, phase: Phase) -> Vec<String> {
        let texts = match self {
            Self::Says(text) => vec![text],
            Self::Either(one, other) => vec![one, other],
            Self::Killed | Self::Absent => Vec::new(),
        };
        let of_phase =
            |text: &String| text.replace("{run}", &phase.of_run()).replace("{engine}", phase.of_engine());
        texts.into_iter().map(of_phase).collect()
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
