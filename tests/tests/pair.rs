//! The main job with real NIXL: bytes between two processes, checked, timed and reported.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use kvwire_tests::{Ended, Kvwire, Nixl, bare_pair, kvwire_command, pair, repository};
use serde_json::Value;

fn quick(nixl: &Nixl) -> Kvwire {
    pair().nixl(nixl).env("KVWIRE_CASE_TIME", "50ms")
}

fn assert_all_pass(ended: &Ended, cases: usize) {
    assert_eq!(ended.code, 0, "{ended}");
    assert_eq!(ended.statuses(), vec!["pass"; cases], "{ended}");
    let result = ended.result();
    assert_eq!(result["verdict"]["outcome"], "trusted", "{ended}");
    assert_eq!(result["run"]["complete"], true, "{ended}");
    for case in ended.cases() {
        let bytes = case["block_bytes"].as_u64().unwrap() * case["batch"].as_u64().unwrap();
        let moved = case["transfers"].as_u64().unwrap() * bytes;
        assert_eq!(case["payload_bytes"].as_u64().unwrap(), moved, "{case}");
        let compared = bytes * case["depth"].as_u64().unwrap();
        assert_eq!(case["verification"]["verified_bytes"].as_u64().unwrap(), compared, "{case}");
        let seconds = case["wall_ns"].as_f64().unwrap() / 1e9;
        let bandwidth = case["bandwidth_bytes_per_s"].as_f64().unwrap();
        assert!((bandwidth - moved as f64 / seconds).abs() <= bandwidth * 1e-6, "{case}");
        for part in ["post", "wire", "total"] {
            assert_eq!(case[part]["count"], case["transfers"], "{part} of {case}");
            assert!(!case[part]["histogram"].as_str().unwrap().is_empty(), "{part} of {case}");
        }
        assert!(case["cold_ns"].as_u64().unwrap() > 0, "{case}");
    }
}

#[test]
fn every_size_and_direction_moves_checked_bytes_on_every_covered_nixl() {
    for nixl in Nixl::covered() {
        let ended = quick(&nixl).args(["--sizes", "4KiB..1MiB*16"]).run();
        assert_all_pass(&ended, 6);
        for side in ["initiator", "target"] {
            let node = &ended.result()["nodes"][side];
            let library = nixl.library().canonicalize().unwrap();
            assert_eq!(node["nixl"]["library"], library.to_str().unwrap(), "{ended}");
            assert!(node["nixl"]["version"].is_string(), "{node}");
            assert!(node["nixl"]["ucx_version"].is_string(), "{node}");
            assert!(node["kernel"].is_string() && node["cpus_usable"].is_u64(), "{node}");
            let startup = ended.result()["startup"][side].to_string();
            for phase in ["load", "agent", "backend", "allocate", "register"] {
                assert!(startup.contains(phase), "{phase} in {startup}");
            }
            assert!(ended.result()["registration"][side]["ns"].as_u64().unwrap() > 0);
        }
    }
}

#[test]
fn sizes_that_are_no_whole_words_are_checked_to_their_last_byte() {
    let ended = quick(&Nixl::Newest).args(["--sizes", "1B,7B,8B,1000B,4097B", "--batch", "1,3"]).run();
    assert_all_pass(&ended, 20);
}

#[test]
fn descriptors_are_merged_or_not_on_purpose_and_both_counts_are_told() {
    for nixl in Nixl::covered() {
        let counts = |flags: &[&str]| -> Vec<(u64, Option<u64>)> {
            let run = quick(&nixl).args(["--sizes", "4KiB", "--batch", "16"]);
            let ended = flags.iter().fold(run, |run, flag| run.args([*flag])).run();
            assert_all_pass(&ended, 2);
            let descriptors = |c: &Value| {
                (c["descriptors"]["requested"].as_u64().unwrap(), c["descriptors"]["posted"].as_u64())
            };
            ended.cases().iter().map(descriptors).collect()
        };
        let merged = counts(&[]);
        let apart = counts(&["--no-merge"]);
        for ((requested, posted), expected) in
            [(merged[0], 1), (merged[1], 1), (apart[0], 16), (apart[1], 16)]
        {
            assert_eq!(requested, 16);
            assert_eq!(posted, Some(expected), "merged {merged:?}, apart {apart:?} with {nixl:?}");
        }
    }
}

#[test]
fn several_transfers_at_once_are_all_checked() {
    let ended = quick(&Nixl::Newest).args(["--sizes", "4KiB,64KiB", "--depth", "4", "--batch", "2"]).run();
    assert_all_pass(&ended, 4);
}

#[test]
fn a_request_made_anew_is_timed_apart() {
    let ended = quick(&Nixl::Newest).args(["--sizes", "4KiB", "--recreate"]).run();
    assert_all_pass(&ended, 2);
    assert_eq!(ended.cases()[0]["prep"]["count"], ended.cases()[0]["transfers"], "{ended}");
    let once = quick(&Nixl::Newest).args(["--sizes", "4KiB"]).run();
    assert!(once.cases()[0]["prep"].is_null(), "{once}");
}

#[test]
fn notifications_arrive_and_their_cost_is_a_histogram_of_its_own() {
    for nixl in Nixl::covered() {
        let ended = quick(&nixl).args(["--sizes", "4KiB", "--notify", "--depth", "2"]).run();
        assert_all_pass(&ended, 2);
        assert!(ended.cases()[0]["notify"]["count"].as_u64().unwrap() > 0, "{ended}");
    }
    let without = quick(&Nixl::Newest).args(["--sizes", "4KiB"]).run();
    assert!(without.cases()[0]["notify"].is_null(), "{without}");
}

#[test]
fn percentiles_are_told_only_with_enough_samples() {
    let ended =
        quick(&Nixl::Newest).args(["--sizes", "4KiB", "--samples", "500", "--case-time", "20s"]).run();
    assert_all_pass(&ended, 2);
    assert_eq!(ended.cases()[0]["transfers"], 500);
    assert_eq!(ended.cases()[0]["ended_by"], "samples");
    assert!(ended.cases()[0]["total"]["p90"].is_u64());
    assert!(ended.cases()[0]["total"]["p99"].is_null());
    let more =
        quick(&Nixl::Newest).args(["--sizes", "4KiB", "--samples", "1000", "--case-time", "20s"]).run();
    assert!(more.cases()[0]["total"]["p99"].is_u64(), "{more}");
    assert!(more.cases()[0]["total"]["p999"].is_null(), "{more}");
}

#[test]
fn the_result_obeys_its_published_schema() {
    let text = std::fs::read_to_string(repository().join("docs/result.schema.json")).unwrap();
    let schema = jsonschema::validator_for(&serde_json::from_str(&text).unwrap()).unwrap();
    let check = |ended: &Ended| {
        let errors: Vec<String> =
            schema.iter_errors(ended.result()).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert!(errors.is_empty(), "{errors:#?}\n{ended}");
    };
    check(&quick(&Nixl::Newest).args(["--sizes", "4KiB,1000B", "--notify", "--recreate"]).run());
    check(&pair().fake("swap").args(["--sizes", "4KiB", "--samples", "5"]).run());
    check(&pair().fake("create_backend=-2").args(["--sizes", "4KiB"]).run());
}

#[test]
fn json_alone_on_stdout_is_the_result_and_quiet_is_silent() {
    let ended = quick(&Nixl::Newest).args(["--sizes", "4KiB", "--json", "--quiet"]).run();
    assert_all_pass(&ended, 2);
    let printed: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(printed["cases"], ended.result()["cases"], "{ended}");
    assert_eq!(printed["verdict"], ended.result()["verdict"], "{ended}");
    assert!(ended.stderr.is_empty(), "{ended}");
}

#[test]
fn text_goes_to_stdout_without_colour_and_nothing_to_a_stderr_that_is_no_terminal() {
    let ended = quick(&Nixl::Newest).args(["--sizes", "4KiB"]).run();
    assert_all_pass(&ended, 2);
    assert!(ended.stdout.to_lowercase().starts_with("trusted"), "the verdict comes first: {ended}");
    assert!(ended.stdout.contains("4 KiB") && ended.stdout.contains("GB/s"), "{ended}");
    assert!(!ended.stdout.contains('\x1b'), "{ended}");
    assert!(ended.stderr.is_empty(), "{ended}");
    let coloured = bare_pair()
        .nixl(&Nixl::Newest)
        .args(["--sizes", "4KiB", "--case-time", "10ms", "--color", "always"])
        .run();
    assert!(coloured.stdout.contains('\x1b'), "{coloured}");
}

#[test]
fn the_same_seed_is_recorded_and_a_run_names_its_command() {
    let ended = quick(&Nixl::Newest).args(["--sizes", "4KiB", "--seed", "77"]).run();
    assert_eq!(ended.result()["plan"]["seed"], 77);
    assert!(ended.result()["run"]["command_line"].to_string().contains("--seed"), "{ended}");
}

#[test]
fn ucx_settings_reach_both_engines() {
    let ended = quick(&Nixl::Newest)
        .args([
            "--sizes",
            "4KiB",
            "--ucx-env",
            "UCX_TLS=tcp,self",
            "--ucx-env",
            "UCX_LOG_LEVEL=info",
            "--expect",
            "tcp",
            "--verbose",
        ])
        .run();
    assert_all_pass(&ended, 2);
    for role in ["initiator", "target"] {
        let lines =
            ended.stderr.lines().filter(|l| l.starts_with(&format!("{role} engine |")) && l.contains("UCX"));
        assert!(lines.count() > 0, "{role}: {ended}");
    }
}

#[test]
fn two_nixl_versions_meet_and_the_result_says_which() {
    let (newest, oldest) = (Nixl::Newest.library(), Nixl::Oldest.library());
    for (initiator, target) in [(&newest, &oldest), (&oldest, &newest)] {
        let ended = pair()
            .args(["--nixl-lib", initiator.to_str().unwrap(), "--target-nixl-lib", target.to_str().unwrap()])
            .args(["--sizes", "4KiB", "--case-time", "20ms"])
            .run();
        let evidence = ended.finding("versions-differ")["evidence"].to_string();
        for side in ["initiator", "target"] {
            let version = ended.result()["nodes"][side]["nixl"]["version"].as_str().unwrap();
            assert!(evidence.contains(version), "{version} in {evidence}");
        }
        assert!(
            ended.code == 0 || ended.stdout.contains("NIXL 0."),
            "a refusal names both versions: {ended}"
        );
    }
}

#[test]
fn a_total_time_that_is_too_short_for_all_cases_is_not_a_pass() {
    let ended = quick(&Nixl::Newest)
        .args(["--sizes", "4KiB..64KiB", "--case-time", "100ms", "--total-time", "150ms"])
        .run();
    assert_eq!(ended.code, 3, "{ended}");
    assert!(ended.statuses().contains(&"pass") && ended.statuses().contains(&"not_run"), "{ended}");
    assert!(ended.stdout.contains("--total-time"), "{ended}");
}

#[test]
fn info_names_what_was_found_and_where_it_looked() {
    for nixl in Nixl::covered() {
        let ended = kvwire_command("info").nixl(&nixl).args(["--json"]).run();
        assert_eq!(ended.code, 0, "{ended}");
        let report: Value = serde_json::from_str(&ended.stdout).unwrap();
        let found = &report["found"];
        assert!(found["plugins"].to_string().contains("UCX"), "{report}");
        assert!(found["memory_kinds"].to_string().contains("host memory"), "{report}");
        assert!(found["nixl"]["ucx_library"].as_str().unwrap().contains("libucp"), "{report}");
        assert!(report["searched"].as_array().is_some_and(|s| !s.is_empty()), "{report}");
    }
    let text = kvwire_command("info").nixl(&Nixl::Newest).run();
    assert!(text.stdout.contains("UCX library") && text.stdout.contains("searched"), "{text}");
}
