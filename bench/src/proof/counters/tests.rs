use std::path::Path;

use checks::nvml::{LinkTraffic, Traffic, Way};

use super::super::kernel_files::write;
use super::*;

fn read(root: &Path) -> Reading {
    Sources::at(&root.join("sys"), &root.join("proc"), None).read(&[])
}

fn counter(reading: &Reading, device: &str) -> Counter {
    reading.counters.iter().find(|c| c.device == device).unwrap_or_else(|| panic!("{reading:?}")).clone()
}

#[test]
fn each_driver_is_read_in_its_own_unit() {
    let root = tempfile::tempdir().unwrap();
    let ib = "sys/class/infiniband";
    write(root.path(), &format!("{ib}/mlx5_0/ports/1/counters/port_xmit_data"), "1000\n");
    write(root.path(), &format!("{ib}/mlx5_0/ports/1/counters/port_rcv_data"), "2000\n");
    write(root.path(), &format!("{ib}/rdmap0s6/ports/1/hw_counters/tx_bytes"), "70\n");
    write(root.path(), &format!("{ib}/rdmap0s6/ports/1/hw_counters/rx_bytes"), "80\n");
    write(root.path(), &format!("{ib}/rdmap0s6/ports/1/hw_counters/rdma_write_bytes"), "0\n");
    write(root.path(), &format!("{ib}/rxe0/ports/1/hw_counters/sent_pkts"), "11946\n");
    write(root.path(), &format!("{ib}/rxe0/ports/1/hw_counters/rcvd_pkts"), "11936\n");
    write(root.path(), &format!("{ib}/rxe0/ports/1/hw_counters/lifespan"), "12\n");
    write(root.path(), &format!("{ib}/rxe0/parent"), "va\n");
    write(root.path(), "sys/class/net/va/mtu", "4200\n");
    let reading = read(root.path());
    let mlx5 = counter(&reading, "mlx5_0:1");
    assert_eq!((mlx5.unit, mlx5.sent, mlx5.received), (Unit::Bytes, 4000, 8000));
    assert_eq!(counter(&reading, "rdmap0s6:1").received, 80);
    let rxe = counter(&reading, "rxe0:1");
    assert_eq!((rxe.unit, rxe.sent), (Unit::Packets { payload_max: 4096 }, 11946));
    assert_eq!(rxe.interface.as_deref(), Some("va"));
    assert_eq!(reading.cached_ms, 12);
}

#[test]
fn an_ethernet_of_1500_bytes_carries_roce_packets_of_1024() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts", "1");
    write(root.path(), "sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts", "1");
    write(root.path(), "sys/class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0", "eth7\n");
    write(root.path(), "sys/class/net/eth7/mtu", "1500\n");
    assert_eq!(counter(&read(root.path()), "rxe0:1").unit, Unit::Packets { payload_max: 1024 });
}

#[test]
fn a_port_without_counters_and_a_counter_without_a_number_are_left_out() {
    let root = tempfile::tempdir().unwrap();
    let ports = "sys/class/infiniband/mlx5_0/ports";
    write(root.path(), &format!("{ports}/1/state"), "4: ACTIVE\n");
    write(root.path(), &format!("{ports}/2/counters/port_xmit_data"), "N/A (no PMA)\n");
    write(root.path(), &format!("{ports}/2/counters/port_rcv_data"), "5\n");
    assert!(read(root.path()).counters.is_empty());
}

#[test]
fn interfaces_are_read_and_those_that_stand_on_others_are_marked() {
    let root = tempfile::tempdir().unwrap();
    for (name, sent) in [("eth0", "10"), ("bond0", "10")] {
        write(root.path(), &format!("sys/class/net/{name}/statistics/tx_bytes"), sent);
        write(root.path(), &format!("sys/class/net/{name}/statistics/rx_bytes"), "20");
    }
    write(root.path(), "sys/class/net/bond0/lower_eth0/x", "");
    write(root.path(), "sys/class/net/bonding_masters", "bond0\n");
    let reading = read(root.path());
    assert_eq!((counter(&reading, "eth0").sent, counter(&reading, "eth0").stacked), (10, false));
    assert!(counter(&reading, "bond0").stacked);
    assert_eq!(reading.counters.len(), 2);
}

#[test]
fn interfaces_of_another_namespace_are_not_believed() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "sys/class/net/eth0/statistics/tx_bytes", "10");
    write(root.path(), "sys/class/net/eth0/statistics/rx_bytes", "20");
    let own = "Inter-| Receive\n face |bytes\n  lo: 5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0\n veth1: 7 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0\n";
    write(root.path(), "proc/self/net/dev", own);
    let reading = read(root.path());
    assert_eq!(reading.counters.len(), 2);
    assert_eq!((counter(&reading, "veth1").received, counter(&reading, "veth1").sent), (7, 8));
}

#[test]
fn a_host_without_anything_gives_an_empty_reading() {
    let root = tempfile::tempdir().unwrap();
    let reading = read(root.path());
    assert!(reading.counters.is_empty() && reading.sockets.is_none() && reading.cached_ms == 0);
}

#[derive(Debug)]
struct TwoGpus;

impl GpuLinks for TwoGpus {
    fn traffic(&self) -> Vec<Traffic> {
        let link = |number| LinkTraffic { number, sent: 1, received: 2 };
        vec![
            Traffic { uuid: "GPU-a".to_owned(), links: vec![link(0), link(4)], pcie: Some((3, 4)) },
            Traffic { uuid: "GPU-b".to_owned(), links: Vec::new(), pcie: None },
        ]
    }

    fn pcie_rate(&self, _: &str, _: Way) -> Option<u64> {
        Some(5)
    }
}

#[test]
fn gpu_links_are_counted_one_by_one_where_the_driver_tells() {
    let root = tempfile::tempdir().unwrap();
    let reading = Sources::at(root.path(), root.path(), Some(Arc::new(TwoGpus))).read(&[]);
    let counters: Vec<(Kind, &str, u64)> =
        reading.counters.iter().map(|c| (c.kind, c.device.as_str(), c.received)).collect();
    assert_eq!(
        counters,
        [(Kind::Nvlink, "GPU-a link 0", 2), (Kind::Nvlink, "GPU-a link 4", 2), (Kind::Pcie, "GPU-a pcie", 4)]
    );
    assert!(reading.counters.iter().all(|counter| super::owner(counter) == "GPU-a"));
}

#[test]
fn only_links_that_nothing_counts_are_watched() {
    let root = tempfile::tempdir().unwrap();
    let sources = Sources::at(root.path(), root.path(), Some(Arc::new(TwoGpus)));
    let (reading, ways) = (sources.read(&[]), Ways { sent: true, received: false });
    assert!(sources.sample(&["GPU-a".to_owned()], ways, &reading).is_none());
    let both = ["GPU-a".to_owned(), "GPU-b".to_owned()];
    let seen = sources.sample(&both, ways, &reading).unwrap().stop();
    assert!(seen.iter().all(|link| link.uuid == "GPU-b"), "{seen:?}");
    let bare = Sources::at(root.path(), root.path(), None);
    assert!(bare.sample(&both, ways, &reading).is_none());
}

#[test]
fn this_host_can_be_read() {
    let reading = Sources::of_this_host().read(&[std::process::id()]);
    assert!(reading.counters.iter().any(|c| c.device == "lo"), "{reading:?}");
    assert!(reading.at_ns > 0);
}
