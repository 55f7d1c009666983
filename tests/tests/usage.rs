//! Wrong input: exit code 2, the flag and the fix on standard error, and nothing started.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use kvwire_tests::{Ended, Nixl, bare_pair, kvwire_command, pair, partial_fake};

/// Runs `kvwire pair` with the fake NIXL, which would abort loudly if an engine loaded it with this script.
fn refused(args: &[&str]) -> Ended {
    let run = args.iter().fold(bare_pair().fake("misspelt-on-purpose"), |run, arg| run.args([*arg]));
    let ended = run.args(["--verbose"]).run();
    assert_eq!(ended.code, 2, "{args:?}: {ended}");
    assert!(ended.stdout.is_empty(), "{args:?}: {ended}");
    assert!(!ended.stderr.contains("engine: process"), "{args:?}: something was started: {ended}");
    ended
}

#[test]
fn a_wrong_value_names_its_flag() {
    let too_many = "1048577";
    for (args, flag) in [
        (&["--sizes", "0"][..], "--sizes"),
        (&["--sizes", "many"], "--sizes"),
        (&["--sizes", "64MiB..4KiB"], "--sizes"),
        (&["--sizes", "4KiB,,8KiB"], "--sizes"),
        (&["--sizes", "64MiB", "--pool", "1MiB"], "--pool"),
        (&["--sizes", "64MiB", "--max-memory", "1MiB"], "--max-memory"),
        (&["--sizes", "1TiB"], "--sizes"),
        (&["--sizes", "64MiB", "--batch", "100000"], "--batch"),
        (&["--batch", "0"], "--batch"),
        (&["--batch", too_many], "--batch"),
        (&["--batch", "x"], "--batch"),
        (&["--sizes", "64MiB", "--depth", "4000"], "--depth"),
        (&["--depth", "0"], "--depth"),
        (&["--depth", "-1"], "--depth"),
        (&["--op", "copy"], "--op"),
        (&["--samples", "0"], "--samples"),
        (&["--case-time", "10"], "--case-time"),
        (&["--case-time", "20s", "--total-time", "1s"], "--case-time"),
        (&["--total-time", "1ms"], "--total-time"),
        (&["--transfer-timeout", "0s"], "--transfer-timeout"),
        (&["--seed", "-5"], "--seed"),
        (&["--ucx-env", "UCX_TLS"], "--ucx-env"),
        (&["--expect", "warp"], "--expect"),
        (&["--color", "red"], "--color"),
        (&["--output", "/no/such/folder/result.json"], "--output"),
        (&["--output", "/"], "--output"),
        (&["--quiet"], "--quiet"),
        (&["--no-such-flag"], "--no-such-flag"),
    ] {
        let ended = refused(args);
        assert!(ended.stderr.contains(flag), "{args:?} must name {flag}: {ended}");
    }
}

#[test]
fn a_library_that_is_not_nixl_is_refused_before_anything_starts() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = folder.path().join("libnixl_capi.so");
    std::fs::write(&text, "not a library").expect("a file");
    let libc = std::fs::read_to_string("/proc/self/maps")
        .expect("own mappings")
        .lines()
        .find_map(|l| l.split_whitespace().last().filter(|p| p.contains("libc.so")).map(str::to_owned))
        .expect("a libc");
    for (path, why) in [
        ("/no/such/libnixl_capi.so", "no NIXL library"),
        (text.to_str().expect("a path"), "is not a shared library"),
        (&libc, "not NIXL's C API"),
        (folder.path().parent().and_then(|p| p.to_str()).expect("a path"), "no NIXL library"),
    ] {
        for command in ["pair", "info"] {
            let ended = kvwire_command(command).args(["--nixl-lib", path]).run();
            assert_eq!(ended.code, 2, "{path}: {ended}");
            assert!(ended.stderr.contains("--nixl-lib") && ended.stderr.contains(why), "{path}: {ended}");
            assert!(ended.stderr.contains("fix:"), "{path}: {ended}");
        }
    }
}

#[test]
fn an_environment_variable_counts_like_its_flag_and_the_flag_wins() {
    let ended = bare_pair().env("KVWIRE_DEPTH", "0").run();
    assert_eq!(ended.code, 2, "{ended}");
    assert!(ended.stderr.contains("--depth"), "{ended}");

    let ended = bare_pair()
        .fake("")
        .env("KVWIRE_SIZES", "nonsense")
        .env("KVWIRE_OP", "write")
        .args(["--sizes", "4KiB", "--samples", "10"])
        .run();
    assert_eq!(ended.code, 0, "{ended}");
    assert!(ended.stdout.contains("WRITE") && !ended.stdout.contains("READ"), "{ended}");
}

#[test]
fn help_is_a_result_and_names_every_flag_with_its_variable() {
    let ended = kvwire_command("pair").args(["--help"]).run();
    assert_eq!(ended.code, 0, "{ended}");
    for flag in [
        "sizes",
        "batch",
        "op",
        "depth",
        "warmup",
        "samples",
        "case-time",
        "total-time",
        "seed",
        "max-memory",
        "pool",
        "nixl-lib",
        "ucx-env",
        "expect",
        "strict",
        "output",
        "json",
        "quiet",
        "verbose",
        "color",
        "notify",
        "recreate",
        "no-merge",
        "transfer-timeout",
    ] {
        assert!(ended.stdout.contains(&format!("--{flag}")), "--{flag}: {ended}");
        let variable = format!("KVWIRE_{}", flag.to_uppercase().replace('-', "_"));
        assert!(ended.stdout.contains(&variable), "{variable}: {ended}");
    }
    assert_eq!(kvwire_command("--version").run().code, 0);
    assert_eq!(kvwire_command("no-such-command").run().code, 2);
}

#[test]
fn an_incomplete_nixl_is_named_with_the_missing_function() {
    // It passes as NIXL by its first function, and fails when it is loaded.
    let ended = pair().nixl(&Nixl::At(partial_fake())).run();
    assert_eq!(ended.code, 3, "{ended}");
    assert!(ended.title("nixl-unusable").contains("has no function `nixl_capi_"), "{ended}");
}
