//! The task that follows the peer's keys: it delivers messages, acknowledges, notices the end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use super::error::PeerError;
use super::mail::Mail;
use super::wire::{self, Presence, VERSION, blob_name, key};
use crate::blob::get_blob;
use crate::error::StoreError;
use crate::store::{Event, Watch, Why};

/// Why the pump stops.
enum Stop {
    Peer(PeerError),
    Store(StoreError),
    /// Something of the peer is unreadable. If the peer is just dying this will be explained by
    /// the end of its lease, so that is waited for.
    Unreadable(String),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Blob { .. } => Self::Unreadable(error.to_string()),
            other => Self::Store(other),
        }
    }
}

struct Pump {
    mail: Arc<Mail>,
    watch: Watch,
    /// Prefix of the peer's keys.
    prefix: String,
    last_ack: Option<String>,
}

pub(crate) async fn run(mail: Arc<Mail>, watch: Watch, patience: Duration) {
    let prefix = format!("{}/", mail.role.peer());
    let mut pump = Pump { mail, watch, prefix, last_ack: None };
    let stop = pump.follow().await;
    let reason = pump.explain(stop, patience).await;
    pump.mail.finish(reason);
}

impl Pump {
    async fn follow(&mut self) -> Stop {
        loop {
            let step = match self.watch.next().await {
                Ok(event) => self.step(event).await,
                Err(error) => Err(error.into()),
            };
            if let Err(stop) = step {
                return stop;
            }
        }
    }

    async fn explain(&mut self, stop: Stop, patience: Duration) -> PeerError {
        match stop {
            Stop::Peer(error) => error,
            Stop::Store(reason) => PeerError::ControlPlane { reason },
            Stop::Unreadable(detail) => match timeout(patience, self.peer_gone()).await {
                Ok(error) => error,
                Err(_) => PeerError::Protocol { who: self.mail.peer(), detail },
            },
        }
    }

    async fn peer_gone(&mut self) -> PeerError {
        let presence = format!("{}presence", self.prefix);
        loop {
            match self.watch.next().await {
                Ok(Event::Deleted { key, why }) if key == presence => return self.lost(why),
                Ok(_) => {}
                Err(reason) => return PeerError::ControlPlane { reason },
            }
        }
    }

    fn lost(&self, why: Why) -> PeerError {
        PeerError::Lost { who: self.mail.peer(), why }
    }

    async fn step(&mut self, event: Event) -> Result<(), Stop> {
        let name = event.key().strip_prefix(&self.prefix).unwrap_or_default().to_owned();
        match event {
            Event::Put { value, .. } => self.put(&name, value).await,
            Event::Deleted { why, .. } if name == "presence" => Err(Stop::Peer(self.lost(why))),
            Event::Deleted { .. } => Ok(()),
        }
    }

    async fn put(&mut self, name: &str, value: Bytes) -> Result<(), Stop> {
        match name.split_once('/') {
            None if name == "presence" => self.presence(&value),
            None if name == "bye" => Err(self.bye(&value).await),
            None if name == "bye-ack" => {
                self.mail.bye_read();
                Ok(())
            }
            Some(("msg", n)) => self.message(number(n)?, value).await,
            Some(("ack", n)) => Ok(self.mail.read_by_peer(number(n)?).await?),
            // A newer peer may have keys that this one does not know.
            _ => Ok(()),
        }
    }

    fn presence(&self, value: &[u8]) -> Result<(), Stop> {
        let presence = Presence::decode(value);
        self.mail.set_peer(presence.who);
        if presence.session == VERSION {
            return Ok(());
        }
        let who = self.mail.peer();
        Err(Stop::Peer(PeerError::OtherVersion { who, ours: VERSION, theirs: presence.session }))
    }

    async fn bye(&self, value: &[u8]) -> Stop {
        let left = PeerError::Left { who: self.mail.peer(), reason: wire::read_bye(value) };
        // The reader first; the answer only spares the leaving peer a wait.
        self.mail.finish(left.clone());
        let _ = self.mail.store.put_if_absent(&key(self.mail.role, "bye-ack"), Bytes::new()).await;
        Stop::Peer(left)
    }

    async fn message(&mut self, n: u64, value: Bytes) -> Result<(), Stop> {
        let expected = self.mail.received();
        if n < expected {
            // Told again after a reconnect.
            return Ok(());
        }
        if n > expected {
            return Err(Stop::Unreadable(format!("message {n} came where {expected} was due")));
        }
        let Some((head, payload)) = wire::decode(&value) else {
            return Err(Stop::Unreadable(format!("message {n} has no head")));
        };
        let payload = if head.blob { self.fetch(n).await? } else { payload };
        let soon = self.mail.deliver(payload, head.blob);
        self.mail.read_by_peer(head.ack).await?;
        if soon {
            self.mail.acknowledge(&mut self.last_ack).await?;
        }
        Ok(())
    }

    async fn fetch(&self, n: u64) -> Result<Bytes, Stop> {
        let name = blob_name(self.mail.role.peer(), n);
        let blob = get_blob(self.mail.store.as_ref(), &name).await?;
        blob.ok_or_else(|| Stop::Unreadable(format!("the body of message {n} is missing")))
    }
}

fn number(text: &str) -> Result<u64, Stop> {
    text.parse().map_err(|_| Stop::Unreadable(format!("{text:?} is no message number")))
}
