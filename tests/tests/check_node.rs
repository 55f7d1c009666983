//! `kvwire check node` and `kvwire check nixl` on this machine, from captures, and in containers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use kvwire_tests::{CONTROL_GROUPS, Ended, Kubectl, Nixl, RUNS_HERE, kvwire, kvwire_command, pair};
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
    assert_eq!(report["checks"][0]["detail"], "local host");
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
fn two_nodes_go_into_one_archive_and_are_compared_out_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let kubectl = Kubectl::new(RUNS_HERE);
    let file = folder.path().join("both.capture").display().to_string();
    let saved = kvwire_command("check")
        .args(["node", "--pod", "prefill-0", "--pod", "decode-0", "--capture", &file])
        .env("PATH", &kubectl.path())
        .run();
    assert_eq!(saved.code, 0, "{saved}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "one file");
    let judged = json(&check(&["node", "--json", "--from", &file]));
    let places: Vec<&str> =
        judged["nodes"].as_array().unwrap().iter().map(|node| node["place"].as_str().unwrap()).collect();
    assert!(places[0].starts_with("pod prefill-0 of capture"), "{places:?}");
    assert!(places[1].starts_with("pod decode-0 of capture"), "{places:?}");
    assert_eq!(check(&["node", "--from", &file, "--from", &file]).code, 2, "four nodes");
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
    let report = json(&check(&["node", "--json", "--from", &good, "--from", &bad]));
    let differences = report["differences"].as_array().unwrap();
    assert_eq!(differences[0]["name"], "RDMA devices");
    assert_ne!(differences[0]["first"], differences[0]["second"]);
    assert_eq!(report["ranked"][0]["name"], "rdma-usable", "the likely cause comes first: {report}");
    assert_eq!(report["ranked"][0]["next_step"], report["fix_first"]);
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

/// What a container without settings is, made of nothing but namespaces: processes, mounts and IPC of its own, a /dev with
/// the usual nodes, 8 MiB of shared memory, 64 KiB of locked memory and no IPC_LOCK, on a node whose sysfs lists two RDMA
/// devices. `$NODE` is a device node that it gets.
const NAMESPACES: &str = r#"
set -e
mount --make-rprivate /
mount -t tmpfs none "$FOLDER/root/dev"
cp -a /dev/null /dev/zero /dev/urandom "$FOLDER/root/dev"
[ -z "$NODE" ] || { mkdir -p "$FOLDER/root/dev/infiniband"; mknod "$FOLDER/root/dev/infiniband/$NODE" c 1 3; }
mkdir "$FOLDER/root/dev/shm"
mount -t tmpfs -o size=8m none "$FOLDER/root/dev/shm"
mount --rbind "$FOLDER/root/dev" /dev
mount --bind "$SYS" /sys
ulimit -l 64
PATH="$FOLDER/root/tools" && [ -z "$KVWIRE" ] || PATH="$KVWIRE:$PATH"
export PATH
exec /usr/bin/setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock "$FOLDER/root/tools/env" "$@"
"#;

/// The same by Debian's podman, once it has its control groups.
const PODMAN: &str = r#"
path=/tools && [ -z "$KVWIRE" ] || path=/kvwire:/tools
exec podman --log-level error --root "$FOLDER/store" --runroot /run/store --cgroup-manager cgroupfs --events-backend file \
    run --rm --network none --cap-drop all --shm-size 8m --ulimit memlock=65536:65536 --ulimit nofile=1024:1024 \
    --ulimit nproc=1024:1024 ${NODE:+--device "/dev/null:/dev/infiniband/$NODE"} ${KVWIRE:+--volume "$KVWIRE:/kvwire:ro"} \
    --volume /usr:/usr:ro --volume "$SYS:/sys:ro" --env "PATH=$path" --rootfs "$FOLDER/root" "$@"
"#;

/// The report of a pod that is such a container. Its PATH has every tool of busybox and, where asked for, kvwire.
fn in_container(setup: &str, with_kvwire: bool, node: &str) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    for name in ["dev", "etc", "kvwire", "proc", "sys", "tmp", "tools", "usr"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    for name in ["lib", "lib64"] {
        std::os::unix::fs::symlink(format!("usr/{name}"), root.join(name)).unwrap();
    }
    applets(&root.join("tools"));
    fs::write(folder.path().join("setup"), setup).unwrap();
    let sys = concat!(env!("CARGO_MANIFEST_DIR"), "/../checks/tests/fixtures/rxe-active/sys");
    let program = if with_kvwire { kvwire().parent().unwrap().display().to_string() } else { String::new() };
    let folder = folder.path().display();
    let kubectl = Kubectl::new(&format!(
        "while [ \"$1\" != -- ]; do shift; done; shift\nexport FOLDER='{folder}' SYS='{sys}' KVWIRE='{program}' NODE='{node}'\n\
         export PATH=/usr/bin:/bin:/usr/sbin:/sbin\n\
         exec unshare --mount --pid --fork --mount-proc --ipc --cgroup bash '{folder}/setup' \"$@\""
    ));
    let ended = kvwire_command("check")
        .args(["node", "--pod", "decode-0", "--json"])
        .env("PATH", &kubectl.path())
        .run();
    assert_eq!(kubectl.calls().len(), 1, "one exec\n{ended}");
    ended
}

/// Every tool of busybox, and nothing else.
fn applets(folder: &Path) {
    let found = Command::new("sh").args(["-c", "command -v busybox"]).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap().trim().to_owned();
    assert!(!found.is_empty(), "busybox is missing; run: scripts/need busybox");
    fs::copy(&found, folder.join("busybox")).unwrap();
    let listed = Command::new(&found).arg("--list").output().unwrap();
    for name in String::from_utf8(listed.stdout).unwrap().lines().filter(|name| *name != "busybox") {
        std::os::unix::fs::symlink("busybox", folder.join(name)).unwrap();
    }
}

/// Judges the container by busybox and by kvwire in it.
fn assert_nothing_is_allowed(setup: &str) {
    let by_shell = in_container(setup, false, "");
    assert_eq!(by_shell.code, 1, "{by_shell}");
    let report = json(&by_shell);
    assert_eq!(report["checks"][0]["evidence"][0], "read by shell", "{by_shell}");
    assert_eq!(status(&report, "rdma-usable"), "fail", "listed, and no node in /dev: {report}");
    assert_eq!(status(&report, "rdma-port"), "ok", "{report}");
    assert_eq!(status(&report, "memlock"), "fail", "{report}");
    assert_eq!(status(&report, "shm-size"), "fail", "{report}");
    let facts = report["nodes"][0]["facts"].as_array().unwrap();
    let fact = |name: &str| {
        facts.iter().find(|fact| fact["name"] == name).unwrap()["value"].as_str().unwrap().to_owned()
    };
    assert_eq!(fact("memlock"), "64 KiB");
    assert_eq!(fact("/dev/shm"), "8 MiB");
    assert_eq!(fact("RDMA devices"), "2 listed, 0 usable, 0 with an active port");

    let other = json(&in_container(setup, true, ""));
    assert!(other["checks"][0]["evidence"][0].as_str().unwrap().starts_with("read by kvwire "), "{other}");
    let statuses = |report: &Value| -> Vec<(Value, Value)> {
        let checks = report["checks"].as_array().unwrap();
        checks.iter().map(|check| (check["name"].clone(), check["status"].clone())).collect()
    };
    assert_eq!(statuses(&report), statuses(&other), "one node, two readers");

    let given = json(&in_container(setup, false, "uverbs0"));
    assert_eq!(status(&given, "rdma-usable"), "warn", "one of two devices is given: {given}");
}

#[test]
fn netns_a_container_of_namespaces_with_nothing_allowed_is_judged_as_such() {
    assert_nothing_is_allowed(NAMESPACES);
}

#[test]
fn netns_a_container_of_podman_with_nothing_allowed_is_judged_as_such() {
    assert_nothing_is_allowed(&format!("{CONTROL_GROUPS}{PODMAN}"));
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
    for said in [["--ucx-env", "UCX_TLS=rc"], ["--expect", "rdma"]] {
        let ended = pair().args(["--sizes", "4KiB", "--verbose"]).args(said).nixl(&Nixl::Newest).run();
        assert_eq!(ended.code, 1, "{ended}");
        assert!(ended.title("rdma-expected").contains("the initiator cannot use it"), "{ended}");
        assert!(!ended.stderr.contains("engine: process"), "nothing was started: {ended}");
        assert_eq!(ended.statuses().iter().filter(|status| **status == "pass").count(), 0);
    }
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
