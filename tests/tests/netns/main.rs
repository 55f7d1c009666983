//! Two hosts as network namespaces, and everything that can go wrong between them.
//!
//! The tests named `netns_…` need root.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

mod outages;
mod page;
mod play;
mod scene;
mod strangers;
mod table;

use play::play;
use scene::{Meet, Phase};
use table::table;

#[test]
fn netns_faults_while_one_side_waits_for_the_other() {
    play(&table(), |_, phase| phase == Phase::Join);
}

#[test]
fn netns_faults_during_registration() {
    play(&table(), |row, phase| row.meet == Meet::Tcp && phase == Phase::Registration);
}

#[test]
fn netns_faults_during_the_warm_up() {
    play(&table(), |row, phase| row.meet == Meet::Tcp && phase == Phase::WarmUp);
}

#[test]
fn netns_faults_during_the_timed_loop() {
    play(&table(), |row, phase| row.meet == Meet::Tcp && phase == Phase::TimedLoop);
}

#[test]
fn netns_faults_during_verification() {
    play(&table(), |row, phase| row.meet == Meet::Tcp && phase == Phase::Verification);
}

#[test]
fn netns_faults_with_etcd() {
    play(&table(), |row, phase| row.meet == Meet::Etcd && phase != Phase::Join);
}
