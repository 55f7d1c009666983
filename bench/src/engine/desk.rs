//! Where commands come in and events go out: the engine's end of the pipe.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use nixl::Agent;

use super::lookout::{Lookout, Mark};
use super::process::leave;
use super::protocol::{Command, Event, MARK, read_frame, write_frame};
use crate::memory::Pool;

/// Marks the place in the log. A standard error that is closed has no reader who would wait for the mark.
pub(crate) fn mark() {
    use std::io::Write as _;
    let _ = writeln!(io::stderr().lock(), "{MARK}");
}

/// The engine's end of the pipe to its supervisor.
pub(crate) struct Desk {
    commands: Receiver<Command>,
    pipe: UnixStream,
    polls: bool,
    /// Notifications taken from each rank of the initiator.
    heard: BTreeMap<u32, u64>,
    bells: Option<Bells>,
    lookout: Option<Lookout>,
}

/// Words of registered memory that show each rank of the initiator how many of its notifications have been taken.
pub(crate) struct Bells {
    pub(crate) pool: Pool,
    /// Index of the first rank's in the words of the pool.
    pub(crate) first: usize,
}

impl Bells {
    fn ring(&self, rank: u32, heard: u64) {
        if let Some(word) = self.pool.region().word(self.first + rank as usize) {
            word.store_last(heard.to_le());
        }
    }
}

/// What a notification says: short, as those of nixlbench, and whose it is.
const NOTIFICATION: &str = "kvwire";

/// The notification of a rank.
pub(crate) fn notification(rank: u32) -> Vec<u8> {
    format!("{NOTIFICATION}{rank}").into_bytes()
}

/// The rank of a notification; `None` for one that no kvwire sends.
fn rank_of(message: &[u8]) -> Option<u32> {
    std::str::from_utf8(message).ok()?.strip_prefix(NOTIFICATION)?.parse().ok()
}

impl Desk {
    /// Takes standard input, which the supervisor made a socket, and starts reading commands from it.
    ///
    /// A thread of its own reads, so that the end of the supervisor is noticed even inside a timed loop;
    /// it sleeps in the kernel all the while.
    ///
    /// # Errors
    /// Standard input is not a socket: the engine was started by hand.
    pub(crate) fn open() -> io::Result<Self> {
        let stdin = rustix::stdio::stdin().try_clone_to_owned()?;
        let pipe = UnixStream::from(stdin);
        pipe.peer_addr()?;
        let mut reading = pipe.try_clone()?;
        let (sender, commands) = channel();
        thread::Builder::new().name("commands".to_owned()).spawn(move || {
            // The end of the pipe, a broken frame, or an agent thread that is gone: nobody is left to work for.
            while let Ok(Some(command)) = read_frame(&mut reading) {
                if sender.send(command).is_err() {
                    break;
                }
            }
            leave(0)
        })?;
        Ok(Self { commands, pipe, polls: false, heard: BTreeMap::new(), bells: None, lookout: None })
    }

    /// The next command; `None` when the supervisor is gone. A desk that polls progresses NIXL meanwhile.
    pub(crate) fn next(&mut self, agent: &Agent) -> Option<Command> {
        if !self.polls {
            return self.first();
        }
        loop {
            match self.commands.try_recv() {
                Ok(command) => return Some(command),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => {
                    // An error here would come back with the next command that uses the agent.
                    let _ = self.take_notifications(agent);
                    // Where there are fewer cores than polling processes, the other side may wait for this one.
                    thread::yield_now();
                }
            }
        }
    }

    /// The next command of an engine that has no agent yet.
    pub(crate) fn first(&mut self) -> Option<Command> {
        self.commands.recv().ok()
    }

    /// Progresses NIXL and takes notifications from now on while waiting for commands: as in an inference engine, that
    /// keeps a core busy.
    pub(crate) fn poll(&mut self) {
        self.polls = true;
    }

    /// Shows on `bells` from now on how many notifications there were.
    pub(crate) fn listen(&mut self, bells: Option<Bells>) {
        self.bells = bells;
    }

    /// Looks at marked transfers from now on.
    pub(crate) fn look_out(&mut self, lookout: Lookout) {
        self.lookout = Some(lookout);
    }

    /// Takes notifications until `expected` marked transfers have been looked at, or the time is over. Gives what was seen;
    /// `None` where nobody looks.
    ///
    /// # Errors
    /// NIXL could not say what has come.
    pub(crate) fn looked(
        &mut self,
        agent: &Agent,
        expected: u64,
        timeout_ms: u64,
    ) -> Result<Option<&Lookout>, nixl::Error> {
        let end = Instant::now() + Duration::from_millis(timeout_ms);
        // What was not there at first is waited for beyond that, for a time of its own.
        while self.lookout.as_ref().is_some_and(|lookout| {
            lookout.is_waiting() || (lookout.looked() < expected && Instant::now() < end)
        }) {
            self.take_notifications(agent)?;
        }
        Ok(self.lookout.as_ref())
    }

    /// Takes notifications until `expected` have come in all, or the time is over.
    ///
    /// # Errors
    /// NIXL could not say what has come.
    pub(crate) fn hear(&mut self, agent: &Agent, expected: u64, timeout_ms: u64) -> Result<u64, nixl::Error> {
        let end = Instant::now() + Duration::from_millis(timeout_ms);
        while self.heard.values().sum::<u64>() < expected && Instant::now() < end {
            self.take_notifications(agent)?;
        }
        Ok(self.heard.values().sum())
    }

    fn take_notifications(&mut self, agent: &Agent) -> Result<(), nixl::Error> {
        let (heard, lookout) = (&mut self.heard, &mut self.lookout);
        let taken = agent.notifications(|_, message| {
            if let Some(rank) = rank_of(message) {
                *heard.entry(rank).or_insert(0) += 1;
            } else if let (Some(lookout), Some(mark)) = (lookout.as_mut(), Mark::of(message)) {
                lookout.look(mark);
            }
        })?;
        if let Some(lookout) = lookout {
            lookout.look_again();
        }
        if let Some(bells) = self.bells.as_ref().filter(|_| taken > 0) {
            heard.iter().for_each(|(rank, heard)| bells.ring(*rank, *heard));
        }
        Ok(())
    }

    /// Sends an event. A supervisor that is gone ends the engine.
    pub(crate) fn answer(&mut self, event: &Event) {
        if matches!(event, Event::Failed(_)) {
            mark();
        }
        if write_frame(&mut self.pipe, event).is_err() {
            leave(0);
        }
    }
}
