//! Stored results: repetitions, the gate and the reports, with the real binary.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::path::{Path, PathBuf};

use kvwire_tests::{Ended, Hosts, Nixl, Side, kvwire_command, pair};
use serde_json::Value;

/// Runs of `kvwire pair` with repetitions, each result kept in `folder`.
fn runs(folder: &Path, name: &str, count: usize, flags: &[&str]) -> Vec<PathBuf> {
    let one = |n: usize| {
        let path = folder.join(format!("{name}-{n}.json"));
        let run = pair().nixl(&Nixl::Newest).args(["--sizes", "64KiB", "--op", "write", "--repeat", "10"]);
        let run = run.args(["--case-time", "20ms", "--samples", "2000"]);
        let ended = flags.chunks(2).fold(run, |run, pair| run.args([pair[0], pair[1]])).run();
        assert_eq!(ended.code, 0, "{ended}");
        std::fs::write(&path, ended.result().to_string()).unwrap();
        path
    };
    (0..count).map(one).collect()
}

fn command(name: &str, words: &[&Path], flags: &[&str]) -> Ended {
    let words = words.iter().map(|path| path.to_str().unwrap());
    let run = words.fold(kvwire_command(name), |run, word| run.args([word]));
    flags.iter().fold(run, |run, flag| run.args([*flag])).run()
}

#[test]
fn every_round_is_kept_and_the_case_is_all_of_them() {
    let ended = pair()
        .nixl(&Nixl::Newest)
        .args(["--sizes", "4KiB,64KiB", "--repeat", "3", "--samples", "200", "--case-time", "20s"])
        .run();
    assert_eq!(ended.code, 0, "{ended}");
    for case in ended.cases() {
        let rounds = case["repetitions"].as_array().unwrap();
        assert_eq!(rounds.len(), 3, "{case}");
        let transfers: u64 = rounds.iter().map(|round| round["transfers"].as_u64().unwrap()).sum();
        assert_eq!(case["transfers"].as_u64().unwrap(), transfers, "{case}");
        assert_eq!(case["total"]["count"].as_u64().unwrap(), transfers, "{case}");
    }
    let at = |case: usize, round: usize| ended.cases()[case]["repetitions"][round]["at_ns"].as_u64().unwrap();
    assert!(at(0, 0) < at(3, 0) && at(3, 0) < at(0, 1), "round after round: {ended}");
}

#[test]
fn rounds_that_do_not_fit_into_the_total_time_are_told() {
    let ended = pair()
        .nixl(&Nixl::Newest)
        .args(["--sizes", "4KiB", "--repeat", "1000", "--case-time", "2ms", "--total-time", "400ms"])
        .run();
    assert!(ended.title("repetitions-missing").contains("not 1000 times"), "{ended}");
}

#[test]
fn unchanged_runs_pass_and_tcp_in_place_of_shared_memory_is_caught() {
    let folder = tempfile::tempdir().unwrap();
    let baseline = runs(folder.path(), "baseline", 5, &[]);
    let thresholds = folder.path().join("thresholds.toml");
    let calibrate: Vec<&Path> =
        [Path::new("calibrate")].into_iter().chain(baseline.iter().map(PathBuf::as_path)).collect();
    let ended = command("gate", &calibrate, &["-o", thresholds.to_str().unwrap()]);
    assert_eq!(ended.code, 0, "{ended}");
    assert!(ended.stdout.contains("detectable"), "{ended}");

    let list = baseline.iter().map(|p| p.to_str().unwrap()).collect::<Vec<_>>().join(",");
    let against = ["--baseline", &list, "--thresholds", thresholds.to_str().unwrap(), "--json"];
    // A run of the calibration lies within it by construction, however noisy the machine is.
    let same = command("gate", &[&baseline[0]], &against);
    assert_eq!(same.code, 0, "{same}");

    let slow = runs(folder.path(), "tcp", 1, &["--ucx-env", "UCX_TLS=tcp,self", "--expect", "any"]);
    let ended = command("gate", &[&slow[0]], &["--baseline", &list, "--json"]);
    let gate: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((ended.code, gate["outcome"].as_str()), (1, Some("not_trusted")), "{ended}");
    assert!(gate["findings"].to_string().contains("UCX_TLS"), "the setting that differs is told: {ended}");
}

#[test]
fn netns_alone_a_network_that_delays_is_caught() {
    let hosts = Hosts::new();
    let folder = tempfile::tempdir().unwrap();
    let measure = |name: &str| {
        let path = folder.path().join(name);
        let run = pair().on(&hosts.of(Side::Target)).nixl(&Nixl::Newest).args(["--expect", "tcp"]);
        let run = run.args(["--ucx-env", "UCX_TLS=tcp,self", "--sizes", "64KiB", "--op", "write"]);
        let ended = run.args(["--repeat", "10", "--case-time", "20ms", "--samples", "2000"]).run();
        assert_eq!(ended.code, 0, "{ended}");
        std::fs::write(&path, ended.result().to_string()).unwrap();
        path
    };
    let baseline = measure("baseline.json");
    hosts.delay_loopback(Side::Target);
    let slow = measure("slow.json");
    let ended = command("gate", &[&slow], &["--baseline", baseline.to_str().unwrap()]);
    assert_eq!(ended.code, 1, "{ended}");
    assert!(ended.stdout.contains("WRITE 64 KiB x1"), "the case is named: {ended}");
}

#[test]
fn what_cannot_be_compared_does_not_pass() {
    let folder = tempfile::tempdir().unwrap();
    let one = runs(folder.path(), "one", 1, &[]).remove(0);
    let other = runs(folder.path(), "other", 1, &["--depth", "2"]).remove(0);
    let ended = command("gate", &[&other], &["--baseline", one.to_str().unwrap()]);
    assert_eq!(ended.code, 3, "{ended}");
    assert!(ended.stdout.contains("--allow-different workload"), "{ended}");
    let ended = command("gate", &[&one], &[]);
    assert_eq!(ended.code, 2, "{ended}");
    let cut = folder.path().join("cut.json");
    std::fs::write(&cut, &std::fs::read(&one).unwrap()[..1000]).unwrap();
    let ended = command("gate", &[&cut], &["--baseline", one.to_str().unwrap()]);
    assert!(ended.code == 2 && ended.stderr.contains("cut off"), "{ended}");
    let ended = command("gate", &[Path::new("calibrate"), &one], &[]);
    assert!(ended.code == 3 && ended.stdout.contains("needs 5 at least"), "{ended}");
}

#[test]
fn a_stored_result_is_rendered_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    let result = runs(folder.path(), "one", 1, &[]).remove(0);
    for (format, part) in [
        ("text", "WRITE"),
        ("json", "\"schema\": \"kvwire.result/1\""),
        ("html", "<!DOCTYPE html>"),
        ("md", "## "),
        ("csv", "run,started_at,case"),
        ("junit", "<testsuites"),
        ("prometheus", "kvwire_case_bandwidth_bytes_per_second{"),
        ("hdr", "Tag="),
    ] {
        let printed = command("report", &[&result], &["--format", format]);
        assert!(printed.code == 0 && printed.stdout.contains(part), "{format}: {printed}");
        let file = folder.path().join(format);
        let written = command("report", &[&result], &["--format", format, "-o", file.to_str().unwrap()]);
        assert_eq!(written.code, 0, "{format}: {written}");
        assert!(std::fs::read_to_string(&file).unwrap().contains(part), "{format}");
    }
    let foreign = folder.path().join("foreign.json");
    std::fs::write(&foreign, r#"{"schema": "other/1"}"#).unwrap();
    let ended = command("report", &[&foreign], &[]);
    assert!(ended.code == 2 && ended.stderr.contains("no kvwire result"), "{ended}");
}
