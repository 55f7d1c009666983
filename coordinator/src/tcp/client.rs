//! The client: one connection at a time, made again within the lease time when it breaks.
//!
//! Callers put requests into [`State`] and wait for their answer; one driver task owns the
//! connection. What is unanswered when a connection breaks is asked again on the next one, which
//! is sound because every request may be repeated.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::dial::{Dial, Link};
use super::link::{Incoming, LinkError, Outgoing};
use super::message::{Request, Response, Resume, Welcome};
use crate::endpoint::TcpEndpoint;
use crate::error::{ConnectError, Lost, StoreError};
use crate::key::{RunId, check_key, check_prefix};
use crate::options::{Notice, Options};
use crate::queue::Queue;
use crate::store::{BoxFuture, Event, Put, Store, Watch};
use crate::view::View;

/// Pauses between attempts to reconnect within the lease time.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));

/// [`Store`] on a [`TcpServer`](crate::TcpServer) in another process.
pub struct TcpStore {
    shared: Arc<Shared>,
    driver: JoinHandle<()>,
}

impl fmt::Debug for TcpStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpStore").field("place", &self.shared.place).finish_non_exhaustive()
    }
}

struct Shared {
    state: Mutex<State>,
    unsent: Notify,
    lost: watch::Sender<Option<Lost>>,
    place: String,
    max_value: usize,
    op_timeout: Duration,
    ttl: Duration,
}

struct State {
    last_id: u64,
    pending: BTreeMap<u64, Pending>,
    watches: BTreeMap<u64, WatchSlot>,
    unsent: VecDeque<Unsent>,
    ping: (u64, Instant),
    /// Until when the lease certainly stands: the last answered ping's sending time plus the TTL.
    alive_until: Instant,
    leaving: bool,
}

struct Pending {
    request: Request,
    value: Bytes,
    answer: oneshot::Sender<(Response, Bytes)>,
}

enum Unsent {
    Pending(u64),
    Free(Request),
}

struct WatchSlot {
    prefix: String,
    queue: Arc<Queue<Event>>,
    view: View,
    /// The present keys, while they are being told.
    listing: Option<Listing>,
}

/// Keys at one moment, while they come in.
#[derive(Default)]
struct Listing {
    rows: Vec<(String, Bytes, u64)>,
    bytes: usize,
}

/// Keys and bytes of one watch that are believed to be a run's: twice what a server of kvwire holds.
const LARGEST: (usize, usize) = (8192, 512 << 20);

impl WatchSlot {
    fn tell(&self, event: Option<Event>) -> bool {
        event.is_none_or(|event| {
            let size = event.size();
            self.queue.push(event, size)
        })
    }

    /// A key is there. False when there are more than a run can have.
    fn put(&mut self, key: String, value: Bytes, rev: u64) -> bool {
        let listed = self.listing.as_ref().map_or((0, 0), |listing| (listing.rows.len(), listing.bytes));
        if self.view.len().max(listed.0) >= LARGEST.0 || listed.1 + value.len() > LARGEST.1 {
            self.queue.close(StoreError::Overrun);
            return false;
        }
        match &mut self.listing {
            Some(listing) => {
                listing.bytes += value.len();
                listing.rows.push((key, value, rev));
                true
            }
            None => {
                let event = self.view.put(key, value, rev);
                self.tell(Some(event))
            }
        }
    }

    fn synced(&mut self) -> bool {
        let listing = self.listing.take().unwrap_or_default();
        let events = self.view.resync(listing.rows);
        events.into_iter().all(|event| self.tell(Some(event)))
    }
}

impl TcpStore {
    /// Joins a run: waits for the server up to the join deadline and proves the token to it.
    ///
    /// # Errors
    /// [`ConnectError`]; what waiting cannot cure (a wrong token, another version) is told at once.
    pub async fn connect(
        endpoint: &TcpEndpoint,
        run: &RunId,
        options: &Options,
    ) -> Result<Self, ConnectError> {
        let dial = Dial { endpoint: endpoint.clone(), run: run.clone(), options: options.clone() };
        let link = dial.join().await?;
        let ttl = Duration::from_millis(link.welcome.ttl_ms);
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(link.since, ttl)),
            unsent: Notify::new(),
            lost: watch::Sender::new(None),
            place: format!("{} (served by {})", dial.place(), link.welcome.host),
            max_value: link.welcome.max_value,
            op_timeout: options.op_timeout,
            ttl,
        });
        let driver = tokio::spawn(drive(Arc::clone(&shared), dial, link));
        Ok(Self { shared, driver })
    }

    async fn call(
        &self,
        value: Bytes,
        request: impl FnOnce(u64) -> Request,
    ) -> Result<(Response, Bytes), StoreError> {
        let (answer, answered) = oneshot::channel();
        let asked = self.shared.ask(value, answer, request)?;
        match timeout(self.shared.op_timeout, answered).await {
            Ok(Ok((Response::Failed { error, .. }, _))) => Err(error.into()),
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(self.shared.why_lost().into()),
            Err(_) => Err(StoreError::Deadline { what: asked.what.clone(), after: self.shared.op_timeout }),
        }
    }

    async fn start_watch(&self, prefix: &str) -> Result<Watch, StoreError> {
        check_prefix(prefix)?;
        let queue = Arc::new(Queue::new());
        let watch = self.shared.add_watch(prefix, &queue);
        let result = Watch::new(queue);
        let prefix = prefix.to_owned();
        // On failure the watch is dropped, which ends its queue and thereby its slot.
        self.call(Bytes::new(), |id| Request::Watch { id, watch, prefix }).await?;
        Ok(result)
    }
}

impl Store for TcpStore {
    fn put_if_absent<'a>(&'a self, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<Put, StoreError>> {
        Box::pin(async move {
            check_key(key)?;
            let (size, limit) = (value.len(), self.shared.max_value);
            if size > limit {
                return Err(StoreError::TooLarge { key: key.to_owned(), size, limit });
            }
            match self.call(value, |id| Request::Put { id, key: key.to_owned() }).await? {
                (Response::Created { .. }, _) => Ok(Put::Created),
                (Response::Exists { .. }, value) => Ok(Put::Exists(value)),
                _ => Err(unexpected("put")),
            }
        })
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, StoreError>> {
        Box::pin(async move {
            check_key(key)?;
            match self.call(Bytes::new(), |id| Request::Get { id, key: key.to_owned() }).await? {
                (Response::Found { .. }, value) => Ok(Some(value)),
                (Response::Missing { .. }, _) => Ok(None),
                _ => Err(unexpected("get")),
            }
        })
    }

    fn watch<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Watch, StoreError>> {
        Box::pin(self.start_watch(prefix))
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            check_key(key)?;
            match self.call(Bytes::new(), |id| Request::Delete { id, key: key.to_owned() }).await? {
                (Response::Done { .. }, _) => Ok(()),
                _ => Err(unexpected("delete")),
            }
        })
    }

    fn leave(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.shared.lock().leaving = true;
            let result = self.call(Bytes::new(), |id| Request::Leave { id }).await;
            self.shared.end(&Lost::Left);
            match result {
                Ok(_) | Err(StoreError::Lost(Lost::Left)) => Ok(()),
                Err(e) => Err(e),
            }
        })
    }

    fn lost(&self) -> BoxFuture<'_, Lost> {
        let mut lost = self.shared.lost.subscribe();
        Box::pin(async move {
            let reason = lost.wait_for(Option::is_some).await;
            reason.ok().and_then(|r| r.clone()).unwrap_or(Lost::Left)
        })
    }

    fn max_value(&self) -> usize {
        self.shared.max_value
    }

    fn place(&self) -> String {
        self.shared.place.clone()
    }
}

impl Drop for TcpStore {
    fn drop(&mut self) {
        self.driver.abort();
        self.shared.end(&Lost::Left);
    }
}

fn unexpected(what: &str) -> StoreError {
    StoreError::Backend {
        what: what.into(),
        detail: "the server gave an answer that does not belong to it".into(),
    }
}

/// A request that somebody waits for; dropping it forgets the request.
struct Asked<'a> {
    shared: &'a Shared,
    id: u64,
    what: String,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.shared.lock().pending.remove(&self.id);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn why_lost(&self) -> Lost {
        self.lost.borrow().clone().unwrap_or(Lost::Left)
    }

    fn ask(
        &self,
        value: Bytes,
        answer: oneshot::Sender<(Response, Bytes)>,
        request: impl FnOnce(u64) -> Request,
    ) -> Result<Asked<'_>, StoreError> {
        let mut state = self.lock();
        // Checked under the lock: the end takes the lock too, and fails everything pending.
        if let Some(lost) = &*self.lost.borrow() {
            return Err(lost.clone().into());
        }
        state.last_id += 1;
        let id = state.last_id;
        let request = request(id);
        let what = describe(&request);
        state.pending.insert(id, Pending { request, value, answer });
        state.unsent.push_back(Unsent::Pending(id));
        self.unsent.notify_one();
        Ok(Asked { shared: self, id, what })
    }

    fn add_watch(&self, prefix: &str, queue: &Arc<Queue<Event>>) -> u64 {
        let mut state = self.lock();
        state.prune_watches();
        state.last_id += 1;
        let watch = state.last_id;
        let slot = WatchSlot {
            prefix: prefix.to_owned(),
            queue: Arc::clone(queue),
            view: View::default(),
            listing: Some(Listing::default()),
        };
        state.watches.insert(watch, slot);
        watch
    }

    /// Everything ends: callers and watches learn the reason. The first reason stays.
    fn end(&self, reason: &Lost) {
        let mut state = self.lock();
        self.lost.send_if_modified(|lost| {
            let first = lost.is_none();
            lost.get_or_insert_with(|| reason.clone());
            first
        });
        let reason = self.why_lost();
        for slot in std::mem::take(&mut state.watches).into_values() {
            slot.queue.close(reason.clone().into());
        }
        // Dropping the answers' senders wakes their callers.
        state.pending.clear();
        state.unsent.clear();
    }

    async fn next_unsent(&self) -> (Request, Bytes) {
        loop {
            let more = self.unsent.notified();
            if let Some(next) = self.lock().take_unsent() {
                return next;
            }
            more.await;
        }
    }
}

impl State {
    /// A lease that was granted after `since`.
    fn new(since: Instant, ttl: Duration) -> Self {
        Self {
            last_id: 0,
            pending: BTreeMap::new(),
            watches: BTreeMap::new(),
            unsent: VecDeque::new(),
            ping: (0, since),
            alive_until: since + ttl,
            leaving: false,
        }
    }

    fn take_unsent(&mut self) -> Option<(Request, Bytes)> {
        loop {
            match self.unsent.pop_front()? {
                Unsent::Free(request) => return Some((request, Bytes::new())),
                // A request whose caller gave up is not there any more.
                Unsent::Pending(id) => {
                    if let Some(pending) = self.pending.get(&id) {
                        return Some((pending.request.clone(), pending.value.clone()));
                    }
                }
            }
        }
    }

    fn prune_watches(&mut self) {
        let ended: Vec<u64> =
            self.watches.iter().filter(|(_, s)| s.queue.is_closed()).map(|(w, _)| *w).collect();
        for watch in ended {
            self.drop_watch(watch);
        }
    }

    fn drop_watch(&mut self, watch: u64) {
        self.watches.remove(&watch);
        self.unsent.push_back(Unsent::Free(Request::Unwatch { watch }));
    }

    /// On a new connection everything unanswered is asked again, and every watch lists again.
    fn start_over(&mut self) {
        self.unsent.clear();
        let asked: Vec<u64> = self
            .pending
            .values()
            .filter_map(|p| match p.request {
                Request::Watch { watch, .. } => Some(watch),
                _ => None,
            })
            .collect();
        for (watch, slot) in &mut self.watches {
            slot.listing = Some(Listing::default());
            if !asked.contains(watch) {
                self.last_id += 1;
                let request = Request::Watch { id: self.last_id, watch: *watch, prefix: slot.prefix.clone() };
                self.unsent.push_back(Unsent::Free(request));
            }
        }
        self.unsent.extend(self.pending.keys().map(|id| Unsent::Pending(*id)));
    }

    /// Takes one message of the server. A reason means that the server closes.
    fn take(&mut self, response: Response, value: Bytes, ttl: Duration) -> Option<String> {
        match response {
            Response::Pong { n } => {
                if self.ping.0 == n {
                    self.alive_until = self.alive_until.max(self.ping.1 + ttl);
                }
            }
            Response::Put { watch, key, rev } => self.with_watch(watch, |slot| slot.put(key, value, rev)),
            Response::Deleted { watch, key, why } => self.with_watch(watch, |slot| {
                let event = slot.view.deleted(key, why.into());
                slot.tell(event)
            }),
            Response::Synced { watch } => self.with_watch(watch, WatchSlot::synced),
            Response::Closing { reason } => return Some(reason),
            Response::Created { id }
            | Response::Exists { id }
            | Response::Found { id }
            | Response::Missing { id }
            | Response::Done { id }
            | Response::Failed { id, .. } => {
                if let Some(pending) = self.pending.remove(&id) {
                    // A caller that gave up meanwhile needs no answer.
                    let _ = pending.answer.send((response, value));
                }
            }
        }
        None
    }

    fn with_watch(&mut self, watch: u64, f: impl FnOnce(&mut WatchSlot) -> bool) {
        let Some(slot) = self.watches.get_mut(&watch) else { return };
        if !f(slot) {
            self.drop_watch(watch);
        }
    }
}

fn describe(request: &Request) -> String {
    match request {
        Request::Put { key, .. } => format!("put {key}"),
        Request::Get { key, .. } => format!("get {key}"),
        Request::Delete { key, .. } => format!("delete {key}"),
        Request::Watch { prefix, .. } => format!("watch {prefix}"),
        Request::Unwatch { .. } => "unwatch".into(),
        Request::Ping { .. } => "ping".into(),
        Request::Leave { .. } => "leave".into(),
    }
}

/// How one connection ended.
enum End {
    Closed(String),
    Broken(String),
}

/// Owns the connection for the whole life of the store.
async fn drive(shared: Arc<Shared>, dial: Dial, mut link: Link) {
    loop {
        let resume = resume_of(&link.welcome);
        let detail = match run(&shared, link).await {
            End::Closed(detail) => {
                return shared.end(&Lost::Closed { place: shared.place.clone(), detail });
            }
            // The server closes the connection of a client that has left. Were it another break, the lease would
            // run out by itself.
            End::Broken(_) if shared.lock().leaving => return shared.end(&Lost::Left),
            End::Broken(detail) => detail,
        };
        let place = shared.place.clone();
        dial.options.observer.tell(&Notice::Reconnecting { place, detail: detail.clone() });
        link = match reconnect(&shared, &dial, &resume, detail).await {
            Ok(link) => link,
            Err(lost) => return shared.end(&lost),
        };
        let mut state = shared.lock();
        state.alive_until = link.since + shared.ttl;
        state.start_over();
        drop(state);
        dial.options.observer.tell(&Notice::Reconnected { place: shared.place.clone() });
    }
}

fn resume_of(welcome: &Welcome) -> Resume {
    Resume { lease: welcome.lease, secret: welcome.secret.clone() }
}

/// Tries until the lease is over, but at least once: after a long pause of this process the
/// server alone knows whether the lease still stands.
async fn reconnect(shared: &Shared, dial: &Dial, resume: &Resume, mut detail: String) -> Result<Link, Lost> {
    let place = || shared.place.clone();
    let alive_until = shared.lock().alive_until;
    let mut limit = alive_until.max(Instant::now() + shared.ttl / 4);
    let mut pause = PAUSES.0;
    loop {
        match timeout_at(limit, dial.once(Some(resume))).await {
            Ok(Ok(link)) => return Ok(link),
            Ok(Err(e @ ConnectError::LeaseGone { .. })) => {
                return Err(Lost::LeaseExpired {
                    place: place(),
                    detail: format!("{e}; before that: {detail}"),
                });
            }
            Ok(Err(e)) if !e.is_transient() => {
                return Err(Lost::Unreachable { place: place(), detail: e.to_string() });
            }
            Ok(Err(e)) => detail = e.to_string(),
            Err(_) => {}
        }
        limit = alive_until;
        if Instant::now() + pause >= limit {
            return Err(Lost::Unreachable { place: place(), detail });
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Runs one connection until it ends.
async fn run(shared: &Shared, link: Link) -> End {
    let Link { mut incoming, mut outgoing, .. } = link;
    tokio::select! {
        end = read_in(shared, &mut incoming) => end,
        end = write_out(shared, &mut outgoing) => end,
        end = watchdog(shared) => end,
    }
}

async fn read_in(shared: &Shared, incoming: &mut Incoming<OwnedReadHalf>) -> End {
    loop {
        match incoming.message::<Response>().await {
            Ok((response, value)) => {
                let closing = shared.lock().take(response, value, shared.ttl);
                if let Some(reason) = closing {
                    return End::Closed(reason);
                }
            }
            Err(e) => return broken(&e),
        }
    }
}

async fn write_out(shared: &Shared, outgoing: &mut Outgoing<OwnedWriteHalf>) -> End {
    let mut next_ping = Instant::now() + shared.ttl / 3;
    loop {
        let (request, value) = tokio::select! {
            biased;
            () = sleep_until(next_ping) => {
                next_ping = Instant::now() + shared.ttl / 3;
                let mut state = shared.lock();
                state.ping = (state.ping.0 + 1, Instant::now());
                (Request::Ping { n: state.ping.0 }, Bytes::new())
            }
            next = shared.next_unsent() => next,
        };
        if let Err(e) = outgoing.send(&request, &value).await {
            return broken(&e);
        }
    }
}

/// Gives a silent connection up while there is still a third of the lease left for a new one.
async fn watchdog(shared: &Shared) -> End {
    loop {
        let limit = shared.lock().alive_until - shared.ttl / 4;
        if Instant::now() >= limit {
            return End::Broken("no answer to the pings".into());
        }
        sleep_until(limit).await;
    }
}

fn broken(error: &LinkError) -> End {
    End::Broken(error.to_string())
}

#[cfg(test)]
mod fuzz;
