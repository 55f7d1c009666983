//! RDMA devices and their ports, as the evidence shows them.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::evidence::{Access, Entry, Evidence};
use super::pci::PciPath;

const CLASS: &str = "/sys/class/infiniband";

/// One entry of `/sys/class/infiniband`.
#[derive(Debug, Clone)]
pub(super) struct RdmaDevice {
    pub(super) name: String,
    /// Absent for software devices (rxe).
    pub(super) pci: Option<PciPath>,
    pub(super) firmware: Option<String>,
    /// Kernel driver, for example `mlx5_core`; `None` where sysfs has no device.
    pub(super) driver: Option<String>,
    pub(super) is_virtual_function: bool,
    /// Its node in `/dev/infiniband`, by name, with what this process may do there.
    pub(super) verbs: Verbs,
    pub(super) ports: Vec<Port>,
}

/// Whether user space can reach a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verbs {
    /// No `uverbs` device belongs to it: ib_uverbs is not loaded, or sysfs hides it.
    Unlisted,
    /// The device exists, its node does not: a container without it.
    NoNode(String),
    /// The node is there.
    Node(String, Access),
    /// The node was not to be looked at.
    NotSeen(String),
}

/// One port of a device.
#[derive(Debug, Clone)]
pub(super) struct Port {
    pub(super) number: String,
    /// `ACTIVE`, `DOWN`, …; `None` when it could not be read.
    pub(super) state: Option<String>,
    /// `LinkUp`, `Polling`, …
    pub(super) physical: Option<String>,
    /// As the kernel says it, for example `400 Gb/sec (4X NDR)`.
    pub(super) rate: Option<String>,
    /// `InfiniBand`, `Ethernet`, or `Unspecified` (EFA).
    pub(super) link_layer: Option<String>,
    pub(super) lid: Option<i64>,
    pub(super) gids: Vec<Gid>,
    /// P_Keys that are not zero.
    pub(super) pkeys: Vec<u16>,
}

/// A GID that is not zero.
#[derive(Debug, Clone)]
pub(super) struct Gid {
    pub(super) index: u32,
    pub(super) address: Ipv6Addr,
    /// `IB/RoCE v1` or `RoCE v2`; `None` when the kernel does not say.
    pub(super) kind: Option<String>,
    pub(super) interface: Option<String>,
}

impl Gid {
    pub(super) fn is_v2(&self) -> bool {
        self.kind.as_deref().is_some_and(|kind| kind.eq_ignore_ascii_case("RoCE v2"))
    }

    pub(super) fn ipv4(&self) -> Option<Ipv4Addr> {
        self.address.to_ipv4_mapped()
    }

    pub(super) fn is_link_local(&self) -> bool {
        self.address.is_unicast_link_local()
    }

    /// The first eight bytes: on InfiniBand, the fabric.
    pub(super) fn subnet_prefix(&self) -> u64 {
        (self.address.to_bits() >> 64) as u64
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ipv4() {
            Some(address) => write!(f, "index {}: ::ffff:{address}", self.index)?,
            None => write!(f, "index {}: {}", self.index, self.address)?,
        }
        write!(f, " ({}", self.kind.as_deref().unwrap_or("type not known"))?;
        if let Some(interface) = &self.interface {
            write!(f, ", {interface}")?;
        }
        f.write_str(")")
    }
}

impl Port {
    pub(super) fn is_active(&self) -> bool {
        self.state.as_deref() == Some("ACTIVE")
    }

    pub(super) fn is_roce(&self) -> bool {
        self.link_layer.as_deref() == Some("Ethernet")
    }

    pub(super) fn is_infiniband(&self) -> bool {
        self.link_layer.as_deref() == Some("InfiniBand")
    }

    /// Gb/s.
    pub(super) fn gigabits(&self) -> Option<f64> {
        self.rate.as_deref()?.split_whitespace().next()?.parse().ok()
    }

    /// The GID that UCX takes by itself on RoCE: v2 before v1, IPv4 before IPv6, then the lowest index
    /// (`uct_ib_device_select_gid`).
    pub(super) fn gid_of_ucx(&self) -> Option<&Gid> {
        let order = |gid: &&Gid| (!gid.is_v2(), gid.ipv4().is_none(), gid.index);
        self.gids.iter().min_by_key(order)
    }
}

impl RdmaDevice {
    /// Every device that sysfs lists.
    pub(super) fn all(evidence: &Evidence) -> Vec<Self> {
        evidence.names(CLASS).iter().map(|name| Self::read(evidence, name)).collect()
    }

    fn read(evidence: &Evidence, name: &str) -> Self {
        let at = |file: &str| format!("{CLASS}/{name}/{file}");
        let text = |file: &str| evidence.text(&at(file)).map(str::to_owned);
        let driver = match evidence.get(&at("device/driver")) {
            Some(Entry::Link(target)) => target.rsplit('/').next().map(str::to_owned),
            _ => None,
        };
        Self {
            name: name.to_owned(),
            pci: evidence.real(&at("device")).and_then(PciPath::new),
            firmware: text("fw_ver"),
            driver,
            is_virtual_function: matches!(evidence.get(&at("device/physfn")), Some(Entry::Link(_))),
            verbs: verbs(evidence, name),
            ports: ports(evidence, name),
        }
    }

    pub(super) fn is_usable(&self) -> bool {
        matches!(&self.verbs, Verbs::Node(_, access) if access.usable())
    }

    pub(super) fn has_active_port(&self) -> bool {
        self.ports.iter().any(Port::is_active)
    }

    pub(super) fn is_efa(&self) -> bool {
        self.driver.as_deref() == Some("efa")
            || self.name.starts_with("efa_")
            || self.name.starts_with("rdmap")
    }
}

/// uverbs numbers are not device numbers: the join is by `ibdev`.
fn verbs(evidence: &Evidence, name: &str) -> Verbs {
    let listed = evidence.below("/sys/class/infiniband_verbs").find_map(|(path, entry)| match entry {
        Entry::Text(text) if text.trim() == name && path.ends_with("/ibdev") => path.split('/').rev().nth(1),
        _ => None,
    });
    let Some(node) = listed else { return Verbs::Unlisted };
    let node = node.to_owned();
    match evidence.get(&format!("/dev/infiniband/{node}")) {
        Some(Entry::Node(access)) => Verbs::Node(node, *access),
        Some(Entry::Denied) => Verbs::NotSeen(node),
        _ if matches!(evidence.get("/dev/infiniband"), Some(Entry::Denied)) => Verbs::NotSeen(node),
        _ => Verbs::NoNode(node),
    }
}

fn ports(evidence: &Evidence, name: &str) -> Vec<Port> {
    let folder = format!("{CLASS}/{name}/ports");
    let mut numbers: Vec<String> = evidence
        .below(&folder)
        .filter_map(|(path, _)| Some(path[folder.len() + 1..].split('/').next()?.to_owned()))
        .collect();
    numbers.dedup();
    numbers.into_iter().map(|number| port(evidence, &format!("{folder}/{number}"), number)).collect()
}

fn port(evidence: &Evidence, at: &str, number: String) -> Port {
    let text = |file: &str| evidence.text(&format!("{at}/{file}")).map(str::to_owned);
    // `4: ACTIVE`
    let word = |file: &str| Some(text(file)?.rsplit(':').next()?.trim().to_owned());
    let pkey = |entry: &Entry| match entry {
        Entry::Text(text) => u16::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok(),
        _ => None,
    };
    Port {
        number,
        state: word("state"),
        physical: word("phys_state"),
        rate: text("rate"),
        link_layer: text("link_layer"),
        lid: evidence.number(&format!("{at}/lid")),
        gids: gids(evidence, at),
        pkeys: evidence
            .below(&format!("{at}/pkeys"))
            .filter_map(|(_, entry)| pkey(entry))
            .filter(|key| *key != 0)
            .collect(),
    }
}

fn gids(evidence: &Evidence, port: &str) -> Vec<Gid> {
    let folder = format!("{port}/gids");
    let read = |(path, entry): (&str, &Entry)| {
        let index = path.rsplit('/').next()?.parse().ok()?;
        let Entry::Text(text) = entry else { return None };
        let address: Ipv6Addr = text.trim().parse().ok()?;
        let attribute =
            |kind: &str| evidence.text(&format!("{port}/gid_attrs/{kind}/{index}")).map(str::to_owned);
        Some(Gid { index, address, kind: attribute("types"), interface: attribute("ndevs") })
    };
    let mut gids: Vec<Gid> =
        evidence.below(&folder).filter_map(read).filter(|gid| !gid.address.is_unspecified()).collect();
    gids.sort_by_key(|gid| gid.index);
    gids
}
