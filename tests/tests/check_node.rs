//! `kvwire check node` and `kvwire check nixl` on this machine, from captures, and in a container of namespaces.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use kvwire_tests::{Ended, Nixl, kvwire, kvwire_command, pair};
use serde_json::Value;

fn check(args: &[&str]) -> Ended {
    args.iter().fold(kvwire_command("check"), |run, arg| run.args([*arg])).run()
}

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}\n{ended}"))
}

fn status(report: &Value, name: &str) -> String {
    let checks = report["checks"].as_array().unwrap();
    let check =
        checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no {name}: {report}"));
    check["status"].as_str().unwrap().to_owned()
}

#[test]
fn the_contract_of_the_read_only_check_holds() {
    let ended = check(&["node", "--json"]);
    assert_eq!(ended.code, 0, "{ended}");
    let report = json(&ended);
    for name in [
        "node:target",
        "ib-devices",
        "ibv-devinfo",
        "ib-link",
        "gpudirect-peermem",
        "gdrcopy",
        "gpu-topology",
    ] {
        let status = status(&report, name);
        assert!(["ok", "warn", "fail", "skipped", "unknown"].contains(&status.as_str()), "{name}: {status}");
    }
    assert_eq!(report["checks"][0]["detail"].as_str().unwrap().split(':').next(), Some("local host"));
    for count in ["ok", "warn", "fail"] {
        assert!(report["counts"][count].is_u64(), "{count}");
    }
    assert!(report["verdict"].is_string());
    assert!(ended.stdout.starts_with("{\n  \""), "indented by two");
}

#[test]
fn a_capture_is_judged_elsewhere_as_it_was_here() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.capture");
    let file = file.to_str().unwrap();
    let here = check(&["node", "--json", "--capture", file]);
    let there = check(&["node", "--json", "--from", file]);
    let checks = |ended: &Ended| {
        let report = json(ended);
        report["checks"].as_array().unwrap()[1..].to_vec()
    };
    assert_eq!(checks(&here), checks(&there));
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600, "for its owner's eyes");
    let printed = check(&["node", "--capture", "-"]);
    assert!(
        printed.stdout.starts_with("kvwire.capture/1 kvwire ") && printed.stdout.ends_with("\nE\n"),
        "{printed}"
    );
}

#[test]
fn a_masked_capture_names_nobody_and_is_judged_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (plain, masked) = (folder.path().join("plain"), folder.path().join("masked"));
    let (plain, masked) = (plain.to_str().unwrap(), masked.to_str().unwrap());
    assert_eq!(check(&["node", "--capture", plain]).code, 0);
    assert_eq!(check(&["node", "--capture", masked, "--mask"]).code, 0);
    let hostname = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let machine = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let text = fs::read_to_string(masked).unwrap();
    assert!(!text.contains(machine.trim()), "the boot id is still there");
    assert!(!text.split([' ', '\n']).any(|word| word == hostname.trim()), "the host name is still there");
    let statuses = |file: &str| -> Vec<Value> {
        let report = json(&check(&["node", "--json", "--from", file]));
        report["checks"].as_array().unwrap().iter().map(|check| check["status"].clone()).collect()
    };
    assert_eq!(statuses(plain), statuses(masked));
}

#[test]
fn a_file_that_is_no_capture_is_refused_with_the_flag() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x");
    for (text, why) in [
        ("{}", "not a capture"),
        ("kvwire.capture/1 x\nM /a\n", "cut short"),
        ("kvwire.capture/9 x\nE\n", "format 9"),
    ] {
        fs::write(&file, text).unwrap();
        let ended = check(&["node", "--from", file.to_str().unwrap()]);
        assert_eq!(ended.code, 2, "{ended}");
        assert!(ended.stderr.contains("--from") && ended.stderr.contains(why), "{ended}");
    }
    let ended = check(&["node", "--from", "/no/such/file"]);
    assert_eq!(ended.code, 2, "{ended}");
}

#[test]
fn two_captures_are_compared_and_a_failure_exits_with_one() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, state: &str, node: &str| {
        let path = folder.path().join(name);
        let text = format!(
            "kvwire.capture/1 test\nD /sys/class/infiniband\n mlx5_0\nT /sys/class/infiniband_verbs/uverbs0/ibdev\n mlx5_0\n\
             N /dev/infiniband/uverbs0\n {node}\nT /sys/class/infiniband/mlx5_0/ports/1/state\n {state}\n\
             T /sys/class/infiniband/mlx5_0/ports/1/link_layer\n InfiniBand\nE\n"
        );
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (good, bad) = (write("good", "4: ACTIVE", "crw"), write("bad", "1: DOWN", "c--"));
    let ended = check(&["node", "--from", &good, "--from", &bad]);
    assert_eq!(ended.code, 1, "{ended}");
    let marked = ended.stdout.lines().find(|line| line.contains("RDMA devices")).unwrap();
    assert!(marked.starts_with("! "), "{marked}");
    assert!(ended.stdout.starts_with("FAIL"), "{ended}");
    assert!(ended.stdout.contains("fix first"), "{ended}");
    let three = check(&["node", "--from", &good, "--from", &bad, "--from", &bad]);
    assert_eq!(three.code, 2, "{three}");
}

#[test]
fn nixl_is_loaded_and_moves_bytes_with_every_supported_version() {
    for nixl in [Nixl::Newest, Nixl::Oldest] {
        let ended = kvwire_command("check").args(["nixl", "--json"]).nixl(&nixl).run();
        assert_eq!(ended.code, 0, "{nixl:?}: {ended}");
        let report = json(&ended);
        for name in
            ["nixl:binary", "nixl-plugins", "nixl-backend", "nixl-memory", "nixl-loopback", "ucx-transports"]
        {
            assert_eq!(status(&report, name), "ok", "{name} with {nixl:?}: {ended}");
        }
        let offered = report["checks"]
            .as_array()
            .unwrap()
            .iter()
            .find(|check| check["name"] == "ucx-transports")
            .unwrap();
        assert!(offered["evidence"][0].as_str().unwrap().contains("tcp"), "{offered}");
        assert!(offered["evidence"][1].as_str().unwrap().contains("lo(tcp)"), "{offered}");
    }
}

#[test]
fn a_backend_that_fails_names_the_step_and_quotes_ucx() {
    let ended = kvwire_command("check")
        .args(["nixl", "--json"])
        .nixl(&Nixl::Newest)
        .env("UCX_NET_DEVICES", "mlx5_9:1")
        .run();
    assert_eq!(ended.code, 1, "{ended}");
    let report = json(&ended);
    let failed: Vec<&Value> =
        report["checks"].as_array().unwrap().iter().filter(|check| check["status"] == "fail").collect();
    assert!(!failed.is_empty(), "{ended}");
    assert!(failed[0]["evidence"].to_string().contains("mlx5_9:1"), "{ended}");
    assert!(!failed[0]["next_step"].as_str().unwrap().is_empty());
}

#[test]
fn without_a_nixl_the_way_to_one_is_named() {
    let ended = kvwire_command("check").args(["nixl", "--nixl-lib", "/no/such/lib.so"]).run();
    assert_eq!(ended.code, 2, "{ended}");
    assert!(ended.stderr.contains("--nixl-lib"), "{ended}");
}

/// A mount and PID namespace with a small /dev/shm and a /dev of its own, a low limit of locked memory, and no
/// capability to lock more: what a container without settings gives.
#[test]
fn a_container_with_nothing_allowed_is_judged_as_such() {
    if !rustix::process::geteuid().is_root() {
        // Only root may make the namespaces; `make test` in CI is root.
        return;
    }
    let script = format!(
        "mount -t tmpfs -o size=8m none /dev/shm && mkdir -p /dev/shm/dev && mount --bind /dev/shm/dev /dev/shm/dev && \
         ulimit -l 64 && exec setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock {} check node --json",
        kvwire().display()
    );
    let output = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--mount-proc", "--ipc", "sh", "-c", &script])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let report: Value = serde_json::from_str(&text)
        .unwrap_or_else(|e| panic!("{e}: {text}\n{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(status(&report, "shm-size"), "fail", "{report}");
    assert_eq!(status(&report, "memlock"), "skipped", "limited, and no RDMA device: {report}");
    let facts = report["nodes"][0]["facts"].as_array().unwrap();
    let fact = |name: &str| {
        facts.iter().find(|fact| fact["name"] == name).unwrap()["value"].as_str().unwrap().to_owned()
    };
    assert_eq!(fact("memlock"), "64 KiB");
    assert_eq!(fact("/dev/shm"), "8 MiB");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn rdma_that_is_expected_and_cannot_be_names_the_side_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("capture");
    assert_eq!(check(&["node", "--capture", file.to_str().unwrap()]).code, 0);
    if fs::read_to_string(&file).unwrap().contains("/dev/infiniband/uverbs") {
        // A machine with a usable adapter has nothing to be refused.
        return;
    }
    let ended =
        pair().args(["--sizes", "4KiB", "--ucx-env", "UCX_TLS=rc", "--verbose"]).nixl(&Nixl::Newest).run();
    assert_eq!(ended.code, 1, "{ended}");
    assert!(ended.title("rdma-expected").contains("the initiator cannot use it"), "{ended}");
    assert!(!ended.stderr.contains("engine: process"), "nothing was started: {ended}");
    assert_eq!(ended.statuses().iter().filter(|status| **status == "pass").count(), 0);
}

#[test]
fn both_sides_of_a_run_carry_their_node_report() {
    let ended = pair().args(["--sizes", "4KiB", "--samples", "10"]).nixl(&Nixl::Newest).run();
    assert_eq!(ended.code, 0, "{ended}");
    for side in ["initiator", "target"] {
        let report = &ended.result()["nodes"][side]["report"];
        let facts = report["facts"].as_array().unwrap();
        assert!(facts.iter().any(|fact| fact["name"] == "RDMA devices"), "{report}");
        assert!(
            report["findings"].as_array().unwrap().iter().any(|finding| finding["id"] == "memlock"),
            "{report}"
        );
    }
}
