//! What can go wrong between a process and its store, kept apart by what the reader should do next.

use std::time::Duration;

/// Why a store can no longer be used. Final: a store that is lost stays lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The service did not answer for a whole lease time, so others must assume this process dead.
    #[error("the rendezvous at {place} was out of reach for the whole lease time: {detail}")]
    Unreachable {
        /// Address of the service, without secrets.
        place: String,
        /// The last failure seen.
        detail: String,
    },
    /// The service answers, but has already dropped this process's lease.
    #[error("the rendezvous at {place} no longer knows this process's lease: {detail}")]
    LeaseExpired {
        /// Address of the service, without secrets.
        place: String,
        /// What showed it.
        detail: String,
    },
    /// The service said that it is shutting down.
    #[error("the rendezvous at {place} was closed: {detail}")]
    Closed {
        /// Address of the service, without secrets.
        place: String,
        /// The reason it gave.
        detail: String,
    },
    /// This process left on purpose.
    #[error("this process has left the run")]
    Left,
}

/// Failure of one store operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The key breaks the rules of [`Store`](crate::Store).
    #[error("bad key {key:?}: {why}")]
    BadKey {
        /// The key, cut to a printable length.
        key: String,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// The value is above the store's limit; [`blob`](crate::blob) is the way for large ones.
    #[error("the value for {key} has {size} bytes; this store takes at most {limit} per key")]
    TooLarge {
        /// Key that was to be put.
        key: String,
        /// Size of the value in bytes.
        size: usize,
        /// The store's limit in bytes.
        limit: usize,
    },
    /// Only the process that put a key may delete it.
    #[error("{key} belongs to another process of the run and cannot be deleted")]
    NotOwner {
        /// The key.
        key: String,
    },
    /// A limit on the run (keys, bytes, watches, members) is reached.
    #[error("the rendezvous is full: {what}")]
    Full {
        /// Which limit.
        what: String,
    },
    /// No answer in time. Whether the operation took effect is unknown; it is safe to repeat.
    #[error("no answer to {what} within {} ms", after.as_millis())]
    Deadline {
        /// The operation.
        what: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// More events came than this watch had room for: it has a gap and must be started again.
    #[error("a watch fell too far behind and was ended")]
    Overrun,
    /// The service refused the operation in its own words.
    #[error("{what} failed: {detail}")]
    Backend {
        /// The operation.
        what: String,
        /// The service's own text.
        detail: String,
    },
    /// A stored blob is incomplete or damaged.
    #[error("blob {name}: {detail}")]
    Blob {
        /// Name of the blob.
        name: String,
        /// What does not fit.
        detail: String,
    },
    /// The store is gone for good.
    #[error(transparent)]
    Lost(#[from] Lost),
}

/// Failure to reach or to enter a rendezvous.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// Nothing listens there (yet).
    #[error("{addr} refused the connection: nothing listens on that port")]
    Refused {
        /// Address tried.
        addr: String,
    },
    /// No answer at all, or none to the handshake.
    #[error("{addr} did not answer within {} ms ({step})", after.as_millis())]
    Timeout {
        /// Address tried.
        addr: String,
        /// What was waited for.
        step: &'static str,
        /// For how long.
        after: Duration,
    },
    /// The host name has no address (yet).
    #[error("the name {host} could not be resolved: {detail}")]
    Resolve {
        /// The name.
        host: String,
        /// The resolver's text.
        detail: String,
    },
    /// The server says that our token is not its token.
    #[error(
        "{addr} refused this process: wrong token. Copy the join address that the target printed, or set the same KVWIRE_TOKEN on both sides"
    )]
    WrongToken {
        /// Address of the server.
        addr: String,
    },
    /// The server asks for a token and we have none.
    #[error(
        "{addr} asks for a token and none was given. Use the whole join address that the target printed, or set KVWIRE_TOKEN"
    )]
    TokenNeeded {
        /// Address of the server.
        addr: String,
    },
    /// The server could not show that it knows the token, so nothing it says is believed.
    #[error(
        "{addr} could not prove that it knows the token ({detail}): it is not the target that this join address belongs to"
    )]
    ServerUnproven {
        /// Address of the server.
        addr: String,
        /// What was missing.
        detail: &'static str,
    },
    /// The two sides speak different protocol versions.
    #[error(
        "{addr} speaks rendezvous protocol {theirs}, this kvwire speaks {ours}: run the same kvwire version on both sides"
    )]
    Version {
        /// Address of the server.
        addr: String,
        /// Our version.
        ours: u32,
        /// The server's version.
        theirs: u32,
    },
    /// Something listens there, but not kvwire.
    #[error("{addr} is not a kvwire rendezvous: {detail}")]
    NotKvwire {
        /// Address tried.
        addr: String,
        /// What it said instead, made printable.
        detail: String,
    },
    /// The server serves another run.
    #[error("{addr} serves another run than {run}: {detail}")]
    OtherRun {
        /// Address of the server.
        addr: String,
        /// The run we asked for.
        run: String,
        /// The server's text.
        detail: String,
    },
    /// The server has no free place.
    #[error("{addr} has no free place: {detail}")]
    Full {
        /// Address of the server.
        addr: String,
        /// Which limit.
        detail: String,
    },
    /// Our lease has ended on the server (only when resuming).
    #[error("{addr} no longer knows this process's lease")]
    LeaseGone {
        /// Address of the server.
        addr: String,
    },
    /// Network failure other than the above.
    #[error("connection to {addr} failed: {detail}")]
    Io {
        /// Address tried.
        addr: String,
        /// The system's text.
        detail: String,
    },
    /// User name or password refused by etcd.
    #[error(
        "etcd at {addr} refused the user or the password: {detail}. They are read from KVWIRE_ETCD_USER and KVWIRE_ETCD_PASSWORD (or KVWIRE_ETCD_PASSWORD_FILE)"
    )]
    Credentials {
        /// Addresses tried.
        addr: String,
        /// etcd's text.
        detail: String,
    },
    /// Something that the caller gave cannot be used.
    #[error("{0}")]
    Config(String),
    /// The join deadline passed while waiting.
    #[error("nobody could be joined within {} s ({attempts} attempts); last: {last}", waited.as_secs())]
    Deadline {
        /// How long was waited in all.
        waited: Duration,
        /// How many times it was tried.
        attempts: u32,
        /// The last failure.
        last: Box<ConnectError>,
    },
}

impl ConnectError {
    /// Whether waiting can cure it: the other side may just not be up yet.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Refused { .. }
                | Self::Timeout { .. }
                | Self::Resolve { .. }
                | Self::Full { .. }
                | Self::Io { .. }
        )
    }
}
