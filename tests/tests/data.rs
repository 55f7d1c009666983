//! Wrong data is never a pass. A fake NIXL moves real bytes between the real processes, and spoils them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use kvwire_tests::{Ended, pair};

/// Posts of one process before a fault starts: the first case with 5 samples is over by then.
const SECOND_CASE: &str = "@after=71";

fn spoiled(faults: &str, op: &str, batch: &str) -> Ended {
    pair()
        .fake(faults)
        .args(["--sizes", "64KiB", "--op", op, "--batch", batch])
        .args(["--warmup", "0", "--samples", "5", "--case-time", "5s"])
        .run()
}

fn assert_named(ended: &Ended, words: &str) {
    assert_eq!(ended.code, 1, "{ended}");
    assert_eq!(ended.result()["verdict"]["outcome"], "not_trusted", "{ended}");
    assert_eq!(ended.statuses(), ["fail"], "{ended}");
    let case = &ended.cases()[0];
    assert!(case["bandwidth_bytes_per_s"].is_null(), "wrong data has no bandwidth: {ended}");
    assert!(case["reason"].as_str().unwrap().contains(words), "`{words}`: {ended}");
    assert!(ended.title("data-mismatch").contains(words), "{ended}");
    assert!(ended.stdout.contains("FAIL"), "{ended}");
}

#[test]
fn a_dropped_transfer_is_untouched_memory() {
    for op in ["read", "write"] {
        assert_named(&spoiled("drop", op, "1"), "never written");
    }
}

#[test]
fn a_turned_bit_is_found_wherever_it_is() {
    for op in ["read", "write"] {
        for offset in ["0", "12345", "65535"] {
            let ended = spoiled(&format!("corrupt={offset}"), op, "1");
            assert_named(&ended, "bit");
            assert_eq!(
                ended.cases()[0]["verification"]["mismatch"]["byte_offset"].to_string(),
                offset,
                "{ended}"
            );
        }
    }
}

#[test]
fn swapped_blocks_are_right_data_in_the_wrong_place() {
    for op in ["read", "write"] {
        for batch in ["1", "4"] {
            assert_named(&spoiled("swap", op, batch), "right data in the wrong place");
        }
    }
}

#[test]
fn an_untouched_tail_is_named_with_its_length() {
    for op in ["read", "write"] {
        assert_named(&spoiled("short", op, "1"), "the last 16,384 bytes of the transfer were never written");
    }
}

#[test]
fn stale_data_is_named_as_old() {
    for op in ["read", "write"] {
        assert_named(&spoiled("stale", op, "1"), "old data");
    }
}

/// nixlbench prints a bandwidth for transfers that move nothing once its warm-up has brought the bytes.
#[test]
fn transfers_that_move_nothing_after_the_warm_up_are_caught() {
    for op in ["read", "write"] {
        let ended = pair()
            .fake("drop@after=101")
            .args([
                "--sizes",
                "64KiB",
                "--op",
                op,
                "--warmup",
                "100",
                "--samples",
                "1000",
                "--case-time",
                "5s",
            ])
            .run();
        assert_named(&ended, "never written");
    }
}

/// The bytes of earlier timed transfers must not pass for those of the last one.
#[test]
fn a_loss_in_the_middle_of_the_timed_loop_is_caught() {
    for op in ["read", "write"] {
        let ended = pair()
            .fake("drop@after=50")
            .args(["--sizes", "64KiB", "--op", op, "--warmup", "0", "--samples", "1000", "--case-time", "5s"])
            .run();
        assert_eq!(ended.code, 1, "{ended}");
        assert_eq!(ended.statuses(), ["fail"], "{ended}");
    }
}

#[test]
fn one_bad_case_leaves_the_good_ones_standing() {
    let ended = pair()
        .fake(&format!("swap{SECOND_CASE}"))
        .args([
            "--sizes",
            "4KiB,8KiB",
            "--op",
            "read",
            "--warmup",
            "0",
            "--samples",
            "5",
            "--case-time",
            "5s",
        ])
        .run();
    assert_eq!(ended.code, 1, "{ended}");
    assert_eq!(ended.statuses(), ["pass", "fail"], "{ended}");
    assert!(ended.cases()[0]["bandwidth_bytes_per_s"].is_f64(), "{ended}");
}
