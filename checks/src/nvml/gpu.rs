//! GPUs as NVML shows them.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::PcieUtilCounter;
use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper::error::NvmlError;

use super::Opened;
use super::fabric::{Fabric, fabric};

/// GPUs asked, at most.
const GPUS_MAX: u32 = 64;
/// NVLinks of one GPU, at most (`NVML_NVLINK_MAX_LINKS`).
const LINKS_MAX: u32 = 18;

/// Fields of nvml.h, the same in every version: speed of all links of a GPU and of one, in MB/s; payload over one link,
/// in KiB; bytes over PCIe.
const LINK_SPEED_OF_ALL: u32 = 90;
const LINK_SENT: u32 = 138;
const LINK_RECEIVED: u32 = 139;
const LINK_SPEED: u32 = 164;
const PCIE_SENT: u32 = 197;
const PCIE_RECEIVED: u32 = 198;
const KIB: u64 = 1024;
const MB: u64 = 1_000_000;
const KB: u64 = 1000;

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// NVML's number. CUDA's may differ.
    pub index: u32,
    /// `GPU-…`.
    pub uuid: String,
    /// Model.
    pub name: String,
    /// PCI address as sysfs writes it: `0000:17:00.0`.
    pub pci: String,
    /// NVLinks that it has.
    pub links: Vec<Link>,
    /// Its PCIe link as it is trained now; an idle GPU lowers it.
    pub pcie: Option<PcieLink>,
    /// The NVLink fabric that it is part of.
    pub fabric: Fabric,
}

/// One NVLink of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Its number.
    pub number: u32,
    /// Up.
    pub active: bool,
    /// Errors counted since the driver was loaded.
    pub errors: u64,
    /// Bytes per second in one direction; `None` when the driver does not tell.
    pub bytes_per_s: Option<u64>,
}

/// A PCIe link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PcieLink {
    /// Generation.
    pub generation: u32,
    /// Lanes.
    pub lanes: u32,
}

impl PcieLink {
    /// Bytes per second in one direction, after line coding and before packet headers (PCI Express base specification).
    #[must_use]
    pub fn bytes_per_s(self) -> Option<f64> {
        let lane = match self.generation {
            1 => 2.5e9 * 0.8 / 8.0,
            2 => 5e9 * 0.8 / 8.0,
            3 => 8e9 * (128.0 / 130.0) / 8.0,
            4 => 16e9 * (128.0 / 130.0) / 8.0,
            5 => 32e9 * (128.0 / 130.0) / 8.0,
            6 => 64e9 * (236.0 / 256.0) / 8.0,
            _ => return None,
        };
        Some(lane * f64::from(self.lanes))
    }
}

/// Bytes that a GPU has moved over its links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traffic {
    /// `GPU-…`.
    pub uuid: String,
    /// Over each NVLink that tells.
    pub links: Vec<LinkTraffic>,
    /// Sent and received over PCIe; `None` when the driver does not count it.
    pub pcie: Option<(u64, u64)>,
}

/// A direction of a GPU's link, as the GPU sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Out of the GPU.
    Sent,
    /// Into it.
    Received,
}

/// Payload bytes over one NVLink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkTraffic {
    /// Number of the link.
    pub number: u32,
    /// Bytes sent, in steps of 1 KiB.
    pub sent: u64,
    /// Bytes received, in steps of 1 KiB.
    pub received: u64,
}

pub(super) fn all(opened: &Opened) -> Result<Vec<Gpu>, NvmlError> {
    devices(opened)?.iter().map(|device| one(opened, device)).collect()
}

pub(super) fn traffic(opened: &Opened) -> Result<Vec<Traffic>, NvmlError> {
    devices(opened)?.iter().map(|device| Ok(of_one(device.uuid()?, &counted(opened, device)))).collect()
}

/// The rate of a GPU's PCIe link; `None` for a GPU that NVML does not know.
pub(super) fn pcie_rate(opened: &Opened, uuid: &str, way: Way) -> Result<Option<u64>, NvmlError> {
    let counter = match way {
        Way::Sent => PcieUtilCounter::Send,
        Way::Received => PcieUtilCounter::Receive,
    };
    for device in devices(opened)? {
        if device.uuid()? == uuid {
            return device.pcie_throughput(counter).map(|kb| Some(u64::from(kb).saturating_mul(KB)));
        }
    }
    Ok(None)
}

/// One call for everything that a GPU counts: sent and received by each link that it may have, then over PCIe.
fn counted(opened: &Opened, device: &Device<'_>) -> Vec<Option<u64>> {
    let links = (0..LINKS_MAX).flat_map(|link| [(LINK_SENT, link), (LINK_RECEIVED, link)]);
    let asked: Vec<(u32, u32)> = links.chain([(PCIE_SENT, 0), (PCIE_RECEIVED, 0)]).collect();
    fields(opened, device, &asked)
}

fn of_one(uuid: String, counted: &[Option<u64>]) -> Traffic {
    let pair = |values: &[Option<u64>]| match values {
        [Some(sent), Some(received)] => Some((*sent, *received)),
        _ => None,
    };
    let (links, pcie) = counted.split_at(counted.len().min(2 * LINKS_MAX as usize));
    let links = (0..).zip(links.chunks(2)).filter_map(|(number, values)| {
        let (sent, received) = pair(values)?;
        Some(LinkTraffic { number, sent: sent.saturating_mul(KIB), received: received.saturating_mul(KIB) })
    });
    Traffic { uuid, links: links.collect(), pcie: pair(pcie) }
}

fn devices(opened: &Opened) -> Result<Vec<Device<'_>>, NvmlError> {
    (0..opened.library.device_count()?.min(GPUS_MAX))
        .map(|index| opened.library.device_by_index(index))
        .collect()
}

fn one(opened: &Opened, device: &Device<'_>) -> Result<Gpu, NvmlError> {
    let pcie = device.current_pcie_link_gen().ok().zip(device.current_pcie_link_width().ok());
    Ok(Gpu {
        index: device.index()?,
        uuid: device.uuid()?,
        name: device.name()?,
        pci: sysfs_address(&device.pci_info()?.bus_id),
        links: links(device).map(|(number, active)| link(opened, device, number, active)).collect(),
        pcie: pcie.map(|(generation, lanes)| PcieLink { generation, lanes }),
        fabric: fabric(&opened.library, device),
    })
}

/// Links that the GPU has: number, and whether it is up.
fn links<'a>(device: &'a Device<'_>) -> impl Iterator<Item = (u32, bool)> + 'a {
    (0..LINKS_MAX).filter_map(|number| Some((number, device.link_wrapper_for(number).is_active().ok()?)))
}

fn link(opened: &Opened, device: &Device<'_>, number: u32, active: bool) -> Link {
    const ERRORS: [ErrorCounter; 4] =
        [ErrorCounter::DlReplay, ErrorCounter::DlRecovery, ErrorCounter::DlCrcFlit, ErrorCounter::DlCrcData];
    let wrapper = device.link_wrapper_for(number);
    let errors = ERRORS.into_iter().filter_map(|counter| wrapper.error_counter(counter).ok()).sum();
    let speeds = fields(opened, device, &[(LINK_SPEED, number), (LINK_SPEED_OF_ALL, 0)]);
    let speed = speeds[0].or(speeds[1]).filter(|mb| *mb > 0);
    Link { number, active, errors, bytes_per_s: speed.map(|mb| mb.saturating_mul(MB)) }
}

/// One answer for each field asked.
fn fields(opened: &Opened, device: &Device<'_>, asked: &[(u32, u32)]) -> Vec<Option<u64>> {
    opened.fields.as_ref().map_or_else(|| vec![None; asked.len()], |fields| fields.read(device, asked))
}

/// NVML writes eight digits of the domain, and capitals.
fn sysfs_address(bus_id: &str) -> String {
    let lower = bus_id.to_lowercase();
    match lower.split_once(':') {
        Some((domain, rest)) if domain.len() == 8 && domain.starts_with("0000") => {
            format!("{}:{rest}", &domain[4..])
        }
        _ => lower,
    }
}

#[cfg(test)]
mod tests {
    use c_header::{Claims, NVML};

    use super::*;

    #[test]
    fn fields_are_those_of_nvml_h() {
        let mut claims = Claims::of(&NVML);
        for (name, field) in [
            ("NVLINK_SPEED_MBPS_COMMON", LINK_SPEED_OF_ALL),
            ("NVLINK_THROUGHPUT_DATA_TX", LINK_SENT),
            ("NVLINK_THROUGHPUT_DATA_RX", LINK_RECEIVED),
            ("NVLINK_GET_SPEED", LINK_SPEED),
            ("PCIE_COUNT_TX_BYTES", PCIE_SENT),
            ("PCIE_COUNT_RX_BYTES", PCIE_RECEIVED),
        ] {
            claims.number(&format!("NVML_FI_DEV_{name}"), field.into());
        }
        claims.number("NVML_NVLINK_MAX_LINKS", LINKS_MAX.into());
        claims.hold();
    }

    #[test]
    fn an_address_is_written_as_sysfs_does() {
        assert_eq!(sysfs_address("00000000:17:00.0"), "0000:17:00.0");
        assert_eq!(sysfs_address("00000001:AB:00.0"), "0001:ab:00.0");
        assert_eq!(sysfs_address("00010001:AB:00.0"), "00010001:ab:00.0");
    }

    #[test]
    fn links_that_do_not_tell_are_left_out_of_the_traffic() {
        let mut counted = vec![None; 2 * LINKS_MAX as usize + 2];
        (counted[6], counted[7]) = (Some(5), Some(7));
        counted[8] = Some(9);
        let traffic = of_one("GPU-a".to_owned(), &counted);
        assert_eq!(traffic.links, [LinkTraffic { number: 3, sent: 5 << 10, received: 7 << 10 }]);
        assert_eq!(traffic.pcie, None);
        let end = counted.len();
        (counted[end - 2], counted[end - 1]) = (Some(1), Some(2));
        assert_eq!(of_one(String::new(), &counted).pcie, Some((1, 2)));
        assert_eq!(of_one(String::new(), &[]).pcie, None);
    }

    #[test]
    fn a_pcie_link_is_as_fast_as_its_generation_and_lanes() {
        let gb = |generation, lanes| {
            PcieLink { generation, lanes }.bytes_per_s().map(|b| (b / 1e8).round() / 10.0)
        };
        assert_eq!(gb(5, 16), Some(63.0));
        assert_eq!(gb(4, 16), Some(31.5));
        assert_eq!(gb(3, 8), Some(7.9));
        assert_eq!(gb(9, 16), None);
    }
}
