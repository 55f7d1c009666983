//! Plays rows of the table, several at once: most of a row is waiting.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use kvwire_tests::{Ended, Side, is_alive, wait_until};
use rustix::process::Signal;

use crate::scene::{LEASE, Phase, Scene};
use crate::table::{DEADLINE, Fault, Row, begins_with};

/// Rows that are played at the same time.
const AT_ONCE: usize = 6;
/// What a busy machine may add to any time.
const BUSY: Duration = Duration::from_secs(10);

/// Plays the rows that `wanted` chooses, and fails with all that went otherwise than the table says.
pub(crate) fn play(rows: &[Row], wanted: impl Fn(&Row, Phase) -> bool) {
    let chosen: VecDeque<(Row, Phase)> = rows
        .iter()
        .flat_map(|row| row.phases.iter().map(move |phase| (row.clone(), *phase)))
        .filter(|(row, phase)| wanted(row, *phase))
        .collect();
    assert!(!chosen.is_empty());
    let queue = Mutex::new(chosen);
    let next = || queue.lock().unwrap().pop_front();
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((row, phase)) = next() {
                    wrong.lock().unwrap().extend(one(&row, phase));
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} deviations\n{}", wrong.len(), wrong.join("\n\n"));
}

/// Plays one row in one phase and gives back what went otherwise.
fn one(row: &Row, phase: Phase) -> Vec<String> {
    let mut scene = Scene::held(row.meet, phase, row.first);
    let present: Vec<Side> =
        [Side::Target, Side::Initiator].into_iter().filter(|side| row.of(*side).is_some()).collect();
    let engines: Vec<i32> = match phase {
        Phase::Join => Vec::new(),
        _ => present.iter().map(|side| scene.live(*side).engine(side.name())).collect(),
    };
    row.fault.strike(&mut scene);
    let struck = Instant::now();
    let mut wrong = Vec::new();
    for side in in_order(row.fault, &present) {
        let Some(live) = scene.take(side) else { continue };
        let continued = row.fault == Fault::Stop(side);
        if continued {
            live.signal(live.pid(), Signal::CONT);
        }
        let ended = live.end();
        let took = struck.elapsed();
        // A side that was stopped begins to notice when it goes on.
        let limit = if continued { 2 * DEADLINE } else { DEADLINE };
        let told = deviations(row, phase, side, &ended);
        let late = (took > limit + BUSY).then(|| format!("it took {took:?}"));
        for why in told.into_iter().chain(late) {
            wrong.push(format!(
                "{} ({:?}, {}), the {}: {why}\n{ended}",
                row.fault.name(),
                row.meet,
                phase.name(),
                side.name()
            ));
        }
    }
    wait_until("the engines are gone", BUSY, || engines.iter().all(|pid| !is_alive(*pid)));
    let etcd_runs = !matches!(row.fault, Fault::EtcdKilled | Fault::EtcdSilent);
    if let Some(etcd) = scene.etcd.as_ref().filter(|_| etcd_runs) {
        wait_until("etcd holds no key", 2 * LEASE + BUSY, || etcd.keys().is_empty());
    }
    wrong
}

fn deviations(row: &Row, phase: Phase, side: Side, ended: &Ended) -> Vec<String> {
    let Some(expected) = row.of(side) else { return Vec::new() };
    let mut wrong = Vec::new();
    if ended.code != expected.code {
        wrong.push(format!("exit code {} instead of {}", ended.code, expected.code));
    }
    let words = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let pattern = expected.pattern(phase);
    if expected.code == 3 && !begins_with(&words, &format!("INCONCLUSIVE {pattern}")) {
        wrong.push(format!("it does not say `{pattern}`"));
    }
    let finished = phase.finished_cases();
    // A target that was killed has no result on disk: the initiator's is the one that grows.
    let keeps = expected.code == 3 || side == Side::Initiator;
    if keeps && finished > 0 {
        let kept =
            ended.result.as_ref().map_or(0, |_| ended.statuses().iter().filter(|s| **s == "pass").count());
        if kept != finished {
            wrong.push(format!("{kept} finished cases are kept instead of {finished}"));
        }
    }
    wrong
}

/// Whoever was stopped is looked at last.
fn in_order(fault: Fault, present: &[Side]) -> Vec<Side> {
    let mut order = present.to_vec();
    order.sort_by_key(|side| fault == Fault::Stop(*side));
    order
}
