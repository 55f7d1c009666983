//! Failures of a run: each ends within its deadline, says who, where and what next, keeps what was measured,
//! and leaves no process behind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::time::Duration;

use kvwire_tests::{
    Ended, Kvwire, Live, Nixl, bare_pair, is_alive, kvwire, kvwire_command, pair, wait_until,
};
use rustix::process::Signal;

/// The longest that a run may go on after something went wrong: the engine's deadline is not waited for when its
/// process is gone or stopped.
const SOON: Duration = Duration::from_secs(15);

/// A run whose phases last long enough to be hit: one large case after a small one.
fn long_phases(case_time: &str) -> Kvwire {
    pair()
        .nixl(&Nixl::Newest)
        .args(["--sizes", "4KiB,256MiB", "--op", "write", "--samples", "1000", "--verbose"])
        .args(["--case-time", case_time])
}

fn assert_clean(ended: &Ended) {
    assert_eq!(ended.engines.len(), 2, "{ended}");
    for pid in &ended.engines {
        assert!(!is_alive(*pid), "engine {pid} is left behind: {ended}");
    }
    assert!(!ended.result()["verdict"]["summary"].as_str().unwrap().is_empty());
}

fn assert_failed(ended: &Ended, finding: &str, role: &str, phase: &str, code: i32) {
    assert_eq!(ended.code, code, "{ended}");
    let title = ended.title(finding);
    assert!(title.contains(&format!("{role} engine")), "{role} in `{title}`: {ended}");
    assert!(title.contains(phase), "{phase} in `{title}`: {ended}");
    assert!(!ended.finding(finding)["next_step"].as_str().unwrap().is_empty(), "{ended}");
    assert!(ended.stdout.contains(title.split(':').next().unwrap()), "{ended}");
    assert_eq!(ended.result()["run"]["complete"], false, "{ended}");
    assert_clean(ended);
}

/// Lets `disturb` act on an engine once it is in a phase, and waits for the end.
fn disturbed(run: Kvwire, role: &str, phase: &str, times: usize, disturb: impl FnOnce(&Live, i32)) -> Ended {
    let mut live = run.start();
    let pid = live.engine(role);
    live.await_line_times(&format!("{role} engine: {phase}"), times);
    disturb(&live, pid);
    let ended = live.end();
    assert!(ended.took < SOON * 2, "{ended}");
    ended
}

/// Phases of the second, large case, with the how manieth announcement of it that is; and whose engine is in it.
const PHASES: [(&str, usize, &str); 5] = [
    ("opening NIXL", 1, "opening NIXL"),
    ("preparing memory", 3, "preparing memory"),
    ("warm-up", 2, "warm-up"),
    ("timed loop", 2, "timed loop"),
    ("verification", 2, "verification"),
];

fn engine_in(phase: &str) -> &'static str {
    // A WRITE is checked where it arrived.
    if phase == "verification" { "target" } else { "initiator" }
}

#[test]
fn an_engine_that_is_killed_is_named_with_its_phase_and_the_first_case_is_kept() {
    for (phase, times, words) in PHASES {
        let role = engine_in(phase);
        let ended =
            disturbed(long_phases("1s"), role, phase, times, |live, pid| live.signal(pid, Signal::KILL));
        assert_failed(&ended, "engine-died", role, words, 3);
        assert!(ended.title("engine-died").contains("SIGKILL"), "{ended}");
        assert_eq!(ended.result()["verdict"]["outcome"], "inconclusive", "{ended}");
        if phase != "opening NIXL" {
            assert_eq!(ended.statuses(), ["pass", "not_run"], "{phase}: {ended}");
        }
    }
}

#[test]
fn an_engine_that_aborts_speaks_against_the_wire() {
    for (phase, times, words) in PHASES {
        let role = engine_in(phase);
        let ended =
            disturbed(long_phases("1s"), role, phase, times, |live, pid| live.signal(pid, Signal::ABORT));
        assert_failed(&ended, "engine-died", role, words, 1);
        assert!(ended.title("engine-died").contains("SIGABRT"), "{ended}");
        if phase != "opening NIXL" {
            assert_eq!(ended.statuses(), ["pass", "fail"], "{phase}: {ended}");
        }
    }
}

#[test]
fn an_engine_that_dies_while_connecting_is_named() {
    for (signal, code) in [(Signal::KILL, 3), (Signal::ABORT, 1)] {
        let run = pair().fake("hang=load_remote").args(["--sizes", "4KiB", "--verbose"]);
        let ended = disturbed(run, "initiator", "connection", 1, |live, pid| live.signal(pid, signal));
        assert_failed(&ended, "engine-died", "initiator", "connection", code);
    }
}

#[test]
fn the_death_of_the_idle_side_ends_the_run_too() {
    // While the initiator is in its timed loop, the target's engine only lets its progress thread run.
    let mut live = long_phases("5s").start();
    let target = live.engine("target");
    live.await_line_times("initiator engine: timed loop", 2);
    live.signal(target, Signal::KILL);
    let ended = live.end();
    assert!(ended.took < SOON * 2, "{ended}");
    // UCX in the initiator's engine may notice first; the cause is named all the same, and decides.
    assert_eq!(ended.code, 3, "{ended}");
    assert!(ended.title("engine-died").contains("target engine"), "{ended}");
    assert_eq!(ended.statuses()[0], "pass", "{ended}");
    assert_ne!(ended.statuses()[1], "pass", "{ended}");
    assert_clean(&ended);
}

#[test]
fn an_engine_that_is_stopped_is_noticed_and_ended() {
    for role in ["initiator", "target"] {
        let mut live = long_phases("20s").start();
        let pid = live.engine(role);
        live.await_line_times("initiator engine: timed loop", 2);
        live.signal(pid, Signal::STOP);
        let ended = live.end();
        assert!(ended.took < SOON * 2, "{ended}");
        assert_eq!(ended.code, 3, "{ended}");
        assert!(ended.title("engine-stopped").contains(role), "{ended}");
        assert_eq!(ended.statuses()[0], "pass", "{ended}");
        assert_ne!(ended.statuses()[1], "pass", "{ended}");
        assert_clean(&ended);
    }
}

#[test]
fn a_transfer_that_never_completes_has_stalled() {
    let ended = pair()
        .fake("stall@after=200")
        .args(["--sizes", "4KiB,8KiB,16KiB", "--op", "read", "--warmup", "10", "--samples", "20"])
        .args(["--case-time", "5s", "--transfer-timeout", "300ms", "--verbose"])
        .run();
    assert!(ended.took < SOON, "{ended}");
    assert_failed(&ended, "transfer-stalled", "initiator", "", 1);
    assert!(ended.title("transfer-stalled").contains("did not complete within 300ms"), "{ended}");
    assert_eq!(ended.statuses(), ["pass", "pass", "fail"], "{ended}");
}

#[test]
fn a_call_that_never_returns_is_ended_at_its_deadline() {
    let ended = pair()
        .fake("hang=post@after=150")
        .args(["--sizes", "4KiB,8KiB,16KiB", "--op", "read", "--warmup", "10", "--samples", "20"])
        .args(["--case-time", "100ms", "--transfer-timeout", "100ms", "--verbose"])
        .run();
    assert!(ended.took < SOON * 2, "{ended}");
    assert_failed(&ended, "engine-silent", "initiator", "", 1);
    assert_eq!(ended.statuses()[0], "pass", "{ended}");
}

#[test]
fn a_library_that_aborts_is_quoted() {
    let ended = pair().fake("abort@after=30").args(["--sizes", "4KiB", "--verbose"]).run();
    assert_failed(&ended, "engine-died", "initiator", "", 1);
    assert!(ended.title("engine-died").contains("SIGABRT"), "{ended}");
}

#[test]
fn a_library_that_crashes_at_exit_does_not_spoil_a_good_run() {
    let ended = pair().fake("exit_crash").args(["--sizes", "4KiB", "--samples", "50"]).run();
    assert_eq!(ended.code, 0, "{ended}");
}

#[test]
fn no_nixl_at_all_is_inconclusive_and_lists_every_place() {
    // Away from the repository, whose own copy would be found.
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("kvwire");
    std::fs::copy(kvwire(), &binary).unwrap();
    for command in ["pair", "info"] {
        let output = std::process::Command::new(&binary)
            .arg(command)
            .current_dir(folder.path())
            .env_clear()
            .env("HOME", folder.path())
            .output()
            .unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(3), "{stdout}");
        assert!(stdout.contains("NIXL was not found"), "{stdout}");
        assert!(stdout.contains("/usr/local/nixl") && stdout.contains("--nixl-lib"), "{stdout}");
    }
}

#[test]
fn a_real_nixl_whose_ucx_plugin_is_missing_is_inconclusive() {
    let empty = tempfile::tempdir().unwrap();
    let folder = format!("NIXL_PLUGIN_DIR={}", empty.path().display());
    let ended = pair().nixl(&without_plugins(&empty)).args(["--sizes", "4KiB", "--ucx-env", &folder]).run();
    assert_eq!(ended.code, 3, "{ended}");
    assert!(ended.title("nixl-unusable").contains("no UCX backend plugin"), "{ended}");
}

/// The newest NIXL in a folder of its own, with everything but its plugins.
fn without_plugins(folder: &tempfile::TempDir) -> Nixl {
    let real = Nixl::Newest.library();
    let libraries = real.parent().unwrap();
    let copy = folder.path().join(libraries.file_name().unwrap());
    std::fs::create_dir_all(copy.join("plugins")).unwrap();
    for file in std::fs::read_dir(libraries).unwrap().flatten().filter(|f| f.path().is_file()) {
        std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    let bundled = "nixl_cu12.libs";
    std::os::unix::fs::symlink(libraries.parent().unwrap().join(bundled), folder.path().join(bundled))
        .unwrap();
    Nixl::At(copy.join("libnixl_capi.so"))
}

#[test]
fn a_full_disk_ends_the_run_and_is_an_internal_failure() {
    let run = bare_pair().fake("").args(["--sizes", "4KiB", "--samples", "50", "--output", "/dev/full"]);
    let ended = run.run();
    assert_eq!(ended.code, 4, "{ended}");
    assert!(ended.stdout.contains("/dev/full") && ended.stdout.contains("No space left"), "{ended}");
}

#[test]
fn an_interrupted_run_keeps_its_finished_cases() {
    for (signal, name) in [(Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM")] {
        let mut live = long_phases("20s").start();
        live.await_line_times("initiator engine: timed loop", 2);
        live.signal(live.pid(), signal);
        let ended = live.end();
        assert!(ended.took < SOON * 2, "{ended}");
        assert_eq!(ended.code, 3, "{ended}");
        assert!(ended.title("interrupted").contains(name), "{ended}");
        assert_eq!(ended.statuses(), ["pass", "not_run"], "{ended}");
        assert_clean(&ended);
    }
}

#[test]
fn engines_do_not_outlive_a_supervisor_that_is_killed() {
    let mut live = long_phases("20s").start();
    let engines = [live.engine("target"), live.engine("initiator")];
    live.await_line_times("initiator engine: timed loop", 2);
    live.signal(live.pid(), Signal::KILL);
    let ended = live.end();
    assert_eq!(ended.code, 128 + 9);
    wait_until("the engines are gone", Duration::from_secs(5), || engines.iter().all(|pid| !is_alive(*pid)));
    // What was finished is on disk, as a run that has not ended.
    assert_eq!(ended.statuses(), ["pass", "not_run"], "{ended}");
    assert_eq!(ended.result()["run"]["complete"], false);
}

#[test]
fn an_engine_started_by_hand_leaves_at_once() {
    let ended = kvwire_command("engine").run();
    assert_eq!(ended.code, 2, "{ended}");
}
