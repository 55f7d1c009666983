//! Every status code of every NIXL call ends a run with the call, the code and its name.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use kvwire_tests::{kvwire_command, pair};

const CODES: [(i32, &str); 7] = [
    (-1, "ERROR_INVALID_PARAM"),
    (-2, "ERROR_BACKEND"),
    (-3, "ERROR_INVALID_STATE"),
    (-4, "ERROR_EXCEPTION"),
    (-5, "ERROR_NO_TELEMETRY"),
    (-6, "ERROR_NOT_FOUND"),
    (-99, "unknown status"),
];

fn failing(fault: &str) -> kvwire_tests::Ended {
    pair().fake(fault).args(["--sizes", "4KiB", "--samples", "50", "--case-time", "5s"]).run()
}

#[test]
fn every_code_of_the_two_calls_of_the_timed_loop() {
    for call in ["post", "poll"] {
        for (code, name) in CODES {
            // "slow" makes every transfer need a poll.
            let ended = failing(&format!("slow=1,{call}={code}@after=20"));
            assert_eq!(ended.code, 1, "{call}={code}: {ended}");
            let title = ended.title("nixl-error");
            assert!(title.contains(name) && title.contains(&format!("({code})")), "{call}={code}: {title}");
            assert!(title.contains("initiator engine"), "{call}={code}: {title}");
            assert_eq!(ended.result()["verdict"]["outcome"], "not_trusted");
        }
    }
}

#[test]
fn every_other_call_names_itself_and_its_phase() {
    for (fault, call, phase) in [
        ("create_agent", "create_configured_agent", "opening NIXL"),
        ("create_backend", "create_backend", "opening NIXL"),
        ("register", "register_mem", "opening NIXL"),
        ("load_remote", "load_remote_md", "connection"),
        ("prep", "prep_xfer_dlist", "warm-up"),
        ("make", "make_xfer_req", "warm-up"),
    ] {
        let ended = failing(&format!("{fault}=-3"));
        assert_eq!(ended.code, 1, "{fault}: {ended}");
        let title = ended.title("nixl-error");
        assert!(title.contains(call) && title.contains(phase), "{fault}: {title}");
        assert!(title.contains("ERROR_INVALID_STATE (-3)"), "{fault}: {title}");
        assert!(!ended.statuses().contains(&"pass"), "{fault}: {ended}");
    }
}

#[test]
fn notifications_that_cannot_be_read_are_an_error_of_the_target() {
    let ended = pair().fake("get_notifs=-2").args(["--sizes", "4KiB", "--samples", "50", "--notify"]).run();
    assert_eq!(ended.code, 1, "{ended}");
    assert!(ended.title("nixl-error").contains("target engine"), "{ended}");
}

#[test]
fn a_nixl_without_the_ucx_plugin_is_inconclusive_and_lists_what_it_has() {
    let ended = failing("no_ucx");
    assert_eq!(ended.code, 3, "{ended}");
    assert!(ended.title("nixl-unusable").contains("no UCX backend plugin"), "{ended}");
    let info = kvwire_command("info").fake("no_ucx").run();
    assert_eq!(info.code, 3, "{info}");
    assert!(info.stdout.contains("no UCX backend plugin"), "{info}");
}
