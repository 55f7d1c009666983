//! The state behind [`MemoryStore`](crate::MemoryStore) and [`TcpServer`](crate::TcpServer): runs,
//! members with leases, keys, watchers. All of it synchronous under one lock that is never held
//! across an await, so every watcher sees the changes in one order.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::StoreError;
use crate::key::{RunId, check_key, check_prefix};
use crate::options::ServerLimits;
use crate::queue::Queue;
use crate::random::random_bytes;
use crate::store::{Event, Put, Why};
use crate::token::equal;

/// Number of a member's lease; never used twice by one hub.
pub(crate) type LeaseId = u64;

/// What a member shows to take its lease up again on a new connection.
pub(crate) type LeaseSecret = [u8; 16];

/// Where a watch's events go. Called under the hub's lock: it must neither block nor call back.
pub(crate) trait Sink: Send + Sync {
    /// False ends the watch.
    fn offer(&self, event: &Event, rev: u64) -> bool;
    /// The present keys have all been offered.
    fn synced(&self) -> bool;
    /// Whether nobody listens any more.
    fn is_closed(&self) -> bool;
}

impl Sink for Queue<Event> {
    fn offer(&self, event: &Event, _rev: u64) -> bool {
        self.push(event.clone(), event.size())
    }

    fn synced(&self) -> bool {
        true
    }

    fn is_closed(&self) -> bool {
        Self::is_closed(self)
    }
}

struct Entry {
    value: Bytes,
    owner: LeaseId,
    rev: u64,
}

struct Watcher {
    owner: LeaseId,
    prefix: String,
    sink: Arc<dyn Sink>,
}

#[derive(Default)]
struct Run {
    keys: BTreeMap<String, Entry>,
    bytes: usize,
    watchers: Vec<Watcher>,
    members: usize,
}

impl Run {
    fn publish(&mut self, event: &Event, rev: u64) {
        self.watchers.retain(|w| !event.key().starts_with(&w.prefix) || w.sink.offer(event, rev));
    }
}

struct Lease {
    run: RunId,
    secret: LeaseSecret,
    ttl: Duration,
    /// None: held by this very process, which cannot outlive the hub.
    deadline: Option<Instant>,
    /// Counts the connections that held it, so that a late close of an old one changes nothing.
    epoch: u64,
}

#[derive(Default)]
struct State {
    runs: HashMap<RunId, Run>,
    leases: HashMap<LeaseId, Lease>,
    last_lease: LeaseId,
    last_rev: u64,
}

/// A lease as handed to its member.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grant {
    pub(crate) id: LeaseId,
    pub(crate) secret: LeaseSecret,
    pub(crate) epoch: u64,
}

/// How a lease is kept alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// It must be renewed within its time.
    Renewed,
    /// It stands until it is released.
    Held,
}

pub(crate) struct Hub {
    state: Mutex<State>,
    pub(crate) limits: ServerLimits,
    wake: Arc<Notify>,
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").finish_non_exhaustive()
    }
}

impl Hub {
    /// A hub and, on the current runtime, the task that ends its leases in time.
    pub(crate) fn start(limits: ServerLimits) -> Arc<Self> {
        let wake = Arc::new(Notify::new());
        let hub = Arc::new(Self { state: Mutex::default(), limits, wake: Arc::clone(&wake) });
        tokio::spawn(reap(Arc::downgrade(&hub), wake));
        hub
    }

    /// Keys and bytes of all runs.
    #[cfg(test)]
    pub(crate) fn size(&self) -> (usize, usize) {
        let state = self.lock();
        let keys = state.runs.values().map(|run| run.keys.len()).sum();
        (keys, state.runs.values().map(|run| run.bytes).sum())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new member of a run.
    pub(crate) fn grant(&self, run: &RunId, ttl: Duration, keep: Keep) -> Result<Grant, StoreError> {
        let secret = random_bytes()
            .map_err(|e| StoreError::Backend { what: "granting a lease".into(), detail: e.to_string() })?;
        let mut state = self.lock();
        let state = &mut *state;
        if !state.runs.contains_key(run) && state.runs.len() >= self.limits.max_runs {
            return Err(full("runs", self.limits.max_runs));
        }
        let members = state.runs.get(run).map_or(0, |r| r.members);
        if members >= self.limits.max_members {
            return Err(full("members of this run", self.limits.max_members));
        }
        state.runs.entry(run.clone()).or_default().members += 1;
        state.last_lease += 1;
        let id = state.last_lease;
        let deadline = (keep == Keep::Renewed).then(|| Instant::now() + ttl);
        let lease = Lease { run: run.clone(), secret, ttl, deadline, epoch: 0 };
        state.leases.insert(id, lease);
        self.wake.notify_one();
        Ok(Grant { id, secret, epoch: 0 })
    }

    /// Takes a lease up again on a new connection, if it still stands and the secret is right.
    /// The watches of the old connection end.
    pub(crate) fn resume(&self, run: &RunId, id: LeaseId, secret: &LeaseSecret) -> Option<Grant> {
        let mut state = self.lock();
        let state = &mut *state;
        let lease = state.leases.get_mut(&id)?;
        if lease.run != *run || !equal(&lease.secret, secret) {
            return None;
        }
        lease.epoch += 1;
        lease.deadline = Some(Instant::now() + lease.ttl);
        if let Some(run) = state.runs.get_mut(run) {
            run.watchers.retain(|w| w.owner != id);
        }
        Some(Grant { id, secret: lease.secret, epoch: lease.epoch })
    }

    /// Proof of life. False when the lease is gone or was taken up by a newer connection.
    pub(crate) fn renew(&self, id: LeaseId, epoch: u64) -> bool {
        match self.lock().leases.get_mut(&id) {
            Some(lease) if lease.epoch == epoch => {
                lease.deadline = Some(Instant::now() + lease.ttl);
                true
            }
            _ => false,
        }
    }

    /// A held lease lost its holder without a goodbye: it runs out like any other.
    pub(crate) fn release(&self, id: LeaseId) {
        if let Some(lease) = self.lock().leases.get_mut(&id) {
            lease.deadline = Some(Instant::now() + lease.ttl);
        }
        self.wake.notify_one();
    }

    /// A proper goodbye: all keys of the lease vanish at once.
    pub(crate) fn leave(&self, id: LeaseId) {
        self.lock().end_lease(id, Why::Left);
    }

    pub(crate) fn put_if_absent(&self, id: LeaseId, key: &str, value: Bytes) -> Result<Put, StoreError> {
        check_key(key)?;
        if value.len() > self.limits.max_value {
            return Err(StoreError::TooLarge {
                key: key.to_owned(),
                size: value.len(),
                limit: self.limits.max_value,
            });
        }
        let mut state = self.lock();
        let rev = state.last_rev + 1;
        let run = state.run_of(id)?;
        if let Some(entry) = run.keys.get(key) {
            let repeat = entry.owner == id && entry.value == value;
            return Ok(if repeat { Put::Created } else { Put::Exists(entry.value.clone()) });
        }
        if run.keys.len() >= self.limits.max_keys {
            return Err(full("keys of this run", self.limits.max_keys));
        }
        if run.bytes + value.len() > self.limits.max_bytes {
            return Err(full("bytes of this run", self.limits.max_bytes));
        }
        run.bytes += value.len();
        let entry = Entry { value: value.clone(), owner: id, rev };
        run.keys.insert(key.to_owned(), entry);
        run.publish(&Event::Put { key: key.to_owned(), value }, rev);
        state.last_rev = rev;
        Ok(Put::Created)
    }

    pub(crate) fn get(&self, id: LeaseId, key: &str) -> Result<Option<Bytes>, StoreError> {
        check_key(key)?;
        let mut state = self.lock();
        let run = state.run_of(id)?;
        Ok(run.keys.get(key).map(|e| e.value.clone()))
    }

    pub(crate) fn delete(&self, id: LeaseId, key: &str) -> Result<(), StoreError> {
        check_key(key)?;
        let mut state = self.lock();
        let rev = state.last_rev + 1;
        let run = state.run_of(id)?;
        let Some(entry) = run.keys.get(key) else {
            return Ok(());
        };
        if entry.owner != id {
            return Err(StoreError::NotOwner { key: key.to_owned() });
        }
        run.remove(key, Why::Removed, rev);
        state.last_rev = rev;
        Ok(())
    }

    pub(crate) fn watch(&self, id: LeaseId, prefix: &str, sink: Arc<dyn Sink>) -> Result<(), StoreError> {
        check_prefix(prefix)?;
        let mut state = self.lock();
        let run = state.run_of(id)?;
        run.watchers.retain(|w| !w.sink.is_closed());
        if run.watchers.iter().filter(|w| w.owner == id).count() >= self.limits.max_watches {
            return Err(full("watches of one member", self.limits.max_watches));
        }
        let mut present: Vec<_> = run.keys.iter().filter(|(k, _)| k.starts_with(prefix)).collect();
        // The order in which they were put, which is the order in which a watch would have told.
        present.sort_by_key(|(_, entry)| entry.rev);
        for (key, entry) in present {
            let event = Event::Put { key: key.clone(), value: entry.value.clone() };
            if !sink.offer(&event, entry.rev) {
                return Ok(());
            }
        }
        if sink.synced() {
            run.watchers.push(Watcher { owner: id, prefix: prefix.to_owned(), sink });
        }
        Ok(())
    }

    /// Ends what is overdue; the next deadline, if there is one.
    fn expire(&self, now: Instant) -> Option<Instant> {
        let mut state = self.lock();
        let overdue: Vec<_> = state
            .leases
            .iter()
            .filter(|(_, l)| l.deadline.is_some_and(|d| d <= now))
            .map(|(id, _)| *id)
            .collect();
        for id in overdue {
            state.end_lease(id, Why::Expired);
        }
        state.leases.values().filter_map(|l| l.deadline).min()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // Lets the reaper see that there is nothing left to do.
        self.wake.notify_one();
    }
}

impl Run {
    fn remove(&mut self, key: &str, why: Why, rev: u64) {
        if let Some(entry) = self.keys.remove(key) {
            self.bytes -= entry.value.len();
            self.publish(&Event::Deleted { key: key.to_owned(), why }, rev);
        }
    }
}

impl State {
    fn run_of(&mut self, id: LeaseId) -> Result<&mut Run, StoreError> {
        let gone = || {
            StoreError::Lost(crate::error::Lost::LeaseExpired {
                place: "this process".into(),
                detail: "the lease has ended".into(),
            })
        };
        let lease = self.leases.get(&id).ok_or_else(gone)?;
        self.runs.get_mut(&lease.run).ok_or_else(gone)
    }

    fn end_lease(&mut self, id: LeaseId, why: Why) {
        let Some(lease) = self.leases.remove(&id) else { return };
        let Some(run) = self.runs.get_mut(&lease.run) else { return };
        run.watchers.retain(|w| w.owner != id);
        let mut own: Vec<_> =
            run.keys.iter().filter(|(_, e)| e.owner == id).map(|(k, e)| (e.rev, k.clone())).collect();
        own.sort();
        for (_, key) in own {
            self.last_rev += 1;
            run.remove(&key, why, self.last_rev);
        }
        run.members -= 1;
        if run.members == 0 {
            self.runs.remove(&lease.run);
        }
    }
}

fn full(what: &str, limit: usize) -> StoreError {
    StoreError::Full { what: format!("at most {limit} {what}") }
}

/// Ends leases when their time comes, until the hub is gone.
async fn reap(hub: Weak<Hub>, wake: Arc<Notify>) {
    loop {
        let next = match hub.upgrade() {
            Some(hub) => hub.expire(Instant::now()),
            None => return,
        };
        match next {
            Some(at) => tokio::select! {
                () = wake.notified() => {}
                () = tokio::time::sleep_until(at) => {}
            },
            None => wake.notified().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lease_is_resumed_with_its_secret_in_its_run_only_and_by_the_newest_connection() {
        let hub = Hub::start(ServerLimits::default());
        let (run, other): (RunId, RunId) = ("r".parse().unwrap(), "s".parse().unwrap());
        let ttl = Duration::from_secs(60);
        let grant = hub.grant(&run, ttl, Keep::Renewed).unwrap();
        let mut wrong = grant.secret;
        wrong[0] ^= 1;
        assert!(hub.resume(&run, grant.id, &wrong).is_none());
        assert!(hub.resume(&other, grant.id, &grant.secret).is_none());
        assert!(hub.renew(grant.id, grant.epoch));
        let newer = hub.resume(&run, grant.id, &grant.secret).unwrap();
        assert!(!hub.renew(grant.id, grant.epoch));
        assert!(hub.renew(newer.id, newer.epoch));
        hub.leave(grant.id);
        assert!(hub.resume(&run, grant.id, &grant.secret).is_none());
        // Nothing of a run stays once its last member is gone.
        assert!(hub.lock().runs.is_empty());
    }
}
