use super::super::counters::{Sampled, SocketBytes, Windows};
use super::super::ucx::Lane;
use super::*;

fn gpus(initiator: &str, target: &str) -> GpusOfSides {
    let whole = |uuid: &str| Some(GpuOfSide { uuid: uuid.to_owned(), share: 1.0 });
    GpusOfSides { initiator: whole(initiator), target: whole(target), ..GpusOfSides::default() }
}
const WHOLE: EngineOfSide = EngineOfSide { rank: 0, share: 1.0 };
const PAYLOAD: u64 = 100 << 20;
const TRANSFERS: u64 = 100;

fn table(how: &str, lanes: &[(&str, &str)]) -> Table {
    let lane = |(transport, device): &(&str, &str)| Lane {
        transport: (*transport).to_owned(),
        device: (*device).to_owned(),
        percent: None,
    };
    let row = Row { sizes: (0, u64::MAX), how: how.to_owned(), lanes: lanes.iter().map(lane).collect() };
    Table { endpoint: "x intra-node cfg#1".to_owned(), selection: "get".to_owned(), rows: vec![row] }
}

/// A device whose counters grow by so much in the quiet window and in the loop, in the payload's direction and the
/// other one alike.
#[derive(Clone)]
struct Device(Kind, &'static str, Unit, u64, u64);

fn net(name: &'static str, moved: u64) -> Device {
    Device(Kind::Net, name, Unit::Bytes, 0, moved)
}

fn port(name: &'static str, moved: u64) -> Device {
    Device(Kind::Rdma, name, Unit::Bytes, 0, moved)
}

fn readings(devices: &[Device], connections: Option<u64>) -> [Reading; 4] {
    let within = devices.iter().any(|device| device.1 == "lo");
    let at = |ms: u64, quiet: u64, moved: u64| Reading {
        at_ns: ms * 1_000_000,
        counters: devices
            .iter()
            .map(|Device(kind, name, unit, background, bytes)| Counter {
                kind: *kind,
                device: (*name).to_owned(),
                unit: *unit,
                sent: 1000 + background * quiet + bytes * moved,
                received: 1000 + background * quiet + bytes * moved,
                source: "counter".to_owned(),
                stacked: name.starts_with("bond"),
                interface: (*name == "rxe0:1").then(|| "va".to_owned()),
            })
            .collect(),
        sockets: connections.map(|bytes| SocketBytes {
            sent: bytes * moved,
            received: bytes * moved,
            connections: 4,
            local_sent: if within { bytes * moved } else { 0 },
            local_received: if within { bytes * moved } else { 0 },
        }),
        engines: Vec::new(),
        sampled: Vec::new(),
        cached_ms: 0,
    };
    [at(0, 0, 0), at(50, 1, 0), at(60, 1, 0), at(560, 1, 1)]
}

fn judged(table: Option<&Table>, initiator: &[Reading; 4], target: &[Reading; 4]) -> Transport {
    judge(&CaseFacts {
        op: Op::Read,
        operation_bytes: 1 << 20,
        payload_bytes: PAYLOAD,
        transfers: TRANSFERS,
        depth: 1,
        table,
        endpoint: None,
        initiator: Some(initiator),
        target: Some(target),
        one_network: false,
        gpus: gpus("GPU-a", "GPU-b"),
        engines: [WHOLE; 2],
    })
}

fn both(table: Option<&Table>, devices: &[Device], connections: Option<u64>) -> Transport {
    let readings = readings(devices, connections);
    judged(table, &readings, &readings)
}

const ZERO_COPY: &str = "zero-copy";
const EMULATED: &str = "software emulation";

#[test]
fn rdma_needs_the_table_and_the_counters_of_both_sides() {
    let rc = table(ZERO_COPY, &[("rc_mlx5", "mlx5_0:1")]);
    let proven = both(Some(&rc), &[port("mlx5_0:1", PAYLOAD + 4096), net("eth0", 900)], Some(0));
    assert_eq!((proven.class, proven.doubt.as_deref()), (Class::Rdma, None));
    assert_eq!(proven.devices.len(), 2);
    assert_eq!(proven.devices[0].transport.as_deref(), Some("rc_mlx5"));
    assert_eq!(proven.devices[0].share_percent, Some(100.0));
    // The log alone: the counters are still, or there are none.
    assert_eq!(both(Some(&rc), &[port("mlx5_0:1", 0)], Some(0)).class, Class::Unknown);
    let silent = both(Some(&rc), &[], Some(0));
    assert!(silent.class == Class::Unknown && silent.doubt.unwrap().contains("no counter"));
    // The counters alone: it may have been software.
    let alone = both(None, &[port("mlx5_0:1", PAYLOAD)], Some(0));
    assert!(alone.class == Class::Unknown && alone.doubt.unwrap().contains("emulation"));
    // One side only.
    let (moved, still) =
        (readings(&[port("mlx5_0:1", PAYLOAD)], Some(0)), readings(&[port("mlx5_0:1", 0)], Some(0)));
    assert_eq!(judged(Some(&rc), &moved, &still).class, Class::Unknown);
}

#[test]
fn a_log_that_says_rdma_while_memory_carried_the_bytes_is_not_believed() {
    // 24 MB moved with 34 packets on the adapter: cross-memory attach carried them.
    let verbs = table(ZERO_COPY, &[("rc_verbs", "rxe0:1")]);
    let rxe = Device(Kind::Rdma, "rxe0:1", Unit::Packets { payload_max: 4096 }, 0, 34);
    let judged = both(Some(&verbs), &[rxe, net("va", 3000), net("lo", 500)], Some(0));
    assert_eq!(judged.class, Class::Unknown);
    assert!(judged.doubt.unwrap().contains("rc_verbs/rxe0:1, and its counters did not move"));
}

#[test]
fn counters_beat_the_log() {
    let rc = table(ZERO_COPY, &[("rc_mlx5", "mlx5_0:1")]);
    let tcp = both(Some(&rc), &[port("mlx5_0:1", 0), net("eth0", PAYLOAD)], Some(PAYLOAD));
    assert_eq!(tcp.class, Class::Tcp);
    assert!(tcp.doubt.unwrap().contains("counters say tcp"));
}

#[test]
fn packets_of_a_software_adapter_are_counted_and_its_interface_is_not_counted_again() {
    let verbs = table(ZERO_COPY, &[("rc_verbs", "rxe0:1")]);
    let rxe = Device(Kind::Rdma, "rxe0:1", Unit::Packets { payload_max: 4096 }, 0, PAYLOAD / 4096 + 50);
    let judged = both(Some(&verbs), &[rxe, net("va", PAYLOAD + 90_000)], None);
    assert_eq!(judged.class, Class::Rdma);
    assert!(judged.devices.iter().all(|device| device.device == "rxe0:1"), "{:?}", judged.devices);
}

#[test]
fn rails_have_their_shares() {
    let rails = table(ZERO_COPY, &[("rc_mlx5", "mlx5_0:1"), ("rc_mlx5", "mlx5_1:1")]);
    let moved = [port("mlx5_0:1", PAYLOAD * 3 / 4), port("mlx5_1:1", PAYLOAD / 4), port("mlx5_2:1", 512)];
    let judged = both(Some(&rails), &moved, Some(0));
    let shares: Vec<_> =
        judged.devices.iter().take(2).map(|d| (d.device.as_str(), d.share_percent)).collect();
    assert_eq!(shares, [("mlx5_0:1", Some(75.0)), ("mlx5_1:1", Some(25.0))]);
}

#[test]
fn memory_is_proven_by_stillness_elsewhere() {
    let cma = table(ZERO_COPY, &[("cma", "memory")]);
    let judged = both(Some(&cma), &[net("lo", 2000), net("eth0", 0)], Some(40));
    assert_eq!((judged.class, judged.doubt), (Class::Shm, None));
    assert_eq!((judged.devices[0].device.as_str(), judged.devices[0].bytes), ("memory", None));
    // Without its table nothing speaks for memory.
    assert_eq!(both(None, &[net("lo", 0)], Some(0)).class, Class::Unknown);
}

#[test]
fn other_traffic_does_not_count_where_the_kernel_tells_connections_apart() {
    let cma = table(ZERO_COPY, &[("cma", "memory")]);
    let loud = Device(Kind::Net, "lo", Unit::Bytes, PAYLOAD, PAYLOAD * 20);
    let exact = both(Some(&cma), std::slice::from_ref(&loud), Some(0));
    assert_eq!((exact.class, exact.doubt), (Class::Shm, None));
    let doubtful = both(Some(&cma), &[loud], None);
    assert!(doubtful.class == Class::Shm && doubtful.doubt.unwrap().contains("other traffic"));
}

#[test]
fn tcp_is_the_engines_own_connections_whatever_interface_ucx_names() {
    // UCX names the interface that owns the address; on one host the kernel sends over lo.
    let tcp = table(ZERO_COPY, &[("tcp", "eth0")]);
    let judged = both(Some(&tcp), &[net("lo", PAYLOAD + 70_000), net("eth0", 0)], Some(PAYLOAD + 3000));
    assert_eq!((judged.class, judged.doubt), (Class::Tcp, None));
    assert_eq!(
        (judged.devices[0].device.as_str(), judged.devices[0].transport.as_deref()),
        ("lo", Some("tcp"))
    );
    assert_eq!(judged.devices[0].share_percent, Some(100.0));
    // A claim of tcp with still connections.
    assert_eq!(both(Some(&tcp), &[net("eth0", 0)], Some(0)).class, Class::Unknown);
}

#[test]
fn connections_within_the_host_run_over_lo_and_are_exact_beside_other_traffic() {
    let tcp = table(ZERO_COPY, &[("tcp", "eth0")]);
    let readings = readings(&[Device(Kind::Net, "lo", Unit::Bytes, PAYLOAD, PAYLOAD)], Some(PAYLOAD));
    let judged = judged(Some(&tcp), &readings, &readings);
    let device = &judged.devices[0];
    assert_eq!((judged.class, device.device.as_str(), device.bytes), (Class::Tcp, "lo", Some(PAYLOAD)));
    assert_eq!(judged.devices.iter().filter(|device| device.side == "initiator").count(), 1);
}

#[test]
fn emulation_is_a_class_of_its_own_over_any_wire() {
    let over_tcp = table(EMULATED, &[("tcp", "lo")]);
    let judged = both(Some(&over_tcp), &[net("lo", PAYLOAD)], Some(PAYLOAD));
    assert_eq!((judged.class, judged.over), (Class::Emulated, Some(Class::Tcp)));
    // An EFA device that is used, and yet by software: the device is no proof.
    let over_srd = table(EMULATED, &[("srd", "rdmap0s6:1")]);
    let judged = both(Some(&over_srd), &[port("rdmap0s6:1", PAYLOAD)], Some(0));
    assert_eq!((judged.class, judged.over), (Class::Emulated, Some(Class::Rdma)));
}

#[test]
fn a_bond_does_not_count_what_its_parts_count() {
    let tcp = table(ZERO_COPY, &[("tcp", "bond0")]);
    let judged = both(Some(&tcp), &[net("bond0", PAYLOAD), net("eth0", PAYLOAD)], None);
    assert_eq!(judged.class, Class::Tcp);
    assert!(judged.devices.iter().all(|device| device.device == "eth0"));
}

/// Two NVLinks of each GPU of the run, and one of a GPU that somebody else uses.
fn links(each: u64, pcie: u64) -> Vec<Device> {
    let link = |name, moved| Device(Kind::Nvlink, name, Unit::Bytes, 0, moved);
    let bus = |name, moved| Device(Kind::Pcie, name, Unit::Bytes, 0, moved);
    vec![
        link("GPU-a link 0", each),
        link("GPU-a link 1", each),
        link("GPU-b link 0", each),
        link("GPU-b link 7", each),
        link("GPU-c link 0", PAYLOAD * 3),
        bus("GPU-a pcie", pcie),
        bus("GPU-b pcie", pcie),
    ]
}

#[test]
fn the_same_gpu_lanes_are_nvlink_or_pcie_as_the_counters_of_both_gpus_say() {
    let ipc = table(ZERO_COPY, &[("cuda_ipc", "cuda")]);
    let nvlink = both(Some(&ipc), &links(PAYLOAD / 2, 0), Some(0));
    assert_eq!((nvlink.class, nvlink.doubt.as_deref()), (Class::Nvlink, None));
    let devices: Vec<_> =
        nvlink.devices.iter().map(|d| (d.side.as_str(), d.device.as_str(), d.bytes)).collect();
    assert_eq!(devices, [("initiator", "GPU-a", Some(PAYLOAD)), ("target", "GPU-b", Some(PAYLOAD))]);
    assert_eq!(nvlink.devices[0].transport.as_deref(), Some("cuda_ipc"));
    assert!(
        nvlink.evidence.iter().any(|e| e.side == "target" && e.text.starts_with("GPU-b link 7")),
        "{nvlink:?}"
    );
    assert!(!nvlink.evidence.iter().any(|e| e.text.contains("GPU-c")), "another GPU's links are no evidence");
    assert_eq!(both(Some(&ipc), &links(0, PAYLOAD), Some(0)).class, Class::PcieP2p);
    let uncounted = both(Some(&ipc), &[], Some(0));
    assert!(uncounted.class == Class::Unknown && uncounted.doubt.unwrap().contains("cuda_ipc"));
    let still = both(Some(&ipc), &links(0, 0), Some(0));
    assert_eq!(still.class, Class::Unknown, "nothing moved over NVLink or PCIe");
    // RDMA from a GPU crosses PCIe too.
    let rc = table(ZERO_COPY, &[("rc_mlx5", "mlx5_0:1")]);
    let gpu_direct = [port("mlx5_0:1", PAYLOAD), Device(Kind::Pcie, "GPU-a pcie", Unit::Bytes, 0, PAYLOAD)];
    assert_eq!(both(Some(&rc), &gpu_direct, Some(0)).class, Class::Rdma);
    // A loud network says nothing about NVLink.
    let mut loud = links(PAYLOAD / 2, 0);
    loud.push(Device(Kind::Net, "eth0", Unit::Bytes, PAYLOAD, PAYLOAD * 10));
    assert_eq!(both(Some(&ipc), &loud, Some(0)).class, Class::Nvlink);
}

/// Rates of both GPUs' PCIe links in MB/s, in so many windows of the loop of half a second, and in one quiet window.
fn sampled(each_link: u64, windows: u64, mb_per_s: u64, quiet_mb_per_s: u64) -> [Reading; 4] {
    let mut readings = readings(&links(each_link, 0)[..4], Some(0));
    let seen = |count: u64, mb: u64| {
        let windows = Windows { count, rates: count * mb * 1_000_000 };
        let link = |uuid: &str| Sampled { uuid: uuid.to_owned(), sent: windows, received: windows };
        vec![link("GPU-a"), link("GPU-b"), link("GPU-c")]
    };
    (readings[1].sampled, readings[3].sampled) = (seen(1, quiet_mb_per_s), seen(windows, mb_per_s));
    readings
}

#[test]
fn rates_stand_for_counters_where_nothing_counts_and_no_nvlink_moved() {
    let ipc = table(ZERO_COPY, &[("cuda_ipc", "cuda")]);
    let of = |readings: [Reading; 4]| judged(Some(&ipc), &readings, &readings);
    let fits = PAYLOAD / 500_000;
    let proven = of(sampled(0, 12, fits + 30, 30));
    assert_eq!((proven.class, proven.doubt.as_deref()), (Class::PcieP2p, None));
    let devices: Vec<_> = proven.devices.iter().map(|d| (d.device.as_str(), d.bytes)).collect();
    assert_eq!(devices, [("GPU-a", None), ("GPU-b", None)]);
    assert!(proven.devices[0].share_percent.unwrap() > 99.0, "{proven:?}");
    let rates: Vec<_> = proven.evidence.iter().filter(|e| e.source == Source::SampledRates).collect();
    assert_eq!(rates.len(), 2, "{proven:?}");
    for words in ["12 windows of 20 ms", "about 100 % of the payload", "0.030 GB/s of background"] {
        assert!(rates[0].text.contains(words), "{words}: {rates:?}");
    }
    for (readings, why) in [
        (sampled(0, 4, fits, 0), "too short for the sampled rates of PCIe (4 windows of 20 ms"),
        (sampled(0, 12, fits / 20, 0), "do not fit it"),
        (sampled(0, 12, fits * 3, 0), "do not fit it"),
        (sampled(PAYLOAD / 10, 12, fits, 0), "NVLinks moved as well"),
    ] {
        let doubted = of(readings);
        assert_eq!(doubted.class, Class::Unknown, "{why}");
        assert!(doubted.doubt.as_ref().unwrap().contains(why), "{why}: {doubted:?}");
    }
    // NVLink that is counted needs no rates, and where bytes are counted nobody asks for them.
    assert_eq!(of(sampled(PAYLOAD / 2, 12, 1, 0)).class, Class::Nvlink);
    let mut counted = readings(&links(0, PAYLOAD), Some(0));
    counted[3].sampled = sampled(0, 12, 1, 0)[3].sampled.clone();
    let judged = of(counted);
    assert_eq!(judged.class, Class::PcieP2p);
    assert!(judged.evidence.iter().all(|e| e.source != Source::SampledRates), "{judged:?}");
}

#[test]
fn within_one_gpu_nothing_moves_and_that_is_its_memory() {
    let ipc = table(ZERO_COPY, &[("cuda_ipc", "cuda")]);
    let readings = readings(&links(0, 0), Some(0));
    let judged = judge(&CaseFacts {
        op: Op::Write,
        operation_bytes: 1 << 20,
        payload_bytes: PAYLOAD,
        transfers: TRANSFERS,
        depth: 1,
        table: Some(&ipc),
        endpoint: None,
        initiator: Some(&readings),
        target: Some(&readings),
        one_network: true,
        gpus: gpus("GPU-a", "GPU-a"),
        engines: [WHOLE; 2],
    });
    assert_eq!((judged.class, judged.doubt), (Class::Shm, None));
}

#[test]
fn background_is_taken_off_and_told() {
    let rc = table(ZERO_COPY, &[("rc_mlx5", "mlx5_0:1")]);
    // 1 MiB in the quiet 50 ms makes 10 MiB in the 500 ms of the loop.
    let busy = Device(Kind::Rdma, "mlx5_0:1", Unit::Bytes, 1 << 20, PAYLOAD + (10 << 20));
    let judged = both(Some(&rc), &[busy], Some(0));
    assert_eq!(judged.devices[0].bytes, Some(PAYLOAD));
    assert!(judged.evidence.iter().any(|e| e.text.contains("10485760 bytes of background")), "{judged:?}");
}

#[test]
fn a_counter_that_went_back_is_no_evidence() {
    let rc = table(ZERO_COPY, &[("rc_mlx5", "mlx5_0:1")]);
    let mut readings = readings(&[port("mlx5_0:1", PAYLOAD)], Some(0));
    readings[3].counters[0].received = 3;
    readings[3].counters[0].sent = 3;
    let judged = judged(Some(&rc), &readings, &readings);
    assert_eq!(judged.class, Class::Unknown);
}

#[test]
fn two_wires_that_both_account_for_the_payload_are_not_decided_between() {
    let rc = table(ZERO_COPY, &[("rc_mlx5", "mlx5_0:1")]);
    let judged = both(Some(&rc), &[port("mlx5_0:1", PAYLOAD)], Some(PAYLOAD));
    assert!(judged.class == Class::Unknown && judged.doubt.unwrap().contains("both account"));
}

#[test]
fn a_size_without_a_protocol_and_a_transport_that_is_not_known_are_unknown() {
    let mut none = table(ZERO_COPY, &[("cma", "memory")]);
    none.rows.clear();
    assert!(both(Some(&none), &[], Some(0)).doubt.unwrap().contains("no row"));
    let warp = table(ZERO_COPY, &[("warp", "drive")]);
    assert_eq!(both(Some(&warp), &[], Some(0)).class, Class::Unknown);
}

#[test]
fn lanes_of_two_kinds_are_as_good_as_the_weaker_one() {
    let mixed = table(ZERO_COPY, &[("rc_mlx5", "mlx5_0:1"), ("tcp", "eth0")]);
    let judged = both(Some(&mixed), &[port("mlx5_0:1", 0), net("eth0", PAYLOAD)], Some(PAYLOAD));
    assert_eq!((judged.class, judged.doubt), (Class::Tcp, None));
}

/// Rank 1 of two, each of which moved half of the payload from GPU-a or GPU-b to GPU-c or GPU-d.
fn of_second_rank(table: &Table, devices: &[Device], connections: [u64; 2]) -> Transport {
    let with_engines = |mut readings: [Reading; 4]| {
        for (number, reading) in (0..).zip(&mut readings) {
            let moved = |bytes: u64| if number == 3 { bytes } else { 0 };
            let bytes =
                |bytes| SocketBytes { sent: moved(bytes), received: moved(bytes), ..SocketBytes::default() };
            reading.engines = connections.map(bytes).to_vec();
        }
        readings
    };
    let readings = with_engines(readings(devices, Some(connections.iter().sum())));
    let half = |uuid: &str| GpuOfSide { uuid: uuid.to_owned(), share: 0.5 };
    judge(&CaseFacts {
        op: Op::Read,
        operation_bytes: 1 << 20,
        payload_bytes: PAYLOAD,
        transfers: TRANSFERS,
        depth: 1,
        table: Some(table),
        endpoint: None,
        initiator: Some(&readings),
        target: Some(&readings),
        one_network: true,
        gpus: GpusOfSides {
            initiator: Some(half("GPU-b")),
            target: Some(half("GPU-d")),
            others: [vec![half("GPU-a")], vec![half("GPU-c")]],
        },
        engines: [EngineOfSide { rank: 1, share: 0.5 }; 2],
    })
}

#[test]
fn what_other_ranks_move_elsewhere_is_not_taken_for_this_rank_s() {
    let links = |name: &'static str| Device(Kind::Nvlink, name, Unit::Bytes, 0, PAYLOAD / 2);
    let own = [links("GPU-b link 0"), links("GPU-d link 0")];
    let other = [links("GPU-a link 0"), links("GPU-c link 0")];
    let ipc = table(ZERO_COPY, &[("cuda_ipc", "cuda")]);
    let tcp = table(EMULATED, &[("tcp", "lo")]);
    let rc = table(ZERO_COPY, &[("rc_mlx5", "mlx5_0:1")]);
    let half = PAYLOAD / 2;
    let with = |devices: &[Device], more: &[Device]| [devices, more].concat();
    let said = |transport: Transport| (transport.class, transport.over, transport.doubt);
    let (nvlink, rdma) = ((Class::Nvlink, None, None), (Class::Rdma, None, None));
    // The other rank's TCP, and its RDMA, while the links of this rank's GPU carry its own.
    assert_eq!(said(of_second_rank(&ipc, &with(&own, &[net("lo", half)]), [half, 900])), nvlink);
    assert_eq!(said(of_second_rank(&ipc, &with(&own, &[port("mlx5_0:1", half)]), [0, 0])), nvlink);
    // The other way round.
    let emulated = of_second_rank(&tcp, &with(&other, &[net("lo", half)]), [900, half]);
    assert_eq!(said(emulated), (Class::Emulated, Some(Class::Tcp), None));
    assert_eq!(said(of_second_rank(&rc, &with(&other, &[port("mlx5_0:1", half)]), [0, 0])), rdma);
    // Both over RDMA, and both over NVLink.
    assert_eq!(said(of_second_rank(&rc, &[port("mlx5_0:1", PAYLOAD)], [0, 0])), rdma);
    assert_eq!(said(of_second_rank(&ipc, &with(&own, &other), [900, 900])), nvlink);
    // Counters that say that this rank's bytes went twice are still not of one mind.
    let twice = of_second_rank(&ipc, &with(&own, &[net("lo", half)]), [0, half]);
    assert!(twice.class == Class::Unknown && twice.doubt.unwrap().contains("both account"));
    let twice = of_second_rank(&ipc, &with(&own, &[port("mlx5_0:1", PAYLOAD)]), [0, 0]);
    assert_eq!(twice.class, Class::Unknown);
}
