//! A machine in files: GPUs and RDMA adapters in their PCI tree, as `/sys` and `/dev` show them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::Kvwire;

/// A machine in the making. What it has lies below [`Machine::root`] and goes with it.
#[derive(Debug)]
pub struct Machine {
    root: TempDir,
    adapters: usize,
}

/// One RDMA adapter.
#[derive(Debug, Clone, Copy)]
pub struct Adapter<'a> {
    /// As the kernel names it: `mlx5_0`.
    pub name: &'a str,
    /// Its place: `pci0000:15/0000:15:01.0/0000:18:00.0`.
    pub pci: &'a str,
    /// Its NUMA node; -1 where the firmware does not say.
    pub numa: i32,
    /// State of each port, from port 1 on: `4: ACTIVE`.
    pub ports: &'a [&'a str],
    /// `InfiniBand`, `Ethernet`, or `Unspecified` (EFA).
    pub link_layer: &'a str,
    /// Its device node is there and may be opened.
    pub opens: bool,
}

impl<'a> Adapter<'a> {
    /// An InfiniBand adapter with one port that is up.
    pub fn new(name: &'a str, pci: &'a str, numa: i32) -> Self {
        Self { name, pci, numa, ports: &["4: ACTIVE"], link_layer: "InfiniBand", opens: true }
    }
}

#[expect(clippy::new_without_default, reason = "it makes a folder")]
impl Machine {
    /// A machine without devices.
    ///
    /// # Panics
    /// There is no temporary folder, here and below.
    pub fn new() -> Self {
        let machine = Self::like_this_one();
        for folder in ["sys/bus/pci/devices", "sys/class/infiniband", "sys/class/infiniband_verbs"] {
            fs::create_dir_all(machine.root().join(folder)).expect("a folder");
        }
        machine
    }

    /// A machine whose `/sys` is that of this one.
    pub fn like_this_one() -> Self {
        let machine = Self { root: tempfile::tempdir().expect("a temporary folder"), adapters: 0 };
        for folder in ["dev/infiniband", "top"] {
            fs::create_dir_all(machine.root().join(folder)).expect("a folder");
        }
        machine
    }

    /// Its root directory.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, format!("{text}\n")).expect("a file");
    }

    /// Links as sysfs has them, which hold wherever the tree is mounted.
    fn link(&self, from: &str, to: &str) {
        let up = "../".repeat(from.matches('/').count() - 1);
        let to = to.strip_prefix("sys/").expect("a link within sysfs");
        symlink(format!("{up}{to}"), self.at(from)).expect("a link");
    }

    /// A PCI device. Returns its path, and lists it on the bus.
    fn pci(&self, pci: &str, class: &str, vendor: &str, numa: i32) -> String {
        let path = format!("sys/devices/{pci}");
        self.file(&format!("{path}/class"), class);
        self.file(&format!("{path}/vendor"), vendor);
        self.file(&format!("{path}/numa_node"), &numa.to_string());
        let address = pci.rsplit('/').next().unwrap_or_default();
        self.link(&format!("sys/bus/pci/devices/{address}"), &path);
        path
    }

    /// A GPU at this place.
    #[must_use]
    pub fn gpu(self, pci: &str, numa: i32) -> Self {
        self.pci(pci, "0x030200", "0x10de", numa);
        self
    }

    /// An adapter.
    #[must_use]
    pub fn adapter(mut self, adapter: Adapter<'_>) -> Self {
        let path = self.pci(adapter.pci, "0x020700", "0x15b3", adapter.numa);
        let name = adapter.name;
        self.file(&format!("{path}/infiniband/{name}/node_type"), "1: CA");
        for (number, state) in (1..).zip(adapter.ports) {
            let port = format!("{path}/infiniband/{name}/ports/{number}");
            self.file(&format!("{port}/state"), state);
            self.file(&format!("{port}/link_layer"), adapter.link_layer);
        }
        self.link(&format!("sys/class/infiniband/{name}"), &format!("{path}/infiniband/{name}"));
        self.link(&format!("{path}/infiniband/{name}/device"), &path);
        let uverbs = format!("uverbs{}", self.adapters);
        self.file(&format!("sys/class/infiniband_verbs/{uverbs}/ibdev"), name);
        if adapter.opens {
            symlink("/dev/null", self.at(&format!("dev/infiniband/{uverbs}"))).expect("a device");
        }
        self.adapters += 1;
        self
    }

    /// A channel of the NVLink domain's memory exchange service, which a container gets with its claim.
    #[must_use]
    pub fn imex_channel(self) -> Self {
        let folder = "dev/nvidia-caps-imex-channels";
        fs::create_dir_all(self.at(folder)).expect("a folder");
        symlink("/dev/null", self.at(&format!("{folder}/channel0"))).expect("a device");
        self
    }

    /// A NUMA node with these cores.
    #[must_use]
    pub fn node(self, number: u32, cores: &str) -> Self {
        self.file(&format!("sys/devices/system/node/node{number}/cpulist"), cores);
        self
    }
}

impl Kvwire {
    /// Runs it where `/sys` and the device nodes of adapters and of NVIDIA are those of the machine. Needs root.
    #[must_use]
    pub fn on_machine(self, machine: &Machine) -> Self {
        const MOUNTS: &str = r#"
            set -e
            mount --make-rprivate /
            mount -t tmpfs none "$0/top"
            cp -a /dev/null /dev/zero /dev/urandom "$0/dev/"* "$0/top"
            mkdir "$0/top/shm"
            mount --bind /dev/shm "$0/top/shm"
            mount --rbind "$0/top" /dev
            [ ! -d "$0/sys" ] || mount --bind "$0/sys" /sys
            exec "$@""#;
        let mut command = Command::new("unshare");
        command.args(["--mount", "bash", "-c", MOUNTS]).arg(machine.root());
        self.under(command)
    }
}
