//! How a session fails, kept apart by who is to blame: the peer, the control plane, or nobody.

use std::time::Duration;

use super::Role;
use crate::error::StoreError;
use crate::store::Why;

/// Why no session came about.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// Another process has the role.
    #[error("the role {role} of this run is held by the {role} {holder}. Start one {role} per run, or give each pair its own run id; if that process was just killed, its place is free within {} s", lease.as_secs_f64())]
    RoleTaken {
        /// The role asked for.
        role: Role,
        /// Identity of its holder.
        holder: String,
        /// Lease time after which a dead holder's place is free.
        lease: Duration,
    },
    /// Nobody took the other role in time.
    #[error("no {role} joined within {} s", waited.as_secs())]
    NoPeer {
        /// The role that stayed empty.
        role: Role,
        /// How long was waited.
        waited: Duration,
    },
    /// The peer is there and says nothing.
    #[error("{who} is there and did not say hello within {} s", waited.as_secs_f64())]
    NoHello {
        /// Role and identity of the peer.
        who: String,
        /// How long was waited.
        waited: Duration,
    },
    /// The peer's kvwire keeps its mailbox in another way.
    #[error(
        "{who} uses session protocol {theirs}, this kvwire uses {ours}: run the same kvwire version on both sides"
    )]
    OtherVersion {
        /// Identity of the peer.
        who: String,
        /// Our version.
        ours: u32,
        /// Its version.
        theirs: u32,
    },
    /// The peer went away before it had said hello.
    #[error(transparent)]
    Peer(PeerError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<PeerError> for JoinError {
    fn from(error: PeerError) -> Self {
        match error {
            PeerError::OtherVersion { who, ours, theirs } => Self::OtherVersion { who, ours, theirs },
            other => Self::Peer(other),
        }
    }
}

impl From<SendError> for JoinError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Peer(e) => e.into(),
            SendError::Store(e) => Self::Store(e),
        }
    }
}

/// Why nothing more comes from the peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The peer's lease is gone and it had not said goodbye: it died, hung, or was cut off.
    #[error("lost {who}: {why}")]
    Lost {
        /// Role and identity of the peer.
        who: String,
        /// What the store says of it.
        why: Why,
    },
    /// The peer said goodbye.
    #[error("{who} has left: {reason}")]
    Left {
        /// Role and identity of the peer.
        who: String,
        /// Its reason.
        reason: String,
    },
    /// The store is gone: nothing can be said about the peer.
    #[error("control plane lost: {reason}")]
    ControlPlane {
        /// What failed.
        reason: StoreError,
    },
    /// The peer's kvwire keeps its mailbox in another way.
    #[error("{who} uses session protocol {theirs}, this kvwire uses {ours}")]
    OtherVersion {
        /// Identity of the peer.
        who: String,
        /// Our version.
        ours: u32,
        /// Its version.
        theirs: u32,
    },
    /// The peer's messages cannot be read.
    #[error("{who} sent something unreadable: {detail}")]
    Protocol {
        /// Role and identity of the peer.
        who: String,
        /// What it was.
        detail: String,
    },
}

/// Why a message was not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// There is nobody to read it.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// It could not be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
}
