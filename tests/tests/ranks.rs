//! Several ranks on each side, and READ and WRITE at once: measured together, checked and judged one by one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::time::Duration;

use kvwire_tests::{Ended, Kvwire, Nixl, is_alive, kvwire_command, pair, with_result};
use rustix::process::Signal;
use serde_json::Value;

fn small(run: Kvwire) -> Kvwire {
    run.args(["--case-time", "50ms", "--warmup", "3", "--samples", "20"])
}

fn kv(run: Kvwire) -> Kvwire {
    small(run).args(["--model", "llama-3.1-8b", "--no-descriptor-sweep", "--tokens", "64"])
}

fn parts(case: &Value) -> &Vec<Value> {
    case["parts"].as_array().unwrap()
}

fn pairs(case: &Value) -> Vec<(u64, u64)> {
    parts(case).iter().map(|p| (p["rank"].as_u64().unwrap(), p["target_rank"].as_u64().unwrap())).collect()
}

/// Every part passed, was checked whole, and is in the figures of its case.
fn assert_sound(ended: &Ended, expected: usize) {
    assert_eq!(ended.code, 0, "{ended}");
    for case in ended.cases() {
        let parts = parts(case);
        assert_eq!(parts.len(), expected, "{case}");
        for part in parts {
            assert_eq!(part["status"], "pass", "{part}");
            assert!(part["bandwidth_bytes_per_s"].as_f64() > Some(0.0), "{part}");
            assert!(part["verified_bytes"].as_u64() > Some(0), "{part}");
            assert_eq!(part["total"]["count"], part["transfers"], "{part}");
        }
        for figure in ["transfers", "payload_bytes"] {
            let sum: u64 = parts.iter().map(|part| part[figure].as_u64().unwrap()).sum();
            assert_eq!(case[figure].as_u64(), Some(sum), "{figure} of {case}");
        }
        let checked: u64 = parts.iter().map(|part| part["verified_bytes"].as_u64().unwrap()).sum();
        assert_eq!(case["verification"]["verified_bytes"].as_u64(), Some(checked), "{case}");
        if case["repetitions"].as_array().unwrap().len() == 1 {
            let end = |p: &Value| p["began_after_ns"].as_u64().unwrap() + p["wall_ns"].as_u64().unwrap();
            assert_eq!(case["wall_ns"].as_u64(), parts.iter().map(end).max(), "{case}");
        }
        let rate = case["payload_bytes"].as_f64().unwrap() * 1e9 / case["wall_ns"].as_f64().unwrap();
        assert!((case["bandwidth_bytes_per_s"].as_f64().unwrap() / rate - 1.0).abs() < 1e-9, "{case}");
    }
}

#[test]
fn ranks_move_at_once_and_each_has_its_figures_and_its_wire() {
    for nixl in Nixl::covered() {
        let ended = small(pair()).nixl(&nixl).args(["--sizes", "64KiB", "--ranks", "2", "--verbose"]).run();
        assert_sound(&ended, 2);
        assert_eq!(ended.engines.len(), 4, "{ended}");
        assert_eq!(ended.result()["plan"]["ranks"], 2);
        for case in ended.cases() {
            assert_eq!(pairs(case), [(0, 0), (1, 1)], "{ended}");
            for part in parts(case) {
                assert_eq!(part["transport"]["class"], "shm", "{part}");
                let evidence = part["transport"]["evidence"].to_string();
                let table = format!("-{} ", part["rank"]);
                assert!(evidence.contains("ucx_protocol_table"), "{part}");
                // The table is that of this rank's own engine, which UCX names in it.
                assert!(!evidence.contains("kvwire-initiator") || evidence.contains(&table), "{part}");
            }
        }
        assert!(ended.stdout.contains("READ, uniform, depth 1, 2 ranks"), "{ended}");
        assert!(ended.stdout.contains("rank 1 - 1"), "{ended}");
        let memory = ended.result()["registration"]["target"]["bytes"].as_u64();
        assert_eq!(memory, ended.result()["plan"]["pool_bytes"].as_u64().map(|pool| 2 * pool));
    }
}

#[test]
fn read_and_write_run_at_once_on_memory_of_their_own() {
    let ended = small(pair())
        .nixl(&Nixl::Newest)
        .args(["--sizes", "4KiB,64KiB", "--bidirectional", "--depth", "2", "--notify", "--verbose"])
        .run();
    assert_sound(&ended, 2);
    let names: Vec<&str> = ended.cases().iter().map(|case| case["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["READ+WRITE 4 KiB x1", "READ+WRITE 64 KiB x1"]);
    for case in ended.cases() {
        let ops: Vec<&str> = parts(case).iter().map(|part| part["op"].as_str().unwrap()).collect();
        assert_eq!(ops, ["READ", "WRITE"], "{ended}");
        // Both were loaded until the slower one had its samples.
        assert!(parts(case).iter().all(|part| part["transfers"].as_u64() >= Some(1)), "{ended}");
        assert!(case["notify"]["count"].as_u64() > Some(0), "{case}");
    }
    assert!(ended.result()["plan"]["pool_bytes"].as_u64() >= Some(2 * 2 * (64 << 10)), "{ended}");
}

#[test]
fn kv_blocks_move_both_ways_between_all_ranks() {
    let ended = kv(pair()).nixl(&Nixl::Newest).args(["--ranks", "2", "--bidirectional"]).run();
    assert_sound(&ended, 4);
    let case = &ended.cases()[0];
    assert_eq!(case["op"], "READ+WRITE");
    for part in ["prep", "post", "wire", "total"] {
        assert_eq!(case[part]["count"], case["transfers"], "{part} of {case}");
    }
    assert!(case["notified"]["count"].as_u64() > Some(0), "{case}");
    let words: Vec<&str> = ended.stdout.split_whitespace().collect();
    assert!(words.join(" ").contains("GB/s over all 2 ranks"), "{ended}");
    assert!(ended.result()["verdict"]["scope"].as_str().unwrap().contains("2 ranks a side"), "{ended}");
}

#[test]
fn ranks_of_slices_meet_the_rank_that_holds_their_heads() {
    let sliced = |prefill: &str, decode: &str, op: &str| {
        let ended = kv(pair())
            .nixl(&Nixl::Newest)
            .args(["--ranks", "4", "--prefill-tp", prefill, "--decode-tp", decode, "--op", op])
            .run();
        assert_sound(&ended, 4);
        pairs(&ended.cases()[0])
    };
    let two_each = [(0, 0), (1, 0), (2, 1), (3, 1)];
    // Two decode ranks read halves of one prefill rank's blocks; two prefill ranks write them to one decode rank.
    assert_eq!(sliced("2", "4", "read"), two_each);
    assert_eq!(sliced("4", "2", "write"), two_each);
    assert_eq!(sliced("4", "2", "read"), [(0, 0), (1, 1), (2, 2), (3, 3)]);
}

#[test]
fn prompts_in_flight_a_rate_and_repetitions_go_together_with_ranks() {
    let ended = kv(pair())
        .nixl(&Nixl::Newest)
        .args(["--ranks", "2", "--requests-in-flight", "2", "--rate", "200", "--repeat", "2"])
        .run();
    assert_sound(&ended, 2);
    let case = &ended.cases()[0];
    assert_eq!(case["repetitions"].as_array().unwrap().len(), 2, "{case}");
    assert_eq!(case["scheduled"]["count"], case["transfers"], "{case}");
}

#[test]
fn a_wrong_byte_of_one_rank_fails_the_case_and_names_the_rank() {
    for op in ["read", "write"] {
        let ended = pair()
            .fake("corrupt=5@after=6@rank=1")
            .args(["--sizes", "4KiB", "--ranks", "3", "--op", op, "--warmup", "0", "--samples", "20"])
            .args(["--case-time", "5s"])
            .run();
        assert_eq!(ended.code, 1, "{ended}");
        let case = &ended.cases()[0];
        assert!(case["reason"].as_str().unwrap().starts_with("rank 1: "), "{ended}");
        assert!(case["bandwidth_bytes_per_s"].is_null(), "{ended}");
        let failed: Vec<bool> = parts(case).iter().map(|part| part["status"] == "fail").collect();
        assert_eq!(failed, [false, true, false], "{ended}");
        assert!(ended.title("data-mismatch").contains("rank 1"), "{ended}");
    }
}

#[test]
fn a_notification_that_one_rank_loses_is_missed() {
    let ended = pair()
        .fake("mute@after=10@rank=1")
        .args(["--sizes", "4KiB", "--ranks", "2", "--op", "write", "--notify", "--samples", "20"])
        .run();
    assert_eq!(ended.code, 1, "{ended}");
    let reason = ended.cases()[0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("rank 1: ") && reason.contains("notifications did not arrive"), "{reason}");
}

/// A run whose timed loop lasts long enough to be disturbed.
fn long() -> Kvwire {
    pair().nixl(&Nixl::Newest).args([
        "--sizes",
        "16MiB",
        "--ranks",
        "2",
        "--op",
        "write",
        "--case-time",
        "20s",
        "--samples",
        "100000000",
        "--verbose",
    ])
}

#[test]
fn the_death_of_any_ranks_engine_ends_the_run_with_that_rank_named() {
    for (role, rank) in [("initiator", 0), ("initiator", 1), ("target", 1)] {
        let mut live = long().start();
        let pid = live.engine_of_rank(role, rank);
        live.await_line("initiator engine of rank 1: timed loop");
        live.signal(pid, Signal::KILL);
        let ended = live.end();
        assert_eq!(ended.code, 3, "{ended}");
        let title = ended.title("engine-died");
        assert!(title.starts_with(&format!("{role} engine of rank {rank}")), "{ended}");
        assert!(ended.took < Duration::from_secs(30), "{ended}");
        assert_eq!(ended.engines.len(), 4, "{ended}");
        assert!(ended.engines.iter().all(|pid| !is_alive(*pid)), "{ended}");
    }
}

#[test]
fn ranks_work_between_a_target_and_an_initiator() {
    let mut target = with_result("target")
        .nixl(&Nixl::Newest)
        .args(["--rendezvous", "tcp://127.0.0.1:0"])
        .args(["--allow-same-host"])
        .start();
    let address = target.join_address();
    let initiator = small(with_result("initiator"))
        .nixl(&Nixl::Newest)
        .args(["--rendezvous", &address, "--allow-same-host", "--sizes", "4KiB"])
        .args(["--ranks", "2", "--bidirectional"])
        .run();
    let target = target.end();
    assert_sound(&initiator, 4);
    assert_sound(&target, 4);
    assert_eq!(target.cases(), initiator.cases());
}

#[test]
fn every_report_shows_each_rank_and_counts_no_byte_twice() {
    let ended = small(pair())
        .nixl(&Nixl::Newest)
        .args(["--sizes", "64KiB,1MiB", "--ranks", "2", "--bidirectional", "--repeat", "2"])
        .run();
    assert_sound(&ended, 4);
    for part in ended.cases().iter().flat_map(parts) {
        let rounds = part["repetitions"].as_array().unwrap();
        let transfers: u64 = rounds.iter().map(|round| round["transfers"].as_u64().unwrap()).sum();
        assert_eq!((rounds.len(), Some(transfers)), (2, part["transfers"].as_u64()), "{part}");
        assert!(rounds[0]["at_ns"].as_u64() < rounds[1]["at_ns"].as_u64(), "{part}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("result.json");
    std::fs::write(&path, ended.result().to_string()).unwrap();
    let report = |format: &str| {
        let ended = kvwire_command("report").args([path.to_str().unwrap(), "--format", format]).run();
        assert_eq!(ended.code, 0, "{ended}");
        ended.stdout
    };
    let (cases, payload) = (ended.cases().len(), |of: &Value| of["payload_bytes"].as_u64().unwrap());
    let all: u64 = ended.cases().iter().map(payload).sum();

    let text = kvwire_command("report").args([path.to_str().unwrap(), "-v"]).run().stdout;
    assert_eq!(text.matches("rank 1 - 1").count(), 2 * cases, "{text}");

    let csv = report("csv");
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let column = |name: &str| lines[0].iter().position(|head| *head == name).unwrap();
    let sum = |wanted: fn(&str) -> bool| -> u64 {
        let some = lines[1..].iter().filter(|line| wanted(line[column("rank")]));
        some.map(|line| line[column("payload_bytes")].parse::<u64>().unwrap()).sum()
    };
    assert_eq!(lines.len(), 1 + cases * 5, "{csv}");
    assert_eq!((sum(str::is_empty), sum(|rank| !rank.is_empty())), (all, all), "{csv}");
    assert!(lines[2..6].iter().all(|line| line[column("carried_by")] == "shm"), "{csv}");

    let prometheus = report("prometheus");
    let samples = |name: &str| -> Vec<f64> {
        let lines = prometheus.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect()
    };
    assert_eq!(samples("kvwire_case_payload_bytes").iter().sum::<f64>(), all as f64, "{prometheus}");
    assert_eq!(samples("kvwire_rank_payload_bytes").iter().sum::<f64>(), all as f64, "{prometheus}");
    assert_eq!(samples("kvwire_rank_bandwidth_bytes_per_second").len(), 4 * cases, "{prometheus}");
    assert!(prometheus.contains("rank=\"1\",target_rank=\"1\",direction=\"WRITE\""), "{prometheus}");

    let junit = report("junit");
    assert_eq!(junit.matches("<system-out>").count(), cases, "{junit}");
    assert_eq!(junit.matches("rank 1 - 1").count(), 2 * cases, "{junit}");

    let flags = ["--baseline", path.to_str().unwrap(), "--json"];
    let gate = kvwire_command("gate").args([path.to_str().unwrap()]).args(flags).run();
    let compared: Value = serde_json::from_str(&gate.stdout).unwrap();
    let slowest =
        compared["comparisons"].as_array().unwrap().iter().filter(|one| one["metric"] == "slowest_rank");
    assert_eq!(slowest.map(|one| one["repetitions"][0].as_u64()).collect::<Vec<_>>(), [Some(2); 2], "{gate}");

    let markdown = report("md");
    let row = |line: &&str| line.contains("| 1 to 1 | WRITE | host memory to host memory | ok |");
    assert_eq!(markdown.lines().filter(row).count(), cases, "{markdown}");
}

#[test]
fn a_wrong_number_of_ranks_and_one_way_of_both_are_refused() {
    for (args, words) in [
        (&["--ranks", "0"][..], "--ranks"),
        (&["--ranks", "1000"], "1 to 64"),
        (&["--bidirectional", "--op", "read"], "--bidirectional"),
        (&["--ranks", "64", "--sizes", "64GiB"], "--ranks"),
    ] {
        let run = args.iter().fold(pair().fake("misspelt-on-purpose"), |run, arg| run.args([*arg]));
        let ended = run.run();
        assert_eq!(ended.code, 2, "{ended}");
        assert!(ended.stderr.contains(words), "{args:?}: {ended}");
    }
}
