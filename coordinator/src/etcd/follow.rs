//! Watches: a listing at one revision, then the changes after it; listed again when the stream breaks.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use etcd_client::{
    Error, Event as Change, EventType, GetOptions, ResponseHeader, WatchOptions, WatchResponse, WatchStream,
};
use tokio::time::{Instant, sleep};

use super::core::Core;
use crate::error::StoreError;
use crate::queue::Queue;
use crate::store::{Event, Why};
use crate::view::View;

/// Largest batch of changes taken, in bytes.
const MAX_BATCH: usize = 64 << 20;
/// Pause before a broken watch is started again.
const PAUSE: Duration = Duration::from_millis(50);

struct Follower {
    core: Arc<Core>,
    prefix: String,
    queue: Arc<Queue<Event>>,
    view: View,
    /// Everything up to this revision has been told.
    revision: i64,
    /// How often our own lease had been replaced by then.
    replaced: u64,
}

type Row = (String, Bytes, u64);

/// Lists what is there and starts the task that tells the changes.
pub(crate) async fn start(
    core: &Arc<Core>,
    prefix: &str,
    queue: Arc<Queue<Event>>,
) -> Result<(), StoreError> {
    let mut follower = Follower {
        core: Arc::clone(core),
        prefix: prefix.to_owned(),
        queue,
        view: View::default(),
        revision: 0,
        replaced: *core.replaced.borrow(),
    };
    let (rows, revision) = follower.list().await?;
    follower.revision = revision;
    let events = follower.view.resync(rows);
    if follower.tell(events) {
        tokio::spawn(follower.run());
    }
    Ok(())
}

impl Follower {
    async fn run(mut self) {
        let lost = self.core.lost();
        let queue = Arc::clone(&self.queue);
        let reason = tokio::select! {
            lost = lost => lost.into(),
            reason = self.follow() => reason,
        };
        queue.close(reason);
    }

    /// Ends only when nobody listens or the store gives up.
    async fn follow(&mut self) -> StoreError {
        loop {
            // A broken stream is mended by listing again, whatever broke it.
            let _ = self.stream().await;
            if self.queue.is_closed() {
                return StoreError::Overrun;
            }
            sleep(PAUSE).await;
            match self.list_again().await {
                Ok(true) => {}
                Ok(false) => return StoreError::Overrun,
                // An outage longer than an operation's deadline: the keeper decides when it is over.
                Err(StoreError::Deadline { .. } | StoreError::Backend { .. }) => {}
                Err(other) => return other,
            }
        }
    }

    async fn stream(&mut self) -> Result<(), Error> {
        let options =
            WatchOptions::new().with_prefix().with_fragment().with_start_revision(self.revision + 1);
        let mut client = self.core.client.watch_client().max_decoding_message_size(MAX_BATCH);
        let mut stream: WatchStream = client.watch(self.full(&self.prefix), Some(options)).await?;
        let mut replacements = self.core.replaced.subscribe();
        loop {
            let known = self.replaced;
            let batch = tokio::select! {
                batch = stream.message() => batch?,
                // An etcd that forgot our lease forgot the revision too that this stream goes on from.
                _ = replacements.wait_for(|times| *times != known) => return Ok(()),
            };
            let Some(batch) = batch else { return Ok(()) };
            // So did one that is behind it: it would tell nothing until it came there.
            let behind = batch.header().is_some_and(|header| header.revision() < self.revision);
            if behind || batch.canceled() || !self.take(&batch) {
                return Ok(());
            }
        }
    }

    fn take(&mut self, batch: &WatchResponse) -> bool {
        let events: Vec<Event> = batch.events().iter().filter_map(|change| self.change(change)).collect();
        self.tell(events)
    }

    fn change(&mut self, change: &Change) -> Option<Event> {
        let kv = change.kv()?;
        let key = self.relative(kv.key())?;
        self.revision = self.revision.max(kv.mod_revision());
        match change.event_type() {
            EventType::Put => {
                Some(self.view.put(key, Bytes::copy_from_slice(kv.value()), rev(kv.mod_revision())))
            }
            EventType::Delete => self.view.deleted(key, Why::Unknown),
        }
    }

    fn tell(&self, events: Vec<Event>) -> bool {
        events.into_iter().all(|event| {
            let size = event.size();
            self.queue.push(event, size)
        })
    }

    /// The difference to what was told. An etcd that went back in time, or forgot our own lease, has lost its data:
    /// members are then given a lease time to put their keys again before these count as gone.
    async fn list_again(&mut self) -> Result<bool, StoreError> {
        let patience = Instant::now() + self.core.ttl;
        loop {
            let (rows, revision) = self.list().await?;
            // After the listing: a listing with our own keys put again comes after they were counted.
            let replaced = *self.core.replaced.borrow();
            let went_back = revision < self.revision || replaced != self.replaced;
            if went_back && Instant::now() < patience && self.view.misses_any(&rows) {
                // What is new does not wait for what is missing: a peer may have gone on meanwhile.
                let additions = self.view.additions(&rows);
                if !self.tell(additions) {
                    return Ok(false);
                }
                sleep(PAUSE).await;
                continue;
            }
            (self.revision, self.replaced) = (revision, replaced);
            let events = if went_back { self.view.replace(rows) } else { self.view.resync(rows) };
            return Ok(self.tell(events));
        }
    }

    /// The present keys at one revision. Values are read one by one: all of them together may
    /// exceed what one answer can carry.
    async fn list(&self) -> Result<(Vec<Row>, i64), StoreError> {
        let full = self.full(&self.prefix);
        let what = format!("listing {}", self.prefix);
        let keys = self
            .core
            .call(&what, |mut client, _| {
                let full = full.clone();
                async move { client.get(full, Some(GetOptions::new().with_prefix().with_keys_only())).await }
            })
            .await?;
        let revision = keys.header().map_or(0, ResponseHeader::revision);
        let mut rows = Vec::new();
        for kv in keys.kvs() {
            let value = self
                .core
                .call(&what, |mut client, _| {
                    let key = kv.key().to_vec();
                    async move { client.get(key, Some(GetOptions::new().with_revision(revision))).await }
                })
                .await?;
            if let (Some(kv), Some(key)) = (value.kvs().first(), self.relative(kv.key())) {
                rows.push((key, Bytes::copy_from_slice(kv.value()), rev(kv.mod_revision())));
            }
        }
        Ok((rows, revision))
    }

    fn full(&self, key: &str) -> String {
        format!("{}{key}", self.core.base)
    }

    fn relative(&self, key: &[u8]) -> Option<String> {
        let key = std::str::from_utf8(key).ok()?;
        key.strip_prefix(&self.core.base).map(str::to_owned)
    }
}

/// etcd's revisions are positive.
fn rev(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or_default()
}
