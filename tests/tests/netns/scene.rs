//! Brings a run between two hosts into a phase and holds it there, so that a fault hits what it is meant to hit.

use std::time::Duration;

use kvwire_tests::{Etcd, Hosts, Kvwire, Live, Side, TARGET_ADDRESS, with_result};

/// Lease time of these runs.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// Where the two sides meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meet {
    /// At the target, over the cable between the two hosts.
    Tcp,
    /// At etcd on a third host, over other cables.
    Etcd,
}

/// What the run is doing when it is hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The first side waits for the other, which has not been started.
    Join,
    /// Both engines open NIXL and register memory.
    Registration,
    /// First transfers of the second case.
    WarmUp,
    /// Timed loop of the second case.
    TimedLoop,
    /// Verification of the second case.
    Verification,
}

impl Phase {
    /// For the page.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Join => "join",
            Self::Registration => "registration",
            Self::WarmUp => "warm-up",
            Self::TimedLoop => "timed loop",
            Self::Verification => "verification",
        }
    }

    /// What kvwire calls it when it names an engine's phase.
    pub(crate) fn of_engine(self) -> &'static str {
        if self == Self::Registration { "opening NIXL and registering memory" } else { self.name() }
    }

    /// What kvwire calls it when it names a side's phase.
    pub(crate) fn of_run(self) -> String {
        match self {
            Self::Join | Self::Registration => self.of_engine().to_owned(),
            _ => format!("{} of WRITE 8 KiB x1", self.name()),
        }
    }

    /// Cases that are finished by then.
    pub(crate) fn finished_cases(self) -> usize {
        match self {
            Self::Join | Self::Registration => 0,
            Self::WarmUp | Self::TimedLoop | Self::Verification => 1,
        }
    }

    /// What makes the library stay in this phase. A case posts 95 transfers: one cold, ten to warm up, twenty
    /// timed, 64 beside NIXL's own clock; with notifications, two thousand more.
    fn held_by(self) -> &'static str {
        match self {
            Self::Join => "",
            Self::Registration => "hang=create_backend",
            Self::WarmUp => "stall@after=98",
            Self::TimedLoop => "stall@after=108",
            // The target waits two seconds for the second case's notifications.
            Self::Verification => "mute@after=2100",
        }
    }
}

/// Two hosts with what runs on them.
#[derive(Debug)]
pub(crate) struct Scene {
    // In the order in which they are to be taken down.
    pub(crate) target: Option<Live>,
    pub(crate) initiator: Option<Live>,
    pub(crate) etcd: Option<Etcd>,
    pub(crate) hosts: Hosts,
    pub(crate) url: String,
    mail: tempfile::TempDir,
}

/// The cases of these runs.
pub(crate) const TWO_CASES: [&str; 10] = [
    "--op",
    "write",
    "--sizes",
    "4KiB,8KiB",
    "--warmup",
    "10",
    "--samples",
    "20",
    "--transfer-timeout",
    "60s",
];

impl Scene {
    /// Hosts, and etcd where it is asked for; nothing of kvwire runs yet.
    pub(crate) fn empty(meet: Meet) -> Self {
        let hosts = Hosts::new();
        let (etcd, url) = match meet {
            Meet::Tcp => (None, format!("tcp://a-token-of-the-test@{TARGET_ADDRESS}:18516")),
            Meet::Etcd => {
                let etcd = Etcd::start(&hosts);
                let url = etcd.url();
                (Some(etcd), url)
            }
        };
        Self { target: None, initiator: None, etcd, hosts, url, mail: tempfile::tempdir().unwrap() }
    }

    /// A run held in `phase`. In [`Phase::Join`] only `first` is there.
    pub(crate) fn held(meet: Meet, phase: Phase, first: Side) -> Self {
        let mut scene = Self::empty(meet);
        let faults = phase.held_by();
        if phase == Phase::Join {
            let run = scene.side(first, 2 * LEASE).fake(faults);
            scene.start(first, run);
            let at_peer = meet == Meet::Tcp && first == Side::Initiator;
            scene.live(first).await_line(if at_peer {
                "waiting for the rendezvous"
            } else {
                "waiting for the "
            });
            return scene;
        }
        let target = scene.side(Side::Target, 2 * LEASE).fake(faults);
        scene.start(Side::Target, target);
        let mut initiator =
            scene.side(Side::Initiator, 2 * LEASE).fake(faults).args(TWO_CASES).args(["--case-time", "60s"]);
        if phase == Phase::Verification {
            initiator = initiator.args(["--notify"]);
        }
        scene.start(Side::Initiator, initiator);
        let (side, line, times) = match phase {
            Phase::Join | Phase::Registration => {
                scene.live(Side::Target).await_line("target engine: opening NIXL");
                (Side::Initiator, "initiator engine: opening NIXL", 1)
            }
            Phase::WarmUp => (Side::Initiator, "initiator engine: warm-up", 2),
            Phase::TimedLoop => (Side::Initiator, "initiator engine: timed loop", 2),
            // Notifications and bytes of the first case, then the notifications of the second.
            Phase::Verification => (Side::Target, "target engine: verification", 3),
        };
        scene.live(side).await_line_times(line, times);
        scene
    }

    /// The command of a side on its host.
    pub(crate) fn side(&self, which: Side, peer_timeout: Duration) -> Kvwire {
        with_result(which.name())
            .args(["--rendezvous", &self.url, "--run-id", "held", "--allow-same-host", "--verbose"])
            .args(["--peer-timeout", &format!("{}s", peer_timeout.as_secs())])
            .env("KVWIRE_JOIN_TIMEOUT", "60s")
            .env("KVWIRE_FAKE_NIXL_MAIL", self.mail.path().to_str().expect("a plain path"))
            .on(&self.hosts.of(which))
    }

    /// Starts a side.
    pub(crate) fn start(&mut self, which: Side, run: Kvwire) {
        *self.place(which) = Some(run.start());
    }

    fn place(&mut self, side: Side) -> &mut Option<Live> {
        match side {
            Side::Target => &mut self.target,
            Side::Initiator => &mut self.initiator,
        }
    }

    /// A side that runs.
    pub(crate) fn live(&mut self, side: Side) -> &mut Live {
        self.place(side).as_mut().expect("this side runs")
    }

    /// A side that runs, to wait for its end.
    pub(crate) fn take(&mut self, side: Side) -> Option<Live> {
        self.place(side).take()
    }
}
