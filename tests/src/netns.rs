//! Two hosts on one machine: a network namespace each, joined by a virtual cable, with a third one for etcd.

use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{Side, wait_until};

/// Address of the target on the cable between the two hosts.
pub const TARGET_ADDRESS: &str = "10.78.0.1";
/// Address of the initiator on the cable between the two hosts.
pub const INITIATOR_ADDRESS: &str = "10.78.0.2";
/// Interface on the cable between the two hosts, on both.
pub const DATA: &str = "data0";
/// Interface towards the third host, on both.
pub const CONTROL: &str = "control0";
/// Address of the third host, which both reach.
pub const HUB_ADDRESS: &str = "10.77.0.1";
/// A hardware address that nobody has: what is sent there is lost without a word.
const NOBODY: &str = "02:00:00:00:00:99";

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Two hosts and the third one between them. Dropping it takes them away, with whatever is in the namespaces' cables.
#[derive(Debug)]
pub struct Hosts {
    stem: String,
}

impl Hosts {
    /// Sets them up.
    ///
    /// # Panics
    /// Not root, or the system refuses.
    pub fn new() -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "network namespaces need root: run `make test` as root, or leave these tests out: cargo nextest run -E 'not test(/netns_/)'"
        );
        let hosts =
            Self { stem: format!("kvwire-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)) };
        for host in ["target", "initiator", "hub"] {
            ip(&["netns", "add", &hosts.name(host)]);
            hosts.ip(host, &["link", "set", "lo", "up"]);
        }
        let [target, initiator] = ["target", "initiator"].map(|host| hosts.name(host));
        hosts.ip("target", &["link", "add", DATA, "type", "veth", "peer", "name", DATA, "netns", &initiator]);
        hosts.ip("hub", &["link", "add", "bridge0", "type", "bridge"]);
        hosts.address("hub", "bridge0", HUB_ADDRESS);
        for (host, namespace, data, control) in [
            ("target", &target, TARGET_ADDRESS, "10.77.0.2"),
            ("initiator", &initiator, INITIATOR_ADDRESS, "10.77.0.3"),
        ] {
            hosts.address(host, DATA, data);
            let port = format!("to-{host}");
            hosts.ip(
                "hub",
                &["link", "add", &port, "type", "veth", "peer", "name", CONTROL, "netns", namespace],
            );
            hosts.ip("hub", &["link", "set", &port, "master", "bridge0", "up"]);
            hosts.address(host, CONTROL, control);
        }
        hosts
    }

    fn name(&self, host: &str) -> String {
        format!("{}-{host}", self.stem)
    }

    /// Name of a side's namespace.
    pub fn of(&self, side: Side) -> String {
        self.name(side.name())
    }

    /// Name of the third host's namespace.
    pub fn hub(&self) -> String {
        self.name("hub")
    }

    fn ip(&self, host: &str, words: &[&str]) {
        ip(&[&["-n", &self.name(host)], words].concat());
    }

    fn address(&self, host: &str, interface: &str, address: &str) {
        self.ip(host, &["addr", "add", &format!("{address}/24"), "dev", interface]);
        self.ip(host, &["link", "set", interface, "up"]);
    }

    /// Pulls the cable between the two hosts.
    pub fn cut(&self) {
        self.ip("target", &["link", "set", DATA, "down"]);
    }

    /// Puts the cable back, and loses nothing more on it.
    pub fn mend(&self) {
        self.ip("target", &["link", "set", DATA, "up"]);
        for (side, to) in [("target", INITIATOR_ADDRESS), ("initiator", TARGET_ADDRESS)] {
            // Ignored: where nothing was lost there is no such entry.
            let _ =
                Command::new("ip").args(["-n", &self.name(side), "neigh", "del", to, "dev", DATA]).output();
        }
    }

    /// Waits until both ends of the cable between the two hosts are seen as up: the kernel tells a little later, and
    /// UCX leaves out an interface that is not running.
    ///
    /// # Panics
    /// They do not come up.
    pub fn await_running(&self) {
        for host in ["target", "initiator"] {
            wait_until("the cable runs", Duration::from_secs(10), || {
                std::thread::sleep(Duration::from_millis(10));
                let link = Command::new("ip").args(["-n", &self.name(host), "link", "show", DATA]).output();
                link.is_ok_and(|link| String::from_utf8_lossy(&link.stdout).contains("state UP"))
            });
        }
    }

    /// Pulls the cable between a host and the third one.
    pub fn cut_control(&self, side: Side) {
        self.ip(side.name(), &["link", "set", CONTROL, "down"]);
    }

    /// From now on everything that `side` sends to the third host is lost.
    pub fn lose_control_from(&self, side: Side) {
        let unheard = ["lladdr", NOBODY, "dev", CONTROL, "nud", "permanent"];
        self.ip(side.name(), &[&["neigh", "replace", HUB_ADDRESS], unheard.as_slice()].concat());
    }

    /// From now on everything that `side` sends to the other one over the cable between them is lost.
    pub fn lose_from(&self, side: Side) {
        let to = match side {
            Side::Target => INITIATOR_ADDRESS,
            Side::Initiator => TARGET_ADDRESS,
        };
        self.ip(side.name(), &["neigh", "replace", to, "lladdr", NOBODY, "dev", DATA, "nud", "permanent"]);
    }

    /// Gives both hosts an interface of this name with one and the same address, as container bridges have.
    pub fn same_address(&self, interface: &str) {
        for host in ["target", "initiator"] {
            self.ip(host, &["link", "add", interface, "type", "veth", "peer", "name", "its-peer"]);
            self.ip(host, &["link", "set", "its-peer", "up"]);
            self.address(host, interface, "172.17.0.1");
        }
    }

    /// From now on, what `side` sends to itself waits: as `tc` delays packets where the kernel has `netem`, else by a
    /// bucket that lets through far less than the machine could send.
    pub fn delay_loopback(&self, side: Side) {
        let namespace = self.of(side);
        let queue = |words: &[&str]| {
            let all = [&["-n", &namespace, "qdisc", "replace", "dev", "lo", "root"], words].concat();
            Command::new("tc").args(all).output().expect("the tc command (Debian: iproute2) is installed")
        };
        if !queue(&["netem", "delay", "500us"]).status.success() {
            let output = queue(&["tbf", "rate", "500mbit", "burst", "64kb", "latency", "100ms"]);
            assert!(output.status.success(), "tc: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

impl Default for Hosts {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in ["target", "initiator", "hub"] {
            // Ignored: one that was not set up is not there, and a panic here would hide the first one.
            let _ = Command::new("ip").args(["netns", "del", &self.name(host)]).output();
        }
    }
}

fn ip(words: &[&str]) {
    let output =
        Command::new("ip").args(words).output().expect("the ip command (Debian: iproute2) is installed");
    assert!(output.status.success(), "ip {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr));
}

/// From now on this thread, and each that it makes, is on that host.
///
/// # Panics
/// There is no such namespace.
pub fn enter(namespace: &str) {
    let file = std::fs::File::open(format!("/run/netns/{namespace}")).expect("a network namespace");
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("entering it");
}

/// What runs `program` in a namespace, under its own process id.
pub(crate) fn command_in(namespace: &str, program: &std::ffi::OsStr) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).arg(program);
    command
}
