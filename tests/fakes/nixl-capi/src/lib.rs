//! A `libnixl_capi.so` for tests: it moves real bytes of host memory, within a process and between processes, and it
//! fails on purpose where a test's script says so ([`script`]).
//!
//! It stands for NIXL 1.5 with one backend, `UCX`. What the UCX below it would log is the file that
//! `KVWIRE_FAKE_UCX_LOG` names, if it does. With `fake_gpus` it also takes the memory of fake GPUs, and counts on their
//! links what it moves. Bytes are moved when a posted transfer is polled, through the kernel's
//! cross-memory attach; notifications travel over Unix datagram sockets. Beyond NIXL's functions it exports
//! `fake_nixl_counters` and `fake_nixl_set_script` for the tests of a process that loaded it.

mod agent;
mod capi;
mod control;
mod handle;
mod mailbox;
mod metadata;
mod script;
mod segments;
mod status;
mod transfer;
mod ucx_log;
mod wire;

pub use control::{Counters, fake_nixl_counters, fake_nixl_set_script};

/// One line on stderr, where NIXL and UCX talk as well.
fn say(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "fake NIXL: {text}");
}
