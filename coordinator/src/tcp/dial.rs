//! Finding the server: every address of its name, again and again until the join deadline.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Instant, timeout};

use super::frame::FRAME_ROOM;
use super::handshake::{Wish, enter};
use super::link::{Incoming, Outgoing};
use super::message::{Resume, Welcome};
use crate::endpoint::TcpEndpoint;
use crate::error::ConnectError;
use crate::key::RunId;
use crate::options::{Notice, Options};
use crate::token::Token;

/// Values above this are not ours, whatever a server claims.
const MAX_VALUE: usize = 64 << 20;
/// Pause between attempts while waiting for the server to come up: it doubles up to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// How often waiting is told when nothing changes.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// An authenticated connection with its lease.
pub(crate) struct Link {
    pub(crate) incoming: Incoming<OwnedReadHalf>,
    pub(crate) outgoing: Outgoing<OwnedWriteHalf>,
    pub(crate) welcome: Welcome,
    /// Before the server can have started to count the lease's time.
    pub(crate) since: Instant,
}

/// Where and as whom to connect.
pub(crate) struct Dial {
    pub(crate) endpoint: TcpEndpoint,
    pub(crate) run: RunId,
    pub(crate) options: Options,
}

impl Dial {
    fn token(&self) -> Option<&Token> {
        self.endpoint.token.as_ref()
    }

    pub(crate) fn place(&self) -> String {
        format!("tcp://{}", self.endpoint.authority())
    }

    /// Tries until the join deadline; what waiting cannot cure ends it at once.
    pub(crate) async fn join(&self) -> Result<Link, ConnectError> {
        let start = Instant::now();
        let deadline = start + self.options.join_timeout;
        let mut pause = PAUSES.0;
        let mut told: Option<(ConnectError, Instant)> = None;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let error = match self.once(None).await {
                Ok(link) => return Ok(link),
                Err(error) if !error.is_transient() => return Err(error),
                Err(error) => error,
            };
            let now = Instant::now();
            if now + pause >= deadline {
                return Err(ConnectError::Deadline { waited: now - start, attempts, last: Box::new(error) });
            }
            if told.as_ref().is_none_or(|(last, at)| *last != error || now - *at >= TELL_EVERY) {
                self.options.observer.tell(&Notice::Waiting {
                    place: self.place(),
                    error: error.clone(),
                    waited: now - start,
                    left: deadline - now,
                });
                told = Some((error, now));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Tries every address once. The error that says most is kept: one that waiting cannot cure.
    pub(crate) async fn once(&self, resume: Option<&Resume>) -> Result<Link, ConnectError> {
        let mut worst: Option<ConnectError> = None;
        for addr in self.resolve().await? {
            match self.attempt(addr, resume).await {
                Ok(link) => return Ok(link),
                Err(e) if worst.as_ref().is_none_or(ConnectError::is_transient) => worst = Some(e),
                Err(_) => {}
            }
        }
        Err(worst.unwrap_or_else(|| self.unresolved("it has no address")))
    }

    fn unresolved(&self, detail: &str) -> ConnectError {
        ConnectError::Resolve { host: self.endpoint.host.clone(), detail: detail.to_owned() }
    }

    async fn resolve(&self) -> Result<Vec<SocketAddr>, ConnectError> {
        let target = (self.endpoint.host.as_str(), self.endpoint.port);
        match timeout(self.options.connect_timeout, tokio::net::lookup_host(target)).await {
            Ok(Ok(addrs)) => Ok(addrs.collect()),
            Ok(Err(e)) => Err(self.unresolved(&e.to_string())),
            Err(_) => Err(self.unresolved("the resolver did not answer in time")),
        }
    }

    async fn attempt(&self, addr: SocketAddr, resume: Option<&Resume>) -> Result<Link, ConnectError> {
        let name = addr.to_string();
        let limit = self.options.connect_timeout;
        let late = |step| ConnectError::Timeout { addr: name.clone(), step, after: limit };
        let stream = timeout(limit, TcpStream::connect(addr))
            .await
            .map_err(|_| late("connecting; a firewall that drops packets looks like this"))?
            .map_err(|e| connect_error(&name, &e))?;
        let _ = stream.set_nodelay(true);
        let (reader, writer) = stream.into_split();
        let (mut incoming, mut outgoing) = (Incoming::new(reader), Outgoing::new(writer));
        let since = Instant::now();
        let wish = Wish {
            addr: &name,
            run: &self.run,
            token: self.token(),
            ttl_ms: u64::try_from(self.options.lease_ttl.as_millis()).unwrap_or(u64::MAX),
            resume: resume.cloned(),
        };
        let (welcome, seals) = timeout(limit, enter(&mut incoming, &mut outgoing, wish))
            .await
            .map_err(|_| late("waiting for its greeting; it may not be a kvwire rendezvous"))??;
        incoming.upgrade(welcome.max_value.min(MAX_VALUE) + FRAME_ROOM, seals.server);
        outgoing.upgrade(seals.client);
        Ok(Link { incoming, outgoing, welcome, since })
    }
}

fn connect_error(addr: &str, error: &std::io::Error) -> ConnectError {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => ConnectError::Refused { addr: addr.into() },
        _ => ConnectError::Io { addr: addr.into(), detail: error.to_string() },
    }
}
