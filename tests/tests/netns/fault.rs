//! What is done to a run.

use std::time::Duration;

use kvwire_tests::Side;
use rustix::process::Signal;

use crate::scene::{LEASE, Scene};

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Kill(Side),
    Stop(Side),
    KillEngine(Side),
    StopEngine(Side),
    Terminate(Side),
    Interrupt(Side),
    CableCut,
    LossFrom(Side),
    EtcdKilled,
    EtcdStopped,
    EtcdEmptied,
}

impl Fault {
    /// For the page.
    pub fn name(self) -> String {
        match self {
            Self::Kill(side) => format!("SIGKILL of the {}", side.name()),
            Self::Stop(side) => format!("SIGSTOP of the {}", side.name()),
            Self::KillEngine(side) => format!("SIGKILL of the {}'s engine", side.name()),
            Self::StopEngine(side) => format!("SIGSTOP of the {}'s engine", side.name()),
            Self::Terminate(side) => format!("SIGTERM to the {}", side.name()),
            Self::Interrupt(side) => format!("Ctrl-C at the {}", side.name()),
            Self::CableCut => "link down".to_owned(),
            Self::LossFrom(side) => format!("everything that the {} sends is lost", side.name()),
            Self::EtcdKilled => "etcd killed".to_owned(),
            Self::EtcdStopped => "etcd silent for longer than the lease time".to_owned(),
            Self::EtcdEmptied => "etcd restarted empty, after longer than the lease time".to_owned(),
        }
    }

    /// Does it.
    pub fn strike(self, scene: &mut Scene) {
        let mut supervisor = |side: Side, signal| {
            let live = scene.live(side);
            live.signal(live.pid(), signal);
        };
        match self {
            Self::Kill(side) => supervisor(side, Signal::KILL),
            Self::Stop(side) => supervisor(side, Signal::STOP),
            Self::Terminate(side) => supervisor(side, Signal::TERM),
            Self::Interrupt(side) => supervisor(side, Signal::INT),
            Self::KillEngine(side) => engine(scene, side, Signal::KILL),
            Self::StopEngine(side) => engine(scene, side, Signal::STOP),
            Self::CableCut => scene.hosts.cut(),
            Self::LossFrom(side) => scene.hosts.lose_from(side),
            Self::EtcdKilled => scene.etcd.as_mut().expect("etcd runs").kill(),
            Self::EtcdStopped => scene.etcd.as_ref().expect("etcd runs").signal(Signal::STOP),
            Self::EtcdEmptied => scene.etcd.as_mut().expect("etcd runs").kill(),
        }
    }
}

fn engine(scene: &mut Scene, side: Side, signal: Signal) {
    let live = scene.live(side);
    let pid = live.engine(side.name());
    live.signal(pid, signal);
}

/// The longest that a side may go on: the lease time and 5 s; and what a busy machine may add.
pub const DEADLINE: Duration = Duration::from_secs(LEASE.as_secs() + 5);
