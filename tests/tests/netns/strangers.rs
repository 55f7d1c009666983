//! Others than the right peer: strangers at either end of the TCP rendezvous.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;

use kvwire_tests::{Ended, INITIATOR_ADDRESS, Nixl, Side, TARGET_ADDRESS, enter};

use crate::fault::{GARBAGE, GIANT, HALF};
use crate::scene::{LEASE, Meet, Scene, TOKEN, over_the_cable};

/// Port of the rendezvous.
const PORT: u16 = 18516;
fn start_target(scene: &mut Scene) {
    scene.start(Side::Target, scene.quick(Side::Target));
    scene.live(Side::Target).await_line("on the other host:");
}

fn run_initiator(scene: &mut Scene) -> Ended {
    scene.start(Side::Initiator, scene.quick(Side::Initiator));
    scene.take(Side::Initiator).unwrap().end()
}

#[test]
fn netns_strangers_at_the_targets_port_do_not_disturb_a_run() {
    let mut scene = Scene::empty(Meet::Tcp, LEASE);
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
    let initiator = run_initiator(&mut scene);
    let target = scene.take(Side::Target).unwrap().end();
    assert_eq!((target.code, initiator.code), (0, 0), "{target}{initiator}");
    drop(strangers);
}

#[test]
fn netns_a_stranger_in_the_targets_place_is_told_from_a_target() {
    let strangers = [
        (GARBAGE, "is not a kvwire rendezvous"),
        (GIANT, "is not a kvwire rendezvous"),
        (HALF, "did not answer"),
        (b"", "did not answer"),
    ];
    std::thread::scope(|scope| {
        for (words, says) in strangers {
            scope.spawn(move || a_stranger_in_the_targets_place(words, says));
        }
    });
}

fn a_stranger_in_the_targets_place(words: &'static [u8], says: &str) {
    let mut scene = Scene::empty(Meet::Tcp, LEASE);
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
    // An address has three seconds to answer.
    let initiator = scene.quick(Side::Initiator).env("KVWIRE_JOIN_TIMEOUT", "3s");
    scene.start(Side::Initiator, initiator);
    let ended = scene.take(Side::Initiator).unwrap().end();
    assert_eq!(ended.code, 3, "{ended}");
    assert!(ended.title("join-failed").contains(says), "{says}: {ended}");
    assert_eq!(ended.statuses(), ["not_run"; 2], "{ended}");
}

#[test]
fn netns_a_wrong_token_is_refused_and_the_target_waits_on() {
    let mut scene = Scene::empty(Meet::Tcp, LEASE);
    start_target(&mut scene);
    scene.with_token("another-token-altogether");
    let wrong = run_initiator(&mut scene);
    assert_eq!(wrong.code, 3, "{wrong}");
    assert!(wrong.title("join-failed").contains("wrong token"), "{wrong}");
    scene.with_token(TOKEN);
    let initiator = run_initiator(&mut scene);
    let target = scene.take(Side::Target).unwrap().end();
    assert_eq!((target.code, initiator.code), (0, 0), "{target}{initiator}");
    assert!(target.stderr.contains(&format!("turned {INITIATOR_ADDRESS}")), "{target}");
}

#[test]
fn netns_metadata_that_nixl_rejects_speaks_against_the_pair() {
    let folder = tempfile::tempdir().unwrap();
    let blob = metadata();
    let middle = blob.len() / 2;
    let damages: [(&str, Vec<u8>); 4] = [
        ("garbage", GARBAGE.to_vec()),
        ("half", blob[..middle].to_vec()),
        ("shifted", [&blob[..8], b"x", &blob[8..]].concat()),
        ("overwritten", [&blob[..middle], [0xff; 64].as_slice(), &blob[middle + 64..]].concat()),
    ];
    std::thread::scope(|scope| {
        for (name, damaged) in damages {
            let path = folder.path().join(name);
            std::fs::write(&path, damaged).unwrap();
            scope.spawn(move || rejected_metadata(name, &path));
        }
    });
}

/// Metadata of a real agent with one block of registered memory.
fn metadata() -> Vec<u8> {
    let library = Arc::new(nixl_sys::Library::open(&Nixl::Newest.library()).unwrap());
    let agent = nixl::Agent::new(&library, "kvwire-target", &nixl::AgentConfig::default()).unwrap();
    let ucx = agent.create_backend("UCX", &Default::default()).unwrap();
    let memory = Arc::new(nixl::HostMemory::new(1 << 20, nixl::Populate::Now).unwrap());
    let _registration = agent.register(&ucx, &memory).unwrap();
    agent.local_metadata().unwrap()
}

/// The initiator's NIXL is the real one; the target's gives it what is in the file.
fn rejected_metadata(name: &str, path: &Path) {
    let mut scene = Scene::empty(Meet::Tcp, LEASE);
    scene.hosts.await_running();
    let target = scene.quick(Side::Target).env("KVWIRE_FAKE_NIXL_METADATA", path.to_str().unwrap());
    scene.start(Side::Target, target);
    scene.live(Side::Target).await_line("on the other host:");
    let initiator = over_the_cable(scene.side(Side::Initiator).nixl(&Nixl::Newest));
    scene.start(Side::Initiator, initiator.args(["--sizes", "4KiB", "--op", "write"]));
    let initiator = scene.take(Side::Initiator).unwrap().end();
    let target = scene.take(Side::Target).unwrap().end();
    for ended in [&target, &initiator] {
        assert_eq!(ended.code, 1, "{name}: {ended}");
        let title = ended.title("nixl-error");
        assert!(
            title.starts_with("initiator engine, connection: NIXL load_remote_md failed"),
            "{name}: {ended}"
        );
        assert_eq!(ended.statuses(), ["not_run"], "{name}: {ended}");
    }
}
