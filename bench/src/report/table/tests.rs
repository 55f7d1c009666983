//! Whole texts, compared letter by letter, and the rules that they must keep.

use super::super::model::{EndedBy, NixlTelemetry, example};
use super::*;
use crate::measure::histogram::Recorder;
use crate::plan::Op;

/// At this width a usual result shows every column.
const DEFAULT_WIDTH: usize = 120;

fn lines(result: &ResultFile, width: usize) -> Vec<String> {
    render(result, false, width).lines().map(str::to_owned).collect()
}

fn line_with(result: &ResultFile, text: &str) -> String {
    let lines = lines(result, 120);
    lines
        .iter()
        .find(|line| line.contains(text))
        .unwrap_or_else(|| panic!("no `{text}` in {lines:#?}"))
        .clone()
}

const PASSED: &str = "\
TRUSTED  All 4 cases moved the right data.
  scope      one host, host memory, uniform blocks: it says nothing about the network between two hosts

run quiet-otter-41, started 2026-08-24T10:00:00Z, took 3.21 s
initiator  decode-0   NIXL 1.4.0, UCX 1.22.0, host memory, 256 MiB registered in 31.0 ms
target     prefill-0  NIXL 1.4.0, UCX 1.22.0, host memory

WRITE, uniform, depth 1      ------------- total, us --------------  -- p50, us ---
  size  batch   GB/s   Gb/s     p50     p90     p99   p99.9     max    post    wire  cold us  samples
 4 KiB      1  0.189   1.51    22.6    25.0    25.5    25.6     197    9.05    13.6      788   10,001  ok
64 KiB      1  3.087  24.70    22.2    24.5    25.0    25.1     193    8.86    13.3      772   10,001  ok
64 MiB      1  6.583  52.66   10199   10936       -       -   92679    4080    6119   370716      201  ok

READ, uniform, depth 1       ------------- total, us --------------  -- p50, us ---
  size  batch   GB/s   Gb/s     p50     p90     p99   p99.9     max    post    wire  cold us  samples
 4 KiB      1  0.194   1.55    22.0    24.4    24.9       -     192    8.81    13.2      768    5,001  ok

* GB/s: 1e9 payload bytes per second of the timed loop, Gb/s the same in bits; total = post + wire; cold: the first
  transfer
* -: p99 needs 1,000 samples and p99.9 needs 10,000; 2 of 4 cases had fewer
";

const FAILED: &str = "\
NOT TRUSTED  1 of 4 cases received wrong data.
  scope      these two hosts, host memory, uniform blocks
  fix first  look at the transport of WRITE 64 KiB x1: its data was wrong
  note       the run did not finish: only what was measured before its end stands here

run quiet-otter-41, started 2026-08-24T10:00:00Z, took 3.21 s
initiator  decode-0  NIXL 1.4.0, UCX 1.22.0, host memory, 256 MiB registered in 31.0 ms
target     not heard of

WRITE, uniform, depth 1      ----- total, us ------  -- p50, us ---
  size  batch   GB/s   Gb/s     p50     p99     max    post    wire  cold us  samples
 4 KiB      1  0.189   1.51    22.6    25.5     197    9.05    13.6      788   10,001  ok
64 KiB      1      -      -       -       -       -       -       -        -   10,001  FAIL
64 MiB      1  6.583  52.66   10199       -   92679    4080    6119   370716      201  ok

not run  READ 4 KiB x1: the run ended before it

FAIL     WRITE 64 KiB x1: wrong data from byte 65,000 (descriptor 0, byte 65,000 of it): the last
         536 bytes of the transfer were never written; 534 of 65,536 bytes differ (first word
         expected 0x0123456789abcdef, found 0xdeadbea700000001) [data-mismatch]
         | UCX  WARN  one line, as it was logged
         next: look at the transport of WRITE 64 KiB x1

* GB/s: 1e9 payload bytes per second of the timed loop, Gb/s the same in bits; total = post + wire;
  cold: the first transfer
* -: p99 needs 1,000 samples and p99.9 needs 10,000; 1 of 4 cases had fewer
* -: a failed case has no figures: they would be of something else than what was asked for
* no room for p90, p99.9: widen the terminal or read the result file
";

#[test]
fn a_good_run_reads_like_this() {
    assert_eq!(render(&example::passed(), false, 120), PASSED);
}

#[test]
fn a_bad_run_reads_like_this() {
    assert_eq!(render(&example::failed(), false, 100), FAILED);
}

#[test]
fn no_line_is_longer_than_asked() {
    for width in [80, 93, 100, 120] {
        for result in [example::passed(), example::failed()] {
            for line in lines(&result, width) {
                assert!(line.chars().count() <= width, "{width}: {line}");
                assert_eq!(line, line.trim_end());
            }
        }
    }
}

#[test]
fn a_usual_result_shows_every_column_at_the_default_width() {
    let text = render(&example::passed(), false, DEFAULT_WIDTH);
    assert!(!text.contains("no room for"), "{text}");
    assert!(render(&example::passed(), false, 80).contains("* no room for p90,"));
}

#[test]
fn colour_adds_nothing_but_colour() {
    let result = example::failed();
    let coloured = render(&result, true, 100);
    let mut bare = String::new();
    let mut parts = coloured.split('\u{1b}');
    bare.push_str(parts.next().unwrap());
    parts.for_each(|part| bare.push_str(part.split_once('m').unwrap().1));
    assert_eq!(bare, render(&result, false, 100));
    assert!(coloured.contains("\u{1b}[1m\u{1b}[31mFAIL\u{1b}[0m"), "{coloured:?}");
}

#[test]
fn cases_of_one_reason_share_a_line() {
    let mut result = example::failed();
    let mut another = result.cases[3].clone();
    another.name = "READ 8 KiB x1".to_owned();
    result.cases.push(another);
    let line = line_with(&result, "not run  READ 4 KiB");
    assert_eq!(line, "not run  READ 4 KiB x1, READ 8 KiB x1: the run ended before it");
}

#[test]
fn what_only_some_runs_have_is_only_shown_there() {
    let mut result = example::passed();
    let mut recorder = Recorder::new();
    recorder.record_ns(1_250);
    result.cases[0].prep = recorder.distribution();
    result.cases[0].notify = recorder.distribution();
    result.cases[1].descriptors = super::super::model::Descriptors { requested: 64, posted: Some(1) };
    result.cases[2].nixl_telemetry = Some(NixlTelemetry {
        samples: 64,
        post_p50_us: Some(1.0),
        total_p50_us: Some(2.0),
        ours_post_p50_us: Some(1.0),
        ours_total_p50_us: Some(9.0),
        disagreement: Some("total 2 us against 9 us".to_owned()),
    });
    let head = line_with(&result, "GB/s   Gb/s");
    assert!(head.contains("prep") && head.contains("notify"), "{head}");
    assert!(line_with(&result, "total =").contains("total = prep + post + wire"));
    assert!(line_with(&result, "merged").ends_with("WRITE 64 KiB x1 (64 as 1)"));
    assert!(!render(&example::passed(), false, 120).contains("prep"));
}

#[test]
fn a_case_without_verified_data_has_no_bandwidth() {
    let mut result = example::passed();
    result.cases[0].bandwidth_bytes_per_s = None;
    assert!(line_with(&result, "not verified").starts_with("* -:"));
    assert!(line_with(&result, " 4 KiB      1").contains(" -  "));
}

#[test]
fn depths_and_shapes_get_tables_of_their_own() {
    let mut result = example::passed();
    let mut deep = example::case(Op::Write, "4 KiB", 4096, 10_000, 5_000);
    deep.depth = 16;
    deep.ended_by = Some(EndedBy::Time);
    result.cases.push(deep);
    assert!(line_with(&result, "depth 16").starts_with("WRITE, uniform, depth 16"));
}

#[test]
fn a_hostile_peer_cannot_drive_the_terminal() {
    let mut result = example::failed();
    result.nodes.initiator.as_mut().unwrap().hostname = "evil\u{1b}[2J\nTRUSTED".to_owned();
    result.cases[1].reason = Some("\u{7}bell\rhidden".to_owned());
    let text = render(&result, false, 120);
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("TRUSTED")));
}

#[test]
fn an_empty_result_still_gives_its_verdict() {
    let mut result = example::failed();
    result.cases.clear();
    result.findings.clear();
    result.nodes = Sides::default();
    let lines = lines(&result, 120);
    assert!(lines[0].starts_with("NOT TRUSTED  "));
    assert_eq!(lines.last().unwrap(), "target     not heard of");
}
