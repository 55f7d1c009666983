//! Brings a run between two hosts into a phase and holds it there, so that a fault hits what it is meant to hit.

use std::time::Duration;

use kvwire_tests::{DATA, Etcd, Hosts, Kvwire, Live, Nixl, Relay, Side, TARGET_ADDRESS, with_result};

/// Lease time of these runs.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// Lease time of runs that are to outlive an outage: longer than etcd takes to come up again on a busy machine.
pub(crate) const LONG_LEASE: Duration = Duration::from_secs(10);

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
    /// Both are there; the initiator's hello is on its way.
    Hello,
    /// Both engines open NIXL and register memory.
    Registration,
    /// First transfers of the second case.
    WarmUp,
    /// Timed loop of the second case.
    TimedLoop,
    /// Verification of the second case.
    Verification,
}

/// In their order.
pub(crate) const PHASES: [Phase; 6] =
    [Phase::Join, Phase::Hello, Phase::Registration, Phase::WarmUp, Phase::TimedLoop, Phase::Verification];

/// How a phase is made to last.
enum Hold {
    /// Nothing has begun yet.
    Nothing,
    /// A script of the fake NIXL.
    Script(&'static str),
    /// Real NIXL moves data over the cable for seconds: this many transfers to warm up, and timed.
    Transfers { warmup: &'static str, samples: &'static str },
}

impl Phase {
    /// For the page.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Join => "join",
            Self::Hello => "hello",
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
            Self::Join | Self::Hello | Self::Registration => self.of_engine().to_owned(),
            Self::WarmUp | Self::TimedLoop => format!("{} of WRITE 64 MiB x1", self.name()),
            Self::Verification => format!("{} of WRITE 8 KiB x1", self.name()),
        }
    }

    /// True when both sides know by then what is to be measured.
    pub(crate) fn has_plan(self) -> bool {
        !matches!(self, Self::Join | Self::Hello)
    }

    /// Cases that are finished by then.
    pub(crate) fn finished_cases(self) -> usize {
        match self {
            Self::Join | Self::Hello | Self::Registration => 0,
            Self::WarmUp | Self::TimedLoop | Self::Verification => 1,
        }
    }

    fn hold(self) -> Hold {
        match self {
            Self::Join | Self::Hello => Hold::Nothing,
            Self::Registration => Hold::Script("hang=create_backend"),
            Self::WarmUp => Hold::Transfers { warmup: "100", samples: "1" },
            Self::TimedLoop => Hold::Transfers { warmup: "1", samples: "100" },
            // The target waits two seconds for the second case's notifications. A case posts 95 transfers: one cold, ten
            // to warm up, twenty timed, 64 beside NIXL's own clock; with notifications, two thousand more; at last up to
            // 64 that the target looks at.
            Self::Verification => Hold::Script("mute@after=2200"),
        }
    }
}

/// Two hosts with what runs on them.
#[derive(Debug)]
pub(crate) struct Scene {
    // In the order in which they are to be taken down.
    pub(crate) target: Option<Live>,
    pub(crate) initiator: Option<Live>,
    /// Between the initiator and the rendezvous.
    pub(crate) relay: Option<Relay>,
    pub(crate) etcd: Option<Etcd>,
    pub(crate) hosts: Hosts,
    meet: Meet,
    lease: Duration,
    token: &'static str,
    mail: tempfile::TempDir,
}

/// Two cases that take no time.
pub(crate) const TWO_CASES: [&str; 8] =
    ["--op", "write", "--sizes", "4KiB,8KiB", "--warmup", "10", "--samples", "20"];
/// The token of these runs.
pub(crate) const TOKEN: &str = "a-token-of-the-test";

impl Scene {
    /// Hosts, and etcd where it is asked for; nothing of kvwire runs yet.
    pub(crate) fn empty(meet: Meet, lease: Duration) -> Self {
        let hosts = Hosts::new();
        let etcd = (meet == Meet::Etcd).then(|| Etcd::start(&hosts));
        let mail = tempfile::tempdir().unwrap();
        Self { target: None, initiator: None, relay: None, etcd, hosts, meet, lease, token: TOKEN, mail }
    }

    /// Puts a relay between the initiator and the rendezvous, which holds back `until`.
    pub(crate) fn relay(&mut self, until: Option<&str>) {
        let place = self.etcd.as_ref().map_or_else(|| format!("{TARGET_ADDRESS}:18516"), Etcd::address);
        self.relay = Some(Relay::start(&self.hosts, Side::Initiator, &place, until));
    }

    /// From now on sides are started with another token.
    pub(crate) fn with_token(&mut self, token: &'static str) {
        self.token = token;
    }

    /// The first side, waiting for the other one.
    pub(crate) fn waits(&mut self, first: Side) {
        self.start(first, self.quick(first));
        let at_peer = self.meet == Meet::Tcp && first == Side::Initiator;
        let waits = if at_peer { "waiting for the rendezvous" } else { "waiting for the " };
        self.live(first).await_line(waits);
    }

    /// Both sides, held in a phase after the join.
    pub(crate) fn hold(&mut self, phase: Phase) {
        if phase == Phase::Hello {
            return self.hold_hello();
        }
        let (target, initiator) = (self.side(Side::Target), self.side(Side::Initiator));
        let (target, mut initiator) = match phase.hold() {
            Hold::Nothing => (target.fake(""), initiator.fake("").args(TWO_CASES)),
            Hold::Script(script) => {
                let held = initiator.fake(script).args(TWO_CASES).args(["--transfer-timeout", "60s"]);
                (target.fake(script), held.args(["--case-time", "60s"]))
            }
            Hold::Transfers { warmup, samples } => {
                self.hosts.await_running();
                let over_the_cable = over_the_cable(initiator.nixl(&Nixl::Newest));
                let long = over_the_cable.args(["--op", "write", "--sizes", "4KiB,64MiB"]);
                let long = long.args(["--warmup", warmup, "--samples", samples, "--case-time", "200s"]);
                (target.nixl(&Nixl::Newest), long.args(["--transfer-timeout", "60s"]))
            }
        };
        if phase == Phase::Verification {
            initiator = initiator.args(["--notify"]);
        }
        self.start(Side::Target, target);
        self.start(Side::Initiator, initiator);
        let (side, line, times) = match phase {
            Phase::Join | Phase::Hello | Phase::Registration => {
                self.live(Side::Target).await_line("target engine: opening NIXL");
                (Side::Initiator, "initiator engine: opening NIXL", 1)
            }
            Phase::WarmUp => (Side::Initiator, "initiator engine: warm-up", 2),
            Phase::TimedLoop => (Side::Initiator, "initiator engine: timed loop", 2),
            // Notifications and bytes of the first case, then the notifications of the second.
            Phase::Verification => (Side::Target, "target engine: verification", 3),
        };
        self.live(side).await_line_times(line, times);
    }

    /// Both sides are there, and the initiator's hello does not get through.
    fn hold_hello(&mut self) {
        self.relay(Some("initiator/msg/0000000000"));
        self.start(Side::Target, self.quick(Side::Target));
        if self.etcd.is_some() {
            // What is held back holds up the initiator's signs of life too: the target is not to be late.
            self.live(Side::Target).await_line("waiting for the initiator");
        }
        self.start(Side::Initiator, self.quick(Side::Initiator));
        for side in [Side::Target, Side::Initiator] {
            self.live(side).await_line(" is there");
        }
        self.relay.as_ref().unwrap().await_held();
    }

    /// A side of a run that is over at once, when nothing holds it.
    pub(crate) fn quick(&self, which: Side) -> Kvwire {
        let side = self.side(which).fake("");
        if which == Side::Initiator { side.args(TWO_CASES) } else { side }
    }

    /// The command of a side on its host.
    pub(crate) fn side(&self, which: Side) -> Kvwire {
        with_result(which.name())
            .args(["--rendezvous", &self.url(which), "--run-id", "held", "--allow-same-host", "--verbose"])
            .args(["--peer-timeout", &format!("{}s", 2 * self.lease.as_secs())])
            .env("KVWIRE_JOIN_TIMEOUT", "60s")
            .env("KVWIRE_FAKE_NIXL_MAIL", self.mail.path().to_str().expect("a plain path"))
            .on(&self.hosts.of(which))
    }

    fn url(&self, which: Side) -> String {
        let relay = self.relay.as_ref().filter(|_| which == Side::Initiator).map(Relay::address);
        match &self.etcd {
            Some(etcd) => format!("etcd://{}", relay.unwrap_or_else(|| etcd.address())),
            None => {
                let place = relay.unwrap_or_else(|| format!("{TARGET_ADDRESS}:18516"));
                format!("tcp://{}@{place}", self.token)
            }
        }
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

    /// Whether this side runs.
    pub(crate) fn runs(&self, side: Side) -> bool {
        match side {
            Side::Target => self.target.is_some(),
            Side::Initiator => self.initiator.is_some(),
        }
    }

    /// A side that runs, to wait for its end.
    pub(crate) fn take(&mut self, side: Side) -> Option<Live> {
        self.place(side).take()
    }
}

/// Has UCX use the cable between the two hosts and nothing else.
pub(crate) fn over_the_cable(initiator: Kvwire) -> Kvwire {
    let device = format!("UCX_NET_DEVICES={DATA}");
    initiator.args(["--ucx-env", "UCX_TLS=tcp,self", "--ucx-env", &device, "--expect", "tcp"])
}
