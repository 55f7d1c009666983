//! A role that is held while the peer is waited for: first until it is there, then until it has said hello.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::error::{JoinError, PeerError, SendError};
use super::{Peer, Session};
use crate::error::{Lost, StoreError};
use crate::options::Notice;

/// A wait for the peer that is not told.
const QUIET_WAIT: Duration = Duration::from_millis(500);

/// A role that is held; the peer has not been met yet.
///
/// Dropping it gives the role up with the store's lease; leaving the store does so at once.
#[derive(Debug)]
pub struct Claim {
    pub(super) session: Session,
    /// Our hello on its way.
    pub(super) hello: JoinHandle<Result<(), SendError>>,
    pub(super) deadline: Instant,
}

impl Claim {
    /// Waits until the other role is taken, and gives the identity of who has it.
    ///
    /// # Errors
    /// [`JoinError::NoPeer`] after [`Options::join_timeout`](crate::Options::join_timeout); [`JoinError::Store`].
    pub async fn peer(&self) -> Result<String, JoinError> {
        let who = self.peer_in_time().await?;
        let role = self.session.role.peer().as_str();
        self.session.options.observer.tell(&Notice::PeerCame { role, who: who.clone() });
        Ok(who)
    }

    async fn peer_in_time(&self) -> Result<String, JoinError> {
        // A peer that is there answers at once: only a real wait is worth a word.
        let quiet = self.deadline.min(Instant::now() + QUIET_WAIT);
        if let Ok(came) = timeout_at(quiet, self.peer_or_end()).await {
            return came;
        }
        let (role, options) = (self.session.role.peer(), &self.session.options);
        let left = self.deadline.saturating_duration_since(Instant::now());
        options.observer.tell(&Notice::WaitingForPeer { role: role.as_str(), left });
        let waited = options.join_timeout;
        timeout_at(self.deadline, self.peer_or_end()).await.unwrap_or(Err(JoinError::NoPeer { role, waited }))
    }

    async fn peer_or_end(&self) -> Result<String, JoinError> {
        tokio::select! {
            biased;
            who = self.session.mail.peer_came() => Ok(who),
            end = self.session.mail.ended() => Err(match end {
                PeerError::ControlPlane { reason } => JoinError::Store(reason),
                other => JoinError::Peer(other),
            }),
        }
    }

    /// Waits until both hellos have arrived.
    ///
    /// # Errors
    /// [`JoinError::NoHello`] after [`Options::peer_patience`](crate::Options::peer_patience);
    /// [`JoinError::Peer`] when the peer goes away meanwhile.
    pub async fn hello(mut self) -> Result<(Session, Peer), JoinError> {
        let waited = self.session.options.peer_patience;
        let sent = async {
            let told = (&mut self.hello).await;
            // The task neither panics nor is aborted, but when the event loop ends.
            told.unwrap_or_else(|_| Err(StoreError::from(Lost::Left).into())).map_err(JoinError::from)
        };
        let word = async { self.session.recv().await.map_err(JoinError::from) };
        let hello = match timeout(waited, async { tokio::try_join!(sent, word) }).await {
            Ok(both) => both?.1,
            Err(_) => return Err(JoinError::NoHello { who: self.session.mail.peer(), waited }),
        };
        let who = self.session.mail.peer_who().unwrap_or_default();
        Ok((self.session, Peer { who, hello }))
    }
}
