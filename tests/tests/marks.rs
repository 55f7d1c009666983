//! Transfers that are looked at one by one on the side that their bytes arrive on: READs at their completion, WRITEs at
//! their notification, in host memory and in that of a GPU. Real processes over the fake NIXL.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use kvwire_tests::{Ended, Gpus, Kvwire, gpus, pair};
use serde_json::Value;

const TWO: &str = "gpu pci=0000:17:00.0 links=4\ngpu pci=0000:65:00.0 links=4\n";
/// Late by so many microseconds: a busy machine looks much sooner, and the wait for what is missing is much longer.
const LATE: &str = "late=600000";

/// Short cases in one direction within one kind of memory.
fn run(gpus: &Gpus, op: &str, memory: &str, fault: &str) -> Kvwire {
    between(gpus, [memory, memory], fault).args(["--op", op])
}

fn between(gpus: &Gpus, [initiator, target]: [&str; 2], fault: &str) -> Kvwire {
    pair()
        .gpus(gpus)
        .fake(fault)
        .args(["--initiator-memory", initiator, "--target-memory", target, "--expect", "any"])
        .args(["--warmup", "0", "--samples", "5", "--case-time", "500ms", "--seed", "7"])
}

fn checks(case: &Value) -> (u64, u64) {
    let verification = &case["verification"];
    let of = |field: &str| verification[field].as_u64().unwrap();
    let (initiator, target) = (of("checks_at_initiator"), of("checks_at_target"));
    assert_eq!(of("per_transfer_checks"), initiator + target, "{case}");
    (initiator, target)
}

fn assert_looked(ended: &Ended, shape: &str) {
    assert_eq!(ended.code, 0, "{ended}");
    let cases: Vec<&Value> = ended.cases().iter().filter(|case| case["shape"] == shape).collect();
    assert_eq!(cases.len(), 2, "{shape}: {ended}");
    for case in cases {
        match (case["op"].as_str().unwrap(), checks(case)) {
            ("READ", (here, 0)) => assert!(here > 0, "{case}"),
            ("WRITE", (0, there)) => assert!(there > 0, "{case}"),
            (_, wrong) => panic!("{wrong:?}: {case}"),
        }
    }
}

#[test]
fn every_shape_in_both_directions_is_looked_at_where_it_arrives_in_either_kind_of_memory() {
    // The kernels of these GPUs are interpreted, and a KV cache is large: it is checked through copies.
    let (gpus, copying) = (gpus(TWO), gpus(&format!("{TWO}fault cuModuleLoadData=218\n")));
    for sides in [["dram", "dram"], ["vram", "vram"], ["vram", "dram"], ["dram", "vram"]] {
        let uniform =
            between(&gpus, sides, "").args(["--sizes", "16KiB", "--batch", "2", "--depth", "2"]).run();
        assert_looked(&uniform, "uniform");
        for (shape, layout, decode) in
            [("paged", "vllm", "8"), ("slice", "vllm", "4"), ("staged", "trtllm-staged", "8")]
        {
            let kv =
                ["--model", "llama-3.1-8b", "--tokens", "64", "--layout", layout, "--no-descriptor-sweep"];
            let ranks = ["--prefill-tp", "8", "--decode-tp", decode, "--op", "read,write"];
            assert_looked(&between(&copying, sides, "").args(kv).args(ranks).run(), shape);
        }
    }
}

#[test]
fn bytes_that_come_after_the_completion_of_a_read_are_late() {
    let gpus = gpus(TWO);
    for memory in ["dram", "vram"] {
        let ended = run(&gpus, "read", memory, LATE).args(["--sizes", "64KiB"]).run();
        assert_eq!(ended.code, 1, "{memory}: {ended}");
        let title = ended.title("data-mismatch");
        assert!(title.contains("was complete before its bytes were there; they came"), "{memory}: {title}");
    }
}

/// Only marked WRITEs carry a notification here: what the timed loop brought is right.
#[test]
fn bytes_that_come_after_the_notification_of_a_write_are_late() {
    let gpus = gpus(TWO);
    for memory in ["dram", "vram"] {
        for depth in ["1", "3"] {
            let ended = run(&gpus, "write", memory, &format!("{LATE}@marked"))
                .args(["--sizes", "64KiB", "--depth", depth])
                .run();
            assert_eq!(ended.code, 1, "{memory}: {ended}");
            let title = ended.title("data-mismatch");
            assert!(title.contains("had the notification of transfer"), "{memory}: {title}");
            assert!(title.contains("before its bytes; they came"), "{memory}: {title}");
            assert!(checks(&ended.cases()[0]).1 > 0, "{ended}");
        }
    }
}

#[test]
fn a_write_whose_notification_comes_without_its_bytes_is_named_for_what_is_there_instead() {
    let gpus = gpus(TWO);
    for memory in ["dram", "vram"] {
        for (fault, words) in [("stale", "old data"), ("drop", "mark"), ("corrupt=3", "bit")] {
            let ended =
                run(&gpus, "write", memory, &format!("{fault}@marked")).args(["--sizes", "64KiB"]).run();
            assert_eq!(ended.code, 1, "{fault} {memory}: {ended}");
            let title = ended.title("data-mismatch");
            assert!(title.contains(words), "{fault} {memory}: {title}");
        }
    }
}

#[test]
fn a_kv_block_that_a_notification_came_without_is_named_by_its_place() {
    let gpus = gpus(TWO);
    for memory in ["dram", "vram"] {
        let ended = run(&gpus, "write", memory, "corrupt=3@marked")
            .args(["--model", "llama-3.1-8b", "--tokens", "64", "--layout", "vllm", "--no-descriptor-sweep"])
            .args(["--prefill-tp", "8", "--decode-tp", "8"])
            .run();
        assert_eq!(ended.code, 1, "{memory}: {ended}");
        let title = ended.title("data-mismatch");
        assert!(
            title.contains("wrong data in layer 0, K, block ") && title.contains("bit"),
            "{memory}: {title}"
        );
    }
}

#[test]
fn a_marked_write_that_nobody_is_notified_of_fails_the_case() {
    let gpus = gpus(TWO);
    let ended = run(&gpus, "write", "vram", "mute@marked").args(["--sizes", "64KiB"]).run();
    assert_eq!(ended.code, 1, "{ended}");
    assert!(
        ended.title("data-mismatch").contains("1 of 1 notifications of marked WRITEs did not arrive"),
        "{ended}"
    );
}

#[test]
fn ranks_and_directions_are_looked_at_each_by_itself() {
    let gpus = gpus(TWO);
    for sides in [["dram", "dram"], ["vram", "vram"]] {
        let two = ["--sizes", "64KiB", "--ranks", "2", "--bidirectional"];
        let fine = between(&gpus, sides, "").args(two).run();
        assert_eq!(fine.code, 0, "{fine}");
        let (here, there) = checks(&fine.cases()[0]);
        assert!(here > 0 && there > 1, "{fine}");
        let late = between(&gpus, sides, &format!("{LATE}@marked@rank=1")).args(two).run();
        assert_eq!(late.code, 1, "{late}");
        let parts = late.cases()[0]["parts"].as_array().unwrap();
        let failed: Vec<_> = parts.iter().filter(|part| part["status"] == "fail").collect();
        assert_eq!(failed.len(), 1, "{late}");
        assert_eq!((&failed[0]["rank"], &failed[0]["op"]), (&1.into(), &"WRITE".into()), "{late}");
    }
}
