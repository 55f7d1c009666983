//! The RDMA ports and the NUMA node that go with a GPU, on machines as they are built: over their trees of files, and end to
//! end with fake drivers. The tests named `netns_…` need root.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::fs;

use checks::node::{Near, gather_tree, near};
use kvwire_tests::{Adapter, Ended, Gpus, Machine, Nixl, gpus, pair};
use serde_json::{Value, json};

fn around(machine: &Machine, gpu: &str) -> Near {
    near(&gather_tree(machine.root(), "test"), gpu)
}

/// Asserts what is near a GPU: ports, their distance, and whether others are farther away.
#[track_caller]
fn assert_near(machine: &Machine, gpu: &str, ports: &[&str], distance: Option<&str>, farther: bool) {
    let found = around(machine, gpu);
    assert_eq!(found.ports, ports, "{gpu}: {found:?}");
    assert_eq!((found.distance.as_deref(), found.farther_ports), (distance, farther), "{gpu}: {found:?}");
}

/// GPU and adapter of each of the eight switches of a DGX H100: bus of the root, of the GPU and of the adapter.
const SWITCHES: [(&str, &str, &str, &str, i32); 8] = [
    ("15", "1b", "18", "mlx5_0", 0),
    ("37", "43", "40", "mlx5_3", 0),
    ("48", "52", "4f", "mlx5_4", 0),
    ("59", "61", "5e", "mlx5_5", 0),
    ("97", "9d", "9a", "mlx5_6", 1),
    ("b7", "c3", "c0", "mlx5_9", 1),
    ("c7", "d1", "ce", "mlx5_10", 1),
    ("d7", "df", "dc", "mlx5_11", 1),
];

/// Eight GPUs, an adapter beside each one below a second switch, and a storage adapter with two functions on each node.
fn dgx_h100() -> Machine {
    let mut machine = Machine::new();
    for (root, gpu, card, name, numa) in SWITCHES {
        let switch = format!("pci0000:{root}/0000:{root}:01.0/0000:{root}:1c.0");
        machine = machine
            .gpu(
                &format!("{switch}/0000:{root}:1d.0/0000:{root}:1e.0/0000:{root}:1f.0/0000:{gpu}:00.0"),
                numa,
            )
            .adapter(Adapter::new(name, &format!("{switch}/0000:{root}:1d.1/0000:{card}:00.0"), numa));
    }
    for (bus, names, numa) in [("29", ["mlx5_1", "mlx5_2"], 0), ("aa", ["mlx5_7", "mlx5_8"], 1)] {
        for (function, name) in names.into_iter().enumerate() {
            let pci = format!("pci0000:{bus}/0000:{bus}:01.0/0000:{bus}:00.{function}");
            machine = machine.adapter(Adapter { link_layer: "Ethernet", ..Adapter::new(name, &pci, numa) });
        }
    }
    machine
}

#[test]
fn each_gpu_of_a_dgx_has_the_adapter_below_its_own_switches_and_none_of_storage() {
    let machine = dgx_h100();
    for (_, gpu, _, adapter, numa) in SWITCHES {
        let gpu = format!("0000:{gpu}:00.0");
        assert_near(&machine, &gpu, &[&format!("{adapter}:1")], Some("PXB"), true);
        assert_eq!(around(&machine, &gpu).numa_node, u32::try_from(numa).ok(), "{gpu}");
    }
}

/// A server with a GPU and an adapter at the root of each processor, and what is wrong with it.
fn two_sockets(change: impl Fn(Adapter<'static>) -> Adapter<'static>) -> Machine {
    Machine::new()
        .gpu("pci0000:16/0000:16:01.0/0000:17:00.0", 0)
        .gpu("pci0000:97/0000:97:01.0/0000:98:00.0", 1)
        .adapter(change(Adapter::new("mlx5_0", "pci0000:30/0000:30:01.0/0000:31:00.0", 0)))
        .adapter(change(Adapter::new("mlx5_1", "pci0000:b0/0000:b0:01.0/0000:b1:00.0", 1)))
}

#[test]
fn a_server_with_an_adapter_on_each_processor_keeps_to_the_gpus_side() {
    let machine = two_sockets(|adapter| adapter);
    assert_near(&machine, "0000:17:00.0", &["mlx5_0:1"], Some("NODE"), true);
    assert_near(&machine, "0000:98:00.0", &["mlx5_1:1"], Some("NODE"), true);
}

#[test]
fn a_port_that_is_down_or_may_not_be_opened_gives_way_to_one_farther_away() {
    let down = two_sockets(|adapter| match adapter.name {
        "mlx5_0" => Adapter { ports: &["1: DOWN"], ..adapter },
        _ => adapter,
    });
    assert_near(&down, "0000:17:00.0", &["mlx5_1:1"], Some("SYS"), false);
    // A container gets one adapter of two.
    let given = two_sockets(|adapter| Adapter { opens: adapter.name == "mlx5_1", ..adapter });
    assert_near(&given, "0000:17:00.0", &["mlx5_1:1"], Some("SYS"), false);
    let none = two_sockets(|adapter| Adapter { opens: false, ..adapter });
    assert_near(&none, "0000:17:00.0", &[], None, false);
}

#[test]
fn of_an_adapter_with_two_ports_only_the_one_that_is_up_counts() {
    let machine = two_sockets(|adapter| Adapter { ports: &["4: ACTIVE", "1: DOWN"], ..adapter });
    assert_near(&machine, "0000:17:00.0", &["mlx5_0:1"], Some("NODE"), true);
    let second = two_sockets(|adapter| Adapter { ports: &["2: INIT", "4: ACTIVE"], ..adapter });
    assert_near(&second, "0000:98:00.0", &["mlx5_1:2"], Some("NODE"), true);
    let both = two_sockets(|adapter| Adapter { ports: &["4: ACTIVE", "4: ACTIVE"], ..adapter });
    assert_near(&both, "0000:98:00.0", &["mlx5_1:1", "mlx5_1:2"], Some("NODE"), true);
}

#[test]
fn a_bond_of_two_functions_is_one_port_beside_the_gpu() {
    let switch = "pci0000:16/0000:16:01.0/0000:17:00.0";
    let machine = Machine::new()
        .gpu(&format!("{switch}/0000:18:00.0/0000:19:00.0"), 0)
        .adapter(Adapter {
            link_layer: "Ethernet",
            ..Adapter::new("mlx5_bond_0", &format!("{switch}/0000:18:01.0/0000:1a:00.0"), 0)
        })
        .adapter(Adapter::new("mlx5_2", "pci0000:b0/0000:b0:01.0/0000:b1:00.0", 1));
    assert_near(&machine, "0000:19:00.0", &["mlx5_bond_0:1"], Some("PIX"), true);
}

#[test]
fn a_gpu_with_all_adapters_on_the_other_processor_is_left_to_ucx() {
    let machine = Machine::new()
        .gpu("pci0000:97/0000:97:01.0/0000:98:00.0", 1)
        .adapter(Adapter::new("mlx5_0", "pci0000:30/0000:30:01.0/0000:31:00.0", 0))
        .adapter(Adapter::new("mlx5_1", "pci0000:40/0000:40:01.0/0000:41:00.0", 0));
    assert_near(&machine, "0000:98:00.0", &["mlx5_0:1", "mlx5_1:1"], Some("SYS"), false);
}

#[test]
fn a_virtual_machine_that_hides_the_bus_leaves_nothing_to_choose() {
    // All on one emulated bus, and a firmware that names no node.
    let flat = Machine::new()
        .gpu("pci0000:00/0000:00:05.0", -1)
        .gpu("pci0000:00/0000:00:06.0", -1)
        .adapter(Adapter::new("mlx5_0", "pci0000:00/0000:00:07.0", -1))
        .adapter(Adapter::new("mlx5_1", "pci0000:00/0000:00:08.0", -1));
    assert_near(&flat, "0000:00:05.0", &["mlx5_0:1", "mlx5_1:1"], Some("PHB"), false);
    assert_eq!(around(&flat, "0000:00:05.0").numa_node, None);
    // A root of its own for each device that is passed through, as Hyper-V has it: the node alone tells them apart.
    let vmbus = |guid: &str, domain: &str| {
        format!("LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/{guid}/pci{domain}:00/{domain}:00:00.0")
    };
    let passed = Machine::new()
        .gpu(&vmbus("47505500-0001", "0001"), 0)
        .gpu(&vmbus("47505500-0008", "0008"), 1)
        .adapter(Adapter::new("mlx5_ib0", &vmbus("00000102-0001", "0101"), 0))
        .adapter(Adapter::new("mlx5_ib4", &vmbus("00000102-0005", "0105"), 1));
    assert_near(&passed, "0001:00:00.0", &["mlx5_ib0:1"], Some("NODE"), true);
    assert_near(&passed, "0008:00:00.0", &["mlx5_ib4:1"], Some("NODE"), true);
    // A GPU that sysfs does not show at all.
    assert_eq!(around(&flat, "0000:99:00.0"), Near::default());
}

#[test]
fn a_pod_sees_every_function_of_the_node_and_takes_the_virtual_one_that_it_was_given() {
    let bridge = "pci0000:16/0000:16:01.0/0000:17:00.0";
    let (physical, virtual_) =
        (format!("{bridge}/0000:18:01.0/0000:1a:00.0"), format!("{bridge}/0000:18:01.0/0000:1a:00.3"));
    let machine = Machine::new()
        .gpu(&format!("{bridge}/0000:18:00.0/0000:19:00.0"), 0)
        .adapter(Adapter { opens: false, ..Adapter::new("mlx5_0", &physical, 0) })
        .adapter(Adapter::new("mlx5_7", &virtual_, 0))
        .adapter(Adapter::new("mlx5_9", "pci0000:b0/0000:b0:01.0/0000:b1:00.2", 1));
    assert_near(&machine, "0000:19:00.0", &["mlx5_7:1"], Some("PIX"), true);
}

#[test]
fn the_adapters_of_a_cloud_beside_a_gpu_are_taken_by_the_names_that_they_have() {
    let machine = ["44", "55"].into_iter().fold(Machine::new(), |machine, root| {
        let switch = format!("pci0000:{root}/0000:{root}:00.0/0000:{root}:01.0");
        let machine = machine.gpu(&format!("{switch}/0000:{root}:02.0/0000:{root}:1d.0"), 0);
        (0..4).fold(machine, |machine, number| {
            let name = format!("rdmap{}s{}", u32::from_str_radix(root, 16).unwrap(), 25 + number);
            let pci = format!("{switch}/0000:{root}:03.{number}/0000:{root}:1{number}.0");
            machine.adapter(Adapter { link_layer: "Unspecified", ..Adapter::new(&name, &pci, 0) })
        })
    });
    let ports = ["rdmap68s25:1", "rdmap68s26:1", "rdmap68s27:1", "rdmap68s28:1"];
    assert_near(&machine, "0000:44:1d.0", &ports, Some("PIX"), true);
}

/// The DGX with fake GPUs in it and with cores: node 0 has the first that this process may use, node 1 the last.
struct Dgx {
    machine: Machine,
    gpus: Gpus,
    cores: [String; 2],
}

impl Dgx {
    fn new() -> Self {
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        let mut cores = (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
        let first = cores.next().unwrap();
        let cores = [first, cores.next_back().unwrap_or(first)].map(|core| core.to_string());
        let script: String =
            SWITCHES.iter().map(|(_, bus, ..)| format!("gpu pci=0000:{bus}:00.0 links=4\n")).collect();
        Self {
            machine: dgx_h100().node(0, &cores[0]).node(1, &cores[1]),
            gpus: gpus(&script).lane("cuda_ipc/cuda"),
            cores,
        }
    }

    /// A short run in GPU memory.
    fn run<const N: usize>(&self, args: [&str; N]) -> Ended {
        let short =
            ["--sizes", "64KiB", "--samples", "10", "--warmup", "2", "--case-time", "5s", "--op", "write"];
        let run = pair().nixl(&Nixl::Fake).gpus(&self.gpus).args(short).args(["--expect", "any"]);
        // A flag wins over a variable.
        let run = run.env("KVWIRE_MEMORY", "vram");
        let ended = run.args(args).on_machine(&self.machine).run();
        assert_eq!(ended.code, 0, "{ended}");
        ended
    }
}

/// Where the ranks of the initiator and then those of the target sat.
fn seats(ended: &Ended) -> Vec<Value> {
    let placement = &ended.result()["placement"];
    let of = |side: &str| placement[side].as_array().unwrap().clone();
    of("initiator").into_iter().chain(of("target")).collect()
}

/// `UCX_NET_DEVICES` as each engine found it in its own environment.
fn told(ended: &Ended) -> Vec<Value> {
    seats(ended).iter().map(|seat| seat["ucx_net_devices"].clone()).collect()
}

#[test]
fn netns_each_rank_is_told_the_port_beside_its_own_gpu_and_runs_on_that_gpus_node() {
    let dgx = Dgx::new();
    let ended = dgx.run(["--ranks", "4"]);
    let seats = seats(&ended);
    assert_eq!(seats.len(), SWITCHES.len(), "{ended}");
    for (seat, (_, gpu, _, adapter, numa)) in seats.iter().zip(SWITCHES) {
        assert_eq!(seat["gpu"]["pci"], format!("0000:{gpu}:00.0"), "{ended}");
        assert_eq!(seat["nics"], json!([format!("{adapter}:1")]), "{ended}");
        assert_eq!(seat["nics_distance"], "PXB", "{ended}");
        let told: Vec<&str> = seat["ucx_net_devices"].as_str().unwrap().split(',').collect();
        assert_eq!(told[0], format!("{adapter}:1"), "{ended}");
        assert!(told[1..].contains(&"lo"), "TCP stays possible: {told:?}");
        assert!(told[1..].iter().all(|name| !name.contains(':')), "no other port: {told:?}");
        assert_eq!(seat["numa_wanted"], numa, "{ended}");
        // As the kernel says of the thread that calls NIXL.
        assert_eq!(seat["cpus"], dgx.cores[usize::try_from(numa).unwrap()], "{ended}");
    }
    assert!(ended.stdout.contains("mlx5_0:1 (PXB)"), "a person reads it too: {ended}");
}

#[test]
fn netns_ports_nodes_and_variables_of_the_users_own_stand() {
    let dgx = Dgx::new();
    let named = dgx.run(["--nics", "mlx5_4:1,mlx5_5:1", "--numa", "off"]);
    assert_eq!(told(&named), ["mlx5_4:1,mlx5_5:1"; 2], "{named}");
    assert!(
        seats(&named).iter().all(|seat| seat["numa_wanted"].is_null() && seat["cpus"].is_null()),
        "{named}"
    );
    let left = dgx.run(["--nics", "ucx", "--numa", "7"]);
    assert_eq!(told(&left), [Value::Null, Value::Null], "{left}");
    assert!(left.title("numa-not-pinned").contains("no core of NUMA node 7"), "{left}");
    let variable = dgx.run(["--ucx-env", "UCX_NET_DEVICES=mlx5_9:1"]);
    assert_eq!(told(&variable), ["mlx5_9:1"; 2], "{variable}");
    assert!(seats(&variable).iter().all(|seat| seat["nics"] == json!([])), "{variable}");
    let host = dgx.run(["--memory", "dram"]);
    assert_eq!(told(&host), [Value::Null, Value::Null], "host memory is near no GPU: {host}");
}

/// Interfaces without an address are none of UCX's devices. Who did not name them is not told to correct them.
#[test]
fn netns_an_interface_that_ucx_does_not_take_is_no_finding_unless_the_user_named_it() {
    let dgx = Dgx::new();
    let log = dgx.gpus.folder().join("ucx.log");
    let line = "[1796032136.1] [vm:1 :0] ucp_context.c:1381 UCX  WARN  network device 'lo' is not available, please use one or more of: 'eth0'(tcp)";
    fs::write(&log, format!("{line}\n{}", fs::read_to_string(&log).unwrap())).unwrap();
    let findings = |ended: &Ended| ended.result()["findings"].to_string();
    let chosen = dgx.run(["--nics", "auto"]);
    assert!(!findings(&chosen).contains("ucx-device-missing"), "{chosen}");
    let named = dgx.run(["--nics", "mlx5_0:1,lo"]);
    assert!(findings(&named).contains("ucx-device-missing"), "{named}");
}
