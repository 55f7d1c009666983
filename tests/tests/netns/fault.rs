//! What goes wrong, and how it is done.

use kvwire_tests::Side;
use rustix::process::Signal;

use crate::scene::{LEASE, Phase, Scene};

/// Not a kvwire greeting.
pub(crate) const GARBAGE: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
/// A frame that claims four gigabytes.
pub(crate) const GIANT: &[u8] = &[0xff; 64];
/// The length of a frame, and too little of it.
pub(crate) const HALF: &[u8] = &[0, 0, 0, 64, b'{', b'"'];

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Kill(Side),
    Stop(Side),
    KillEngine(Side),
    StopEngine(Side),
    Terminate(Side),
    Interrupt(Side),
    /// The cable between the two hosts.
    LinkDown,
    LossFrom(Side),
    /// The cable between a side and etcd.
    ControlDown(Side),
    ControlLossFrom(Side),
    /// What the initiator's connection says to the target.
    Words(Words),
    Etcd(Outage),
}

/// What is said instead of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Words {
    Garbage,
    Giant,
    Half,
    Silence,
}

/// What becomes of etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outage {
    /// It is gone for longer than the lease time.
    Killed,
    /// It says nothing for longer than the lease time.
    Silent,
    /// It is restarted at once.
    WithData,
    /// It is restarted at once, and has forgotten everything.
    Empty,
}

impl Fault {
    /// For the page.
    pub(crate) fn name(self) -> String {
        let connection = |what: &str| format!("{what} on the initiator's connection to the rendezvous");
        match self {
            Self::Kill(side) => format!("SIGKILL of the {}", side.name()),
            Self::Stop(side) => {
                format!("SIGSTOP of the {} for longer than the lease time", side.name())
            }
            Self::KillEngine(side) => format!("SIGKILL of the {}'s engine", side.name()),
            Self::StopEngine(side) => format!("SIGSTOP of the {}'s engine", side.name()),
            Self::Terminate(side) => format!("SIGTERM to the {}", side.name()),
            Self::Interrupt(side) => format!("Ctrl-C at the {}", side.name()),
            Self::LinkDown => "link down".to_owned(),
            Self::LossFrom(side) => format!("everything that the {} sends is lost", side.name()),
            Self::ControlDown(side) => format!("link between the {} and etcd down", side.name()),
            Self::ControlLossFrom(side) => {
                format!("everything that the {} sends to etcd is lost", side.name())
            }
            Self::Words(Words::Garbage) => connection("garbage"),
            Self::Words(Words::Giant) => connection("a frame of 4 GB"),
            Self::Words(Words::Half) => connection("half a frame"),
            Self::Words(Words::Silence) => connection("silence"),
            Self::Etcd(Outage::Killed) => {
                "etcd killed, and restarted with its data after the lease time".to_owned()
            }
            Self::Etcd(Outage::Silent) => "etcd silent for longer than the lease time".to_owned(),
            Self::Etcd(Outage::WithData) => {
                "etcd killed and restarted with its data within the lease time".to_owned()
            }
            Self::Etcd(Outage::Empty) => "etcd killed and restarted empty within the lease time".to_owned(),
        }
    }

    /// Needs a relay between the initiator and the rendezvous.
    pub(crate) fn needs_relay(self) -> bool {
        matches!(self, Self::Words(_))
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
            Self::ControlDown(side) => scene.hosts.cut_control(side),
            Self::ControlLossFrom(side) => scene.hosts.lose_control_from(side),
            Self::Words(words) => {
                let relay = scene.relay.as_ref().expect("a relay");
                match words {
                    Words::Garbage => relay.say(GARBAGE),
                    Words::Giant => relay.say(GIANT),
                    Words::Half => relay.say(HALF),
                    Words::Silence => relay.mute(),
                }
            }
            Self::Etcd(outage) => strike_etcd(outage, scene),
        }
    }

    /// Ends what goes on by itself, where the run is to live through it.
    pub(crate) fn pass(self, scene: &mut Scene) {
        match self {
            Self::Stop(side) => {
                // The length of the outage, not a wait for something.
                std::thread::sleep(LEASE + LEASE / 4);
                supervisor(scene, side, Signal::CONT);
            }
            Self::LinkDown | Self::LossFrom(_) => scene.hosts.mend(),
            _ => {}
        }
    }

    /// What tells that a side has its connection to the rendezvous back.
    pub(crate) fn back_again(self, side: Side, phase: Phase) -> Option<&'static str> {
        match self {
            // What is held back with the hello is said on a new connection too.
            Self::Words(_) if side == Side::Initiator => Some("reconnected to "),
            Self::Etcd(Outage::WithData) if phase != Phase::Hello => Some("reconnected to "),
            Self::Etcd(Outage::Empty) if phase != Phase::Hello => Some("registered again at "),
            _ => None,
        }
    }

    /// Puts etcd back once both sides have ended: what they left behind there is to go.
    pub(crate) fn put_etcd_back(self, scene: &mut Scene) {
        let etcd = scene.etcd.as_mut();
        match (self, etcd) {
            (Self::Etcd(Outage::Killed), Some(etcd)) => etcd.restart(true),
            (Self::Etcd(Outage::Silent), Some(etcd)) => etcd.signal(Signal::CONT),
            _ => {}
        }
    }
}

fn strike_etcd(outage: Outage, scene: &mut Scene) {
    let etcd = scene.etcd.as_mut().expect("etcd runs");
    match outage {
        Outage::Silent => etcd.signal(Signal::STOP),
        Outage::Killed => etcd.kill(),
        Outage::WithData | Outage::Empty => {
            etcd.kill();
            if let Some(relay) = &scene.relay {
                relay.open();
            }
            etcd.restart(outage == Outage::WithData);
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
