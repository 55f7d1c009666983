//! Which wire carried the bytes: measured with real NIXL over shared memory and TCP, and judged.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use kvwire_tests::{Ended, Hosts, Kvwire, Nixl, Side, TARGET_ADDRESS, pair, with_result};
use serde_json::Value;

fn quick(nixl: &Nixl) -> Kvwire {
    pair().nixl(nixl).args(["--sizes", "4KiB,256KiB", "--case-time", "100ms"])
}

fn with_env(nixl: &Nixl, settings: &[&str]) -> Kvwire {
    settings.iter().fold(quick(nixl), |run, setting| run.args(["--ucx-env", setting]))
}

fn first_line(ended: &Ended) -> String {
    ended.stdout.lines().take_while(|line| !line.starts_with("  ")).collect::<Vec<_>>().join(" ")
}

/// The transports of the cases that moved data in this direction.
fn transports<'a>(ended: &'a Ended, op: &str) -> Vec<&'a Value> {
    let cases = ended.cases().iter().filter(|case| case["op"] == op);
    let transports: Vec<_> = cases.map(|case| &case["transport"]).collect();
    assert!(!transports.is_empty() && transports.iter().all(|t| t.is_object()), "{ended}");
    transports
}

fn sources(transport: &Value) -> Vec<&str> {
    transport["evidence"].as_array().unwrap().iter().map(|e| e["source"].as_str().unwrap()).collect()
}

#[test]
fn shared_memory_is_proven_by_ucx_and_by_stillness_on_every_covered_nixl() {
    for nixl in Nixl::covered() {
        let ended = quick(&nixl).run();
        assert_eq!(ended.code, 0, "{ended}");
        assert_eq!(ended.result()["expectation"]["class"], "shm", "{ended}");
        for transport in transports(&ended, "READ").into_iter().chain(transports(&ended, "WRITE")) {
            assert_eq!(transport["class"], "shm", "{transport}");
            assert_eq!(transport["meets_expectation"], true, "{transport}");
            assert!(transport["doubt"].is_null(), "{transport}");
            assert_eq!(transport["devices"][0]["transport"], "cma", "{transport}");
            for source in ["ucx_protocol_table", "tcp_connections", "device_counters"] {
                assert!(sources(transport).contains(&source), "{source} in {transport}");
            }
        }
        assert!(first_line(&ended).contains("carried by shm"), "{ended}");
        assert!(ended.stdout.contains("shm memory"), "{ended}");
    }
}

#[test]
fn tcp_where_memory_was_possible_is_not_trusted_and_the_first_line_says_why() {
    for nixl in Nixl::covered() {
        let ended = with_env(&nixl, &["UCX_TLS=tcp,self"]).run();
        assert_eq!(ended.code, 1, "{ended}");
        let line = first_line(&ended);
        assert!(line.starts_with("NOT TRUSTED  expected shm, but"), "{line}");
        assert!(line.contains("(lo)") && line.contains("UCX_TLS=tcp,self leaves shm out"), "{line}");
        assert!(ended.stdout.contains("fix first"), "{ended}");
        for transport in transports(&ended, "READ") {
            assert_eq!(
                (&transport["class"], &transport["over"]),
                (&"emulated".into(), &"tcp".into()),
                "{transport}"
            );
            assert_eq!(transport["meets_expectation"], false);
        }
        for transport in transports(&ended, "WRITE") {
            assert_eq!(transport["class"], "tcp", "{transport}");
            let device = &transport["devices"][0];
            assert_eq!(
                (&device["device"], &device["transport"]),
                (&"lo".into(), &"tcp".into()),
                "{transport}"
            );
            assert!(device["bytes"].as_u64().unwrap() > 0, "{transport}");
        }
        // The data was right all the same: figures stay.
        assert_eq!(ended.statuses(), ["pass"; 4], "{ended}");
    }
}

#[test]
fn what_is_asked_for_decides() {
    for (expect, code) in [("tcp", 0), ("any", 0), ("shm", 1), ("rdma", 1), ("nvlink", 1)] {
        let ended = with_env(&Nixl::Newest, &["UCX_TLS=tcp,self"]).args(["--expect", expect]).run();
        assert_eq!(ended.code, code, "{expect}: {ended}");
    }
    let ended = quick(&Nixl::Newest).args(["--expect", "nvlink"]).run();
    assert_eq!(ended.code, 1, "{ended}");
    assert!(first_line(&ended).contains("expected nvlink, but shm (memory) carried the bytes"), "{ended}");
    assert_eq!(quick(&Nixl::Newest).args(["--expect", "tcp"]).run().code, 0, "more than expected is enough");
}

#[test]
fn strict_lets_the_fallback_fail_where_ucx_can_and_says_where_it_cannot() {
    let ended = with_env(&Nixl::Newest, &["UCX_TLS=tcp,self"])
        .args(["--expect", "any", "--strict", "--op", "read"])
        .run();
    assert_eq!(ended.code, 1, "{ended}");
    let line = ended.finding("ucx-emulation-refused")["evidence"].to_string();
    assert!(line.contains("No zero-copy protocol found for get"), "{ended}");
    let healthy = quick(&Nixl::Newest).args(["--strict"]).run();
    assert_eq!(healthy.code, 0, "{healthy}");
    let old = quick(&Nixl::Oldest).args(["--strict"]).run();
    assert_eq!(old.code, 0, "{old}");
    assert!(old.title("strict-not-possible").contains("UCX 1.20"), "{old}");
    assert!(!old.result()["findings"].to_string().contains("ucx-unused-variable"), "{old}");
}

#[test]
fn a_rendezvous_threshold_that_takes_the_lane_away_is_the_cause() {
    let ended = with_env(&Nixl::Newest, &["UCX_RNDV_THRESH=8192"]).run();
    assert_eq!(ended.code, 1, "{ended}");
    assert!(first_line(&ended).contains("UCX_RNDV_THRESH=8192 takes away lanes"), "{ended}");
}

#[test]
fn without_ucx_tables_the_wire_is_unknown_and_the_run_inconclusive() {
    let ended = with_env(&Nixl::Newest, &["UCX_PROTO_INFO=n"]).run();
    assert_eq!(ended.code, 3, "{ended}");
    assert!(
        first_line(&ended).starts_with("INCONCLUSIVE  it is not known which wire carried the bytes"),
        "{ended}"
    );
    assert!(
        ended.finding("transport-unknown")["next_step"].to_string().contains("UCX_PROTO_INFO"),
        "{ended}"
    );
    let any = with_env(&Nixl::Newest, &["UCX_PROTO_INFO=n"]).args(["--expect", "any"]).run();
    assert_eq!(any.code, 0, "{any}");
    assert_eq!(transports(&any, "READ")[0]["class"], "unknown", "{any}");
}

#[test]
fn lines_of_ucx_that_matter_are_findings_of_the_side_that_logged_them() {
    for (setting, finding, line) in [
        ("UCX_RNDV_TRESH=inf", "ucx-unused-variable", "UCX_RNDV_THRESH"),
        ("UCX_NET_DEVICES=lo,mlx5_9:1", "ucx-device-missing", "mlx5_9:1"),
        ("UCX_TLS=rc_mlx5,tcp,cma", "ucx-transport-missing", "'rc_mlx5'"),
        ("UCX_CMA_MEMORY_INVALIDATE=true", "ucx-bad-value", "MEMORY_INVALIDATE"),
    ] {
        let ended = with_env(&Nixl::Newest, &[setting]).args(["--expect", "any"]).run();
        assert_eq!(ended.code, 0, "{setting}: {ended}");
        let found = ended.result()["findings"].as_array().unwrap().iter();
        let found: Vec<_> = found.filter(|f| f["id"] == finding).collect();
        for (finding, side) in found.iter().zip(["initiator", "target"]) {
            assert!(finding["title"].as_str().unwrap().starts_with(side), "{ended}");
            assert!(finding["evidence"].to_string().contains(line), "{ended}");
            assert_eq!(finding["status"], "warn", "{ended}");
        }
        assert_eq!(found.len(), 2, "{setting}: {ended}");
    }
}

#[test]
fn a_list_that_leaves_nothing_is_explained_by_ucx_s_own_lines() {
    let ended = with_env(&Nixl::Newest, &["UCX_NET_DEVICES=mlx5_0:1"]).run();
    assert_ne!(ended.code, 0, "{ended}");
    assert!(ended.finding("ucx-device-missing")["evidence"].to_string().contains("'lo'(tcp)"), "{ended}");
    assert_eq!(ended.finding("ucx-no-transport")["status"], "fail", "{ended}");
}

#[test]
fn verbose_shows_the_evidence_of_each_case() {
    let ended = quick(&Nixl::Newest).args(["--verbose"]).run();
    assert_eq!(ended.code, 0, "{ended}");
    for text in [
        "expected: shm (one host",
        "READ 4 KiB x1: shm",
        "UCX protocol table: zero-copy over cma/memory",
        "TCP connections moved 0",
    ] {
        assert!(ended.stdout.contains(text), "{text}: {ended}");
    }
    assert!(!quick(&Nixl::Newest).run().stdout.contains("UCX protocol table"));
}

/// Both ends of a run on one machine, each as `place` puts it.
fn both(url: &str, settings: &[&str], place: impl Fn(Kvwire, Side) -> Kvwire) -> [Ended; 2] {
    let side = |name, url: &str| {
        with_result(name).nixl(&Nixl::Newest).args(["--rendezvous", url, "--allow-same-host"])
    };
    let target = side("target", url).env("KVWIRE_TOKEN", "proof-of-the-wire-0123456789");
    let mut target = place(target, Side::Target).start();
    let initiator =
        side("initiator", &target.join_address()).env("KVWIRE_TOKEN", "proof-of-the-wire-0123456789");
    let initiator = initiator.args(["--sizes", "64KiB", "--case-time", "50ms"]);
    let initiator = settings.iter().fold(initiator, |run, setting| run.args(["--ucx-env", setting]));
    let initiator = place(initiator, Side::Initiator).run();
    [target.end(), initiator]
}

#[test]
fn netns_an_address_that_both_hosts_have_leads_nowhere_and_is_named() {
    let hosts = Hosts::new();
    hosts.same_address("dup0");
    let url = format!("tcp://{TARGET_ADDRESS}:0");
    let settings = ["UCX_TLS=tcp", "UCX_NET_DEVICES=dup0"];
    let [target, initiator] = both(&url, &settings, |run, side| run.on(&hosts.of(side)));
    for ended in [&target, &initiator] {
        assert_eq!(ended.code, 1, "{ended}");
        let finding = ended.finding("ucx-unreachable");
        assert!(finding["evidence"].to_string().contains("172.17.0.1"), "{ended}");
        assert!(finding["next_step"].as_str().unwrap().contains("UCX_NET_DEVICES"), "{ended}");
    }
}

#[test]
fn netns_two_containers_of_one_host_cannot_share_memory_and_the_report_says_why() {
    for ended in both("tcp://127.0.0.1:0", &[], |run, _| run.in_own_pid_namespace()) {
        assert_eq!(ended.code, 0, "{ended}");
        let why = ended.result()["expectation"].to_string();
        assert!(why.contains("different process-id namespaces"), "{why}: {ended}");
        assert_eq!(transports(&ended, "WRITE")[0]["class"], "tcp", "{ended}");
    }
}
