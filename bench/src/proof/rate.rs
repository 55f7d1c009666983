//! How fast the links of a node are, by what the kernel and NVML say of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use checks::nvml::{Gpu, PcieLink};
use serde::{Deserialize, Serialize};

use super::kernel_files::{line, names};

const BITS: f64 = 8.0;

/// The most that a link carries in one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rate {
    /// Bytes per second.
    pub(crate) bytes_per_s: f64,
    /// Where the figure comes from.
    pub(crate) source: String,
}

impl Rate {
    /// The slower of two.
    pub(crate) fn or_slower(self, other: Option<Self>) -> Self {
        match other {
            Some(other) if other.bytes_per_s < self.bytes_per_s => other,
            _ => self,
        }
    }
}

/// Name of all NVLinks of a GPU together.
pub(crate) fn nvlinks(gpu_uuid: &str) -> String {
    format!("{gpu_uuid} nvlink")
}

/// Name of the PCIe link of a GPU.
pub(crate) fn pcie(gpu_uuid: &str) -> String {
    format!("{gpu_uuid} pcie")
}

/// The PCIe link of a GPU, as it was trained when NVML was asked for `gpus`.
pub(crate) fn gpu_link(gpus: &[Gpu], gpu_uuid: &str) -> Option<Rate> {
    let gpu = gpus.iter().find(|gpu| gpu.uuid == gpu_uuid)?;
    of_pcie(gpu.pcie?, &gpu.pci)
}

/// Every link whose rate is known: RDMA ports and network interfaces by their names, GPUs' links by the names above.
pub(crate) fn rates(sys: &Path, gpus: &[Gpu]) -> BTreeMap<String, Rate> {
    let mut rates = BTreeMap::new();
    let class = sys.join("class/infiniband");
    for device in names(&class) {
        let folder = class.join(&device);
        // A software adapter states a rate that means nothing.
        let Some(link) = pcie_of(&folder.join("device")) else { continue };
        for port in names(&folder.join("ports")) {
            let file = folder.join("ports").join(&port).join("rate");
            let Some(gigabits) = line(&file).and_then(|text| text.split(' ').next()?.parse::<f64>().ok())
            else {
                continue;
            };
            let of_port = Rate {
                bytes_per_s: gigabits * 1e9 / BITS,
                source: format!("rate of the port {device}:{port}, {gigabits} Gb/s"),
            };
            rates.insert(format!("{device}:{port}"), of_port.or_slower(Some(link.clone())));
        }
    }
    let class = sys.join("class/net");
    for interface in names(&class) {
        let folder = class.join(&interface);
        // Only hardware: a bridge or a virtual pair states a rate that means nothing.
        if !folder.join("device").exists() {
            continue;
        }
        let Some(megabits) = line(&folder.join("speed")).and_then(|text| text.parse::<f64>().ok()) else {
            continue;
        };
        if megabits > 0.0 {
            let source = format!("speed of {interface}, {} Gb/s", megabits / 1000.0);
            rates.insert(interface, Rate { bytes_per_s: megabits * 1e6 / BITS, source });
        }
    }
    for gpu in gpus {
        let up: Vec<u64> =
            gpu.links.iter().filter(|link| link.active).filter_map(|link| link.bytes_per_s).collect();
        if let Some(each) = up.first() {
            let all = up.iter().sum::<u64>() as f64;
            let source =
                format!("{} NVLinks of {} GB/s each, by NVML ({})", up.len(), *each as f64 / 1e9, gpu.uuid);
            rates.insert(nvlinks(&gpu.uuid), Rate { bytes_per_s: all, source });
        }
        if let Some(rate) = gpu.pcie.and_then(|link| of_pcie(link, &gpu.pci)) {
            rates.insert(pcie(&gpu.uuid), rate);
        }
    }
    rates
}

/// The PCIe link of the device in this folder, as it is trained now.
fn pcie_of(device: &Path) -> Option<Rate> {
    // `32.0 GT/s PCIe`
    let speed: f64 = line(&device.join("current_link_speed"))?.split(' ').next()?.parse().ok()?;
    let generation = match speed {
        s if s <= 2.5 => 1,
        s if s <= 5.0 => 2,
        s if s <= 8.0 => 3,
        s if s <= 16.0 => 4,
        s if s <= 32.0 => 5,
        _ => 6,
    };
    let lanes = line(&device.join("current_link_width"))?.parse().ok()?;
    let real: PathBuf = fs::canonicalize(device).ok()?;
    let address = real.file_name()?.to_string_lossy().into_owned();
    of_pcie(PcieLink { generation, lanes }, &address)
}

fn of_pcie(link: PcieLink, address: &str) -> Option<Rate> {
    let PcieLink { generation, lanes } = link;
    let source = format!("PCIe generation {generation} x{lanes} of {address}, as trained");
    Some(Rate { bytes_per_s: link.bytes_per_s()?, source })
}

#[cfg(test)]
mod tests {
    use super::super::kernel_files::write;
    use super::*;
    use checks::nvml::{Fabric, Link};

    #[test]
    fn a_port_is_as_fast_as_its_rate_and_its_pcie_link_allow() {
        let root = tempfile::tempdir().unwrap();
        for (device, speed, width) in [("mlx5_0", "32.0 GT/s PCIe", "16"), ("mlx5_1", "16.0 GT/s PCIe", "8")]
        {
            write(root.path(), &format!("class/infiniband/{device}/ports/1/rate"), "400 Gb/sec (4X NDR)");
            write(root.path(), &format!("class/infiniband/{device}/device/current_link_speed"), speed);
            write(root.path(), &format!("class/infiniband/{device}/device/current_link_width"), width);
        }
        write(root.path(), "class/infiniband/rxe0/ports/1/rate", "2.5 Gb/sec (1X SDR)");
        let rates = rates(root.path(), &[]);
        assert_eq!(rates["mlx5_0:1"].bytes_per_s, 50e9);
        assert!(rates["mlx5_1:1"].bytes_per_s < 16e9 && rates["mlx5_1:1"].source.contains("generation 4 x8"));
        assert!(!rates.contains_key("rxe0:1"), "software has no rate: {rates:?}");
    }

    #[test]
    fn an_interface_counts_when_it_is_hardware_with_a_link() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "class/net/eth0/speed", "100000\n");
        write(root.path(), "class/net/eth0/device/vendor", "x");
        write(root.path(), "class/net/eth1/speed", "-1\n");
        write(root.path(), "class/net/eth1/device/vendor", "x");
        write(root.path(), "class/net/veth0/speed", "10000\n");
        let rates = rates(root.path(), &[]);
        assert_eq!(rates.len(), 1);
        assert_eq!(rates["eth0"].bytes_per_s, 12.5e9);
    }

    #[test]
    fn nvlinks_that_are_up_add_up() {
        let link = |number, active| Link { number, active, errors: 0, bytes_per_s: Some(26_562_000_000) };
        let gpu = Gpu {
            index: 0,
            uuid: "GPU-a".to_owned(),
            name: "H200".to_owned(),
            pci: "0000:17:00.0".to_owned(),
            links: vec![link(0, true), link(1, true), link(2, false)],
            pcie: Some(PcieLink { generation: 5, lanes: 16 }),
            fabric: Fabric::default(),
        };
        let rates = rates(Path::new("/nowhere"), &[gpu]);
        assert_eq!(rates[&nvlinks("GPU-a")].bytes_per_s, 53_124_000_000.0);
        assert!(rates[&nvlinks("GPU-a")].source.contains("2 NVLinks of 26.562 GB/s"));
        assert_eq!((rates[&pcie("GPU-a")].bytes_per_s / 1e9).round(), 63.0);
    }
}
