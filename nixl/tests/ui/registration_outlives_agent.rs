//! A registration needs its agent.

use std::sync::Arc;

use nixl::{Agent, AgentConfig, HostMemory, Registration};
use nixl_sys::Library;

fn leak<'a>(library: &Arc<Library>, memory: &Arc<HostMemory>) -> nixl::Result<Registration<'a>> {
    let agent = Agent::new(library, "a", &AgentConfig::default())?;
    let backend = agent.create_backend("UCX", &Default::default())?;
    agent.register(&backend, memory)
}

fn main() {}
