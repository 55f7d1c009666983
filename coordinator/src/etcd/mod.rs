//! The rendezvous on an etcd cluster: keys `<prefix>/<run>/…`, one lease per process.
//!
//! Checked against etcd 3.4; uses transactions, leases and watches of its v3 API only.

mod connect;
mod core;
mod credentials;
mod follow;
mod keeper;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tokio::task::JoinHandle;

pub use credentials::EtcdCredentials;

use self::core::Core;
use crate::endpoint::EtcdEndpoint;
use crate::error::{ConnectError, Lost, StoreError};
use crate::key::{RunId, check_key, check_prefix};
use crate::options::Options;
use crate::queue::Queue;
use crate::store::{BoxFuture, Put, Store, Watch};

/// Largest value put under one key, in bytes. etcd refuses requests above 1.5 MiB by default
/// (`--max-request-bytes`).
const MAX_VALUE: usize = 1 << 20;

/// [`Store`] on etcd.
pub struct EtcdStore {
    core: Arc<Core>,
    keeper: JoinHandle<()>,
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore").field("place", &self.core.place).finish_non_exhaustive()
    }
}

impl EtcdStore {
    /// Joins a run: waits for etcd up to the join deadline and takes a lease.
    ///
    /// # Errors
    /// [`ConnectError`]; what waiting cannot cure (credentials, certificates) is told at once.
    pub async fn connect(
        endpoint: &EtcdEndpoint,
        run: &RunId,
        credentials: &EtcdCredentials,
        options: &Options,
    ) -> Result<Self, ConnectError> {
        let core = Arc::new(connect::join(endpoint, run, credentials, options).await?);
        let keeper = tokio::spawn(keeper::keep(Arc::clone(&core)));
        Ok(Self { core, keeper })
    }
}

impl Store for EtcdStore {
    fn put_if_absent<'a>(&'a self, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<Put, StoreError>> {
        Box::pin(async move {
            check_key(key)?;
            if value.len() > MAX_VALUE {
                return Err(StoreError::TooLarge {
                    key: key.to_owned(),
                    size: value.len(),
                    limit: MAX_VALUE,
                });
            }
            self.core.put_if_absent(key, value).await
        })
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, StoreError>> {
        Box::pin(async move {
            check_key(key)?;
            self.core.get(key).await
        })
    }

    fn watch<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Watch, StoreError>> {
        Box::pin(async move {
            check_prefix(prefix)?;
            let queue = Arc::new(Queue::new());
            follow::start(&self.core, prefix, Arc::clone(&queue)).await?;
            Ok(Watch::new(queue))
        })
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            check_key(key)?;
            self.core.delete(key).await
        })
    }

    fn leave(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.keeper.abort();
            let result = self.core.revoke().await;
            self.core.end(&Lost::Left);
            result
        })
    }

    fn lost(&self) -> BoxFuture<'_, Lost> {
        Box::pin(self.core.lost())
    }

    fn max_value(&self) -> usize {
        MAX_VALUE
    }

    fn place(&self) -> String {
        self.core.place.clone()
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        self.keeper.abort();
        self.core.end(&Lost::Left);
    }
}
