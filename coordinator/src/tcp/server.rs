//! The server: a task of the process that hosts the run, usually the target's supervisor.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::frame::FRAME_ROOM;
use super::handshake::{Entrant, Rejection, admit};
use super::link::{Incoming, LinkError, Outgoing};
use super::message::{Refusal, Request, Response, ServerGreeting, Welcome};
use crate::error::{Lost, StoreError};
use crate::hex;
use crate::hub::{Grant, Hub, Keep, Sink};
use crate::key::RunId;
use crate::memory::MemoryStore;
use crate::options::{Notice, Observer, Options, ServerLimits};
use crate::queue::Queue;
use crate::store::{Event, Put};
use crate::token::Token;

/// Lease times that the server grants.
const TTL: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(60));
/// How long a closing connection may take to write out what it still owes.
const DRAIN: Duration = Duration::from_secs(1);
/// Connections above the limit that are told so at one time; further ones are just dropped.
const TURNED_AWAY_AT_ONCE: usize = 4;

/// How to serve.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The run's secret. Without one, only loopback addresses are served.
    pub token: Option<Token>,
    /// Serve this run only; others are told so instead of waiting for a peer that never comes.
    pub run: Option<RunId>,
    /// Who serves, for people: it is shown when the server is lost.
    pub host: String,
    /// How long a stranger may take to prove itself.
    pub handshake_timeout: Duration,
    /// Limits on everything that members cause.
    pub limits: ServerLimits,
    /// Hears of everybody who is turned away.
    pub observer: Observer,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            token: None,
            run: None,
            host: "kvwire".into(),
            handshake_timeout: Duration::from_secs(5),
            limits: ServerLimits::default(),
            observer: Observer::default(),
        }
    }
}

/// Failure to serve.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// A rendezvous without a token is for this host only.
    #[error(
        "{addr} can be reached from other hosts and there is no token: set KVWIRE_TOKEN (or let one be made), or listen on 127.0.0.1 or [::1]"
    )]
    TokenNeeded {
        /// The address asked for.
        addr: SocketAddr,
    },
    /// No address was given.
    #[error("no address to listen on")]
    NoAddress,
    /// The system refused the address.
    #[error("cannot listen on {addr}: {source}")]
    Io {
        /// The address asked for.
        addr: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
}

/// Both ends of a connection: ours, then the member's.
type Ends = (SocketAddr, SocketAddr);

struct Shared {
    hub: Arc<Hub>,
    latest: Arc<Mutex<Option<Ends>>>,
    options: ServerOptions,
    places: Arc<Semaphore>,
    turned_away: Arc<Semaphore>,
    closing: watch::Receiver<Option<String>>,
}

/// A rendezvous server on the current runtime. Dropping it cuts all connections.
#[derive(Debug)]
pub struct TcpServer {
    token: Option<Token>,
    hub: Arc<Hub>,
    latest: Arc<Mutex<Option<Ends>>>,
    addrs: Vec<SocketAddr>,
    acceptors: Vec<JoinHandle<()>>,
    closing: watch::Sender<Option<String>>,
}

impl TcpServer {
    /// Listens on every address given and returns the ones bound, with the ports that the system
    /// chose for port 0.
    ///
    /// # Errors
    /// [`BindError`].
    pub async fn bind(
        addrs: &[SocketAddr],
        options: ServerOptions,
    ) -> Result<(Self, Vec<SocketAddr>), BindError> {
        if addrs.is_empty() {
            return Err(BindError::NoAddress);
        }
        if let Some(addr) = addrs.iter().find(|a| !a.ip().to_canonical().is_loopback())
            && options.token.is_none()
        {
            return Err(BindError::TokenNeeded { addr: *addr });
        }
        let mut listeners = Vec::new();
        let mut bound = Vec::new();
        for addr in addrs {
            let failed = |source| BindError::Io { addr: *addr, source };
            let listener = TcpListener::bind(addr).await.map_err(failed)?;
            bound.push(listener.local_addr().map_err(failed)?);
            listeners.push(listener);
        }
        let (closing, closed) = watch::channel(None);
        let token = options.token.clone();
        let hub = Hub::start(options.limits.clone());
        let latest = Arc::default();
        let shared = Arc::new(Shared {
            hub: Arc::clone(&hub),
            latest: Arc::clone(&latest),
            places: Arc::new(Semaphore::new(options.limits.max_connections)),
            turned_away: Arc::new(Semaphore::new(TURNED_AWAY_AT_ONCE)),
            options,
            closing: closed,
        });
        let acceptors = listeners.into_iter().map(|l| tokio::spawn(accept(l, Arc::clone(&shared)))).collect();
        Ok((Self { token, hub, latest, addrs: bound.clone(), acceptors, closing }, bound))
    }

    /// The secret that clients must know, to be told to them by other means.
    #[must_use]
    pub fn token(&self) -> Option<&Token> {
        self.token.as_ref()
    }

    /// Joins a run of this server from within its own process, without a connection.
    ///
    /// # Errors
    /// [`StoreError::Full`].
    pub fn local(&self, run: &RunId, options: &Options) -> Result<MemoryStore, StoreError> {
        let place = self.addrs.first().map_or_else(String::new, |a| format!("tcp://{a} (in this process)"));
        MemoryStore::join(&self.hub, run, options.lease_ttl, place)
    }

    /// The connection of the member that came in last: our own address, and the member's.
    #[must_use]
    pub fn latest(&self) -> Option<(SocketAddr, SocketAddr)> {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells every member that the server closes, and why, then closes. Takes at most 2 s.
    pub async fn close(mut self, reason: &str) {
        self.closing.send_replace(Some(reason.to_owned()));
        for acceptor in std::mem::take(&mut self.acceptors) {
            let abort = acceptor.abort_handle();
            if tokio::time::timeout(2 * DRAIN, acceptor).await.is_err() {
                abort.abort();
            }
        }
    }
}

impl Drop for TcpServer {
    fn drop(&mut self) {
        for acceptor in &self.acceptors {
            acceptor.abort();
        }
    }
}

/// Owns the connections of one listener: they end with it.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    let mut closing = shared.closing.clone();
    loop {
        tokio::select! {
            _ = closed(&mut closing) => break,
            _ = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => {
                    connections.spawn(welcome_or_not(stream, from, Arc::clone(&shared)));
                }
                // Out of descriptors or the like: the listener still stands, and trying again
                // at once would only spin.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Resolves with the reason when the server closes.
async fn closed(closing: &mut watch::Receiver<Option<String>>) -> String {
    let reason = closing.wait_for(Option::is_some).await;
    reason.ok().and_then(|r| r.clone()).unwrap_or_default()
}

async fn welcome_or_not(stream: TcpStream, from: SocketAddr, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let here = stream.local_addr();
    let (reader, writer) = stream.into_split();
    let (mut incoming, mut outgoing) = (Incoming::new(reader), Outgoing::new(writer));
    let Ok(_place) = Arc::clone(&shared.places).try_acquire_owned() else {
        if let Ok(_slot) = Arc::clone(&shared.turned_away).try_acquire_owned() {
            let text = format!("at most {} connections", shared.options.limits.max_connections);
            turn_away(&mut incoming, &mut outgoing, &Rejection::new(Refusal::Full, text)).await;
        }
        return;
    };
    let deadline = shared.options.handshake_timeout;
    let entering = enter(&mut incoming, &mut outgoing, &shared);
    let rejection = match tokio::time::timeout(deadline, entering).await {
        Ok(Ok(grant)) => {
            let ends = here.ok().map(|here| (here, from));
            *shared.latest.lock().unwrap_or_else(PoisonError::into_inner) = ends;
            return serve(incoming, outgoing, grant, &shared).await;
        }
        Ok(Err(rejection)) => rejection,
        Err(_) => {
            Rejection::new(Refusal::Malformed, format!("no handshake within {} ms", deadline.as_millis()))
        }
    };
    let notice = Notice::Rejected { from, why: rejection.text.clone() };
    shared.options.observer.tell(&notice);
    turn_away(&mut incoming, &mut outgoing, &rejection).await;
}

/// Says why, then reads until the client closes: closing with unread bytes would reset the
/// connection and could destroy the very answer.
async fn turn_away(
    incoming: &mut Incoming<OwnedReadHalf>,
    outgoing: &mut Outgoing<OwnedWriteHalf>,
    why: &Rejection,
) {
    let farewell = async {
        why.send(outgoing).await;
        while incoming.frame().await.is_ok() {}
    };
    let _ = tokio::time::timeout(DRAIN, farewell).await;
}

/// Handshake and lease.
async fn enter(
    incoming: &mut Incoming<OwnedReadHalf>,
    outgoing: &mut Outgoing<OwnedWriteHalf>,
    shared: &Shared,
) -> Result<Grant, Rejection> {
    let options = &shared.options;
    let entrant = admit(incoming, outgoing, options.token.as_ref()).await?;
    if let Some(run) = options.run.as_ref().filter(|r| **r != entrant.run) {
        return Err(Rejection::new(
            Refusal::OtherRun,
            format!("this rendezvous serves run {run}, not {}", entrant.run),
        ));
    }
    let ttl = Duration::from_millis(entrant.ttl_ms).clamp(TTL.0, TTL.1);
    let grant = lease(&shared.hub, &entrant, ttl)?;
    let welcome = ServerGreeting::Welcome(Welcome {
        proof: entrant.proof,
        lease: grant.id,
        secret: hex::encode(&grant.secret),
        ttl_ms: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
        max_value: options.limits.max_value,
        host: options.host.clone(),
    });
    let lost = |e: LinkError| Rejection::new(Refusal::Malformed, e.to_string());
    outgoing.send(&welcome, &[]).await.map_err(lost)?;
    incoming.upgrade(options.limits.max_value + FRAME_ROOM, entrant.seals.client);
    outgoing.upgrade(entrant.seals.server);
    Ok(grant)
}

fn lease(hub: &Hub, entrant: &Entrant, ttl: Duration) -> Result<Grant, Rejection> {
    match &entrant.resume {
        Some(resume) => hex::decode(&resume.secret)
            .and_then(|secret| hub.resume(&entrant.run, resume.lease, &secret))
            .ok_or_else(|| Rejection::new(Refusal::LeaseGone, "the lease to resume has ended")),
        None => hub
            .grant(&entrant.run, ttl, Keep::Renewed)
            .map_err(|e| Rejection::new(Refusal::Full, e.to_string())),
    }
}

type Answers = Queue<(Response, Bytes)>;

fn answer(queue: &Answers, response: Response, value: Bytes) -> bool {
    // The header's own size is small and is covered by counting a little for each.
    let size = value.len() + 128;
    queue.push((response, value), size)
}

/// How a member's connection ended.
enum End {
    /// It said goodbye, or the server closes: what is owed is still written.
    Drain,
    /// It broke.
    Cut,
}

async fn serve(
    mut incoming: Incoming<OwnedReadHalf>,
    mut outgoing: Outgoing<OwnedWriteHalf>,
    grant: Grant,
    shared: &Shared,
) {
    let queue = Arc::new(Answers::new());
    let mut closing = shared.closing.clone();
    {
        let mut writer = std::pin::pin!(write_out(&mut outgoing, &queue));
        let end = tokio::select! {
            end = read_in(&mut incoming, &queue, grant, &shared.hub) => end,
            () = &mut writer => End::Cut,
            reason = closed(&mut closing) => {
                answer(&queue, Response::Closing { reason }, Bytes::new());
                End::Drain
            }
        };
        queue.close(Lost::Left.into());
        if let End::Drain = end {
            let _ = tokio::time::timeout(DRAIN, writer).await;
        }
    }
    outgoing.finish().await;
}

async fn write_out(outgoing: &mut Outgoing<OwnedWriteHalf>, queue: &Answers) {
    while let Ok((response, value)) = queue.pop().await {
        if outgoing.send(&response, &value).await.is_err() {
            return;
        }
    }
}

async fn read_in(
    incoming: &mut Incoming<OwnedReadHalf>,
    queue: &Arc<Answers>,
    grant: Grant,
    hub: &Hub,
) -> End {
    let mut member = Member { hub, grant, queue, watches: Vec::new() };
    loop {
        let Ok((request, value)) = incoming.message::<Request>().await else {
            return End::Cut;
        };
        if !hub.renew(grant.id, grant.epoch) {
            return End::Cut;
        }
        let leaving = matches!(request, Request::Leave { .. });
        if !member.handle(request, value) {
            return End::Cut;
        }
        if leaving {
            return End::Drain;
        }
    }
}

struct Member<'a> {
    hub: &'a Hub,
    grant: Grant,
    queue: &'a Arc<Answers>,
    watches: Vec<Arc<WatchSink>>,
}

impl Member<'_> {
    /// False when the connection can no longer answer.
    fn handle(&mut self, request: Request, value: Bytes) -> bool {
        let (hub, lease) = (self.hub, self.grant.id);
        let (response, value) = match request {
            Request::Put { id, key } => match hub.put_if_absent(lease, &key, value) {
                Ok(Put::Created) => (Response::Created { id }, Bytes::new()),
                Ok(Put::Exists(value)) => (Response::Exists { id }, value),
                Err(e) => failed(id, e),
            },
            Request::Get { id, key } => match hub.get(lease, &key) {
                Ok(Some(value)) => (Response::Found { id }, value),
                Ok(None) => (Response::Missing { id }, Bytes::new()),
                Err(e) => failed(id, e),
            },
            Request::Delete { id, key } => done(id, hub.delete(lease, &key)),
            Request::Watch { id, watch, prefix } => done(id, self.watch(watch, &prefix)),
            Request::Unwatch { watch } => {
                self.unwatch(watch);
                return true;
            }
            Request::Ping { n } => (Response::Pong { n }, Bytes::new()),
            Request::Leave { id } => {
                hub.leave(lease);
                done(id, Ok(()))
            }
        };
        answer(self.queue, response, value)
    }

    fn watch(&mut self, watch: u64, prefix: &str) -> Result<(), StoreError> {
        let sink =
            Arc::new(WatchSink { watch, queue: Arc::clone(self.queue), ended: AtomicBool::new(false) });
        self.hub.watch(self.grant.id, prefix, Arc::clone(&sink) as _)?;
        self.watches.push(sink);
        Ok(())
    }

    fn unwatch(&mut self, watch: u64) {
        self.watches.retain(|sink| {
            let ends = sink.watch == watch;
            if ends {
                sink.ended.store(true, Ordering::Relaxed);
            }
            !ends
        });
    }
}

fn done(id: u64, result: Result<(), StoreError>) -> (Response, Bytes) {
    match result {
        Ok(()) => (Response::Done { id }, Bytes::new()),
        Err(e) => failed(id, e),
    }
}

fn failed(id: u64, error: StoreError) -> (Response, Bytes) {
    (Response::Failed { id, error: error.into() }, Bytes::new())
}

/// Puts the events of one watch on its member's connection.
struct WatchSink {
    watch: u64,
    queue: Arc<Answers>,
    ended: AtomicBool,
}

impl Sink for WatchSink {
    fn offer(&self, event: &Event, rev: u64) -> bool {
        if self.ended.load(Ordering::Relaxed) {
            return false;
        }
        let watch = self.watch;
        match event.clone() {
            Event::Put { key, value } => answer(&self.queue, Response::Put { watch, key, rev }, value),
            Event::Deleted { key, why } => {
                answer(&self.queue, Response::Deleted { watch, key, why: why.into() }, Bytes::new())
            }
        }
    }

    fn synced(&self) -> bool {
        answer(&self.queue, Response::Synced { watch: self.watch }, Bytes::new())
    }

    fn is_closed(&self) -> bool {
        self.ended.load(Ordering::Relaxed) || self.queue.is_closed()
    }
}

#[cfg(test)]
mod fuzz;
