//! An etcd that is away for less than the lease time does not disturb a transfer; the data's wire alone is judged.

use std::time::{Duration, Instant};

use kvwire_tests::{Nixl, Side, wait_until};
use rustix::process::Signal;

use crate::scene::{LEASE, LONG_LEASE, Meet, Scene, over_the_cable};

/// How long etcd says nothing.
const SILENCE: Duration = Duration::from_secs(1);
/// How long the timed loop lasts: longer than three outages.
const LOOP: &str = "12s";

#[test]
fn netns_outages_of_etcd_do_not_disturb_a_transfer() {
    let mut scene = Scene::empty(Meet::Etcd, LONG_LEASE);
    scene.hosts.await_running();
    let target = scene.side(Side::Target).nixl(&Nixl::Newest);
    scene.start(Side::Target, target);
    let initiator = over_the_cable(scene.side(Side::Initiator).nixl(&Nixl::Newest));
    let one_case = initiator.args(["--op", "write", "--sizes", "1MiB", "--samples", "100000000"]);
    scene.start(Side::Initiator, one_case.args(["--case-time", LOOP]));
    scene.live(Side::Initiator).await_line("initiator engine: timed loop");
    let begin = Instant::now();

    let etcd = scene.etcd.as_mut().unwrap();
    etcd.signal(Signal::STOP);
    // The length of the outage, not a wait for something.
    std::thread::sleep(SILENCE);
    etcd.signal(Signal::CONT);
    for (keep_data, line) in [(true, "reconnected to "), (false, "registered again at ")] {
        let etcd = scene.etcd.as_mut().unwrap();
        etcd.kill();
        etcd.restart(keep_data);
        for side in [Side::Target, Side::Initiator] {
            scene.live(side).await_line(line);
        }
    }
    let outages = begin.elapsed();

    for side in [Side::Initiator, Side::Target] {
        let ended = scene.take(side).unwrap().end();
        assert_eq!(ended.code, 0, "{ended}");
        assert_eq!(ended.statuses(), ["pass"], "{ended}");
        let lasted = Duration::from_nanos(ended.cases()[0]["wall_ns"].as_u64().unwrap());
        assert!(lasted > outages, "the loop of {lasted:?} was over before the outages were ({outages:?})");
    }
    let etcd = scene.etcd.as_ref().unwrap();
    wait_until("etcd holds no key", LONG_LEASE, || etcd.keys().is_empty());
}

#[test]
fn netns_a_cable_that_is_pulled_under_the_data_speaks_against_the_wire() {
    let mut scene = Scene::empty(Meet::Etcd, LEASE);
    scene.hosts.await_running();
    let target = scene.side(Side::Target).nixl(&Nixl::Newest);
    scene.start(Side::Target, target);
    let initiator = over_the_cable(scene.side(Side::Initiator).nixl(&Nixl::Newest));
    let long =
        initiator.args(["--op", "write", "--sizes", "4KiB,64MiB", "--warmup", "1", "--samples", "1000"]);
    scene.start(Side::Initiator, long.args(["--case-time", "3s", "--transfer-timeout", "1s"]));
    scene.live(Side::Initiator).await_line_times("initiator engine: timed loop", 2);
    scene.hosts.cut();
    for side in [Side::Initiator, Side::Target] {
        let ended = scene.take(side).unwrap().end();
        assert_eq!(ended.code, 1, "{ended}");
        assert_eq!(ended.statuses(), ["pass", "fail"], "{ended}");
        let title = ended.result()["verdict"]["summary"].as_str().unwrap();
        assert!(title.starts_with("initiator engine, timed loop: "), "{ended}");
    }
}
