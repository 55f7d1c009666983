//! The two roles of a run, each with an ordered mailbox to the other.
//!
//! Keys below the run, all under their writer's lease:
//! ```text
//! <role>/presence     who holds the role; its disappearance is the end of that process
//! <role>/msg/<n>      message n; the first is the hello
//! <role>/ack/<n>      this role has read n messages (mostly a message says so by the way)
//! <role>/bye          goodbye, with the reason;  <role>/bye-ack  the other's goodbye was read
//! blob/<role>/<n>     body of message n where it is larger than one value
//! ```

mod claim;
mod error;
mod mail;
mod pump;
mod wire;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

pub use claim::Claim;
pub use error::{JoinError, PeerError, SendError};

use crate::error::StoreError;
use crate::options::Options;
use crate::store::{Event, Put, Store};
use mail::Mail;
use wire::{Presence, key};

/// What a process is in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Owns the regions that the other side reads or writes.
    Target,
    /// Posts the transfers and owns the plan.
    Initiator,
}

impl Role {
    /// The other role.
    #[must_use]
    pub fn peer(self) -> Self {
        match self {
            Self::Target => Self::Initiator,
            Self::Initiator => Self::Target,
        }
    }

    /// `target` or `initiator`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Target => "target",
            Self::Initiator => "initiator",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The other side, as it introduced itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its identity in one line, for people.
    pub who: String,
    /// Its hello.
    pub hello: Bytes,
}

/// A role held in a run, with the peer on the other side.
///
/// Dropping it without [`leave`](Self::leave) stops reading the peer's messages; the role itself
/// is given up with the store's lease.
#[derive(Debug)]
pub struct Session {
    role: Role,
    store: Arc<dyn Store>,
    mail: Arc<Mail>,
    pump: JoinHandle<()>,
    options: Options,
}

impl Session {
    /// Takes `role` in the store's run, says `hello`, and waits for the peer's hello: all steps of [`Claim`] in one.
    /// On failure the store is left.
    ///
    /// # Errors
    /// As [`Self::claim`], [`Claim::peer`] and [`Claim::hello`].
    pub async fn join(
        store: Arc<dyn Store>,
        role: Role,
        who: &str,
        hello: Bytes,
        options: &Options,
    ) -> Result<(Self, Peer), JoinError> {
        let joining = async {
            let claim = Self::claim(Arc::clone(&store), role, who, hello, options).await?;
            claim.peer().await?;
            claim.hello().await
        };
        match joining.await {
            Ok(joined) => Ok(joined),
            Err(error) => {
                // The lease would run out by itself; leaving only frees what we claimed at once.
                let _ = store.leave().await;
                Err(error)
            }
        }
    }

    /// Takes `role` in the store's run and begins to say `hello`. Start order does not matter.
    ///
    /// `who` says in one line which process this is, and not its role (`on node7 (process 12)`); it is what a
    /// second claimant of the role and the peer's error messages show.
    ///
    /// # Errors
    /// [`JoinError::RoleTaken`] names who holds the role; [`JoinError::Store`].
    pub async fn claim(
        store: Arc<dyn Store>,
        role: Role,
        who: &str,
        hello: Bytes,
        options: &Options,
    ) -> Result<Claim, JoinError> {
        let deadline = Instant::now() + options.join_timeout;
        claim(store.as_ref(), role, who, options).await?;
        let mail = Arc::new(Mail::new(role, Arc::clone(&store)));
        let watch = store.watch(&format!("{}/", role.peer())).await?;
        // A peer that is dying is known to be dead sooner than one that only says nothing.
        let pump = tokio::spawn(pump::run(Arc::clone(&mail), watch, options.peer_patience / 2));
        let outgoing = Arc::clone(&mail);
        let hello = tokio::spawn(async move { outgoing.send(hello).await });
        let session = Self { role, store, mail, pump, options: options.clone() };
        Ok(Claim { session, hello, deadline })
    }

    /// Gives up a role that this process has claimed and whose session did not come about: says why in a goodbye, and
    /// leaves the store.
    ///
    /// # Errors
    /// [`StoreError`] when the store could not be told; the lease then runs out by itself.
    pub async fn give_up(store: &dyn Store, role: Role, reason: &str) -> Result<(), StoreError> {
        let said = store.put_if_absent(&key(role, "bye"), wire::bye(reason)).await;
        let left = store.leave().await;
        said.map(drop).and(left)
    }

    /// The role held.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// The store underneath, for blobs and keys of the caller's own (not below `target/`,
    /// `initiator/` or `blob/`).
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Sends one message of up to 64 MiB: it is stored when this returns. Waits while the peer is
    /// 32 messages behind. A caller that gives up does not stop it: the message is
    /// sent all the same. After a failed send the session cannot send any more.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn send(&self, message: Bytes) -> Result<(), SendError> {
        self.mail.send(message).await
    }

    /// The peer's next message. Cancel-safe.
    ///
    /// # Errors
    /// [`PeerError`] as soon as the peer or the store is gone, after the messages that came before.
    pub async fn recv(&self) -> Result<Bytes, PeerError> {
        self.mail.recv().await
    }

    /// Resolves when the peer or the store is gone, unread messages or not. Cancel-safe; made to
    /// stand in a `select!` beside long work.
    pub async fn ended(&self) -> PeerError {
        self.mail.ended().await
    }

    /// Says goodbye with a reason, waits until the peer has read it (at most
    /// [`Options::leave_linger`]), and leaves the store. Messages sent before are delivered first.
    ///
    /// # Errors
    /// [`StoreError`] when the goodbye could not be stored; the peer then sees this process expire.
    pub async fn leave(self, reason: &str) -> Result<(), StoreError> {
        let said = self.say_goodbye(reason).await;
        let left = self.store.leave().await;
        if self.mail.has_ended() {
            // The peer is gone already: nobody is left to be misled.
            return Ok(());
        }
        said.and(left)
    }

    async fn say_goodbye(&self, reason: &str) -> Result<(), StoreError> {
        if self.mail.has_ended() {
            return Ok(());
        }
        // Nothing comes after the goodbye: a message that is still being sent goes first.
        let _ = timeout(self.options.leave_linger, self.mail.settled()).await;
        self.store.put_if_absent(&key(self.role, "bye"), wire::bye(reason)).await?;
        // A peer that does not read is no reason to stay.
        let _ = timeout(self.options.leave_linger, self.mail.bye_was_read()).await;
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.pump.abort();
    }
}

/// Claims the role, waiting up to `role_wait` for its present holder to go.
async fn claim(store: &dyn Store, role: Role, who: &str, options: &Options) -> Result<(), JoinError> {
    let presence = key(role, "presence");
    let value = Presence::of(who).encode();
    let deadline = Instant::now() + options.role_wait;
    loop {
        let holder = match store.put_if_absent(&presence, value.clone()).await? {
            Put::Created => return Ok(()),
            Put::Exists(holder) => Presence::decode(&holder).who,
        };
        if timeout_at(deadline, vacated(store, &presence)).await.is_err() {
            return Err(JoinError::RoleTaken { role, holder, lease: options.lease_ttl });
        }
    }
}

async fn vacated(store: &dyn Store, presence: &str) -> Result<(), StoreError> {
    let mut watch = store.watch(presence).await?;
    // The holder may have gone between our attempt and this watch.
    if store.get(presence).await?.is_none() {
        return Ok(());
    }
    loop {
        if let Event::Deleted { key, .. } = watch.next().await?
            && key == presence
        {
            return Ok(());
        }
    }
}
