//! Runs between two network namespaces.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

mod fault;
mod scene;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use fault::Fault;
use kvwire_tests::{Live, Side, wait_until, is_alive};
use rustix::process::Signal;
use scene::{Meet, Phase, Scene};

#[test]
fn netns_discover() {
    let which = std::env::var("SHOW").unwrap_or_default();
    let mut rows = Vec::new();
    for meet in [Meet::Tcp, Meet::Etcd] {
        for phase in [Phase::Join, Phase::Registration, Phase::WarmUp, Phase::TimedLoop, Phase::Verification] {
            for f in [Fault::Kill as fn(Side) -> Fault, Fault::Stop, Fault::KillEngine, Fault::StopEngine, Fault::Terminate, Fault::Interrupt] {
                for side in [Side::Target, Side::Initiator] {
                    rows.push((meet, phase, f(side)));
                }
            }
            for f in [Fault::CableCut, Fault::LossFrom(Side::Target), Fault::LossFrom(Side::Initiator)] {
                if phase != Phase::Join { rows.push((meet, phase, f)); }
            }
            if meet == Meet::Etcd { for f in [Fault::EtcdKilled, Fault::EtcdStopped] { if phase != Phase::Join { rows.push((meet, phase, f)); } } }
        }
    }
    rows.retain(|r| format!("{r:?}").contains(&which) && (r.1 != Phase::Join));
    let workers: usize = std::env::var("WORKERS").ok().and_then(|w| w.parse().ok()).unwrap_or(4);
    let queue = Mutex::new(rows);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| loop {
                let Some((meet, phase, fault)) = ({ let mut q = queue.lock().unwrap(); if q.is_empty() { None } else { Some(q.remove(0)) } }) else { return };
                let begin = Instant::now();
                let mut scene = Scene::held(meet, phase, Side::Target);
                let held = begin.elapsed();
                let engines = [scene.live(Side::Target).engine("target"), scene.live(Side::Initiator).engine("initiator")];
                fault.strike(&mut scene);
                let struck = Instant::now();
                let mut text = String::new();
                let (t, i) = (scene.target.take().unwrap(), scene.initiator.take().unwrap());
                let order: Vec<(&str, Live)> = match fault { Fault::Stop(Side::Target) => vec![("initiator", i), ("target", t)], _ => vec![("target", t), ("initiator", i)] };
                for (name, live) in order {
                    if let Fault::Stop(side) = fault { if side.name() == name { live.signal(live.pid(), Signal::CONT); } }
                    let ended = live.end();
                    let findings: Vec<String> = ended.result.as_ref().map(|r| r["findings"].as_array().unwrap().iter().map(|f| format!("{}: {}", f["id"], f["title"])).collect()).unwrap_or_default();
                    text += &format!("   {name}: code {} at {:.1?} statuses {:?}\n      {}\n", ended.code, struck.elapsed(), ended.result.as_ref().map(|_| ended.statuses().join(",")), ended.stdout.lines().take(if ended.result.is_some() {1} else {3}).collect::<Vec<_>>().join(" | "));
                    for f in findings { text += &format!("        - {f}\n"); }
                }
                wait_until("gone", Duration::from_secs(5), || engines.iter().all(|p| !is_alive(*p)));
                let keys = if let (Some(e), false) = (&scene.etcd, matches!(fault, Fault::EtcdKilled | Fault::EtcdStopped)) { format!("{:?}", scene::no_key_left(e)) } else { String::new() };
                eprintln!("{meet:?} {phase:?} {fault:?} (held after {held:.1?}, all {:.1?}) {keys}\n{text}", begin.elapsed());
            });
        }
    });
}
