//! kvwire between two hosts over real RDMA verbs, with real port counters, links that go down and a host that vanishes:
//! software RoCE in two virtual machines. `make test-rdma` boots them, runs the scenarios
//! (tests/rdma/guest/scenarios.sh, one for each test here and of the same name), and then these tests judge what they
//! left behind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::time::Duration;

use kvwire_tests::Host::{Initiator, Target};
use kvwire_tests::{Evidence, Host};

/// Bytes of payload in one packet, at most: the RDMA MTU of the guests' devices.
const MTU: u64 = 4096;
/// Packets that a device sends for its own sake, such as those of a connection attempt.
const CHATTER: u64 = 64;
/// The lease time with all its grace, on an emulated processor. UCX by itself gives a silent peer up after 40 to 50 s.
const NOTICED: Duration = Duration::from_secs(30);

/// The payload left this device: READ leaves the target, WRITE the initiator. Packets sent again only add to the count.
fn assert_carried(evidence: &Evidence, host: Host, device: &str, bytes: u64) {
    let packets = evidence.packets(host, device);
    assert!(packets >= bytes / MTU, "{host:?} {device} sent {packets} packets for {bytes} bytes\n{evidence}");
}

/// Every byte went over rxe0: one case reads, the other writes as much.
fn assert_over_rxe0(evidence: &Evidence) {
    assert_eq!(evidence.ended.code, 0, "{evidence}");
    assert_measured(evidence);
    assert_class(evidence, "rdma");
    for host in [Target, Initiator] {
        assert_carried(evidence, host, "rxe0", evidence.payload() / 2);
    }
}

fn assert_idle(evidence: &Evidence, device: &str) {
    for host in [Initiator, Target] {
        let packets = evidence.packets(host, device);
        assert!(packets <= CHATTER, "{host:?} {device} sent {packets} packets\n{evidence}");
    }
}

fn assert_measured(evidence: &Evidence) {
    assert_eq!(evidence.ended.statuses(), ["pass", "pass"], "{evidence}");
    let result = evidence.ended.result();
    let hosts = ["initiator", "target"].map(|side| result["nodes"][side]["hostname"].as_str().unwrap_or("?"));
    assert_eq!(hosts, ["rdma-a", "rdma-b"], "{evidence}");
}

/// kvwire says of every case that this class of wire carried it, perhaps with the processors' help: READ over TCP is
/// emulated in software.
fn assert_class(evidence: &Evidence, class: &str) {
    for case in evidence.ended.cases() {
        let transport = &case["transport"];
        let wire = if transport["class"] == "emulated" { &transport["over"] } else { &transport["class"] };
        assert_eq!(wire, class, "{evidence}");
        assert!(transport["evidence"].as_array().is_some_and(|said| !said.is_empty()), "{evidence}");
    }
}

/// Percent of the payload that a device carried, as the initiator saw it; for each case.
fn shares(evidence: &Evidence, device: &str) -> Vec<f64> {
    let share = |case: &serde_json::Value| {
        let devices = case["transport"]["devices"].as_array()?;
        let of = |d: &&serde_json::Value| d["side"] == "initiator" && d["device"] == device;
        devices.iter().find(of)?["share_percent"].as_f64()
    };
    evidence.ended.cases().iter().map(|case| share(case).unwrap_or_default()).collect()
}

/// Both hosts have RDMA that works, so something slower is not what was expected; both sides say so.
fn assert_below_expectation(evidence: &Evidence) {
    assert_eq!(evidence.ended.code, 1, "{evidence}");
    let title = evidence.ended.title("transport-below-expected");
    assert!(title.starts_with("expected rdma, but ") && title.contains("tcp"), "`{title}`\n{evidence}");
    assert_eq!(
        evidence.target.as_ref().map(|target| target.code),
        Some(1),
        "both sides end alike\n{evidence}"
    );
}

/// UCX would not start on a device, and kvwire quotes it.
fn assert_refused(evidence: &Evidence, reason: &str) {
    assert_eq!(evidence.ended.code, 1, "{evidence}");
    let findings = evidence.ended.result()["findings"].to_string();
    assert!(findings.contains(reason), "`{reason}`\n{evidence}");
    assert_eq!(evidence.ended.statuses(), ["not_run", "not_run"], "{evidence}");
    assert_idle(evidence, "rxe0");
}

#[test]
#[ignore = "needs virtual machines: make test-rdma"]
fn rdma_carries_the_bytes() {
    let evidence = Evidence::of("rdma_carries_the_bytes");
    assert_over_rxe0(&evidence);
    assert_idle(&evidence, "rxe1");
    assert!(shares(&evidence, "rxe0:1").iter().all(|share| *share > 90.0), "{evidence}");
    assert_eq!(
        evidence.target.as_ref().map(|target| target.code),
        Some(0),
        "both sides end alike\n{evidence}"
    );
}

#[test]
#[ignore = "needs virtual machines: make test-rdma"]
fn a_port_and_a_node_of_ones_own() {
    let evidence = Evidence::of("a_port_and_a_node_of_ones_own");
    assert_eq!(evidence.ended.code, 0, "{evidence}");
    assert_measured(&evidence);
    assert_class(&evidence, "rdma");
    assert_carried(&evidence, Target, "rxe0", evidence.payload() / 2);
    assert_idle(&evidence, "rxe1");
    let result = evidence.ended.result();
    // Cores and pages as each host's kernel tells.
    for (side, node) in [("initiator", 1), ("target", 0)] {
        let seat = &result["placement"][side][0];
        assert_eq!((&seat["ucx_net_devices"], &seat["cpus"]), (&"rxe0:1".into(), &"0".into()), "{evidence}");
        assert_eq!(seat["numa_node"], node, "{side}\n{evidence}");
    }
    let title = evidence.ended.title("numa-memory-elsewhere");
    assert!(title.starts_with("initiator: host memory lies on NUMA node 1"), "`{title}`\n{evidence}");
    let findings = result["findings"].to_string();
    assert!(!findings.contains("rails-unused") && !findings.contains("numa-not-pinned"), "{evidence}");
}

#[test]
#[ignore = "needs virtual machines: make test-rdma"]
fn a_node_without_cores() {
    let evidence = Evidence::of("a_node_without_cores");
    assert_eq!(evidence.ended.code, 0, "{evidence}");
    assert_idle(&evidence, "rxe0");
    assert!(evidence.ended.title("numa-not-pinned").contains("no core of NUMA node 1"), "{evidence}");
    for side in ["initiator", "target"] {
        assert!(evidence.ended.result()["placement"][side][0]["cpus"].is_null(), "{side}\n{evidence}");
    }
}

#[test]
#[ignore = "needs virtual machines: make test-rdma"]
fn tcp_is_caught() {
    let evidence = Evidence::of("tcp_is_caught");
    assert_measured(&evidence);
    assert_class(&evidence, "tcp");
    assert_below_expectation(&evidence);
    assert_idle(&evidence, "rxe0");
    assert_idle(&evidence, "rxe1");
}

#[test]
#[ignore = "needs virtual machines: make test-rdma"]
fn a_missing_provider_is_caught() {
    let evidence = Evidence::of("a_missing_provider_is_caught");
    assert_measured(&evidence);
    assert_class(&evidence, "tcp");
    assert_below_expectation(&evidence);
    assert_idle(&evidence, "rxe0");
    assert_idle(&evidence, "rxe1");
}

#[test]
#[ignore = "needs virtual machines: make test-rdma"]
fn two_rails() {
    let evidence = Evidence::of("two_rails");
    assert_eq!(evidence.ended.code, 0, "{evidence}");
    assert_measured(&evidence);
    assert_class(&evidence, "rdma");
    // Whether UCX takes both is its choice (of two in different subnets it takes one); together they carry everything.
    for host in [Initiator, Target] {
        let packets = evidence.packets(host, "rxe0") + evidence.packets(host, "rxe1");
        assert!(packets >= evidence.payload() / 2 / MTU, "{host:?} sent {packets} packets\n{evidence}");
    }
    // kvwire says of each what the counters of the guests say.
    let sent = |device| evidence.packets(Initiator, device) + evidence.packets(Target, device);
    let used: Vec<&str> = ["rxe0", "rxe1"].into_iter().filter(|device| sent(device) > 2 * CHATTER).collect();
    for device in ["rxe0", "rxe1"] {
        let named = shares(&evidence, &format!("{device}:1")).iter().any(|share| *share > 5.0);
        assert_eq!(named, used.contains(&device), "{device}\n{evidence}");
    }
    if used.len() == 1 {
        assert!(evidence.ended.title("rails-unused").contains("1 of 2 rails"), "{evidence}");
    }
}

#[test]
#[ignore = "needs virtual machines: make test-rdma"]
fn a_missing_rail() {
    let evidence = Evidence::of("a_missing_rail");
    assert_measured(&evidence);
    assert_class(&evidence, "rdma");
    assert!(evidence.ended.finding("ucx-device-missing").to_string().contains("rxe9:1"), "{evidence}");
    assert_carried(&evidence, Target, "rxe0", evidence.payload() / 2);
    assert_idle(&evidence, "rxe1");
}

#[test]
#[ignore = "needs virtual machines: make test-rdma"]
fn an_expectation_that_one_host_cannot_meet() {
    let evidence = Evidence::of("an_expectation_that_one_host_cannot_meet");
    assert_eq!(evidence.ended.code, 1, "{evidence}");
    let title = evidence.ended.title("rdma-expected");
    assert!(title.contains("the target cannot use it: no port is active"), "`{title}`\n{evidence}");
    assert_eq!(evidence.ended.statuses(), ["not_run", "not_run"], "{evidence}");
    assert!(!evidence.ended.stderr.contains("engine: process"), "nothing was started\n{evidence}");
    let differences = &evidence.ended.result()["node_differences"];
    let marked =
        differences.as_array().is_some_and(|all| all.iter().any(|one| one["name"] == "RDMA devices"));
    assert!(marked, "the two sides are marked as different: {differences}\n{evidence}");
    assert!(evidence.ended.stdout.contains("! RDMA devices"), "{evidence}");
}

#[test]
#[ignore = "needs virtual machines: make test-rdma"]
fn gpu_memory_over_rdma() {
    let evidence = Evidence::of("gpu_memory_over_rdma");
    assert_over_rxe0(&evidence);
    assert_eq!(evidence.ended.result()["memory"]["target"], "GPU memory (malloc)", "{evidence}");
}

#[test]
#[ignore = "needs virtual machines: make test-rdma"]
fn gpu_memory_without_gpudirect() {
    let evidence = Evidence::of("gpu_memory_without_gpudirect");
    assert_eq!(evidence.ended.code, 1, "{evidence}");
    assert_measured(&evidence);
    assert!(evidence.ended.title("transport-below-expected").contains("GPUDirect"), "{evidence}");
}

#[test]
#[ignore = "needs virtual machines: make test-rdma"]
fn the_node_check_sees_what_the_kernel_has() {
    let evidence = Evidence::of("the_node_check_sees_what_the_kernel_has");
    let of = |report: &serde_json::Value, name: &str| {
        let checks = report["checks"].as_array().unwrap();
        let check = checks.iter().find(|check| check["name"] == name);
        let check = check.unwrap_or_else(|| panic!("no {name}: {report}")).clone();
        (check["status"].as_str().unwrap().to_owned(), check.to_string())
    };
    let up = evidence.json("up.json");
    for (name, words) in [
        ("ib-devices", "uverbs0"),
        ("ibv-devinfo", "rxe0, rxe1"),
        ("ib-link", "rxe0:1, rxe1:1"),
        ("rdma-usable", "/dev/infiniband/uverbs0 is readable and writable"),
        ("rdma-port", "rxe0:1: ACTIVE, LinkUp"),
        ("roce-gid", "UCX takes index 1: ::ffff:10.77.1.1 (RoCE v2, eth1)"),
        ("rdma-pkey", "0xffff"),
        ("memlock", "any amount"),
    ] {
        let (status, text) = of(&up, name);
        assert!(status == "ok" && text.contains(words), "{name}: {text}\n{evidence}");
    }
    let statuses = |report: &serde_json::Value| -> Vec<(String, String)> {
        let text = |value: &serde_json::Value| value.as_str().unwrap_or("?").to_owned();
        let checks = report["checks"].as_array().unwrap();
        checks.iter().map(|check| (text(&check["name"]), text(&check["status"]))).collect()
    };
    let shell = evidence.json("shell.json");
    assert_eq!(shell["checks"][0]["evidence"][0], "read by shell");
    assert_eq!(statuses(&shell), statuses(&up), "one node, two readers");
    let down = evidence.json("down.json");
    let (status, text) = of(&down, "rdma-port");
    assert!(status == "warn" && text.contains("UCX_NET_DEVICES=rxe0:1"), "{text}");
    let (status, text) = of(&evidence.json("closed.json"), "rdma-usable");
    assert!(status == "fail" && text.contains("listed but not usable from here: rxe0, rxe1"), "{text}");
}

#[test]
#[ignore = "needs virtual machines: make test-rdma"]
fn a_device_that_does_not_exist() {
    let evidence = Evidence::of("a_device_that_does_not_exist");
    assert_refused(&evidence, "network device 'rxe9:1' is not available");
}

#[test]
#[ignore = "needs virtual machines: make test-rdma"]
fn a_port_that_is_down_before_the_run() {
    let evidence = Evidence::of("a_port_that_is_down_before_the_run");
    assert_refused(&evidence, "network device 'rxe0:1' is not available");
}

#[test]
#[ignore = "needs virtual machines: make test-rdma"]
fn a_link_that_goes_down_in_mid_transfer() {
    let evidence = Evidence::of("a_link_that_goes_down_in_mid_transfer");
    assert!(evidence.after_strike.is_some(), "{evidence}");
    assert_eq!(evidence.ended.code, 1, "{evidence}");
    assert_eq!(evidence.ended.statuses(), ["fail"], "{evidence}");
    let summary = evidence.ended.result()["verdict"]["summary"].as_str().unwrap();
    assert!(summary.contains("engine"), "{evidence}");
}

/// Nobody can tell whether the wire would have held, and nobody waits for UCX to find out.
fn assert_loss_is_noticed(evidence: &Evidence) {
    let after = evidence.after_strike.unwrap_or_else(|| panic!("nothing happened to the run\n{evidence}"));
    assert!(after < NOTICED, "noticed after {after:?}\n{evidence}");
    assert_eq!(evidence.ended.code, 3, "{evidence}");
    assert_eq!(evidence.ended.statuses(), ["not_run"], "{evidence}");
}

#[test]
#[ignore = "needs virtual machines: make test-rdma"]
fn a_peer_that_is_killed_in_mid_transfer() {
    assert_loss_is_noticed(&Evidence::of("a_peer_that_is_killed_in_mid_transfer"));
}

#[test]
#[ignore = "needs virtual machines: make test-rdma"]
fn a_node_that_vanishes_in_mid_transfer() {
    assert_loss_is_noticed(&Evidence::of("a_node_that_vanishes_in_mid_transfer"));
}
