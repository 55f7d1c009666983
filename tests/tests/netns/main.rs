//! Two hosts as network namespaces, and everything that can go wrong between them.
//!
//! The tests named `netns_…` need root.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

mod fault;
mod outages;
mod page;
mod play;
mod scene;
mod strangers;
mod table;
mod two_hosts;

use play::play;
use scene::{Meet, Phase};

/// Rows that are played at the same time where engines do not poll, and where they do.
const WAITING: usize = 8;
const POLLING: usize = 5;

#[test]
fn netns_faults_while_one_side_waits_for_the_other() {
    play(WAITING, |_, phase| phase == Phase::Join);
}

#[test]
fn netns_faults_while_the_two_say_hello() {
    play(WAITING, |_, phase| phase == Phase::Hello);
}

#[test]
fn netns_faults_during_registration() {
    play(WAITING, |_, phase| phase == Phase::Registration);
}

#[test]
fn netns_faults_during_the_warm_up() {
    play(POLLING, |_, phase| phase == Phase::WarmUp);
}

#[test]
fn netns_faults_during_the_timed_loop() {
    play(POLLING, |row, phase| row.meet == Meet::Tcp && phase == Phase::TimedLoop);
}

#[test]
fn netns_faults_during_the_timed_loop_with_etcd() {
    play(POLLING, |row, phase| row.meet == Meet::Etcd && phase == Phase::TimedLoop);
}

#[test]
fn netns_faults_during_verification() {
    play(WAITING, |_, phase| phase == Phase::Verification);
}

#[test]
fn every_phase_is_played_with_every_kind_of_fault() {
    use fault::{Fault, Outage, Words};
    use kvwire_tests::Side::{Initiator, Target};
    let rows = table::table();
    let played = |fault, phase| rows.iter().any(|row| row.fault == fault && row.phases.contains(&phase));
    let of_a_side = [Fault::Kill, Fault::Stop, Fault::Terminate, Fault::Interrupt, Fault::LossFrom];
    let of_an_engine = [Fault::KillEngine, Fault::StopEngine];
    let all = [Outage::Killed, Outage::Silent, Outage::WithData, Outage::Empty].map(Fault::Etcd);
    for phase in scene::PHASES {
        for fault in [Target, Initiator].into_iter().flat_map(|side| of_a_side.map(|fault| fault(side))) {
            assert!(played(fault, phase), "{} in the {}", fault.name(), phase.name());
        }
        for fault in all.into_iter().chain([Fault::LinkDown]) {
            assert!(played(fault, phase), "{} in the {}", fault.name(), phase.name());
        }
        // Before there is a connection, strangers are tests of their own; before there is a plan, there is no engine.
        for words in [Words::Garbage, Words::Giant, Words::Half, Words::Silence] {
            assert!(
                phase == Phase::Join || played(Fault::Words(words), phase),
                "{words:?} in the {}",
                phase.name()
            );
        }
        for fault in [Target, Initiator].into_iter().flat_map(|side| of_an_engine.map(|fault| fault(side))) {
            assert!(!phase.has_plan() || played(fault, phase), "{} in the {}", fault.name(), phase.name());
        }
    }
}
