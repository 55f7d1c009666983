//! A safe API over NIXL: agents, registrations, descriptor lists, transfers.
//!
//! NIXL's rules are in the types here, so that code which breaks one does not compile:
//!
//! - An [`Agent`] belongs to one thread at a time: it is `Send` and not `Sync`, and what is made from it stays with it.
//! - Everything borrows what it depends on: [`Registration`] and [`Remote`] their agent, [`DescList`] its registrations,
//!   [`RemoteDescList`] its remote, [`Transfer`] both lists. Dropping in the wrong order is a compile error.
//! - Descriptors are made from registered memory only, and are checked against its bounds.
//! - A transfer that was posted cannot be cancelled. One that is dropped before it ended is **quarantined**: it and
//!   everything of its agent stay where they are until the process ends ([`Agent::quarantined`]).
//!
//! What no type can say: a peer goes on writing to registered memory for as long as it believes the metadata it was
//! given. Peers must have stopped before a [`Registration`] is dropped; a rendezvous sees to that.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::{iter, sync::Arc};
//! let nixl = nixl_sys::open(&nixl_sys::SearchOptions::from_process(None))?;
//! let agent = nixl::Agent::new(&nixl.library, "prefill", &nixl::AgentConfig::default())?;
//! let ucx = agent.create_backend("UCX", &Default::default())?;
//! let memory = Arc::new(nixl::HostMemory::new(1 << 20, nixl::Populate::Now)?);
//! let registration = agent.register(&ucx, &memory)?;
//! # let (blob, region) = (agent.local_metadata()?, registration.region());
//! let remote = agent.load_remote(&blob)?; // the peer's blob and region, by the rendezvous
//! let ours = registration.describe(iter::once((0, 4096)))?;
//! let theirs = remote.describe(&region, iter::once((0, 4096)))?;
//! let options = nixl::TransferOptions::default();
//! let mut transfer = agent.make_transfer(nixl::Op::Write, &ours, &[0], &theirs, &[0], &options)?;
//! let mut state = transfer.post()?;
//! while state == nixl::State::InProgress {
//!     state = transfer.poll()?;
//! }
//! # Ok(())
//! # }
//! ```

mod agent;
mod backend;
mod descriptors;
mod error;
mod handle;
mod host_memory;
mod memory;
mod notification;
mod process;
mod registration;
mod remote;
mod transfer;
mod users;

pub use agent::{Agent, AgentConfig};
pub use backend::{Backend, PluginInfo};
pub use descriptors::{DescList, RemoteDescList};
pub use error::{Error, Result, Status};
pub use host_memory::{HostMemory, Populate};
pub use memory::{Memory, MemoryKind};
pub use process::exit_without_destructors;
pub use registration::{Registration, RemoteRegion};
pub use remote::Remote;
pub use transfer::{Estimate, Op, State, Telemetry, Transfer, TransferOptions};
