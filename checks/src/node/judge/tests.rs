//! Nodes as they are met, one test a state. Each begins from a healthy node and breaks one thing.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::finding::{Finding, Status};
use crate::node::evidence::{Access, Entry, Evidence};
use crate::node::{NodeReport, gather_tree, judge};

/// A node in the making.
struct Tree(Evidence);

const FULL: Access = Access { character: true, read: true, write: true };
const IB: &str = "/sys/class/infiniband";
const ROOT: &str = "/sys/devices";

impl Tree {
    /// A Linux host without any device.
    fn host() -> Self {
        let mut tree = Self(Evidence::new("test"));
        for (path, text) in [
            ("/proc/sys/kernel/osrelease", "6.8.0-60-generic"),
            ("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu sse2"),
            (
                "/proc/self/limits",
                "Max locked memory         unlimited            unlimited            bytes",
            ),
            ("/proc/self/status", "CapEff:\t0000000000000000"),
            ("/sys/fs/cgroup/cpu.max", "max 100000"),
            ("probe:shm", "total_kib 8388608\navailable_kib 8388600"),
        ] {
            tree = tree.file(path, text);
        }
        tree.names("/sys/module", &["nvidia", "mlx5_core"]).names(IB, &[]).missing("/sys/class/iommu")
    }

    fn file(mut self, path: &str, text: &str) -> Self {
        self.0.add(path, Entry::Text(format!("{text}\n")));
        self
    }

    fn names(mut self, path: &str, names: &[&str]) -> Self {
        self.0.add(path, Entry::Names(names.iter().map(|name| (*name).to_owned()).collect()));
        self
    }

    fn missing(mut self, path: &str) -> Self {
        self.0.add(path, Entry::Missing);
        self
    }

    fn denied(mut self, path: &str) -> Self {
        self.0.add(path, Entry::Denied);
        self
    }

    fn link(mut self, path: &str, target: &str) -> Self {
        self.0.add(path, Entry::Link(target.to_owned()));
        self
    }

    fn real(mut self, path: &str, real: &str) -> Self {
        self.0.add(path, Entry::Real(real.to_owned()));
        self
    }

    fn node(mut self, path: &str, access: Access) -> Self {
        self.0.add(path, Entry::Node(access));
        self
    }

    fn listed(self, path: &str, name: &str) -> Self {
        let mut names: Vec<String> = self.0.names(path).to_vec();
        names.push(name.to_owned());
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.names(path, &names)
    }

    /// A ConnectX with one active InfiniBand port.
    fn mlx5_ib(self, name: &str, number: u32) -> Self {
        self.card(name, number).port(name, "InfiniBand", "0x1a").gid(
            name,
            0,
            "fe80:0000:0000:0000:f452:1403:0012:3456",
            "IB/RoCE v1",
        )
    }

    /// A ConnectX with one active RoCE port, v1 and v2 GIDs for link-local IPv6 and for IPv4.
    fn mlx5_roce(self, name: &str, number: u32) -> Self {
        self.card(name, number)
            .port(name, "Ethernet", "0x0")
            .gid(name, 0, "fe80:0000:0000:0000:f652:14ff:fe01:0203", "IB/RoCE v1")
            .gid(name, 1, "fe80:0000:0000:0000:f652:14ff:fe01:0203", "RoCE v2")
            .gid(name, 2, "0000:0000:0000:0000:0000:ffff:0a00:0102", "IB/RoCE v1")
            .gid(name, 3, "0000:0000:0000:0000:0000:ffff:0a00:0102", "RoCE v2")
            .file(&format!("{IB}/{name}/ports/1/hw_counters/out_of_sequence"), "0")
    }

    fn card(self, name: &str, number: u32) -> Self {
        let pci =
            format!("{ROOT}/pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:0{number}.0/0000:2{number}:00.0");
        self.listed(IB, name)
            .file(&format!("/sys/class/infiniband_verbs/uverbs{number}/ibdev"), name)
            .node(&format!("/dev/infiniband/uverbs{number}"), FULL)
            .listed("/dev/infiniband", &format!("uverbs{number}"))
            .file(&format!("{IB}/{name}/fw_ver"), "28.41.1000")
            .link(&format!("{IB}/{name}/device/driver"), "../../../bus/pci/drivers/mlx5_core")
            .real(&format!("{IB}/{name}/device"), &pci)
            .file(&format!("{pci}/numa_node"), "0")
            .file(&format!("{pci}/current_link_speed"), "32.0 GT/s PCIe")
            .file(&format!("{pci}/max_link_speed"), "32.0 GT/s PCIe")
            .file(&format!("{pci}/current_link_width"), "16")
            .file(&format!("{pci}/max_link_width"), "16")
            .real(
                "/usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so",
                "/usr/lib/x86_64-linux-gnu/libmlx5.so.1.24",
            )
            .real(
                "/usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so",
                "/usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so",
            )
    }

    fn port(self, name: &str, layer: &str, lid: &str) -> Self {
        let at = format!("{IB}/{name}/ports/1");
        self.file(&format!("{at}/state"), "4: ACTIVE")
            .file(&format!("{at}/phys_state"), "5: LinkUp")
            .file(&format!("{at}/rate"), "400 Gb/sec (4X NDR)")
            .file(&format!("{at}/link_layer"), layer)
            .file(&format!("{at}/lid"), lid)
            .file(&format!("{at}/pkeys/0"), "0xffff")
    }

    fn gid(self, name: &str, index: u32, gid: &str, kind: &str) -> Self {
        let at = format!("{IB}/{name}/ports/1");
        self.file(&format!("{at}/gids/{index}"), gid).file(&format!("{at}/gid_attrs/types/{index}"), kind)
    }

    /// A GPU behind the cards' switch, with the open driver.
    fn gpu(self) -> Self {
        let pci = format!("{ROOT}/pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:09.0/0000:30:00.0");
        self.real("/sys/bus/pci/devices/0000:30:00.0", &pci)
            .file(&format!("{pci}/numa_node"), "0")
            .file(&format!("{pci}/vendor"), "0x10de")
            .file(&format!("{pci}/class"), "0x030200")
            .file(
                "/proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15",
            )
            .file("/proc/driver/nvidia/gpus/0000:30:00.0/information", "Model: \t\t NVIDIA H100 80GB HBM3")
    }

    fn gpu_far_away(self) -> Self {
        let pci = format!("{ROOT}/pci0000:c0/0000:c0:01.0/0000:c1:00.0");
        self.real("/sys/bus/pci/devices/0000:c1:00.0", &pci).file(&format!("{pci}/numa_node"), "1")
    }

    fn judged(&self) -> NodeReport {
        judge(&self.0, "local host")
    }

    fn virtual_function(self, name: &str, number: u32) -> Self {
        let pci =
            format!("{ROOT}/pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:0{number}.0/0000:2{number}:00.0");
        self.mlx5_ib(name, number)
            .link(&format!("{IB}/{name}/device/physfn"), "../0000:20:00.0")
            .file(&format!("{pci}/current_link_width"), "0")
            .file(&format!("{pci}/current_link_speed"), "Unknown")
    }

    fn efa(self, name: &str, number: u32) -> Self {
        self.card(name, number)
            .port(name, "Unspecified", "0x0")
            .link(&format!("{IB}/{name}/device/driver"), "../../../bus/pci/drivers/efa")
    }

    /// The same as files: what is a device node here is a link to one that everybody may open.
    fn on_disk(&self) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path.trim_start_matches('/'));
        let link = |target: &Path, path: &Path| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(target, path).unwrap();
        };
        let files = || self.0.entries().filter(|(path, _)| path.starts_with('/'));
        // Devices first: other paths lead through their links.
        for (path, real) in files().filter_map(|(path, entry)| match entry {
            Entry::Real(real) => Some((path, real)),
            _ => None,
        }) {
            fs::create_dir_all(at(real)).unwrap();
            if path != real {
                link(&at(real), &at(path));
            }
        }
        for (path, entry) in files() {
            match entry {
                Entry::Text(text) => {
                    fs::create_dir_all(at(path).parent().unwrap()).unwrap();
                    fs::write(at(path), text).unwrap();
                }
                Entry::Link(target) => link(Path::new(target), &at(path)),
                Entry::Node(_) => link(Path::new("/dev/null"), &at(path)),
                _ => {}
            }
        }
        for (path, entry) in files() {
            let Entry::Names(names) = entry else { continue };
            names.iter().for_each(|name| fs::create_dir_all(at(path).join(name)).unwrap_or_default());
            fs::create_dir_all(at(path)).unwrap();
        }
        root
    }
}

#[track_caller]
fn expect(tree: &Tree, id: &str, status: Status, words: &str) -> Finding {
    let report = tree.judged();
    let finding = report.finding(id).unwrap_or_else(|| panic!("no finding {id}")).clone();
    let text = format!("{} {} {:?} {}", finding.title, finding.detail, finding.evidence, finding.next_step);
    assert_eq!(finding.status, status, "{id}: {text}");
    assert!(text.contains(words), "{id} does not say `{words}`: {text}");
    if matches!(status, Status::Fail | Status::Warn) && !READONLY.contains(&id) {
        assert!(!finding.next_step.is_empty(), "{id} gives no next step");
    }
    finding
}

/// The names of the read-only check.
const READONLY: [&str; 7] =
    ["node:target", "ib-devices", "ibv-devinfo", "ib-link", "gpudirect-peermem", "gdrcopy", "gpu-topology"];

#[test]
fn a_healthy_infiniband_node_has_nothing_to_complain_about() {
    let tree = Tree::host().mlx5_ib("mlx5_0", 0).mlx5_ib("mlx5_1", 1);
    for finding in tree.judged().findings {
        assert!(!matches!(finding.status, Status::Fail | Status::Warn), "{finding:?}");
    }
    expect(&tree, "rdma-usable", Status::Ok, "mlx5_0, mlx5_1");
    expect(&tree, "rdma-lid", Status::Ok, "0x1a");
    expect(&tree, "ib-link", Status::Ok, "mlx5_0:1");
    assert_eq!(tree.judged().can_use_rdma(), Some(true));
}

#[test]
fn a_healthy_roce_node_shows_the_gid_that_ucx_takes() {
    let tree = Tree::host().mlx5_roce("mlx5_0", 0);
    for finding in tree.judged().findings {
        assert!(!matches!(finding.status, Status::Fail | Status::Warn), "{finding:?}");
    }
    expect(&tree, "roce-gid", Status::Ok, "UCX takes index 3: ::ffff:10.0.1.2 (RoCE v2)");
}

#[test]
fn every_kind_of_node_is_judged_the_same_out_of_its_files() {
    let host = Tree::host;
    let down = format!("{IB}/mlx5_1/ports/1/state");
    let v1 = |tree: Tree| tree.gid("mlx5_0", 0, "0000:0000:0000:0000:0000:ffff:0a00:0102", "IB/RoCE v1");
    let nodes = [
        ("mlx5, InfiniBand", host().mlx5_ib("mlx5_0", 0).mlx5_ib("mlx5_1", 1), "rdma-lid", Status::Ok),
        ("mlx5, RoCE v2", host().mlx5_roce("mlx5_0", 0), "roce-gid", Status::Ok),
        (
            "mlx5, RoCE v1",
            v1(host().card("mlx5_0", 0).port("mlx5_0", "Ethernet", "0x0")),
            "roce-gid",
            Status::Warn,
        ),
        ("bond", host().mlx5_roce("mlx5_bond_0", 0), "roce-gid", Status::Ok),
        ("virtual function", host().virtual_function("mlx5_0", 0), "rdma-pcie", Status::Ok),
        ("EFA", host().efa("rdmap16s27", 0), "efa-ucx", Status::Warn),
        (
            "a port that is down",
            host().mlx5_ib("mlx5_0", 0).mlx5_ib("mlx5_1", 1).file(&down, "1: DOWN"),
            "rdma-port",
            Status::Warn,
        ),
        (
            "no port state",
            host().card("mlx5_0", 0).file(&format!("{IB}/mlx5_0/ports/1/link_layer"), "InfiniBand"),
            "rdma-port",
            Status::Unknown,
        ),
        ("GPU and card", host().mlx5_ib("mlx5_0", 0).gpu(), "gpu-nic-distance", Status::Ok),
        ("nothing", host(), "rdma-usable", Status::Skipped),
    ];
    let statuses = |report: &NodeReport| -> Vec<(String, Status)> {
        report.findings.iter().map(|finding| (finding.id.clone(), finding.status)).collect()
    };
    for (name, tree, id, status) in nodes {
        let disk = tree.on_disk();
        let mut gathered = gather_tree(disk.path(), "test");
        for (path, entry) in tree.0.entries().filter(|(path, _)| !path.starts_with('/')) {
            gathered.add(path, entry.clone());
        }
        let report = judge(&gathered, "local host");
        assert_eq!(report.finding(id).map(|finding| finding.status), Some(status), "{name}");
        assert_eq!(statuses(&report), statuses(&tree.judged()), "{name}");
        // A container that was not given the devices: the same sysfs without a /dev.
        if tree.judged().can_use_rdma() == Some(true) {
            fs::remove_dir_all(disk.path().join("dev/infiniband")).unwrap();
            let closed = judge(&gather_tree(disk.path(), "test"), "local host");
            assert_eq!(closed.can_use_rdma(), Some(false), "{name}");
        }
    }
}

#[test]
fn the_names_of_the_read_only_check_are_all_there() {
    let report = Tree::host().judged();
    for id in READONLY {
        assert!(report.finding(id).is_some(), "{id}");
    }
}

/// Present is ok, there and wrong is a warning, missing is skipped; none of them fails.
#[test]
fn the_statuses_of_the_read_only_check_hold() {
    let host = Tree::host;
    let down = |tree: Tree| tree.file(&format!("{IB}/mlx5_0/ports/1/state"), "1: DOWN");
    let links = |text: &str| host().gpu().file("probe:nvml/links", text);
    let closed = Access { character: true, read: false, write: false };
    for (id, tree, status) in [
        ("ib-devices", host().mlx5_ib("mlx5_0", 0), Status::Ok),
        ("ib-devices", host().missing("/dev/infiniband"), Status::Skipped),
        ("ib-devices", host().denied("/dev/infiniband"), Status::Warn),
        ("ibv-devinfo", host().mlx5_ib("mlx5_0", 0), Status::Ok),
        ("ibv-devinfo", host().missing(IB), Status::Skipped),
        ("ibv-devinfo", host().denied(IB), Status::Warn),
        ("ib-link", host().mlx5_ib("mlx5_0", 0), Status::Ok),
        ("ib-link", down(host().mlx5_ib("mlx5_0", 0)), Status::Warn),
        ("ib-link", host(), Status::Skipped),
        ("gpudirect-peermem", host().gpu().names("/sys/module", &["nv_peer_mem"]), Status::Ok),
        ("gpudirect-peermem", host().gpu(), Status::Warn),
        ("gpudirect-peermem", host().gpu().denied("/sys/module"), Status::Unknown),
        ("gdrcopy", host().node("/dev/gdrdrv", FULL), Status::Ok),
        ("gdrcopy", host().node("/dev/gdrdrv", closed), Status::Warn),
        ("gdrcopy", host(), Status::Skipped),
        ("gpu-topology", links("gpu 0 link 0 active, errors 0"), Status::Ok),
        ("gpu-topology", links("gpu 0 link 0 down, errors 0"), Status::Warn),
        ("gpu-topology", host().gpu(), Status::Skipped),
        ("node:target", host(), Status::Ok),
    ] {
        let report = tree.judged();
        assert_eq!(report.finding(id).map(|finding| finding.status), Some(status), "{id}: {report:?}");
        let parity = report.findings.iter().filter(|finding| READONLY.contains(&finding.id.as_str()));
        assert!(parity.clone().all(|finding| finding.status != Status::Fail), "these never fail");
        assert_eq!(parity.count(), READONLY.len(), "each once");
    }
    assert_eq!(host().judged().findings[0].title, "local host");
    assert_eq!(judge(&host().0, "pod decode-0").findings[0].title, "pod decode-0");
}

#[test]
fn a_container_without_the_device_node_cannot_use_what_sysfs_lists() {
    let tree =
        Tree::host().mlx5_ib("mlx5_0", 0).missing("/dev/infiniband/uverbs0").missing("/dev/infiniband");
    expect(&tree, "rdma-usable", Status::Fail, "/dev/infiniband/uverbs0 is not here");
    expect(&tree, "ib-devices", Status::Skipped, "no /dev/infiniband");
    assert_eq!(tree.judged().can_use_rdma(), Some(false));
    assert_eq!(tree.judged().rdma_obstacle().map(|f| f.id.clone()), Some("rdma-usable".to_owned()));
}

#[test]
fn a_node_that_may_not_be_written_is_not_usable() {
    let access = Access { character: true, read: true, write: false };
    let tree = Tree::host().mlx5_ib("mlx5_0", 0).node("/dev/infiniband/uverbs0", access);
    expect(&tree, "rdma-usable", Status::Fail, "readable, not writable");
    let file = Access { character: false, read: true, write: true };
    expect(
        &Tree::host().mlx5_ib("mlx5_0", 0).node("/dev/infiniband/uverbs0", file),
        "rdma-usable",
        Status::Fail,
        "not a character device",
    );
}

#[test]
fn one_of_two_devices_usable_is_a_warning_that_names_both() {
    let tree = Tree::host().mlx5_ib("mlx5_0", 0).mlx5_ib("mlx5_1", 1).missing("/dev/infiniband/uverbs1");
    expect(&tree, "rdma-usable", Status::Warn, "usable: mlx5_0; listed but not usable: mlx5_1");
}

#[test]
fn a_device_is_joined_with_its_node_by_name_and_not_by_number() {
    let tree = Tree::host()
        .mlx5_ib("mlx5_5", 2)
        .file("/sys/class/infiniband_verbs/uverbs2/ibdev", "other_0")
        .file("/sys/class/infiniband_verbs/uverbs7/ibdev", "mlx5_5")
        .missing("/dev/infiniband/uverbs7");
    expect(&tree, "rdma-usable", Status::Fail, "/dev/infiniband/uverbs7 is not here");
}

#[test]
fn what_may_not_be_looked_at_is_unknown_and_never_ok() {
    let tree = Tree::host().denied(IB);
    expect(&tree, "rdma-usable", Status::Unknown, "may not be listed");
    assert_eq!(tree.judged().can_use_rdma(), None);
    let hidden = Tree::host().mlx5_ib("mlx5_0", 0).denied("/dev/infiniband/uverbs0");
    expect(&hidden, "rdma-usable", Status::Unknown, "may not be looked at");
}

#[test]
fn nothing_read_at_all_gives_no_ok_but_the_target() {
    let report = judge(&Evidence::new("test"), "local host");
    for finding in report.findings.iter().filter(|finding| finding.id != "node:target") {
        assert!(matches!(finding.status, Status::Unknown | Status::Skipped), "{finding:?}");
    }
}

#[test]
fn a_verbs_library_that_cannot_open_the_device_outweighs_its_permissions() {
    let tree = Tree::host()
        .mlx5_ib("mlx5_0", 0)
        .file("probe:verbs/mlx5_0/open", "Operation not permitted (os error 1)");
    expect(&tree, "rdma-usable", Status::Fail, "Operation not permitted");
}

#[test]
fn a_port_that_is_down_is_left_out_of_the_proposed_devices() {
    let at = format!("{IB}/mlx5_1/ports/1");
    let tree = Tree::host().mlx5_ib("mlx5_0", 0).mlx5_ib("mlx5_1", 1);
    let tree = tree.file(&format!("{at}/state"), "1: DOWN").file(&format!("{at}/phys_state"), "2: Polling");
    expect(&tree, "rdma-port", Status::Warn, "UCX_NET_DEVICES=mlx5_0:1");
    let none = Tree::host().mlx5_ib("mlx5_1", 1).file(&format!("{at}/state"), "1: DOWN");
    expect(&none, "rdma-port", Status::Fail, "no port is active");
    expect(&none, "ib-link", Status::Warn, "no port is active");
    assert_eq!(none.judged().can_use_rdma(), Some(false));
    assert_eq!(none.judged().rdma_obstacle().map(|f| f.id.clone()), Some("rdma-port".to_owned()));
}

#[test]
fn a_port_whose_state_is_missing_is_unknown() {
    let tree = Tree::host().card("mlx5_0", 0).file(&format!("{IB}/mlx5_0/ports/1/link_layer"), "InfiniBand");
    expect(&tree, "rdma-port", Status::Unknown, "the state of no port");
}

#[test]
fn a_slow_management_port_beside_fast_ones_is_named() {
    let tree = Tree::host().mlx5_roce("mlx5_0", 0).mlx5_roce("mlx5_bond_0", 1);
    let tree = tree.file(&format!("{IB}/mlx5_bond_0/ports/1/rate"), "25 Gb/sec (1X EDR)");
    expect(&tree, "rdma-rate", Status::Warn, "UCX_NET_DEVICES=mlx5_0:1");
}

#[test]
fn a_bond_without_an_address_fails() {
    let tree = Tree::host().card("mlx5_bond_0", 0).port("mlx5_bond_0", "Ethernet", "0x0");
    expect(&tree, "roce-gid", Status::Fail, "no address (GID) on mlx5_bond_0:1");
}

#[test]
fn only_link_local_or_v1_addresses_are_a_warning() {
    let local = Tree::host().card("mlx5_0", 0).port("mlx5_0", "Ethernet", "0x0").gid(
        "mlx5_0",
        0,
        "fe80:0000:0000:0000:f652:14ff:fe01:0203",
        "RoCE v2",
    );
    expect(&local, "roce-gid", Status::Warn, "link-local");
    let v1 = Tree::host().card("mlx5_0", 0).port("mlx5_0", "Ethernet", "0x0").gid(
        "mlx5_0",
        0,
        "0000:0000:0000:0000:0000:ffff:0a00:0102",
        "IB/RoCE v1",
    );
    expect(&v1, "roce-gid", Status::Warn, "v1");
}

#[test]
fn a_fabric_with_ipv6_alone_is_fine() {
    let tree = Tree::host()
        .card("mlx5_0", 0)
        .port("mlx5_0", "Ethernet", "0x0")
        .gid("mlx5_0", 0, "fe80:0000:0000:0000:f652:14ff:fe01:0203", "RoCE v2")
        .gid("mlx5_0", 5, "fd00:0000:0000:0001:0000:0000:0000:0007", "RoCE v2");
    // UCX makes no difference between IPv6 addresses and takes the lowest index, which is link-local here.
    expect(&tree, "roce-gid", Status::Warn, "also index 5: fd00:0:0:1::7");
    let global = Tree::host().card("mlx5_0", 0).port("mlx5_0", "Ethernet", "0x0").gid(
        "mlx5_0",
        0,
        "fd00:0000:0000:0001:0000:0000:0000:0007",
        "RoCE v2",
    );
    expect(&global, "roce-gid", Status::Ok, "index 0");
}

#[test]
fn a_named_gid_index_is_checked_on_every_port() {
    let tree = |value: &str| Tree::host().mlx5_roce("mlx5_0", 0).file("env:UCX_IB_GID_INDEX", value);
    expect(&tree("3"), "roce-gid-index", Status::Ok, "3");
    expect(&tree("0"), "roce-gid-index", Status::Fail, "link-local");
    expect(&tree("2"), "roce-gid-index", Status::Fail, "RoCE v1");
    expect(&tree("9"), "roce-gid-index", Status::Fail, "empty");
    expect(&tree("three"), "roce-gid-index", Status::Fail, "no index");
    assert!(tree("auto").judged().finding("roce-gid-index").is_none());
}

#[test]
fn an_infiniband_port_without_a_lid_is_named() {
    let tree = Tree::host().mlx5_ib("mlx5_0", 0).file(&format!("{IB}/mlx5_0/ports/1/lid"), "0x0");
    expect(&tree, "rdma-lid", Status::Warn, "no LID on mlx5_0:1");
}

#[test]
fn limited_partition_membership_is_a_warning() {
    let tree = Tree::host().mlx5_ib("mlx5_0", 0).file(&format!("{IB}/mlx5_0/ports/1/pkeys/0"), "0x7fff");
    expect(&tree, "rdma-pkey", Status::Warn, "0x7fff");
}

#[test]
fn two_fabrics_need_a_choice() {
    let tree = Tree::host().mlx5_ib("mlx5_0", 0).card("mlx5_1", 1).port("mlx5_1", "InfiniBand", "0x2").gid(
        "mlx5_1",
        0,
        "fec0:0000:0000:0007:f452:1403:0012:3457",
        "IB/RoCE v1",
    );
    expect(&tree, "rdma-fabrics", Status::Warn, "different subnets");
    expect(
        &tree.file("env:UCX_NET_DEVICES", "mlx5_0:1"),
        "rdma-fabrics",
        Status::Ok,
        "UCX_NET_DEVICES=mlx5_0:1",
    );
    expect(
        &Tree::host().mlx5_ib("mlx5_0", 0).mlx5_roce("mlx5_1", 1),
        "rdma-fabrics",
        Status::Warn,
        "both InfiniBand and Ethernet",
    );
}

#[test]
fn a_card_in_a_narrow_slot_is_named_and_a_virtual_function_is_not() {
    let tree = Tree::host().mlx5_ib("mlx5_0", 0);
    let pci = format!("{ROOT}/pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:00.0/0000:20:00.0");
    let narrow = tree.file(&format!("{pci}/current_link_width"), "8");
    expect(&narrow, "rdma-pcie", Status::Warn, "x8, possible 32.0 GT/s PCIe x16");
    let function = Tree::host().virtual_function("mlx5_0", 0);
    expect(&function, "rdma-pcie", Status::Ok, "mlx5_0");
    expect(&function, "ibv-devinfo", Status::Ok, "virtual function");
}

#[test]
fn counted_retransmissions_are_a_warning_and_unreadable_counters_unknown() {
    let counter = format!("{IB}/mlx5_0/ports/1/hw_counters/out_of_sequence");
    expect(
        &Tree::host().mlx5_roce("mlx5_0", 0).file(&counter, "17"),
        "roce-congestion",
        Status::Warn,
        "out_of_sequence 17",
    );
    expect(
        &Tree::host().mlx5_roce("mlx5_0", 0).missing(&counter),
        "roce-congestion",
        Status::Unknown,
        "no congestion",
    );
    let paused = |text: &str| Tree::host().mlx5_roce("mlx5_0", 0).file("probe:ethtool/eth0", text);
    expect(
        &paused("rx_prio3_pause 12\nrx_prio0_discards 0"),
        "roce-congestion",
        Status::Ok,
        "(PFC): rx_prio3_pause 12",
    );
    expect(
        &paused("rx_prio3_discards 4"),
        "roce-congestion",
        Status::Warn,
        "discarded for want of room on eth0",
    );
    expect(
        &Tree::host().mlx5_roce("mlx5_0", 0),
        "roce-congestion",
        Status::Ok,
        "no counter of priority flow",
    );
}

#[test]
fn efa_is_recognised() {
    let tree = Tree::host().efa("rdmap16s27", 0);
    expect(&tree, "efa-ucx", Status::Warn, "rdmap16s27");
    expect(&tree, "roce-gid", Status::Skipped, "no RoCE port");
    expect(&tree, "libraries-rdma", Status::Warn, "rdmap16s27 (efa)");
    assert!(Tree::host().mlx5_ib("mlx5_0", 0).judged().finding("efa-ucx").is_none());
}

#[test]
fn gpudirect_follows_the_decision_of_ucx() {
    let node = || Tree::host().mlx5_ib("mlx5_0", 0).gpu();
    let proprietary = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15";
    let proprietary = || node().file("/proc/driver/nvidia/version", proprietary);
    expect(&node(), "gpudirect", Status::Unknown, "was not asked");
    expect(
        &node().file("probe:verbs/mlx5_0/dmabuf", "supported").file("probe:verbs/mlx5_0/open", "ok"),
        "gpudirect",
        Status::Ok,
        "dma-buf",
    );
    expect(
        &node().file("probe:verbs/mlx5_0/dmabuf", "not supported: Operation not supported"),
        "gpudirect",
        Status::Fail,
        "does not take dma-buf",
    );
    expect(
        &node().file("/proc/sys/kernel/osrelease", "5.4.0-100"),
        "gpudirect",
        Status::Fail,
        "older than 5.12",
    );
    expect(&proprietary(), "gpudirect", Status::Fail, "cannot export dma-buf");
    expect(&proprietary(), "gpudirect-peermem", Status::Warn, "neither");
    let loaded = proprietary().names("/sys/module", &["nvidia", "nvidia_peermem"]);
    expect(&loaded, "gpudirect", Status::Ok, "nvidia_peermem");
    expect(&loaded, "gpudirect-peermem", Status::Ok, "nvidia_peermem");
    let off = node().names("/sys/module", &["nvidia_peermem"]).file("env:UCX_IB_GPU_DIRECT_RDMA", "no");
    expect(&off, "gpudirect", Status::Fail, "switched off");
    expect(&Tree::host().gpu(), "gpudirect", Status::Skipped, "no usable RDMA device");
    expect(&Tree::host(), "gpudirect", Status::Skipped, "no NVIDIA GPU");
}

#[test]
fn the_distance_matrix_names_the_best_card_of_each_gpu() {
    let tree = Tree::host().mlx5_ib("mlx5_0", 0).gpu();
    expect(&tree, "gpu-nic-distance", Status::Ok, "PIX");
    let far = format!("{ROOT}/pci0000:80/0000:80:01.0/0000:81:00.0");
    let across = Tree::host()
        .mlx5_ib("mlx5_0", 0)
        .gpu()
        .real(&format!("{IB}/mlx5_0/device"), &far)
        .file(&format!("{far}/numa_node"), "1");
    expect(&across, "gpu-nic-distance", Status::Warn, "SYS");
}

#[test]
fn redirection_on_the_way_is_found_and_advice_depends_on_the_machine() {
    let bridge = format!("{ROOT}/pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:09.0/config");
    let other = format!("{ROOT}/pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:00.0/config");
    let config = |control: u8| {
        let mut bytes = vec![0; 4096];
        bytes[0x100..0x104].copy_from_slice(&(0x000d_u32 | 1 << 16).to_le_bytes());
        bytes[0x106] = control;
        Entry::Bytes(bytes)
    };
    let node = |control: u8| {
        let mut tree = Tree::host().mlx5_ib("mlx5_0", 0).gpu();
        tree.0.add(bridge.clone(), config(control));
        tree.0.add(other.clone(), config(0));
        tree
    };
    expect(&node(0), "pcie-acs", Status::Ok, "0000:18:09.0: lets peers talk");
    expect(&node(0b0100), "pcie-acs", Status::Warn, "have an administrator switch ACS");
    expect(
        &node(0b0100).file("/proc/cpuinfo", "flags\t: fpu hypervisor"),
        "pcie-acs",
        Status::Warn,
        "leave it on",
    );
    expect(
        &Tree::host().mlx5_ib("mlx5_0", 0).gpu(),
        "pcie-acs",
        Status::Unknown,
        "not readable without root",
    );
    expect(
        &Tree::host().mlx5_ib("mlx5_0", 0).gpu().file("/proc/cpuinfo", "flags\t: hypervisor"),
        "virtual-machine",
        Status::Warn,
        "wrong data",
    );
    expect(
        &Tree::host()
            .file("/proc/cpuinfo", "flags\t: hypervisor")
            .file("/sys/class/dmi/id/sys_vendor", "QEMU"),
        "virtual-machine",
        Status::Ok,
        "QEMU",
    );
}

#[test]
fn a_translating_iommu_matters_only_between_a_gpu_and_a_card() {
    let on = |tree: Tree| {
        tree.names("/sys/class/iommu", &["dmar0"]).file("/sys/kernel/iommu_groups/1/type", "DMA")
    };
    expect(&on(Tree::host()), "iommu", Status::Ok, "translates");
    expect(&on(Tree::host().mlx5_ib("mlx5_0", 0).gpu()), "iommu", Status::Warn, "iommu=pt");
    let through = Tree::host()
        .mlx5_ib("mlx5_0", 0)
        .gpu()
        .names("/sys/class/iommu", &["dmar0"])
        .file("/sys/kernel/iommu_groups/1/type", "identity");
    expect(&through, "iommu", Status::Ok, "passes addresses through");
    expect(
        &Tree::host().names("/sys/class/iommu", &["dmar0"]),
        "iommu",
        Status::Unknown,
        "could not be read",
    );
}

#[test]
fn locked_memory_counts_as_ucx_counts_it() {
    let limit = "Max locked memory         65536                65536                bytes";
    let limited = || Tree::host().mlx5_ib("mlx5_0", 0).file("/proc/self/limits", limit);
    expect(&limited(), "memlock", Status::Fail, "64 KiB");
    expect(
        &limited().file("/proc/self/status", "CapEff:\t0000000000004000"),
        "memlock",
        Status::Ok,
        "CAP_IPC_LOCK",
    );
    expect(&Tree::host().file("/proc/self/limits", limit), "memlock", Status::Skipped, "no RDMA device");
    expect(
        &Tree::host().mlx5_ib("mlx5_0", 0).missing("/proc/self/limits"),
        "memlock",
        Status::Unknown,
        "could not be read",
    );
}

#[test]
fn shared_memory_is_judged_by_size_and_by_room() {
    let shm = |total: u64, free: u64| {
        Tree::host().file("probe:shm", &format!("total_kib {total}\navailable_kib {free}"))
    };
    expect(&shm(8 << 20, 8 << 20), "shm-size", Status::Ok, "8192 MiB");
    expect(&shm(64 << 10, 64 << 10), "shm-size", Status::Warn, "64 MiB");
    expect(&shm(8 << 10, 8 << 10), "shm-size", Status::Fail, "smaller");
    expect(&shm(8 << 20, 1024), "shm-size", Status::Fail, "less room");
    expect(&Tree::host().missing("probe:shm"), "shm-size", Status::Unknown, "could not be read");
}

#[test]
fn the_tightest_cpu_limit_counts_whichever_group_sets_it() {
    let group = |max: &str| Tree::host().file("/sys/fs/cgroup/kubepods/pod1/cpu.max", max);
    expect(&group("max 100000"), "cpu-limit", Status::Ok, "no CPU limit");
    expect(&group("400000 100000"), "cpu-limit", Status::Ok, "4.0 CPUs");
    expect(&group("50000 100000"), "cpu-limit", Status::Warn, "0.5 CPUs");
    let throttled =
        group("400000 100000").file("/sys/fs/cgroup/kubepods/pod1/cpu.stat", "usage_usec 1\nnr_throttled 12");
    expect(&throttled, "cpu-limit", Status::Warn, "throttled 12 times");
    let first_version = Tree::host()
        .missing("/sys/fs/cgroup/cpu.max")
        .file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000")
        .file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
    expect(&first_version, "cpu-limit", Status::Warn, "1.5 CPUs");
}

#[test]
fn two_copies_of_a_library_are_found_and_one_under_two_names_is_one() {
    let one = Tree::host()
        .real("/usr/lib64/libucp.so", "/usr/lib64/libucp.so.0.0.0")
        .real("/usr/lib64/libucp.so.0", "/usr/lib64/libucp.so.0.0.0");
    expect(&one, "libraries-ucx", Status::Ok, "one UCX");
    let two = one
        .real("/opt/hpcx/ucx/lib/libucp.so", "/opt/hpcx/ucx/lib/libucp.so.0.0.0")
        .file("env:LD_LIBRARY_PATH", "/opt/hpcx/ucx/lib:/x");
    expect(&two, "libraries-ucx", Status::Warn, "LD_LIBRARY_PATH has /opt/hpcx/ucx/lib");
}

#[test]
fn a_wheel_that_cannot_serve_the_device_is_named_before_it_falls_back_to_tcp() {
    let wheel = "/usr/local/lib/python3.12/dist-packages/nixl_cu12.libs/libibverbs-1.so.1";
    let irdma = Tree::host()
        .mlx5_roce("irdma0", 0)
        .link(&format!("{IB}/irdma0/device/driver"), "../drivers/ice")
        .real(wheel, wheel);
    expect(&irdma, "libraries-rdma", Status::Warn, "NIXL's wheel cannot serve irdma0");
    expect(&Tree::host().mlx5_ib("mlx5_0", 0).real(wheel, wheel), "libraries-rdma", Status::Ok, "provider");
}

#[test]
fn the_crash_at_exit_is_known_before_it_happens() {
    let module = "/usr/lib/python3/dist-packages/nixl_cu12.libs/ucx/libuct_ib_efa.so.0";
    let tree = || {
        Tree::host()
            .real("/usr/lib/x86_64-linux-gnu/libefa.so.1", "/usr/lib/x86_64-linux-gnu/libefa.so.1.2")
            .real(module, module)
    };
    expect(&tree(), "libefa-crash", Status::Warn, "UCX_MODULES=^efa");
    expect(&tree().file("env:UCX_MODULES", "^efa"), "libefa-crash", Status::Ok, "keeps");
}

#[test]
fn nvlink_is_read_from_nvml_or_from_nvidia_smi() {
    let nvml = |text: &str| Tree::host().gpu().file("probe:nvml/links", text);
    expect(
        &nvml("gpu 0 link 0 active, errors 0\ngpu 0 link 1 active, errors 0"),
        "nvlink",
        Status::Ok,
        "all 2",
    );
    expect(
        &nvml("gpu 0 link 0 active, errors 0\ngpu 0 link 1 down, errors 0"),
        "nvlink",
        Status::Warn,
        "1 of 2",
    );
    expect(&nvml("gpu 0 link 0 active, errors 4"), "nvlink", Status::Warn, "4 NVLink errors");
    expect(&nvml("gpu 0 link 0 active, errors 0"), "gpu-topology", Status::Ok, "1 NVLinks");
    let smi = Tree::host().gpu().file(
        "probe:nvidia-smi-nvlink",
        "GPU 0: NVIDIA H100 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>",
    );
    expect(&smi, "nvlink", Status::Warn, "1 of 2");
    expect(
        &Tree::host().gpu().file("probe:nvml/error", "Driver/library version mismatch"),
        "nvlink",
        Status::Skipped,
        "mismatch",
    );
}

#[test]
fn a_fabric_counts_only_when_every_gpu_has_joined_it() {
    let nvml = |text: &str| Tree::host().gpu().file("probe:nvml/fabric", text);
    let joined =
        "gpu 0 state completed, status 0, clique 3, cluster 00112233445566778899aabbccddeeff, health 0x1aa";
    expect(&nvml(joined), "nvlink-fabric", Status::Ok, "clique 3");
    let second = format!("{joined}\ngpu 1 state in progress, status 0, clique 0, cluster 00");
    expect(&nvml(&second), "nvlink-fabric", Status::Fail, "gpu 1 state in progress");
    expect(&nvml(&joined.replace("status 0", "status 999")), "nvlink-fabric", Status::Fail, "status 999");
    expect(&nvml(&joined.replace("0x1aa", "0x1a9")), "nvlink-fabric", Status::Warn, "degraded bandwidth");
    expect(&nvml(&joined.replace("0x1aa", "0x5aa")), "nvlink-fabric", Status::Warn, "wrong configuration");
    expect(&nvml("gpu 0 state not supported"), "nvlink-fabric", Status::Skipped, "no NVLink fabric");
    expect(&nvml("gpu 0 not known: NVML error 1"), "nvlink-fabric", Status::Unknown, "NVML error 1");
    expect(&Tree::host().gpu(), "nvlink-fabric", Status::Unknown, "no nvidia-smi");
    let smi = |status: &str, bandwidth: &str| {
        Tree::host().gpu().file(
            "probe:nvidia-smi-fabric",
            &format!(
                "    Fabric\n        State                             : Completed\n        Status                            : {status}\n        \
                 CliqueId                          : 3\n        ClusterUUID                       : 00112233-4455-6677-8899-aabbccddeeff\n        \
                 Health\n            Bandwidth                     : {bandwidth}"
            ),
        )
    };
    expect(&smi("Success", "Full"), "nvlink-fabric", Status::Ok, "CliqueId 3");
    expect(&smi("Success", "Degraded"), "nvlink-fabric", Status::Warn, "degraded");
    expect(&smi("Failure", "Full"), "nvlink-fabric", Status::Fail, "failure");
    let fact = |tree: &Tree| {
        let facts = tree.judged().facts;
        facts.into_iter().find(|fact| fact.name == "NVLink fabric").unwrap().value
    };
    assert_eq!(fact(&nvml(joined)), fact(&smi("Success", "Full")), "both readers name one fabric alike");
    assert_eq!(fact(&Tree::host()), "none");
}

#[test]
fn capabilities_are_told_one_by_one() {
    let with = |mask: &str| Tree::host().file("/proc/self/status", &format!("CapEff:\t{mask}"));
    expect(&with("0000000000004000"), "capabilities", Status::Ok, "CAP_IPC_LOCK: may lock");
    expect(&with("0000000000000000"), "capabilities", Status::Ok, "no CAP_SYS_PTRACE: may not");
    expect(&Tree::host().missing("/proc/self/status"), "capabilities", Status::Unknown, "could not be read");
}

#[test]
fn imex_channels_and_gdrcopy_need_more_than_to_be_there() {
    let channel = "/dev/nvidia-caps-imex-channels/channel0";
    let none = Access { character: true, read: false, write: false };
    expect(&Tree::host().gpu().node(channel, FULL), "imex-channels", Status::Ok, "1 IMEX");
    expect(&Tree::host().gpu().node(channel, none), "imex-channels", Status::Warn, "none may be opened");
    expect(&Tree::host().gpu(), "imex-channels", Status::Skipped, "no IMEX channel");
    expect(&Tree::host().node("/dev/gdrdrv", FULL), "gdrcopy", Status::Ok, "usable");
    expect(&Tree::host().node("/dev/gdrdrv", none), "gdrcopy", Status::Warn, "neither");
}

#[test]
fn two_nodes_stand_side_by_side_with_their_differences() {
    let (first, second) =
        (Tree::host().mlx5_ib("mlx5_0", 0).judged(), Tree::host().mlx5_roce("mlx5_0", 0).judged());
    let different: Vec<&str> =
        first.beside(&second).iter().filter(|pair| pair.differs()).map(|pair| pair.name).collect();
    assert_eq!(different, ["link", "GID"]);
    assert!(first.beside(&first).iter().all(|pair| !pair.differs()));
}

#[test]
fn near_a_gpu_are_the_ports_below_its_switch_and_its_node() {
    let far_port = "/sys/devices/pci0000:c0/0000:c0:02.0/0000:c2:00.0";
    let tree = Tree::host().mlx5_ib("mlx5_0", 1).mlx5_ib("mlx5_1", 2).gpu().gpu_far_away();
    let tree =
        tree.real(&format!("{IB}/mlx5_1/device"), far_port).file(&format!("{far_port}/numa_node"), "1");
    let near = |pci| crate::node::near(&tree.0, pci);
    let beside = near("0000:30:00.0");
    assert_eq!((beside.ports.as_slice(), beside.numa_node), (["mlx5_0:1".to_owned()].as_slice(), Some(0)));
    assert!(beside.farther_ports);
    assert_eq!(beside.distance.as_deref(), Some("PIX"));
    let far = near("0000:c1:00.0");
    assert_eq!((far.ports.as_slice(), far.numa_node), (["mlx5_1:1".to_owned()].as_slice(), Some(1)));
    assert_eq!(far.distance.as_deref(), Some("PHB"));
    assert_eq!(near("0000:99:00.0"), crate::node::Near::default());
}
