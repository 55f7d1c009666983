//! Brings a run between two hosts into a phase and holds it there, so that a fault hits what it is meant to hit.

use std::time::{Duration, Instant};

use kvwire_tests::{DATA, Etcd, Hosts, Kvwire, Live, Nixl, Side, TARGET_ADDRESS, with_result};

/// How long a silent side may go unnoticed in these runs; the lease time is half of it.
pub const PEER_TIMEOUT: Duration = Duration::from_secs(4);
/// Lease time that follows.
pub const LEASE: Duration = Duration::from_secs(2);

/// Where the two sides meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meet {
    /// At the target, over the cable that carries the data too.
    Tcp,
    /// At etcd on a third host, over other cables.
    Etcd,
}

/// What the run is doing when it is hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// One side waits for the other, which has not been started.
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
    pub fn name(self) -> &'static str {
        match self {
            Self::Join => "join",
            Self::Registration => "registration",
            Self::WarmUp => "warm-up",
            Self::TimedLoop => "timed loop",
            Self::Verification => "verification",
        }
    }

    /// Cases that are finished by then.
    pub fn finished_cases(self) -> usize {
        match self {
            Self::Join | Self::Registration => 0,
            Self::WarmUp | Self::TimedLoop | Self::Verification => 1,
        }
    }

    /// Makes a side stay in this phase. The real NIXL is used where a phase lasts long enough by itself.
    fn held(self, run: Kvwire) -> Kvwire {
        match self {
            Self::Join | Self::TimedLoop => run.nixl(&Nixl::Newest),
            Self::Registration => run.fake("hang=create_backend"),
            // The first case posts 95 transfers: one cold, ten to warm up, twenty timed, 64 beside NIXL's clock.
            Self::WarmUp => run.fake("stall@after=98"),
            // A thousand more with and without a notification; then the target waits two seconds for those of the
            // second case.
            Self::Verification => run.fake("mute@after=2100"),
        }
    }

    fn measured(self, run: Kvwire) -> Kvwire {
        let run = run.args(["--op", "write", "--transfer-timeout", "60s"]).args([
            "--ucx-env",
            "UCX_TLS=tcp,self",
            "--ucx-env",
            &format!("UCX_NET_DEVICES={DATA}"),
        ]);
        match self {
            // Twenty transfers are over at once, and twenty large ones are not.
            Self::Join | Self::TimedLoop => {
                run.args(["--sizes", "4KiB,64MiB", "--warmup", "1", "--samples", "500", "--case-time", "60s"])
            }
            Self::Registration | Self::WarmUp => {
                run.args(["--sizes", "4KiB,8KiB", "--warmup", "10", "--samples", "20", "--case-time", "60s"])
            }
            Self::Verification => run
                .args(["--sizes", "4KiB,8KiB", "--warmup", "10", "--samples", "20", "--case-time", "60s"])
                .args(["--notify"]),
        }
    }
}

/// A run that is held in a phase.
#[derive(Debug)]
pub struct Scene {
    // In the order in which they are to be taken down.
    pub target: Option<Live>,
    pub initiator: Option<Live>,
    pub etcd: Option<Etcd>,
    pub hosts: Hosts,
    pub url: String,
    phase: Phase,
    mail: tempfile::TempDir,
}

fn side(side: Side, hosts: &Hosts, url: &str) -> Kvwire {
    let timeout = format!("{}s", PEER_TIMEOUT.as_secs());
    with_result(side.name())
        .args(["--rendezvous", url, "--run-id", "held", "--allow-same-host", "--verbose"])
        .args(["--peer-timeout", &timeout, "--join-timeout", "60s"])
        .on(&hosts.of(side))
}

impl Scene {
    /// Hosts, and etcd where it is asked for; nothing runs yet.
    pub fn empty(meet: Meet, phase: Phase) -> Self {
        let hosts = Hosts::new();
        let (etcd, url) = match meet {
            Meet::Tcp => (None, format!("tcp://a-token-of-the-test@{TARGET_ADDRESS}:18516")),
            Meet::Etcd => {
                let etcd = Etcd::start(&hosts);
                let url = etcd.url();
                (Some(etcd), url)
            }
        };
        Self { target: None, initiator: None, etcd, hosts, url, phase, mail: tempfile::tempdir().unwrap() }
    }

    /// A run held in `phase`. In [`Phase::Join`] only `first` is there.
    pub fn held(meet: Meet, phase: Phase, first: Side) -> Self {
        let mut scene = Self::empty(meet, phase);
        if phase == Phase::Join {
            scene.start(first);
            let waits = match (meet, first) {
                (Meet::Tcp, Side::Initiator) => "waiting for the rendezvous",
                _ => "waiting for the ",
            };
            scene.live(first).await_line(waits);
            return scene;
        }
        scene.start(Side::Target);
        scene.start(Side::Initiator);
        let (side, line, times) = match phase {
            Phase::Join => unreachable!("handled above"),
            Phase::Registration => {
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

    /// Starts a side as this phase wants it.
    pub fn start(&mut self, which: Side) {
        let mail = self.mail.path().to_str().expect("a plain path");
        let run = self.phase.held(side(which, &self.hosts, &self.url)).env("KVWIRE_FAKE_NIXL_MAIL", mail);
        match which {
            Side::Target => self.target = Some(run.start()),
            Side::Initiator => self.initiator = Some(self.phase.measured(run).start()),
        }
    }

    pub fn live(&mut self, side: Side) -> &mut Live {
        let live = match side {
            Side::Target => &mut self.target,
            Side::Initiator => &mut self.initiator,
        };
        live.as_mut().expect("this side runs")
    }
}

/// Waits until nothing of a run is left in etcd, and says how long that took.
pub fn no_key_left(etcd: &Etcd) -> Duration {
    let begin = Instant::now();
    let limit = 2 * LEASE + Duration::from_secs(3);
    kvwire_tests::wait_until("etcd holds no key any more", limit, || etcd.keys().is_empty());
    begin.elapsed()
}
