//! What both roles have in common: an engine, a peer, and a user who may interrupt. Whatever happens to one of
//! them while another is waited for ends the wait.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use coordinator::{PeerError, SendError, Session};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, timeout, timeout_at};

use super::message::Message;
use super::stop::Stop;
use crate::engine::protocol::{Command, Event};
use crate::engine::{Engine, Phase};

/// How much longer than its engine a peer may take to answer.
pub(crate) const ANSWER_GRACE: Duration = Duration::from_secs(5);

/// SIGINT and SIGTERM, waited for beside everything else.
#[derive(Debug)]
pub(crate) struct Interrupts {
    int: Signal,
    term: Signal,
}

impl Interrupts {
    /// From now on the two signals no longer end the process by themselves.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { int: signal(SignalKind::interrupt())?, term: signal(SignalKind::terminate())? })
    }

    /// Resolves when the user or the system asks the run to end.
    pub(crate) async fn wait(&mut self) -> Stop {
        tokio::select! {
            _ = self.int.recv() => Stop::Interrupted("SIGINT (Ctrl-C)"),
            _ = self.term.recv() => Stop::Interrupted("SIGTERM"),
        }
    }
}

/// One side of a run, once both have joined.
#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) session: Session,
    pub(crate) interrupts: Interrupts,
    pub(crate) engine: Option<Engine>,
}

impl Supervisor {
    /// Has the own engine do something. Meanwhile the peer may only say that it cannot go on.
    ///
    /// # Errors
    /// The engine or the peer failed, or the user interrupted.
    pub(crate) async fn work(
        &mut self,
        command: &Command,
        phase: Phase,
        deadline: Duration,
    ) -> Result<Event, Stop> {
        let Some(engine) = &mut self.engine else {
            return Err(Stop::Confused("no engine is open".to_owned()));
        };
        tokio::select! {
            event = engine.request(command, phase, deadline) => event.map_err(Stop::Engine),
            unasked = receive(&mut self.session) => Err(unexpected(unasked)),
            stop = self.interrupts.wait() => Err(stop),
        }
    }

    /// Asks the peer something and waits for its answer.
    ///
    /// # Errors
    /// The peer or the own engine failed, the answer did not come in time, or the user interrupted.
    pub(crate) async fn ask(&mut self, message: &Message, deadline: Duration) -> Result<Message, Stop> {
        send(&mut self.session, message).await?;
        let gone = async {
            match &mut self.engine {
                Some(engine) => engine.gone().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            answer = answer(&mut self.session, deadline) => answer,
            failure = gone => Err(Stop::Engine(failure)),
            stop = self.interrupts.wait() => Err(stop),
        }
    }

    /// Has the own engine and the peer work at the same time.
    ///
    /// # Errors
    /// As [`Self::work`] and [`Self::ask`].
    pub(crate) async fn work_both(
        &mut self,
        command: &Command,
        phase: Phase,
        message: &Message,
        deadline: Duration,
    ) -> Result<(Event, Message), Stop> {
        let Some(engine) = &mut self.engine else {
            return Err(Stop::Confused("no engine is open".to_owned()));
        };
        send(&mut self.session, message).await?;
        let own = async { engine.request(command, phase, deadline).await.map_err(Stop::Engine) };
        tokio::select! {
            both = async { tokio::try_join!(own, answer(&mut self.session, deadline + ANSWER_GRACE)) } => both,
            stop = self.interrupts.wait() => Err(stop),
        }
    }

    /// The next message while there is nothing else to do.
    ///
    /// # Errors
    /// The peer or the own engine failed, or the user interrupted.
    pub(crate) async fn next(&mut self) -> Result<Message, Stop> {
        let gone = async {
            match &mut self.engine {
                Some(engine) => engine.gone().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            message = receive(&mut self.session) => message,
            failure = gone => Err(Stop::Engine(failure)),
            stop = self.interrupts.wait() => Err(stop),
        }
    }

    /// What the peer says of itself within `time`, when it is in trouble too.
    pub(crate) async fn peer_trouble(&mut self, time: Duration) -> Option<Stop> {
        let end = Instant::now() + time;
        loop {
            match timeout_at(end, receive(&mut self.session)).await {
                Ok(message @ (Err(_) | Ok(Message::Failed { .. }))) => return Some(unexpected(message)),
                // An answer that nobody waits for any more.
                Ok(Ok(_)) => {}
                Err(_) => return None,
            }
        }
    }

    /// Says something to the peer.
    ///
    /// # Errors
    /// The rendezvous cannot carry it.
    pub(crate) async fn tell(&mut self, message: &Message) -> Result<(), Stop> {
        send(&mut self.session, message).await
    }

    /// Ends the engine: gently when all is well, at once when it may be stuck.
    pub(crate) async fn end_engine(&mut self, gently: bool) {
        if let Some(mut engine) = self.engine.take() {
            if !gently {
                engine.kill().await;
            }
            engine.end().await;
        }
    }
}

async fn send(session: &mut Session, message: &Message) -> Result<(), Stop> {
    let text = serde_json::to_vec(message).map_err(|e| Stop::Confused(e.to_string()))?;
    session.send(Bytes::from(text)).await.map_err(|e| match e {
        SendError::Peer(e) => Stop::Peer(e),
        SendError::Store(reason) => Stop::Peer(PeerError::ControlPlane { reason }),
    })
}

async fn receive(session: &mut Session) -> Result<Message, Stop> {
    let bytes = session.recv().await.map_err(Stop::Peer)?;
    serde_json::from_slice(&bytes).map_err(|e| Stop::Confused(format!("a message that cannot be read: {e}")))
}

async fn answer(session: &mut Session, deadline: Duration) -> Result<Message, Stop> {
    match timeout(deadline, receive(session)).await {
        Ok(Ok(message @ (Message::Failed { .. } | Message::Over { .. }))) => Err(unexpected(Ok(message))),
        Ok(other) => other,
        Err(_) => Err(Stop::PeerSilent(deadline)),
    }
}

/// What an unasked message means for whoever waits for something else.
pub(crate) fn unexpected(message: Result<Message, Stop>) -> Stop {
    match message {
        Ok(Message::Failed { finding, outcome }) => Stop::PeerFailed { finding, outcome },
        Ok(Message::Over { outcome, summary }) => Stop::PeerEnded { outcome, summary },
        Ok(_) => Stop::Confused("the peer said something out of order".to_owned()),
        Err(stop) => stop,
    }
}
