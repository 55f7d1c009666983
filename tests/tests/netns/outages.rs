//! An etcd that is away for less than the lease time does not disturb a run; the data's wire alone is judged.

use std::time::Duration;

use kvwire_tests::{DATA, Nixl, Side, wait_until};
use rustix::process::Signal;

use crate::scene::{Meet, Scene, TWO_CASES};

/// Half of it is the lease time: longer than etcd takes to come up again on a busy machine.
const PATIENT: Duration = Duration::from_secs(40);
/// How long etcd says nothing.
const OUTAGE: Duration = Duration::from_secs(1);

/// A run in whose second case etcd has an outage, to its good end.
fn undisturbed(outage: impl FnOnce(&mut Scene)) {
    let mut scene = Scene::empty(Meet::Etcd);
    // A tenth of a second a transfer: the timed loop lasts longer than the outage, and waits for nothing but itself.
    let faults = "slow=100000@after=108";
    let target = scene.side(Side::Target, PATIENT).fake(faults);
    scene.start(Side::Target, target);
    let initiator = scene.side(Side::Initiator, PATIENT).fake(faults).args(TWO_CASES);
    let initiator = initiator.args(["--case-time", "60s"]);
    scene.start(Side::Initiator, initiator);
    scene.live(Side::Initiator).await_line_times("initiator engine: timed loop", 2);
    outage(&mut scene);
    for side in [Side::Initiator, Side::Target] {
        let ended = scene.take(side).unwrap().end();
        assert_eq!(ended.code, 0, "{ended}");
        assert_eq!(ended.statuses(), ["pass"; 2], "{ended}");
    }
    let etcd = scene.etcd.as_ref().unwrap();
    wait_until("etcd holds no key", PATIENT, || etcd.keys().is_empty());
}

#[test]
fn netns_a_silent_etcd_does_not_disturb_a_transfer() {
    undisturbed(|scene| {
        let etcd = scene.etcd.as_ref().unwrap();
        etcd.signal(Signal::STOP);
        // The length of the outage, not a wait for something.
        std::thread::sleep(OUTAGE);
        etcd.signal(Signal::CONT);
    });
}

#[test]
fn netns_an_etcd_that_is_restarted_with_its_data_does_not_disturb_a_transfer() {
    undisturbed(|scene| {
        let etcd = scene.etcd.as_mut().unwrap();
        etcd.kill();
        etcd.restart(true);
    });
}

#[test]
fn netns_an_etcd_that_is_restarted_empty_does_not_disturb_a_transfer() {
    undisturbed(|scene| {
        let etcd = scene.etcd.as_mut().unwrap();
        etcd.kill();
        etcd.restart(false);
        for side in [Side::Target, Side::Initiator] {
            scene.live(side).await_line("registered again");
        }
    });
}

#[test]
fn netns_a_cable_that_is_pulled_under_the_data_speaks_against_the_wire() {
    let mut scene = Scene::empty(Meet::Etcd);
    let target = scene.side(Side::Target, PATIENT).nixl(&Nixl::Newest);
    let device = format!("UCX_NET_DEVICES={DATA}");
    scene.start(Side::Target, target);
    let initiator = scene
        .side(Side::Initiator, PATIENT)
        .nixl(&Nixl::Newest)
        .args(["--op", "write", "--sizes", "4KiB,64MiB", "--warmup", "1", "--samples", "1000"])
        .args(["--case-time", "3s", "--transfer-timeout", "3s"])
        .args(["--ucx-env", "UCX_TLS=tcp,self", "--ucx-env", &device, "--expect", "tcp"]);
    scene.start(Side::Initiator, initiator);
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
