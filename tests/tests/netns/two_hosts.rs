//! What the result says of two hosts.

use kvwire_tests::{CONTROL, DATA, INITIATOR_ADDRESS, Side, TARGET_ADDRESS};
use serde_json::Value;

use crate::scene::{LEASE, Meet, Scene};

/// Both sides' results of a good run.
fn results(meet: Meet) -> [Value; 2] {
    let mut scene = Scene::empty(meet, LEASE);
    for side in [Side::Target, Side::Initiator] {
        scene.start(side, scene.quick(side));
    }
    [Side::Target, Side::Initiator].map(|side| {
        let ended = scene.take(side).unwrap().end();
        assert_eq!(ended.code, 0, "{ended}");
        ended.result().clone()
    })
}

fn assert_route(result: &Value, side: Side, local: &str, interface: &str) {
    let route = &result["rendezvous"][side.name()];
    assert_eq!((&route["local"], &route["interface"]), (&local.into(), &interface.into()), "{route}");
}

#[test]
fn netns_both_results_name_the_hosts_the_addresses_and_the_interfaces() {
    let [over_tcp, over_etcd] = [Meet::Tcp, Meet::Etcd].map(results);
    for result in &over_tcp {
        assert_route(result, Side::Target, TARGET_ADDRESS, DATA);
        assert_route(result, Side::Initiator, INITIATOR_ADDRESS, DATA);
        let place = result["rendezvous"]["place"].as_str().unwrap();
        assert!(place.contains(&format!("tcp://{TARGET_ADDRESS}:18516")), "{place}");
    }
    for result in &over_etcd {
        assert_route(result, Side::Target, "10.77.0.2", CONTROL);
        assert_route(result, Side::Initiator, "10.77.0.3", CONTROL);
    }
    for [target, initiator] in [&over_tcp, &over_etcd] {
        for side in ["target", "initiator"] {
            let node = &target["nodes"][side];
            for fact in ["hostname", "boot_id", "pid", "kvwire"] {
                assert!(!node[fact].is_null(), "{fact} of the {side}: {node}");
            }
            assert!(!node["namespaces"]["net"].is_null(), "{node}");
            assert_eq!(node, &initiator["nodes"][side]);
        }
        assert_ne!(
            target["nodes"]["target"]["namespaces"]["net"],
            target["nodes"]["initiator"]["namespaces"]["net"]
        );
        assert_eq!(target["cases"], initiator["cases"]);
        assert_eq!(target["rendezvous"], initiator["rendezvous"]);
        let recorded_by = |result: &Value| result["run"]["recorded_by"].clone();
        assert_eq!((recorded_by(target), recorded_by(initiator)), ("target".into(), "initiator".into()));
    }
}

#[test]
fn netns_the_user_of_etcd_comes_from_the_environment_and_a_file_and_is_not_printed() {
    const PASSWORD: &str = "a-password-of-the-test";
    let mut scene = Scene::empty(Meet::Etcd, LEASE);
    let etcd = scene.etcd.as_ref().unwrap();
    etcd.ctl(&["user", "add", &format!("root:{PASSWORD}")]);
    etcd.ctl(&["user", "grant-role", "root", "root"]);
    etcd.ctl(&["auth", "enable"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, format!("{PASSWORD}\n")).unwrap();

    let nobody = scene.quick(Side::Initiator).run();
    assert_eq!(nobody.code, 3, "{nobody}");
    assert!(nobody.title("join-failed").contains("KVWIRE_ETCD_USER"), "{nobody}");

    for side in [Side::Target, Side::Initiator] {
        let known = scene.quick(side).env("KVWIRE_ETCD_USER", "root");
        scene.start(side, known.env("KVWIRE_ETCD_PASSWORD_FILE", file.to_str().unwrap()));
    }
    for side in [Side::Target, Side::Initiator] {
        let ended = scene.take(side).unwrap().end();
        assert_eq!(ended.code, 0, "{ended}");
        assert!(!format!("{ended}{}", ended.result()).contains(PASSWORD), "{ended}");
    }
}
