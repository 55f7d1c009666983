//! Two threads cannot use one agent.

use nixl::Agent;

fn share(_: impl Sync) {}

fn two_threads(agent: Agent) {
    share(agent);
}

fn main() {}
