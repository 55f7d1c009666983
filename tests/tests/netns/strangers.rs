//! Others than the right peer: strangers at either end of the TCP rendezvous.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};

use kvwire_tests::{Ended, INITIATOR_ADDRESS, Side, TARGET_ADDRESS};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::scene::{LEASE, Meet, Scene, TWO_CASES};

/// Port of the rendezvous.
const PORT: u16 = 18516;
/// Not a kvwire greeting.
const GARBAGE: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
/// A frame that claims four gigabytes.
const GIANT: &[u8] = &[0xff; 64];
/// The length of a frame, and too little of it.
const HALF: &[u8] = &[0, 0, 0, 64, b'{', b'"'];

/// From now on this thread's connections begin on that host.
fn enter(namespace: &str) {
    let file = std::fs::File::open(format!("/run/netns/{namespace}")).unwrap();
    move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), Some(LinkNameSpaceType::Network)).unwrap();
}

fn start_target(scene: &mut Scene) {
    let target = scene.side(Side::Target, 2 * LEASE).fake("");
    scene.start(Side::Target, target);
    scene.live(Side::Target).await_line("on the other host:");
}

fn run_initiator(scene: &mut Scene, faults: &str) -> Ended {
    let initiator = scene.side(Side::Initiator, 2 * LEASE).fake(faults).args(TWO_CASES);
    scene.start(Side::Initiator, initiator);
    scene.take(Side::Initiator).unwrap().end()
}

#[test]
fn netns_strangers_at_the_targets_port_do_not_disturb_a_run() {
    let mut scene = Scene::empty(Meet::Tcp);
    start_target(&mut scene);
    let namespace = scene.hosts.of(Side::Initiator);
    let strangers = std::thread::spawn(move || {
        enter(&namespace);
        [GARBAGE, GIANT, HALF, b""].map(|words| {
            let mut stream = TcpStream::connect((TARGET_ADDRESS, PORT)).unwrap();
            stream.write_all(words).unwrap();
            stream
        })
    });
    let strangers = strangers.join().unwrap();
    for _ in 0..2 {
        scene.live(Side::Target).await_line("turned ");
    }
    let initiator = run_initiator(&mut scene, "");
    let target = scene.take(Side::Target).unwrap().end();
    assert_eq!((target.code, initiator.code), (0, 0), "{target}{initiator}");
    drop(strangers);
}

#[test]
fn netns_a_stranger_in_the_targets_place_is_told_from_a_target() {
    for (words, says) in [
        (GARBAGE, "is not a kvwire rendezvous"),
        (GIANT, "is not a kvwire rendezvous"),
        (HALF, "did not answer"),
        (b"", "did not answer"),
    ] {
        let mut scene = Scene::empty(Meet::Tcp);
        let namespace = scene.hosts.of(Side::Target);
        let (ready, listening) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            enter(&namespace);
            let listener = TcpListener::bind((TARGET_ADDRESS, PORT)).unwrap();
            ready.send(()).unwrap();
            let mut kept = Vec::new();
            for mut stream in listener.incoming().flatten() {
                // Ignored: a client that does not like the first words may be gone.
                let _ = stream.write_all(words);
                kept.push(stream);
            }
        });
        listening.recv().unwrap();
        let initiator =
            scene.side(Side::Initiator, 2 * LEASE).fake("").args(TWO_CASES).env("KVWIRE_JOIN_TIMEOUT", "4s");
        scene.start(Side::Initiator, initiator);
        let ended = scene.take(Side::Initiator).unwrap().end();
        assert_eq!(ended.code, 3, "{ended}");
        assert!(ended.title("join-failed").contains(says), "{says}: {ended}");
        assert_eq!(ended.statuses(), ["not_run"; 2], "{ended}");
    }
}

#[test]
fn netns_a_wrong_token_is_refused_and_the_target_waits_on() {
    let mut scene = Scene::empty(Meet::Tcp);
    start_target(&mut scene);
    let right =
        std::mem::replace(&mut scene.url, format!("tcp://another-token-altogether@{TARGET_ADDRESS}:{PORT}"));
    let wrong = run_initiator(&mut scene, "");
    assert_eq!(wrong.code, 3, "{wrong}");
    assert!(wrong.title("join-failed").contains("wrong token"), "{wrong}");
    scene.url = right;
    let initiator = run_initiator(&mut scene, "");
    let target = scene.take(Side::Target).unwrap().end();
    assert_eq!((target.code, initiator.code), (0, 0), "{target}{initiator}");
    assert!(target.stderr.contains(&format!("turned {INITIATOR_ADDRESS}")), "{target}");
}

#[test]
fn netns_metadata_that_nixl_rejects_speaks_against_the_pair() {
    let mut scene = Scene::empty(Meet::Tcp);
    start_target(&mut scene);
    let initiator = run_initiator(&mut scene, "load_remote=-2");
    let target = scene.take(Side::Target).unwrap().end();
    for ended in [&target, &initiator] {
        assert_eq!(ended.code, 1, "{ended}");
        assert!(ended.title("nixl-error").starts_with("initiator engine, connection: NIXL "), "{ended}");
    }
}
