//! An agent cannot go while something of it is still used.

use std::sync::Arc;

use nixl::{Agent, Backend, HostMemory};

fn early(agent: Agent, memory: &Arc<HostMemory>) -> nixl::Result<()> {
    let backend: Backend<'_> = agent.create_backend("UCX", &Default::default())?;
    let registration = agent.register(&backend, memory)?;
    drop(agent);
    drop(registration);
    Ok(())
}

fn main() {}
