//! What both roles have in common: an engine, a peer, and a user who may interrupt. Whatever happens to one of
//! them while another is waited for ends the wait.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use coordinator::{PeerError, SendError, Session};
use futures_util::future::{select_all, try_join_all};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use super::message::Message;
use super::stop::Stop;
use crate::engine::protocol::{Command, Event};
use crate::engine::{Engine, EngineFailure, Phase};

/// How much longer than its engine a peer may take to answer.
const ANSWER_GRACE: Duration = Duration::from_secs(2);
/// The last message and the goodbye, at most.
pub(crate) const FAREWELL_TIME: Duration = Duration::from_secs(2);
/// From the end of a lease to the word of it, at most.
pub(crate) const LEASE_MARGIN: Duration = Duration::from_secs(1);
/// From the end of the lease of whoever is lost to the end of this side, at most.
pub(crate) const WIND_UP: Duration = Duration::from_secs(5);
/// The engine's leaving, at most.
const ENGINE_TIME: Duration = Duration::from_secs(4);

/// SIGINT and SIGTERM, waited for beside everything else. Once seen they stay seen, by all clones.
#[derive(Debug, Clone)]
pub(crate) struct Interrupts {
    seen: watch::Receiver<Option<&'static str>>,
    whose: &'static str,
}

impl Interrupts {
    /// From now on the two signals no longer end the process by themselves. `whose` is what they interrupt.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub(crate) fn new(whose: &'static str) -> io::Result<Self> {
        let mut int = signal(SignalKind::interrupt())?;
        let mut term = signal(SignalKind::terminate())?;
        let (sender, seen) = watch::channel(None);
        tokio::spawn(async move {
            let name = tokio::select! {
                _ = int.recv() => "SIGINT (Ctrl-C)",
                _ = term.recv() => "SIGTERM",
            };
            sender.send_replace(Some(name));
            // Kept open, so that waiting for it never ends by a closed channel.
            std::future::pending::<()>().await;
        });
        Ok(Self { seen, whose })
    }

    /// Resolves when the user or the system asks the run to end.
    pub(crate) async fn wait(&mut self) -> Stop {
        match self.seen.wait_for(Option::is_some).await {
            Ok(name) => Stop::Interrupted { whose: self.whose, signal: name.unwrap_or("a signal") },
            // The event loop ends: nobody waits any more.
            Err(_) => std::future::pending().await,
        }
    }
}

/// One side of a run, once both have joined.
#[derive(Debug)]
pub(crate) struct Supervisor {
    /// One for each rank.
    pub(crate) engines: Vec<Engine>,
    session: Session,
    interrupts: Interrupts,
    peer: Peer,
    phase: Phase,
    /// The case that is measured; empty outside of one.
    case: String,
    /// When this side has ended at the latest, once it cannot go on.
    ends_by: Option<Instant>,
}

/// Who is on the other side.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) who: String,
    /// The rendezvous is lost together with it.
    pub(crate) serves_rendezvous: bool,
    /// How long it may be silent before it is lost.
    pub(crate) lease: Duration,
    /// How long it has to explain an error that shows here.
    pub(crate) patience: Duration,
}

impl Supervisor {
    /// A side that has just met its peer.
    pub(crate) fn new(session: Session, interrupts: Interrupts, peer: Peer) -> Self {
        let (phase, case) = (Phase::Starting, String::new());
        Self { engines: Vec::new(), session, interrupts, peer, phase, case, ends_by: None }
    }

    /// This side cannot go on. From now on it ends within [`WIND_UP`] of the end of the lease: the peer's, which has
    /// run out when the peer is lost, or else the one that would run out if the peer were lost at this moment.
    pub(crate) fn stopping(&mut self, stop: &Stop) {
        let lost = matches!(stop, Stop::Peer(_) | Stop::ServingPeer { .. });
        let lease = if lost { Duration::ZERO } else { self.peer.lease };
        self.ends_by.get_or_insert(Instant::now() + lease + WIND_UP);
    }

    /// The end of a step that may take `limit`.
    fn until(&self, limit: Duration) -> Instant {
        let end = Instant::now() + limit;
        self.ends_by.map_or(end, |by| by.min(end))
    }

    /// From now on failures name this case.
    pub(crate) fn enter(&mut self, case: String) {
        self.case = case;
    }

    /// What the run is doing while this side waits for it: failures name it.
    pub(crate) fn wait_in(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// What the run is doing.
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// What this side is doing, for a finding.
    pub(crate) fn at(&self) -> String {
        if self.case.is_empty() { self.phase.to_string() } else { format!("{} of {}", self.phase, self.case) }
    }

    /// A peer that serves the rendezvous and is gone looks like a lost control plane.
    fn name_peer(&self, stop: Stop) -> Stop {
        match stop {
            Stop::Peer(error @ PeerError::ControlPlane { .. }) if self.peer.serves_rendezvous => {
                Stop::ServingPeer { who: self.peer.who.clone(), error }
            }
            other => other,
        }
    }

    /// Has every own engine do the same.
    ///
    /// # Errors
    /// As [`Self::work`].
    pub(crate) async fn work_all(
        &mut self,
        command: &Command,
        phase: Phase,
        deadline: Duration,
    ) -> Result<Vec<Event>, Stop> {
        self.work(&vec![command.clone(); self.engines.len()], phase, deadline).await
    }

    /// Has the own engines do something at the same time, each its own command; the first that fails ends it. Meanwhile
    /// the peer may only say that it cannot go on.
    ///
    /// # Errors
    /// An engine or the peer failed, or the user interrupted.
    pub(crate) async fn work(
        &mut self,
        commands: &[Command],
        phase: Phase,
        deadline: Duration,
    ) -> Result<Vec<Event>, Stop> {
        self.phase = phase;
        let done = tokio::select! {
            events = request(&mut self.engines, commands, phase, deadline) => events,
            unasked = receive(&self.session) => Err(unexpected(unasked)),
            stop = self.interrupts.wait() => Err(stop),
        };
        done.map_err(|stop| self.name_peer(stop))
    }

    /// Asks the peer something and waits for its answer.
    ///
    /// # Errors
    /// The peer or the own engine failed, the answer did not come in time, or the user interrupted.
    pub(crate) async fn ask(
        &mut self,
        message: &Message,
        phase: Phase,
        deadline: Duration,
    ) -> Result<Message, Stop> {
        self.phase = phase;
        let asked = async {
            send(&self.session, message).await?;
            answer(&self.session, deadline + ANSWER_GRACE).await
        };
        let answered = tokio::select! {
            answer = asked => answer,
            failure = gone(&mut self.engines, self.phase) => Err(Stop::Engine(failure)),
            stop = self.interrupts.wait() => Err(stop),
        };
        answered.map_err(|stop| self.name_peer(stop))
    }

    /// Has the own engines and the peer work at the same time.
    ///
    /// # Errors
    /// As [`Self::work`] and [`Self::ask`].
    pub(crate) async fn work_both(
        &mut self,
        commands: &[Command],
        phase: Phase,
        message: &Message,
        deadline: Duration,
    ) -> Result<(Vec<Event>, Message), Stop> {
        self.phase = phase;
        let own = request(&mut self.engines, commands, phase, deadline);
        let theirs = async {
            send(&self.session, message).await?;
            answer(&self.session, deadline + ANSWER_GRACE).await
        };
        let both = tokio::select! {
            both = async { tokio::try_join!(own, theirs) } => both,
            stop = self.interrupts.wait() => Err(stop),
        };
        both.map_err(|stop| self.name_peer(stop))
    }

    /// The next message while there is nothing else to do.
    ///
    /// # Errors
    /// The peer or the own engine failed, or the user interrupted.
    pub(crate) async fn next(&mut self) -> Result<Message, Stop> {
        let message = tokio::select! {
            message = receive(&self.session) => message,
            failure = gone(&mut self.engines, self.phase) => Err(Stop::Engine(failure)),
            stop = self.interrupts.wait() => Err(stop),
        };
        message.map_err(|stop| self.name_peer(stop))
    }

    /// Says something to the peer.
    ///
    /// # Errors
    /// The rendezvous cannot carry it.
    pub(crate) async fn tell(&mut self, message: &Message) -> Result<(), Stop> {
        let told = tokio::select! {
            told = send(&self.session, message) => told,
            stop = self.interrupts.wait() => Err(stop),
        };
        told.map_err(|stop| self.name_peer(stop))
    }

    /// Says why this side cannot go on, and waits for the peer's last word; `None` when the rendezvous or the peer is
    /// gone, or says nothing for the time in which its death would be known. The engine has been ended, and an
    /// interruption has been seen: neither ends this wait.
    pub(crate) async fn last_word(&mut self, message: &Message) -> Option<Message> {
        let said = async {
            send(&self.session, message).await?;
            loop {
                // What was asked before the failure was known is not answered any more.
                if let over @ Message::Over { .. } = receive(&self.session).await? {
                    return Ok::<_, Stop>(over);
                }
            }
        };
        timeout_at(self.until(self.peer.lease + LEASE_MARGIN), said).await.ok()?.ok()
    }

    /// What the peer says of itself in the time that it has for that, when it is in trouble too.
    pub(crate) async fn peer_trouble(&mut self) -> Option<Stop> {
        let end = self.until(self.peer.patience);
        loop {
            match timeout_at(end, receive(&self.session)).await {
                Ok(message @ (Err(_) | Ok(Message::Failed { .. }))) => {
                    return Some(self.name_peer(unexpected(message)));
                }
                // An answer that nobody waits for any more.
                Ok(Ok(_)) => {}
                Err(_) => return None,
            }
        }
    }

    /// The last message, and a proper goodbye. Takes at most a few seconds, whatever state the rendezvous is in.
    pub(crate) async fn part(self, last: Option<&Message>) {
        let end = self.until(FAREWELL_TIME);
        let farewell = async {
            if let Some(message) = last {
                // Ignored: a peer that is gone needs no last word.
                let _ = send(&self.session, message).await;
            }
            let _ = self.session.leave("the run is over").await;
        };
        // Ignored: without a goodbye the lease runs out by itself.
        let _ = timeout_at(end, farewell).await;
    }

    /// Ends the engines: gently when all is well, at once when one may be stuck.
    pub(crate) async fn end_engines(&mut self, gently: bool) {
        let by = self.until(ENGINE_TIME);
        let end = |mut engine: Engine| async move {
            if !gently {
                engine.kill().await;
            }
            engine.end().await;
        };
        let ending = futures_util::future::join_all(self.engines.drain(..).map(end));
        // Ignored: a process that a driver holds in the kernel has been killed, and goes when it is let go.
        let _ = timeout_at(by, ending).await;
    }
}

fn no_engine() -> Stop {
    Stop::Confused("no engine is open".to_owned())
}

/// Gives each engine its command and waits for all events, or for the first failure.
async fn request(
    engines: &mut [Engine],
    commands: &[Command],
    phase: Phase,
    deadline: Duration,
) -> Result<Vec<Event>, Stop> {
    if engines.is_empty() || engines.len() != commands.len() {
        return Err(no_engine());
    }
    let each =
        engines.iter_mut().zip(commands).map(|(engine, command)| engine.request(command, phase, deadline));
    try_join_all(each).await.map_err(Stop::Engine)
}

/// Resolves when an engine ends while nothing is asked of it, in this phase of the run.
async fn gone(engines: &mut [Engine], phase: Phase) -> EngineFailure {
    if engines.is_empty() {
        return std::future::pending().await;
    }
    let (failure, _, _) = select_all(engines.iter_mut().map(|engine| Box::pin(engine.gone()))).await;
    EngineFailure { phase, ..failure }
}

async fn send(session: &Session, message: &Message) -> Result<(), Stop> {
    let text = serde_json::to_vec(message).map_err(|e| Stop::Confused(e.to_string()))?;
    session.send(Bytes::from(text)).await.map_err(|e| match e {
        SendError::Peer(e) => Stop::Peer(e),
        SendError::Store(reason) => Stop::Peer(PeerError::ControlPlane { reason }),
    })
}

async fn receive(session: &Session) -> Result<Message, Stop> {
    let bytes = session.recv().await.map_err(Stop::Peer)?;
    serde_json::from_slice(&bytes).map_err(|e| makes_no_sense(format!("a message that cannot be read ({e})")))
}

async fn answer(session: &Session, deadline: Duration) -> Result<Message, Stop> {
    match timeout(deadline, receive(session)).await {
        Ok(Ok(message @ (Message::Failed { .. } | Message::Over { .. }))) => Err(unexpected(Ok(message))),
        Ok(other) => other,
        Err(_) => Err(Stop::PeerSilent(deadline)),
    }
}

/// The peer is not the kvwire that its hello promised: nothing can be said about the wire.
pub(crate) fn makes_no_sense(detail: String) -> Stop {
    Stop::Peer(PeerError::Protocol { who: "the other side".to_owned(), detail })
}

/// What an unasked message means for whoever waits for something else.
pub(crate) fn unexpected(message: Result<Message, Stop>) -> Stop {
    match message {
        Ok(Message::Failed { finding, outcome }) => Stop::PeerFailed { finding, outcome },
        Ok(Message::Over { outcome, summary, result }) => Stop::PeerEnded { outcome, summary, result },
        Ok(_) => makes_no_sense("a message out of order".to_owned()),
        Err(stop) => stop,
    }
}

#[cfg(test)]
mod tests;
