//! What the two sides say to each other, as JSON headers of frames.

use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::store::Why;

/// Opens every first frame; whoever does not say it is not kvwire.
pub(crate) const MAGIC: &str = "kvwire-rendezvous";
/// Version of everything in this file. The greeting's own shape never changes.
pub(crate) const VERSION: u32 = 1;

/// First frame of the client.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ClientHello {
    pub(crate) magic: String,
    pub(crate) version: u32,
    pub(crate) nonce: String,
    /// Whether the client has a token to prove.
    pub(crate) token: bool,
}

/// The server's answer to any frame of the handshake.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub(crate) enum ServerGreeting {
    Challenge { magic: String, version: u32, nonce: String, token: bool },
    Welcome(Welcome),
    Refused { magic: String, version: u32, code: Refusal, text: String },
}

/// Why a client is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Refusal {
    Version,
    WrongToken,
    TokenNeeded,
    OtherRun,
    Full,
    LeaseGone,
    Malformed,
}

/// Second frame of the client.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ClientProof {
    pub(crate) run: String,
    /// Hexadecimal HMAC; empty without a token.
    pub(crate) proof: String,
    pub(crate) ttl_ms: u64,
    pub(crate) resume: Option<Resume>,
}

/// The lease that a reconnecting client takes up again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Resume {
    pub(crate) lease: u64,
    pub(crate) secret: String,
}

/// The client is a member now.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Welcome {
    /// Hexadecimal HMAC; empty without a token.
    pub(crate) proof: String,
    pub(crate) lease: u64,
    pub(crate) secret: String,
    pub(crate) ttl_ms: u64,
    pub(crate) max_value: usize,
    /// Who serves, for people.
    pub(crate) host: String,
}

/// What a member asks. `id` comes back in the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub(crate) enum Request {
    /// The value is the frame's.
    Put {
        id: u64,
        key: String,
    },
    Get {
        id: u64,
        key: String,
    },
    Delete {
        id: u64,
        key: String,
    },
    Watch {
        id: u64,
        watch: u64,
        prefix: String,
    },
    Unwatch {
        watch: u64,
    },
    Ping {
        n: u64,
    },
    Leave {
        id: u64,
    },
}

/// What the server answers and tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub(crate) enum Response {
    Created {
        id: u64,
    },
    /// The value is the frame's.
    Exists {
        id: u64,
    },
    /// The value is the frame's.
    Found {
        id: u64,
    },
    Missing {
        id: u64,
    },
    Done {
        id: u64,
    },
    Failed {
        id: u64,
        error: WireError,
    },
    Pong {
        n: u64,
    },
    /// An event of a watch; the value is the frame's.
    Put {
        watch: u64,
        key: String,
        rev: u64,
    },
    Deleted {
        watch: u64,
        key: String,
        why: WireWhy,
    },
    /// The keys that were present have all been told.
    Synced {
        watch: u64,
    },
    Closing {
        reason: String,
    },
}

/// [`StoreError`] as far as a server can cause one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "error", rename_all = "kebab-case")]
pub(crate) enum WireError {
    TooLarge { key: String, size: usize, limit: usize },
    NotOwner { key: String },
    Full { what: String },
    Other { text: String },
}

impl From<StoreError> for WireError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::TooLarge { key, size, limit } => Self::TooLarge { key, size, limit },
            StoreError::NotOwner { key } => Self::NotOwner { key },
            StoreError::Full { what } => Self::Full { what },
            other => Self::Other { text: other.to_string() },
        }
    }
}

impl From<WireError> for StoreError {
    fn from(error: WireError) -> Self {
        match error {
            WireError::TooLarge { key, size, limit } => Self::TooLarge { key, size, limit },
            WireError::NotOwner { key } => Self::NotOwner { key },
            WireError::Full { what } => Self::Full { what },
            WireError::Other { text } => Self::Backend { what: "the request".into(), detail: text },
        }
    }
}

/// [`Why`] on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WireWhy {
    Removed,
    Left,
    Expired,
    Unknown,
}

impl From<Why> for WireWhy {
    fn from(why: Why) -> Self {
        match why {
            Why::Removed => Self::Removed,
            Why::Left => Self::Left,
            Why::Expired => Self::Expired,
            Why::Unknown => Self::Unknown,
        }
    }
}

impl From<WireWhy> for Why {
    fn from(why: WireWhy) -> Self {
        match why {
            WireWhy::Removed => Self::Removed,
            WireWhy::Left => Self::Left,
            WireWhy::Expired => Self::Expired,
            WireWhy::Unknown => Self::Unknown,
        }
    }
}
