//! A member of a run inside the process that holds the run's state.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use crate::error::{Lost, StoreError};
use crate::hub::{Grant, Hub, Keep};
use crate::key::RunId;
use crate::options::{Options, ServerLimits};
use crate::queue::Queue;
use crate::store::{BoxFuture, Event, Put, Store, Watch};

/// Runs held in this process's memory only.
#[derive(Debug, Clone)]
pub struct MemoryHub {
    hub: Arc<Hub>,
}

impl MemoryHub {
    /// An empty hub. Call it inside a tokio runtime: a small task ends leases in time.
    #[must_use]
    pub fn new(limits: ServerLimits) -> Self {
        Self { hub: Hub::start(limits) }
    }

    /// Joins a run as a new member.
    ///
    /// # Errors
    /// [`StoreError::Full`].
    pub fn join(&self, run: &RunId, options: &Options) -> Result<MemoryStore, StoreError> {
        MemoryStore::join(&self.hub, run, options.lease_ttl, "this process".into())
    }
}

/// [`Store`] over state in the same process. Its lease needs no renewal, since the process cannot
/// outlive its own memory; dropping the store without leaving lets the lease run out.
#[derive(Debug)]
pub struct MemoryStore {
    hub: Arc<Hub>,
    grant: Grant,
    place: String,
    lost: watch::Sender<Option<Lost>>,
    watches: Mutex<Vec<Weak<Queue<Event>>>>,
}

impl MemoryStore {
    pub(crate) fn join(
        hub: &Arc<Hub>,
        run: &RunId,
        ttl: Duration,
        place: String,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            hub: Arc::clone(hub),
            grant: hub.grant(run, ttl, Keep::Held)?,
            place,
            lost: watch::Sender::new(None),
            watches: Mutex::default(),
        })
    }

    fn check(&self) -> Result<(), StoreError> {
        match &*self.lost.borrow() {
            Some(lost) => Err(lost.clone().into()),
            None => Ok(()),
        }
    }

    /// A watch must not outlive its store in silence.
    fn end_watches(&self) {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        for queue in watches.drain(..).filter_map(|w| w.upgrade()) {
            queue.close(Lost::Left.into());
        }
    }

    fn watch_now(&self, prefix: &str) -> Result<Watch, StoreError> {
        self.check()?;
        let queue = Arc::new(Queue::new());
        self.hub.watch(self.grant.id, prefix, Arc::clone(&queue) as _)?;
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.retain(|w| w.strong_count() > 0);
        watches.push(Arc::downgrade(&queue));
        drop(watches);
        Ok(Watch::new(queue))
    }
}

impl Store for MemoryStore {
    fn put_if_absent<'a>(&'a self, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<Put, StoreError>> {
        Box::pin(async move {
            self.check()?;
            self.hub.put_if_absent(self.grant.id, key, value)
        })
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, StoreError>> {
        Box::pin(async move {
            self.check()?;
            self.hub.get(self.grant.id, key)
        })
    }

    fn watch<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Watch, StoreError>> {
        Box::pin(async move { self.watch_now(prefix) })
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.check()?;
            self.hub.delete(self.grant.id, key)
        })
    }

    fn leave(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.hub.leave(self.grant.id);
            self.lost.send_replace(Some(Lost::Left));
            self.end_watches();
            Ok(())
        })
    }

    fn lost(&self) -> BoxFuture<'_, Lost> {
        let mut lost = self.lost.subscribe();
        Box::pin(async move {
            let reason = lost.wait_for(Option::is_some).await;
            reason.ok().and_then(|r| r.clone()).unwrap_or(Lost::Left)
        })
    }

    fn max_value(&self) -> usize {
        self.hub.limits.max_value
    }

    fn place(&self) -> String {
        self.place.clone()
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        // Without a goodbye this is a crash, as it would be over the network.
        self.hub.release(self.grant.id);
        self.end_watches();
    }
}
