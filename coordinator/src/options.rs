//! Every deadline and every limit, in one place each; and the events that a caller may want to tell.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::error::ConnectError;

/// Deadlines of one process in one run.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long a silent process still counts as alive. etcd rounds up to whole seconds and has a
    /// minimum of its own (2 s with its default election timeout); TCP takes 200 ms to 60 s.
    pub lease_ttl: Duration,
    /// How long to wait for the rendezvous to come up, and for the peer to join.
    pub join_timeout: Duration,
    /// One connection attempt to one address, and one handshake.
    pub connect_timeout: Duration,
    /// One operation on the store.
    pub op_timeout: Duration,
    /// How long a peer that is there may take to say hello. When what it says makes no sense, half of that is left for
    /// its death, which would explain it, to be known.
    pub peer_patience: Duration,
    /// How long a goodbye waits for the peer to have read it.
    pub leave_linger: Duration,
    /// How long to wait for a taken role to become free, for a process restarted under the same
    /// run id before its predecessor's lease ran out. Zero refuses at once.
    pub role_wait: Duration,
    /// Who hears of waiting and reconnecting.
    pub observer: Observer,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lease_ttl: Duration::from_secs(5),
            join_timeout: Duration::from_secs(120),
            connect_timeout: Duration::from_secs(3),
            op_timeout: Duration::from_secs(10),
            peer_patience: Duration::from_secs(6),
            leave_linger: Duration::from_secs(5),
            role_wait: Duration::ZERO,
            observer: Observer::default(),
        }
    }
}

/// What a server holds at most. Reaching one is an error for the client that did, never growth.
#[derive(Debug, Clone)]
pub struct ServerLimits {
    /// Connections at one time, those still in the handshake included.
    pub max_connections: usize,
    /// Runs at one time.
    pub max_runs: usize,
    /// Members (leases) of one run.
    pub max_members: usize,
    /// Watches of one member.
    pub max_watches: usize,
    /// Keys of one run.
    pub max_keys: usize,
    /// Bytes of all values of one run.
    pub max_bytes: usize,
    /// Bytes of one value.
    pub max_value: usize,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            max_connections: 16,
            max_runs: 16,
            max_members: 16,
            max_watches: 16,
            max_keys: 4096,
            max_bytes: 256 << 20,
            max_value: 1 << 20,
        }
    }
}

/// Something worth a line on the terminal, that needs no answer.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Notice {
    /// The rendezvous is not there yet; it is tried again until the join deadline.
    Waiting {
        /// Address, without secrets.
        place: String,
        /// Why the last attempt failed.
        error: ConnectError,
        /// Since the first attempt.
        waited: Duration,
        /// Until it is given up.
        left: Duration,
    },
    /// The rendezvous is there, the peer is not yet.
    WaitingForPeer {
        /// `target` or `initiator`.
        role: &'static str,
        /// Until it is given up.
        left: Duration,
    },
    /// The peer is there: from now on it is to say hello.
    PeerCame {
        /// `target` or `initiator`.
        role: &'static str,
        /// Its identity.
        who: String,
    },
    /// The connection broke and is being made again within the lease time.
    Reconnecting {
        /// Address, without secrets.
        place: String,
        /// What broke it.
        detail: String,
    },
    /// The connection is back and the lease was kept.
    Reconnected {
        /// Address, without secrets.
        place: String,
    },
    /// The lease had gone and was replaced by a new one with the same keys (etcd only).
    Reregistered {
        /// Address, without secrets.
        place: String,
    },
    /// The server turned somebody away.
    Rejected {
        /// From where.
        from: SocketAddr,
        /// Why.
        why: String,
    },
}

type Callback = dyn Fn(&Notice) + Send + Sync;

/// A callback for [`Notice`]s. It must not block.
#[derive(Clone, Default)]
pub struct Observer(Option<Arc<Callback>>);

impl Observer {
    /// Calls `f` for every notice.
    pub fn new(f: impl Fn(&Notice) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(f)))
    }

    pub(crate) fn tell(&self, notice: &Notice) {
        if let Some(f) = &self.0 {
            f(notice);
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Observer(set)" } else { "Observer(none)" })
    }
}
