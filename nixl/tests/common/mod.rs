//! Two agents in one process, and what tests do with them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops where something fails"
)]
#![allow(dead_code, reason = "each test program uses a part of this")]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nixl::{Agent, AgentConfig, Backend, HostMemory, Populate, State, Transfer};
use nixl_sys::Library;

/// No transfer of these tests takes longer than this unless it hangs.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) fn memory(bytes: usize) -> Arc<HostMemory> {
    Arc::new(HostMemory::new(bytes, Populate::Now).unwrap())
}

/// Fills memory with words that say where they stand and which fill it was.
pub(crate) fn fill(memory: &HostMemory, seed: u64) {
    for (at, word) in memory.words().iter().enumerate() {
        word.store(pattern(seed, at), Ordering::Relaxed);
    }
}

pub(crate) fn pattern(seed: u64, at: usize) -> u64 {
    seed << 32 | at as u64
}

pub(crate) fn word(memory: &HostMemory, at: usize) -> u64 {
    memory.words()[at].load(Ordering::Relaxed)
}

pub(crate) fn agent(library: &Arc<Library>, name: &str) -> Agent {
    Agent::new(library, name, &AgentConfig { telemetry: true, ..AgentConfig::default() }).unwrap()
}

pub(crate) fn ucx(agent: &Agent) -> Backend<'_> {
    agent.create_backend("UCX", &Default::default()).unwrap()
}

/// Posts and polls to the end.
pub(crate) fn run(transfer: &mut Transfer<'_>) -> nixl::Result<()> {
    let deadline = Instant::now() + DEADLINE;
    let mut state = transfer.post()?;
    while state == State::InProgress {
        assert!(Instant::now() < deadline, "the transfer did not end");
        state = transfer.poll()?;
    }
    Ok(())
}

/// Waits for `wanted` notifications.
pub(crate) fn receive(agent: &Agent, wanted: usize) -> Vec<(String, Vec<u8>)> {
    let deadline = Instant::now() + DEADLINE;
    let mut got = Vec::new();
    while got.len() < wanted {
        assert!(Instant::now() < deadline, "{} of {wanted} notifications", got.len());
        agent.notifications(|from, message| got.push((from.to_owned(), message.to_vec()))).unwrap();
    }
    got
}
