//! Descriptors come from a registration, not from memory or an address.

use nixl::{Agent, HostMemory};

fn from_memory(memory: &HostMemory) {
    let _ = memory.describe([(0, 8)]);
}

fn from_address(agent: &Agent, memory: &HostMemory) {
    let _ = agent.describe([(memory.words().as_ptr() as usize, 0, 8)]);
}

fn main() {}
