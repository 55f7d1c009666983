//! State of one mailbox pair, shared between the caller and the pump.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;

use super::Role;
use super::error::{PeerError, SendError};
use super::wire::{self, HEAD_ROOM, Head, blob_name, key, message_key};
use crate::blob::{delete_blob, put_blob};
use crate::error::{Lost, StoreError};
use crate::queue::Queue;
use crate::store::{Put, Store};

/// Messages that may be unread by the peer.
pub(crate) const WINDOW: usize = 32;
/// Bytes that may be unread by the peer: any one message fits, and two together stay far below
/// what a server holds for one run.
const WINDOW_BYTES: usize = 96 << 20;

/// A message that the peer has not acknowledged.
struct Unread {
    n: u64,
    size: usize,
    blob: bool,
}

#[derive(Default)]
struct Books {
    unread: VecDeque<Unread>,
    /// Messages of the peer that were put into the inbox.
    received: u64,
    /// What the peer was last told of `received`.
    told: u64,
}

pub(crate) struct Mail {
    pub(crate) role: Role,
    pub(crate) store: Arc<dyn Store>,
    inbox: Queue<Bytes>,
    books: Mutex<Books>,
    /// Identity of the peer, once it is there.
    peer: watch::Sender<Option<String>>,
    /// Own messages that the peer has read.
    acked: watch::Sender<u64>,
    bye_read: watch::Sender<bool>,
    end: watch::Sender<Option<PeerError>>,
    /// Number of the next message; held while one is being sent, so that they stay in order.
    next: Arc<tokio::sync::Mutex<u64>>,
}

impl std::fmt::Debug for Mail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mail").field("role", &self.role).finish_non_exhaustive()
    }
}

impl Mail {
    pub(crate) fn new(role: Role, store: Arc<dyn Store>) -> Self {
        Self {
            role,
            store,
            inbox: Queue::new(),
            books: Mutex::default(),
            peer: watch::Sender::new(None),
            acked: watch::Sender::new(0),
            bye_read: watch::Sender::new(false),
            end: watch::Sender::new(None),
            next: Arc::default(),
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message that has begun to be sent is sent to its end, also when the caller gives up: half of one would leave
    /// no way to say why.
    pub(crate) async fn send(self: &Arc<Self>, message: Bytes) -> Result<(), SendError> {
        let mut next = Arc::clone(&self.next).lock_owned().await;
        let mail = Arc::clone(self);
        let sending = tokio::spawn(async move {
            tokio::select! {
                biased;
                end = mail.ended() => Err(SendError::from(end)),
                sent = mail.store_message(*next, message) => {
                    sent?;
                    *next += 1;
                    Ok(())
                }
            }
        });
        // It neither panics nor is aborted, but when the event loop ends.
        sending.await.unwrap_or_else(|_| Err(StoreError::from(Lost::Left).into()))
    }

    /// Waits until no message is on its way.
    pub(crate) async fn settled(&self) {
        drop(self.next.lock().await);
    }

    async fn store_message(&self, n: u64, message: Bytes) -> Result<(), StoreError> {
        let size = message.len();
        let blob = size + HEAD_ROOM > self.store.max_value();
        self.wait_for_room(size).await;
        if blob {
            put_blob(self.store.as_ref(), &blob_name(self.role, n), &message).await?;
        }
        let head = Head { ack: self.ack_by_the_way(), blob };
        let value = wire::encode(head, if blob { &[] } else { &message });
        // Before the put: the acknowledgement may come before the put's own answer.
        self.books().unread.push_back(Unread { n, size, blob });
        let name = message_key(self.role, n);
        match self.store.put_if_absent(&name, value).await? {
            Put::Created => Ok(()),
            Put::Exists(_) => Err(StoreError::Backend {
                what: format!("put {name}"),
                detail: "an earlier message under this number was not sent to the end".into(),
            }),
        }
    }

    fn ack_by_the_way(&self) -> u64 {
        let mut books = self.books();
        books.told = books.received;
        books.told
    }

    async fn wait_for_room(&self, size: usize) {
        let mut acked = self.acked.subscribe();
        loop {
            acked.mark_unchanged();
            if self.has_room(size) {
                return;
            }
            // The sender lives in self, so this cannot fail; the caller watches for the end.
            let _ = acked.changed().await;
        }
    }

    fn has_room(&self, size: usize) -> bool {
        let books = self.books();
        let bytes: usize = books.unread.iter().map(|u| u.size).sum();
        books.unread.is_empty() || (books.unread.len() < WINDOW && bytes + size <= WINDOW_BYTES)
    }

    pub(crate) async fn recv(&self) -> Result<Bytes, PeerError> {
        match self.inbox.pop().await {
            Ok(message) => Ok(message),
            Err(_) => Err(self.ended().await),
        }
    }

    /// A message of the peer. Returns whether the peer must be told soon that it was read: it has
    /// used up half of its window, or the message was large.
    pub(crate) fn deliver(&self, message: Bytes, large: bool) -> bool {
        let size = message.len();
        if !self.inbox.push(message, size) {
            // Only a peer that ignores the window gets here.
            self.finish(PeerError::Protocol {
                who: self.peer(),
                detail: "more messages than the window allows".into(),
            });
        }
        let mut books = self.books();
        books.received += 1;
        large || books.received - books.told >= WINDOW as u64 / 2
    }

    /// How many messages of the peer were delivered.
    pub(crate) fn received(&self) -> u64 {
        self.books().received
    }

    /// Tells the peer by a key of its own how much was read.
    pub(crate) async fn acknowledge(&self, last: &mut Option<String>) -> Result<(), StoreError> {
        let name = key(self.role, &format!("ack/{}", self.ack_by_the_way()));
        self.store.put_if_absent(&name, Bytes::new()).await?;
        if let Some(old) = last.replace(name.clone()).filter(|old| *old != name) {
            self.store.delete(&old).await?;
        }
        Ok(())
    }

    /// The peer has read `count` messages: they are deleted, which makes room.
    pub(crate) async fn read_by_peer(&self, count: u64) -> Result<(), StoreError> {
        loop {
            let Some(unread) = self.pop_read(count) else { return Ok(()) };
            self.acked.send_replace(count);
            self.store.delete(&message_key(self.role, unread.n)).await?;
            if unread.blob {
                delete_blob(self.store.as_ref(), &blob_name(self.role, unread.n)).await?;
            }
        }
    }

    fn pop_read(&self, count: u64) -> Option<Unread> {
        let mut books = self.books();
        if books.unread.front()?.n < count { books.unread.pop_front() } else { None }
    }

    pub(crate) fn set_peer(&self, who: String) {
        self.peer.send_replace(Some(who));
    }

    pub(crate) fn peer_who(&self) -> Option<String> {
        self.peer.borrow().clone()
    }

    /// Resolves with the peer's identity when it is there, or has been.
    pub(crate) async fn peer_came(&self) -> String {
        let mut peer = self.peer.subscribe();
        let who = peer.wait_for(Option::is_some).await;
        // The sender lives in self, so that this cannot fail.
        who.ok().and_then(|who| who.clone()).unwrap_or_default()
    }

    /// Role and identity of the peer, as far as known.
    pub(crate) fn peer(&self) -> String {
        let role = self.role.peer();
        self.peer_who().map_or_else(|| role.to_string(), |who| format!("{role} {who}"))
    }

    pub(crate) fn bye_read(&self) {
        self.bye_read.send_replace(true);
    }

    /// Resolves when the peer has read our goodbye, or is not there to read it.
    pub(crate) async fn bye_was_read(&self) {
        let mut read = self.bye_read.subscribe();
        tokio::select! {
            _ = read.wait_for(|read| *read) => {}
            _ = self.ended() => {}
        }
    }

    /// The end, for everybody who waits. The first reason stays.
    pub(crate) fn finish(&self, reason: PeerError) {
        self.end.send_if_modified(|end| {
            let first = end.is_none();
            end.get_or_insert(reason);
            first
        });
        // Readers take the reason from `end`; this only wakes them.
        self.inbox.close(Lost::Left.into());
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.end.borrow().is_some()
    }

    pub(crate) async fn ended(&self) -> PeerError {
        let mut end = self.end.subscribe();
        let reason = end.wait_for(Option::is_some).await;
        let reason = reason.ok().and_then(|r| r.clone());
        reason.unwrap_or(PeerError::ControlPlane { reason: Lost::Left.into() })
    }
}
