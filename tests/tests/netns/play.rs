//! Plays rows of the table, several at once: most of a row is waiting.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Instant;

use kvwire_tests::{Ended, Side, is_alive, wait_until};
use rustix::process::Signal;

use crate::fault::Fault;
use crate::scene::{LEASE, Phase, Scene};
use crate::table::{Comes, DEADLINE, Ends, Row, begins_with, table};

const SIDES: [Side; 2] = [Side::Target, Side::Initiator];

/// Plays the rows that `wanted` chooses, `at_once` at a time, and fails with all that went otherwise than the table
/// says.
pub(crate) fn play(at_once: usize, wanted: impl Fn(&Row, Phase) -> bool) {
    let chosen: VecDeque<(Row, Phase)> = table()
        .into_iter()
        .flat_map(|row| row.phases.iter().map(move |phase| (row.clone(), *phase)))
        .filter(|(row, phase)| wanted(row, *phase))
        .collect();
    assert!(!chosen.is_empty());
    let queue = Mutex::new(chosen);
    let next = || queue.lock().unwrap().pop_front();
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some((row, phase)) = next() {
                    let told = one(&row, phase);
                    wrong.lock().unwrap().extend(told);
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} deviations\n{}", wrong.len(), wrong.join("\n\n"));
}

fn title(row: &Row, phase: Phase) -> String {
    format!("{} ({:?}, {}, first the {})", row.fault.name(), row.meet, phase.name(), row.first.name())
}

/// Plays one row in one phase and gives back what went otherwise.
fn one(row: &Row, phase: Phase) -> Vec<String> {
    let mut scene = Scene::empty(row.meet, row.lease());
    if row.fault.needs_relay() && phase != Phase::Hello {
        scene.relay(None);
    }
    match phase {
        Phase::Join => scene.waits(row.first),
        _ => scene.hold(phase),
    }
    let engines: Vec<i32> = if phase.has_plan() {
        SIDES.map(|side| scene.live(side).engine(side.name())).to_vec()
    } else {
        Vec::new()
    };
    let struck = Instant::now();
    row.fault.strike(&mut scene);
    let wrong = match row.comes {
        Comes::End { .. } => ends(row, phase, &mut scene, struck),
        Comes::Nothing => goes_on(row, phase, &mut scene),
    };
    wait_until("the engines are gone", DEADLINE, || engines.iter().all(|pid| !is_alive(*pid)));
    row.fault.put_etcd_back(&mut scene);
    if let Some(etcd) = &scene.etcd {
        wait_until("etcd holds no key two lease times after the end", 2 * LEASE, || etcd.keys().is_empty());
    }
    wrong.into_iter().map(|why| format!("{}, {why}", title(row, phase))).collect()
}

/// Both sides end as the row says.
fn ends(row: &Row, phase: Phase, scene: &mut Scene, struck: Instant) -> Vec<String> {
    let mut wrong = Vec::new();
    for side in in_order(row.fault) {
        let (Some(expected), Some(live)) = (row.of(side, phase), scene.take(side)) else { continue };
        // A side that was stopped begins to notice when it goes on.
        let mut since = struck;
        if row.fault == Fault::Stop(side) {
            if phase == Phase::Join {
                std::thread::sleep(LEASE + LEASE / 2);
            }
            since = Instant::now();
            live.signal(live.pid(), Signal::CONT);
        }
        let ended = live.end();
        let took = since.elapsed();
        let late = (took > DEADLINE).then(|| format!("it took {took:?}, more than {DEADLINE:?}"));
        let told = deviations(expected, phase, side, &ended);
        wrong.extend(told.into_iter().chain(late).map(|why| format!("the {}: {why}\n{ended}", side.name())));
    }
    wrong
}

fn deviations(expected: &Ends, phase: Phase, side: Side, ended: &Ended) -> Vec<String> {
    let mut wrong = Vec::new();
    if ended.code != expected.code() {
        wrong.push(format!("exit code {} instead of {}", ended.code, expected.code()));
    }
    let words = ended.words();
    let patterns = expected.patterns(phase);
    if !patterns.is_empty()
        && !patterns.iter().any(|pattern| begins_with(&words, &format!("INCONCLUSIVE {pattern}")))
    {
        wrong.push(format!("it does not say `{}`", patterns.join("` or `")));
    }
    // Whoever knows the plan has a file, and whoever was killed has it too.
    let knows_plan = phase.has_plan() || (side == Side::Initiator && !matches!(expected, Ends::Killed));
    match (&ended.result, knows_plan) {
        (None, true) => wrong.push("it left no result".to_owned()),
        (Some(result), true) => {
            let kept = ended.statuses().iter().filter(|status| **status == "pass").count();
            if kept != phase.finished_cases() {
                wrong.push(format!("{kept} finished cases are kept instead of {}", phase.finished_cases()));
            }
            if result["run"]["complete"] != false || result["run"]["recorded_by"] != side.name() {
                wrong.push(format!("its result says {}", result["run"]));
            }
        }
        (_, false) => {}
    }
    wrong
}

/// The run lives through the fault: where nothing holds it, to its good end; where the phase is held, until a Ctrl-C at
/// the initiator, which ends both as ever.
fn goes_on(row: &Row, phase: Phase, scene: &mut Scene) -> Vec<String> {
    for side in SIDES.into_iter().filter(|side| scene.runs(*side)).collect::<Vec<_>>() {
        if let Some(line) = row.fault.back_again(side, phase) {
            scene.live(side).await_line(line);
        }
    }
    row.fault.pass(scene);
    if phase == Phase::Join {
        scene.start(row.first.other(), scene.quick(row.first.other()));
    }
    if phase.has_plan() {
        let interrupted = Row {
            fault: Fault::Interrupt(Side::Initiator),
            comes: {
                let says = Ends::Says("the initiator was interrupted by SIGINT (Ctrl-C) ({run})".to_owned());
                Comes::End { target: says.clone(), initiator: says }
            },
            ..row.clone()
        };
        let struck = Instant::now();
        interrupted.fault.strike(scene);
        return ends(&interrupted, phase, scene, struck);
    }
    let mut wrong = Vec::new();
    for side in SIDES {
        let ended = scene.take(side).expect("both sides run").end();
        if ended.code != 0 || ended.statuses() != ["pass"; 2] {
            wrong.push(format!("the {} is disturbed\n{ended}", side.name()));
        }
    }
    wrong
}

/// Whoever was stopped is looked at last.
fn in_order(fault: Fault) -> [Side; 2] {
    if fault == Fault::Stop(Side::Target) { [Side::Initiator, Side::Target] } else { SIDES }
}
