use std::path::PathBuf;

use super::*;
use crate::gate::metric::Metric;
use crate::gate::thresholds::parse;
use crate::report::model::{ResultFile, example};

/// A result in which every case has `repetitions`, with a tenth of a percent between them, slower by `slower`.
fn result(repetitions: u64, slower: f64) -> ResultFile {
    let mut result = example::passed();
    for case in &mut result.cases {
        let one = case.repetition(0);
        case.repetitions = (0..repetitions)
            .map(|n| {
                let factor = (1.0 + slower) * (1.0 + 0.001 * ((n * 7) % 10) as f64);
                let mut repetition = one.clone();
                repetition.bandwidth_bytes_per_s = one.bandwidth_bytes_per_s.map(|value| value / factor);
                repetition.total_p50_ns = one.total_p50_ns.map(|ns| (ns as f64 * factor) as u64);
                repetition
            })
            .collect();
    }
    result
}

fn stored(result: ResultFile) -> Vec<Stored> {
    vec![Stored { path: PathBuf::from("r.json"), result }]
}

const PLAIN: Asked<'static> = Asked { tolerance: 0.05, allowed: &[], allow_inconclusive: false };

fn outcome(old: ResultFile, new: ResultFile) -> Gate {
    judge(&stored(old), &stored(new), None, &PLAIN)
}

fn assert_gate(gate: &Gate, outcome: Outcome, exit: Exit, part: &str) {
    assert!(gate.summary.contains(part), "`{part}` in {gate:#?}");
    assert_eq!((gate.outcome, gate.exit), (outcome, exit), "{gate:#?}");
}

#[test]
fn equal_results_pass_and_a_slow_one_fails_with_what_got_worse() {
    assert_gate(
        &outcome(result(10, 0.0), result(10, 0.0)),
        Outcome::Trusted,
        Exit::Trusted,
        "nothing that got worse",
    );
    let slow = outcome(result(10, 0.0), result(10, 0.2));
    assert_gate(&slow, Outcome::NotTrusted, Exit::NotTrusted, "WRITE 4 KiB x1: bandwidth went from");
    assert!(slow.findings.iter().any(|f| f.title.contains("+20.0 %")), "{slow:#?}");
    let better = outcome(result(10, 0.2), result(10, 0.0));
    assert_gate(&better, Outcome::Trusted, Exit::Trusted, "");
    assert!(better.comparisons.iter().any(|c| c.judgement == Judgement::Better));
}

#[test]
fn a_slow_run_that_had_no_processor_is_neither_passed_nor_failed() {
    let starve = |mut result: ResultFile, median_too: bool| {
        for repetition in result.cases.iter_mut().flat_map(|case| &mut case.repetitions) {
            repetition.off_cpu_ns = Some(repetition.wall_ns * 4 / 10);
            repetition.bandwidth_bytes_per_s = repetition.bandwidth_bytes_per_s.map(|value| value * 0.6);
            if median_too {
                repetition.total_p50_ns = repetition.total_p50_ns.map(|ns| ns * 2);
            }
        }
        result
    };
    let gate = outcome(result(10, 0.0), starve(result(10, 0.0), false));
    assert_gate(&gate, Outcome::Inconclusive, Exit::Inconclusive, "lacked a processor");
    // What no load explains fails as ever, and so does a run like the starved baseline that got slower.
    let gate = outcome(result(10, 0.0), starve(result(10, 0.0), true));
    assert_gate(&gate, Outcome::NotTrusted, Exit::NotTrusted, "p50 went from");
    let gate = outcome(starve(result(10, 0.0), false), starve(result(10, 0.5), false));
    assert_gate(&gate, Outcome::NotTrusted, Exit::NotTrusted, "bandwidth went from");
}

#[test]
fn a_significant_change_within_the_tolerance_passes() {
    let gate = outcome(result(10, 0.0), result(10, 0.03));
    assert!(gate.comparisons.iter().all(|c| c.p < 1e-3 || c.metric == Metric::P99), "{gate:#?}");
    assert_gate(&gate, Outcome::Trusted, Exit::Trusted, "");
}

#[test]
fn too_few_repetitions_are_inconclusive_and_pass_only_when_asked() {
    let gate = outcome(result(3, 0.0), result(3, 0.0));
    assert_gate(&gate, Outcome::Inconclusive, Exit::Inconclusive, "too few repetitions");
    let asked = Asked { allow_inconclusive: true, ..PLAIN };
    let gate = judge(&stored(result(3, 0.0)), &stored(result(3, 0.0)), None, &asked);
    assert_gate(&gate, Outcome::Inconclusive, Exit::Trusted, "too few");
}

#[test]
fn other_workloads_and_machines_are_refused_unless_meant() {
    let mut other = result(10, 0.0);
    other.plan.depth = 8;
    other.nodes.target.as_mut().unwrap().cpu = Some("another".to_owned());
    let gate = outcome(result(10, 0.0), other.clone());
    assert_gate(&gate, Outcome::Inconclusive, Exit::Inconclusive, "depth was 1 and is 8");
    assert!(gate.comparisons.is_empty() && gate.first_fix.as_ref().unwrap().contains("--allow-different"));
    let asked = Asked { allowed: &[Difference::Workload, Difference::Machine], ..PLAIN };
    let gate = judge(&stored(result(10, 0.0)), &stored(other), None, &asked);
    assert_eq!(gate.outcome, Outcome::Trusted, "{gate:#?}");
    assert!(gate.findings.iter().any(|f| f.status == Status::Warn && f.title.contains("depth")), "{gate:#?}");
}

#[test]
fn a_case_that_failed_or_is_missing_is_never_passed_over() {
    let mut failed = result(10, 0.0);
    failed.cases[1].status = CaseStatus::Fail;
    failed.cases[1].reason = Some("zeros".to_owned());
    assert_gate(&outcome(result(10, 0.0), failed), Outcome::NotTrusted, Exit::NotTrusted, "failed: zeros");
    let mut fewer = result(10, 0.0);
    fewer.cases.remove(2);
    assert_gate(
        &outcome(result(10, 0.0), fewer),
        Outcome::Inconclusive,
        Exit::Inconclusive,
        "was not measured",
    );
    let mut empty = result(10, 0.0);
    empty.cases.clear();
    assert_eq!(outcome(result(10, 0.0), empty).exit, Exit::Inconclusive);
}

#[test]
fn the_runs_own_verdict_counts() {
    let mut doubtful = result(10, 0.0);
    doubtful.verdict.outcome = Outcome::Inconclusive;
    assert_eq!(outcome(result(10, 0.0), doubtful.clone()).exit, Exit::Inconclusive);
    assert_eq!(outcome(doubtful, result(10, 0.0)).exit, Exit::Inconclusive);
    let mut wrong = result(10, 0.0);
    wrong.verdict.outcome = Outcome::NotTrusted;
    assert_eq!(outcome(result(10, 0.0), wrong.clone()).exit, Exit::NotTrusted);
    assert_eq!(outcome(wrong, result(10, 0.0)).exit, Exit::Inconclusive, "a bad baseline proves nothing");
}

#[test]
fn thresholds_alone_are_enough_and_a_rule_for_nothing_is_not() {
    let with = |rules: &str| {
        let thresholds = parse("t", &format!("format = \"kvwire.thresholds/1\"\n{rules}")).unwrap();
        judge(&[], &stored(result(10, 0.0)), Some(&thresholds), &PLAIN)
    };
    let floor = |value: &str| with(&format!("[[rule]]\nmetric = \"bandwidth\"\nfloor = \"{value}\""));
    assert_gate(&floor("1MB/s"), Outcome::Trusted, Exit::Trusted, "4 thresholds hold");
    assert_gate(&floor("1GB/s"), Outcome::NotTrusted, Exit::NotTrusted, "at least 1.000 GB/s");
    let nothing = with("[[rule]]\nop = \"READ\"\nmin_block = \"1GiB\"\nmetric = \"p50\"\nceiling = \"1s\"");
    assert_gate(&nothing, Outcome::Inconclusive, Exit::Inconclusive, "no measured case");
}

#[test]
fn a_tolerance_of_the_thresholds_replaces_the_default() {
    let rules = "format = \"kvwire.thresholds/1\"\n[[rule]]\nmetric = \"bandwidth\"\ntolerance = 0.3\n[[rule]]\nmetric = \"p50\"\ntolerance = 0.3\n";
    let thresholds = parse("t", rules).unwrap();
    let gate = judge(&stored(result(10, 0.0)), &stored(result(10, 0.2)), Some(&thresholds), &PLAIN);
    assert_eq!(gate.outcome, Outcome::Trusted, "{gate:#?}");
}

/// One case of eight ranks, each at a bandwidth that the table of rounds and ranks gives, in shares of the usual one.
fn of_ranks(rate: impl Fn(usize, usize) -> f64) -> ResultFile {
    let mut result = example::ranks();
    let case = &mut result.cases[0];
    let part = case.parts[0].clone();
    case.begin_repetitions(0);
    let round = case.repetitions[0].clone();
    let usual = round.bandwidth_bytes_per_s.unwrap();
    let bandwidth = |round: usize| (0..8).map(|rank| rate(round, rank)).sum::<f64>() / 8.0 * usual;
    let with = |value: f64| {
        let mut one = round.clone();
        one.bandwidth_bytes_per_s = Some(value);
        one
    };
    case.repetitions = (0..10).map(|round| with(bandwidth(round))).collect();
    let of_rank = |rank: usize| {
        let repetitions = (0..10).map(|round| with(rate(round, rank) * usual / 8.0)).collect();
        crate::report::model::PartResult { rank: rank as u32, repetitions, ..part.clone() }
    };
    case.parts = (0..8).map(of_rank).collect();
    result
}

/// A tenth of a percent between rounds, and a tenth between ranks.
fn usual(round: usize, rank: usize) -> f64 {
    (1.0 + 0.001 * ((round * 7 + rank * 3) % 10) as f64) * (1.0 + 0.0125 * rank as f64)
}

#[test]
fn one_slow_rank_that_hides_in_the_sum_fails_the_gate_and_is_named() {
    let slow = of_ranks(|round, rank| usual(round, rank) * if rank == 5 { 0.7 } else { 1.0 });
    let gate = outcome(of_ranks(usual), slow);
    assert_gate(&gate, Outcome::NotTrusted, Exit::NotTrusted, "slowest rank went from");
    let worse: Vec<_> = gate.comparisons.iter().filter(|c| c.judgement == Judgement::Worse).collect();
    assert_eq!(worse.len(), 1, "the sum is within the tolerance: {gate:#?}");
    let evidence = &gate.findings.iter().find(|f| f.id == "gate-regression").unwrap().evidence;
    assert!(evidence[1].contains("the slowest of 10 timed loops: rank 5 in 10"), "{evidence:?}");
}

#[test]
fn ranks_that_change_places_are_no_regression() {
    let turned = of_ranks(|round, rank| usual(round, 7 - rank));
    assert_gate(&outcome(of_ranks(usual), turned), Outcome::Trusted, Exit::Trusted, "");
    let mut older = of_ranks(usual);
    older.cases[0].parts.iter_mut().for_each(|part| part.repetitions.clear());
    let gate = outcome(older, of_ranks(usual));
    assert_gate(&gate, Outcome::Trusted, Exit::Trusted, "");
    assert!(gate.comparisons.iter().all(|c| c.metric != Metric::SlowestRank), "{gate:#?}");
    assert!(
        gate.findings.iter().any(|f| f.status == Status::Warn && f.title.contains("slowest rank")),
        "{gate:#?}"
    );
}
