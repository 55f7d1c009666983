//! Rendezvous of the two kvwire processes of a run.
//!
//! Two layers. A [`Store`] holds small values under the lease of the process that put them: when
//! that process leaves or dies, everything it said is gone at once, so a crashed run cannot be
//! mistaken for a new one. A [`Session`] stands on a store and gives each role an ordered mailbox
//! to the other, plus a prompt answer to "is my peer still there, and if not, who says so?".
//!
//! Stores: [`TcpStore`] with its [`TcpServer`] (the default, nothing to install), [`EtcdStore`],
//! and [`MemoryStore`] (one process; also how the process that serves TCP takes part itself).
//!
//! Everything runs on the caller's tokio runtime, `current_thread` included. The runtime must be
//! left free to run: a caller that blocks it for longer than the lease time loses its lease.

#![forbid(unsafe_code)]

pub mod blob;
mod endpoint;
mod error;
pub mod etcd;
mod hex;
mod hub;
mod key;
mod memory;
mod open;
mod options;
mod queue;
mod random;
mod session;
mod store;
pub mod tcp;
mod token;
mod view;

pub use endpoint::{Endpoint, EndpointError, EtcdEndpoint, TcpEndpoint};
pub use error::{ConnectError, Lost, StoreError};
pub use etcd::{EtcdCredentials, EtcdStore};
pub use key::{RunId, RunIdError};
pub use memory::{MemoryHub, MemoryStore};
pub use open::open;
pub use options::{Notice, Observer, Options, ServerLimits};
pub use session::{Claim, JoinError, Peer, PeerError, Role, SendError, Session};
pub use store::{BoxFuture, Event, Put, Store, Watch, Why};
pub use tcp::{BindError, ServerOptions, TcpServer, TcpStore};
pub use token::{Token, TokenError};
