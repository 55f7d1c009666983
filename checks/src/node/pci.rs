//! Places in the PCI tree, and how far apart two of them are.

use std::fmt;

use super::evidence::{Entry, Evidence};
use super::gather::is_pci_address;

/// A PCI device: the addresses from the root of the bus down to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PciPath {
    /// `/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0`
    pub(super) path: String,
    parts: Vec<String>,
}

/// How two devices reach each other, in the words of `nvidia-smi topo`; nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Distance {
    /// Through one PCIe switch.
    Pix,
    /// Through several PCIe bridges, not the CPU's.
    Pxb,
    /// Through the PCIe host bridge of a CPU.
    Phb,
    /// Between host bridges of one NUMA node.
    Node,
    /// Between NUMA nodes.
    Sys,
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pix => "PIX",
            Self::Pxb => "PXB",
            Self::Phb => "PHB",
            Self::Node => "NODE",
            Self::Sys => "SYS",
        })
    }
}

/// What a bridge does with requests from one device below it to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Acs {
    /// It has no such control, or lets them pass.
    Direct,
    /// It sends them up to the root complex.
    Redirects,
    /// Its control was not readable (without root only 64 bytes of a configuration are).
    NotReadable,
}

impl PciPath {
    /// `None` when the path does not end at a PCI device.
    pub(super) fn new(path: &str) -> Option<Self> {
        let parts: Vec<String> = path
            .split('/')
            .filter(|part| is_pci_address(part) || part.starts_with("pci"))
            .map(str::to_owned)
            .collect();
        let last = path.rsplit('/').next()?;
        is_pci_address(last).then(|| Self { path: path.to_owned(), parts })
    }

    /// `0000:17:00.0`
    pub(super) fn address(&self) -> &str {
        self.parts.last().map_or("", String::as_str)
    }

    pub(super) fn attribute<'a>(&self, evidence: &'a Evidence, name: &str) -> Option<&'a str> {
        evidence.text(&format!("{}/{name}", self.path))
    }

    /// `None` when the firmware does not say (-1), or it could not be read.
    pub(super) fn numa(&self, evidence: &Evidence) -> Option<i64> {
        evidence.number(&format!("{}/numa_node", self.path)).filter(|node| *node >= 0)
    }

    /// How many parts both paths have in common, from the root.
    fn shared(&self, other: &Self) -> usize {
        self.parts.iter().zip(&other.parts).take_while(|(a, b)| a == b).count()
    }

    pub(super) fn distance(&self, other: &Self, evidence: &Evidence) -> Distance {
        let shared = self.shared(other);
        match shared {
            0 => match (self.numa(evidence), other.numa(evidence)) {
                (Some(a), Some(b)) if a == b => Distance::Node,
                _ => Distance::Sys,
            },
            1 => Distance::Phb,
            // A switch has an upstream port, which is shared, and a downstream port for each device.
            _ if self.parts.len() - shared <= 2 && other.parts.len() - shared <= 2 => Distance::Pix,
            _ => Distance::Pxb,
        }
    }

    /// The bridges that a request from one device to the other meets before their paths join.
    pub(super) fn bridges_to(&self, other: &Self) -> Vec<String> {
        let shared = self.shared(other);
        let above = |path: &Self| {
            let within = shared.max(1)..path.parts.len().saturating_sub(1);
            within.map(|at| path.up_to(at)).collect::<Vec<_>>()
        };
        let mut bridges = above(self);
        bridges.extend(above(other));
        bridges
    }

    /// The path of its part number `at`.
    fn up_to(&self, at: usize) -> String {
        let below: usize = self.parts[at + 1..].iter().map(|part| part.len() + 1).sum();
        self.path[..self.path.len() - below].to_owned()
    }
}

/// Access Control Services of the bridge at `path` (PCI Express extended capability 0x000d, control at offset 6).
pub(super) fn acs(evidence: &Evidence, path: &str) -> Acs {
    const FIRST: usize = 0x100;
    const REQUEST_REDIRECT: u16 = 1 << 2;
    const COMPLETION_REDIRECT: u16 = 1 << 3;
    let Some(Entry::Bytes(config)) = evidence.get(&format!("{path}/config")) else { return Acs::NotReadable };
    if config.len() <= FIRST {
        return Acs::NotReadable;
    }
    let mut at = FIRST;
    // A list in 4,096 bytes has at most this many entries; a broken one may be a ring.
    for _ in 0..1024 {
        let Some(header) = config.get(at..at + 4) else { return Acs::Direct };
        let header = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        if header & 0xffff == 0x000d {
            let Some(control) = config.get(at + 6..at + 8) else { return Acs::NotReadable };
            let control = u16::from_le_bytes([control[0], control[1]]);
            let redirects = control & (REQUEST_REDIRECT | COMPLETION_REDIRECT) != 0;
            return if redirects { Acs::Redirects } else { Acs::Direct };
        }
        at = (header >> 20) as usize;
        if at < FIRST {
            return Acs::Direct;
        }
    }
    Acs::NotReadable
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> PciPath {
        PciPath::new(&format!("/sys/devices/{text}")).unwrap()
    }

    #[test]
    fn distances_are_named_as_nvidia_smi_names_them() {
        let mut evidence = Evidence::new("test");
        let numa = |evidence: &mut Evidence, path: &PciPath, node: &str| {
            evidence.add(format!("{}/numa_node", path.path), Entry::Text(node.to_owned()));
        };
        let gpu = path("pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:00.0/0000:19:00.0");
        let same_switch = path("pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:01.0/0000:1a:00.0");
        let further =
            path("pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:02.0/0000:1b:00.0/0000:1c:00.0/0000:1d:00.0");
        let same_root = path("pci0000:16/0000:16:05.0/0000:20:00.0");
        let same_node = path("pci0000:30/0000:30:01.0/0000:31:00.0");
        let other_node = path("pci0000:80/0000:80:01.0/0000:81:00.0");
        for (device, node) in [(&gpu, "0"), (&same_node, "0"), (&other_node, "1")] {
            numa(&mut evidence, device, node);
        }
        for (device, expected) in [
            (&same_switch, Distance::Pix),
            (&further, Distance::Pxb),
            (&same_root, Distance::Phb),
            (&same_node, Distance::Node),
            (&other_node, Distance::Sys),
        ] {
            assert_eq!(gpu.distance(device, &evidence), expected, "{device:?}");
            assert_eq!(device.distance(&gpu, &evidence), expected, "{device:?}");
        }
    }

    #[test]
    fn the_bridges_on_the_way_are_those_below_the_meeting_point() {
        let gpu = path("pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:00.0/0000:19:00.0");
        let nic = path("pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:01.0/0000:1a:00.0");
        assert_eq!(
            gpu.bridges_to(&nic),
            [
                "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:00.0",
                "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:01.0"
            ]
        );
    }

    #[test]
    fn access_control_is_found_in_the_list_of_capabilities() {
        let with = |control: u16| {
            let mut config = vec![0; 4096];
            config[0x100..0x104].copy_from_slice(&(0x0001_u32 | 1 << 16 | 0x148 << 20).to_le_bytes());
            config[0x148..0x14c].copy_from_slice(&(0x000d_u32 | 1 << 16).to_le_bytes());
            config[0x14e..0x150].copy_from_slice(&control.to_le_bytes());
            config
        };
        let judged = |config: Vec<u8>| {
            let mut evidence = Evidence::new("test");
            evidence.add("/b/config", Entry::Bytes(config));
            acs(&evidence, "/b")
        };
        assert_eq!(judged(with(0b0101)), Acs::Redirects);
        assert_eq!(judged(with(0b0001)), Acs::Direct);
        assert_eq!(judged(vec![0; 64]), Acs::NotReadable);
        let mut ring = vec![0; 4096];
        ring[0x100..0x104].copy_from_slice(&(0x0001_u32 | 0x100 << 20).to_le_bytes());
        assert_eq!(judged(ring), Acs::NotReadable);
    }
}
