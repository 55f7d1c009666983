//! The narrow waist: what a rendezvous must be able to do, and nothing more.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Lost, StoreError};
use crate::queue::Queue;

/// A boxed future, so that [`Store`] stays usable as `dyn Store`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Outcome of [`Store::put_if_absent`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Put {
    /// The key is ours. A repeat of our own put with the same value says this too, so that an
    /// operation whose answer was lost can be sent again.
    Created,
    /// The key was there before; this is its value.
    Exists(Bytes),
}

/// Why a key went away, as far as the store can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Its owner deleted this one key.
    Removed,
    /// Its owner left the run properly.
    Left,
    /// Its owner's lease ran out: the process died, hung, or was cut off.
    Expired,
    /// The store does not say (etcd reports only that the key is gone).
    Unknown,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Removed => "its owner removed it",
            Self::Left => "its owner left the run",
            Self::Expired => "its owner's lease ran out",
            Self::Unknown => "the store does not say why",
        })
    }
}

/// One change below a watched prefix. Keys are relative to the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The key is there, with this value.
    Put {
        /// Key relative to the run.
        key: String,
        /// Its value.
        value: Bytes,
    },
    /// The key is gone.
    Deleted {
        /// Key relative to the run.
        key: String,
        /// Why, as far as the store knows.
        why: Why,
    },
}

impl Event {
    /// The key that the event is about.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Deleted { key, .. } => key,
        }
    }

    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Put { key, value } => key.len() + value.len(),
            Self::Deleted { key, .. } => key.len(),
        }
    }
}

/// A running watch: first the keys that are present, then every change, in order.
///
/// Dropping it ends it. Across a reconnect of the store, keys that vanished meanwhile are reported
/// as [`Why::Unknown`]; a key that was replaced is reported as deleted and put.
#[derive(Debug)]
pub struct Watch {
    queue: Arc<Queue<Event>>,
}

impl Watch {
    pub(crate) fn new(queue: Arc<Queue<Event>>) -> Self {
        Self { queue }
    }

    /// The next event. Cancel-safe.
    ///
    /// # Errors
    /// [`StoreError::Lost`] when the store is lost, [`StoreError::Overrun`] when this watch fell
    /// too far behind. A watch never just ends.
    pub async fn next(&mut self) -> Result<Event, StoreError> {
        self.queue.pop().await
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.queue.close(StoreError::Lost(Lost::Left));
    }
}

/// One process's place in one run. Everything it puts is under its lease.
///
/// Keys are relative to the run: 1 to 256 bytes, segments of `A-Z a-z 0-9 . _ -` joined by `/`.
/// A prefix for [`watch`](Self::watch) may also end in `/` or be empty. Every operation has a
/// deadline ([`Options::op_timeout`](crate::Options)) and may be repeated after it.
///
/// Dropping a store without [`leave`](Self::leave) counts as a crash: its keys stay until the
/// lease time is over.
pub trait Store: Send + Sync + fmt::Debug {
    /// Puts `value` unless the key exists.
    ///
    /// # Errors
    /// [`StoreError`]; in particular `TooLarge` above [`max_value`](Self::max_value).
    fn put_if_absent<'a>(&'a self, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<Put, StoreError>>;

    /// The value of a key, whoever put it.
    ///
    /// # Errors
    /// [`StoreError`].
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, StoreError>>;

    /// Watches every key that starts with `prefix`.
    ///
    /// # Errors
    /// [`StoreError`].
    fn watch<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Watch, StoreError>>;

    /// Deletes an own key; an absent one is no error.
    ///
    /// # Errors
    /// [`StoreError::NotOwner`] for a key of another process.
    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Drops the lease: all own keys vanish at once and the store is lost as [`Lost::Left`].
    ///
    /// # Errors
    /// [`StoreError`] when the service could not be told; the lease then runs out by itself.
    fn leave(&self) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Resolves when the control plane or the own lease is lost. Cancel-safe.
    fn lost(&self) -> BoxFuture<'_, Lost>;

    /// The largest value of one key, in bytes.
    fn max_value(&self) -> usize;

    /// The service's address for people, without secrets.
    fn place(&self) -> String;
}
