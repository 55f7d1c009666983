//! Results as runs leave them, for tests of everything that reads one.

use checks::{Finding, NixlIdentity, Node, Status};

use super::*;
use crate::measure::histogram::Recorder;
use crate::memory::pattern::{MismatchKind, Place};
use crate::plan::{Case, Part};
use crate::proof::{Class, Transport};

fn node(hostname: &str) -> Node {
    Node {
        hostname: hostname.to_owned(),
        kvwire: "0.1.0".to_owned(),
        nixl: Some(NixlIdentity {
            library: "/opt/nixl/libnixl_capi.so".to_owned(),
            version: Some("1.4.0".to_owned()),
            ucx_version: Some("1.22.0".to_owned()),
            ..NixlIdentity::default()
        }),
        ..Node::default()
    }
}

fn plan() -> Plan {
    let case = |op, block_bytes| Case { op, block_bytes, batch: 1, kv: None };
    Plan {
        cases: vec![
            case(Op::Write, 4 << 10),
            case(Op::Write, 64 << 10),
            case(Op::Write, 64 << 20),
            case(Op::Read, 4 << 10),
        ],
        depth: 1,
        ranks: 1,
        repeat: 1,
        warmup: 100,
        samples: 10_001,
        case_time_ms: 500,
        total_time_ms: None,
        seed: 42,
        pool_bytes: 64 << 20,
        merge: true,
        recreate: false,
        notify: false,
        interval_ns: None,
        transfer_timeout_ms: 10_000,
        ucx_env: std::collections::BTreeMap::new(),
        expect: crate::proof::Expect::Auto,
        strict: false,
        memory: crate::memory::MemoryWish::default(),
        min_efficiency_percent: None,
    }
}

/// `samples` times around `typical`, with a tail that ends at ten times that.
fn spread(samples: u64, typical: u64) -> Option<Distribution> {
    let mut recorder = Recorder::new();
    for sample in 0..samples {
        recorder.record_ns(typical * (1_000 + sample % 300) / 1_000);
    }
    recorder.record_ns(typical * 10);
    recorder.distribution()
}

/// A case that passed with `samples + 1` transfers of about `typical` ns.
pub(crate) fn case(op: Op, size: &str, block_bytes: u64, samples: u64, typical: u64) -> CaseResult {
    let transfers = samples + 1;
    let wall_ns = typical * transfers * 11 / 10;
    CaseResult {
        name: format!("{op} {size} x1"),
        op,
        shape: "uniform".to_owned(),
        kv: None,
        block_bytes,
        batch: 1,
        depth: 1,
        status: CaseStatus::Pass,
        reason: None,
        descriptors: Descriptors { requested: 1, posted: Some(1) },
        transfers,
        payload_bytes: block_bytes * transfers,
        wall_ns,
        bandwidth_bytes_per_s: Some((block_bytes * transfers) as f64 / wall_ns as f64 * 1e9),
        cold_ns: Some(typical * 40),
        prep: None,
        post: spread(samples, typical * 4 / 10),
        wire: spread(samples, typical * 6 / 10),
        total: spread(samples, typical),
        notify: None,
        lists_ns: None,
        lists: None,
        notified: None,
        notified_resolution_ns: None,
        scheduled: None,
        unserved: 0,
        off_cpu_ns: Some(0),
        warmup_transfers: 100,
        verification: Verification {
            verified_bytes: block_bytes * 2,
            per_transfer_checks: transfers,
            checks_at_initiator: transfers,
            checks_at_target: 0,
            epochs: 3,
            mismatch: None,
        },
        nixl_telemetry: None,
        transport: None,
        ended_by: Some(EndedBy::Samples),
        repetitions: Vec::new(),
        parts: Vec::new(),
        limit: None,
    }
}

/// A run in which everything held.
pub(crate) fn passed() -> ResultFile {
    let nodes = Sides { initiator: Some(node("decode-0")), target: Some(node("prefill-0")) };
    let both = |text: &str| Sides { initiator: Some(text.to_owned()), target: Some(text.to_owned()) };
    let mut long = case(Op::Write, "64 MiB", 64 << 20, 200, 9_267_900);
    long.ended_by = Some(EndedBy::Time);
    ResultFile {
        schema: SCHEMA.to_owned(),
        minor: MINOR,
        run: Run {
            id: "quiet-otter-41".to_owned(),
            started_at: "2026-08-24T10:00:00Z".to_owned(),
            recorded_by: Side::Initiator,
            command_line: vec!["kvwire".to_owned(), "pair".to_owned()],
            duration_ns: 3_210_000_000,
            complete: true,
        },
        verdict: Verdict {
            outcome: Outcome::Trusted,
            summary: "All 4 cases moved the right data.".to_owned(),
            scope:
                "one host, host memory, uniform blocks: it says nothing about the network between two hosts"
                    .to_owned(),
            first_fix: None,
            exit_code: 0,
        },
        plan: plan(),
        nodes,
        node_differences: Vec::new(),
        memory: both("host memory"),
        placement: Sides::default(),
        rendezvous: Rendezvous::default(),
        startup: Sides {
            initiator: Some(vec![Phase { name: "load NIXL".to_owned(), ns: 400_000_000 }]),
            target: None,
        },
        registration: Sides {
            initiator: Some(Registration { bytes: 256 << 20, ns: 31_000_000 }),
            target: None,
        },
        expectation: None,
        cases: vec![
            case(Op::Write, "4 KiB", 4 << 10, 10_000, 19_700),
            case(Op::Write, "64 KiB", 64 << 10, 10_000, 19_300),
            long,
            case(Op::Read, "4 KiB", 4 << 10, 5_000, 19_200),
        ],
        descriptor_costs: Vec::new(),
        findings: Vec::new(),
    }
}

/// A run that found wrong data, skipped a case and was cut short.
pub(crate) fn failed() -> ResultFile {
    let mut result = passed();
    result.run.complete = false;
    result.nodes.target = None;
    result.verdict = Verdict {
        outcome: Outcome::NotTrusted,
        summary: "1 of 4 cases received wrong data.".to_owned(),
        scope: "these two hosts, host memory, uniform blocks".to_owned(),
        first_fix: Some("look at the transport of WRITE 64 KiB x1: its data was wrong".to_owned()),
        exit_code: 1,
    };
    let wrong = &mut result.cases[1];
    wrong.status = CaseStatus::Fail;
    wrong.bandwidth_bytes_per_s = None;
    wrong.verification.mismatch = Some(Mismatch {
        byte_offset: 65_000,
        descriptor: Some(Place { index: 0, offset: 65_000 }),
        expected: 0x0123_4567_89ab_cdef,
        found: 0xdead_bea7_0000_0001,
        checked_bytes: 65_536,
        wrong_bytes: 534,
        kind: MismatchKind::Untouched { bytes: 536, to_the_end: true },
        place: None,
        belongs_to: None,
    });
    wrong.reason = wrong.verification.mismatch.as_ref().map(ToString::to_string);
    let title = format!("{}: {}", wrong.name, wrong.reason.clone().unwrap_or_default());
    let finding = Finding::new("data-mismatch", Status::Fail, title)
        .evidence(["UCX  WARN  one line, as it was logged".to_owned()])
        .next_step("look at the transport of WRITE 64 KiB x1");
    result.findings.push(finding);
    let skipped = &mut result.cases[3];
    skipped.status = CaseStatus::NotRun;
    skipped.reason = Some("the run ended before it".to_owned());
    skipped.transfers = 0;
    skipped.payload_bytes = 0;
    skipped.wall_ns = 0;
    skipped.bandwidth_bytes_per_s = None;
    skipped.cold_ns = None;
    skipped.post = None;
    skipped.wire = None;
    skipped.total = None;
    skipped.ended_by = None;
    result
}

/// A run of two ranks: the bytes of the second one, whose GPU on the target is an instance, went over TCP at a fifth of the
/// speed of the first.
pub(crate) fn ranks() -> ResultFile {
    let over = |class| Transport {
        class,
        over: None,
        devices: Vec::new(),
        evidence: Vec::new(),
        doubt: (class == Class::Tcp).then(|| "counters cannot tell".to_owned()),
        meets_expectation: Some(true),
    };
    let part = |rank: u32, class, gpus: [&str; 2], ns: u64| {
        let result = CaseResult { transport: Some(over(class)), ..case(Op::Read, "4 KiB", 4096, 2_000, ns) };
        let moved = Case { op: Op::Read, block_bytes: 4096, batch: 1, kv: None };
        let part = Part { rank, peer: rank, case: moved, base: 0 };
        MeasuredPart { part, began_ns: 0, gpus: gpus.map(|gpu| Some(gpu.to_owned())), result }
    };
    let parts = vec![
        part(0, Class::Nvlink, ["GPU-a", "GPU-c"], 20_000),
        part(1, Class::Tcp, ["GPU-b", "MIG-d"], 100_000),
    ];
    let mut result = passed();
    result.plan.ranks = 2;
    let whole = case(Op::Read, "4 KiB", 4096, 1, 1);
    result.cases = vec![CaseResult::of_parts(whole, parts, 2)];
    result
}
