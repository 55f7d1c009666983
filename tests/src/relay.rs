//! A relay between a host and a place: it passes bytes on, holds them back where a text comes by, and can say words
//! of its own.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::{HANGS_AFTER, Hosts, Side};

/// How often the listener looks whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How long the place may take until it listens.
const COMES_UP: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Mode {
    /// Everything passes until this comes by on its way to the place.
    Until(Vec<u8>),
    /// Nothing passes to the place.
    Held,
    Open,
    /// Nothing passes in either direction, and connections that are new get no answer.
    Mute,
    Closed,
}

#[derive(Debug)]
struct State {
    mode: Mode,
    /// What is held back is dropped instead of being passed on later.
    drops: bool,
    /// Both ends of every connection: the host's, then the place's.
    ends: Vec<(TcpStream, TcpStream)>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// A relay on a host's loopback, in front of a place that the host reaches. Dropping it cuts its connections.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Shared>,
    port: u16,
}

impl Relay {
    /// Starts it on `side`'s host, towards `place`. With `until`, it holds back that text and everything after it on
    /// the way to the place.
    ///
    /// # Panics
    /// There is no port to listen on.
    pub fn start(hosts: &Hosts, side: Side, place: &str, until: Option<&str>) -> Self {
        let mode = until.map_or(Mode::Open, |text| Mode::Until(text.as_bytes().to_vec()));
        let shared = Arc::new(Shared {
            state: Mutex::new(State { mode, drops: false, ends: Vec::new() }),
            changed: Condvar::new(),
        });
        let place: SocketAddr = place.parse().expect("an address");
        let (sender, port) = std::sync::mpsc::channel();
        let (namespace, serving) = (hosts.of(side), Arc::clone(&shared));
        thread::spawn(move || {
            crate::netns::enter(&namespace);
            let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
            listener.set_nonblocking(true).expect("a listener that can be asked");
            let _ = sender.send(listener.local_addr().expect("an address").port());
            serving.serve(&listener, place);
        });
        Self { port: port.recv().expect("the relay listens"), shared }
    }

    /// Its address on the host.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Waits until it holds something back.
    ///
    /// # Panics
    /// The text does not come by.
    pub fn await_held(&self) {
        let held = |state: &mut State| !matches!(state.mode, Mode::Held);
        let waited = self.shared.changed.wait_timeout_while(self.shared.lock(), HANGS_AFTER, held);
        assert!(waited.is_ok_and(|(_, result)| !result.timed_out()), "the text did not come by");
    }

    /// From now on everything passes; what was held back is lost.
    pub fn open(&self) {
        self.shared.turn(Mode::Open);
    }

    /// From now on nothing passes.
    pub fn mute(&self) {
        self.shared.turn(Mode::Mute);
    }

    /// Says `words` to the place on every connection, in the middle of whatever the host was saying. What was held
    /// back is lost, and everything else passes from now on.
    pub fn say(&self, words: &[u8]) {
        for (_, place) in &mut self.shared.lock().ends {
            // Ignored: a connection that is gone needs no words.
            let _ = place.write_all(words);
        }
        self.open();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.turn(Mode::Closed);
        for (host, place) in &self.shared.lock().ends {
            for stream in [host, place] {
                // Ignored: it is gone already.
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}

/// Connects to a place that may just be coming up: closing the host's connection would tell it that nobody is there.
fn reach(place: SocketAddr) -> std::io::Result<TcpStream> {
    let end = Instant::now() + COMES_UP;
    loop {
        match TcpStream::connect(place) {
            Err(_) if Instant::now() < end => thread::sleep(LOOK_EVERY),
            reached => return reached,
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self, mode: Mode) {
        let mut state = self.lock();
        state.drops = true;
        state.mode = mode;
        self.changed.notify_all();
    }

    fn serve(self: &Arc<Self>, listener: &TcpListener, place: SocketAddr) {
        while self.lock().mode != Mode::Closed {
            match listener.accept() {
                Ok((host, _)) => {
                    let shared = Arc::clone(self);
                    // A thread begins in the namespace of the one that makes it.
                    thread::spawn(move || shared.join(&host, place));
                }
                Err(_) => thread::sleep(LOOK_EVERY),
            }
        }
    }

    /// Passes on what one connection carries, until one end closes.
    fn join(self: &Arc<Self>, host: &TcpStream, place: SocketAddr) {
        let connected = host.set_nonblocking(false).and_then(|()| reach(place));
        let Ok(place) = connected else { return };
        let copy = |stream: &TcpStream| stream.try_clone().expect("a second handle");
        self.lock().ends.push((copy(host), copy(&place)));
        let (down, shared) = ((copy(&place), copy(host)), Arc::clone(self));
        thread::spawn(move || {
            shared.pass(down, |shared, _, _| shared.wait_while(|mode| *mode == Mode::Mute));
        });
        self.pass((copy(host), place), Self::may_go_up);
    }

    /// Reads from one end and writes to the other while `may_pass` lets it.
    fn pass(
        &self,
        (mut from, mut to): (TcpStream, TcpStream),
        may_pass: impl Fn(&Self, &mut Vec<u8>, &[u8]) -> bool,
    ) {
        let (mut buffer, mut seen) = (vec![0; 64 << 10], Vec::new());
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if may_pass(self, &mut seen, &buffer[..count]) && to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        for stream in [from, to] {
            // Ignored: it is gone already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn may_go_up(&self, seen: &mut Vec<u8>, bytes: &[u8]) -> bool {
        seen.extend_from_slice(bytes);
        let mut state = self.lock();
        if let Mode::Until(text) = &state.mode {
            if seen.windows(text.len()).any(|window| window == text) {
                state.mode = Mode::Held;
                self.changed.notify_all();
            } else {
                let kept = seen.len().saturating_sub(text.len());
                seen.drain(..kept);
            }
        }
        drop(state);
        self.wait_while(|mode| matches!(mode, Mode::Held | Mode::Mute))
    }

    /// Waits while the mode is one of these; whether what had to wait is to be passed on.
    fn wait_while(&self, waits: impl Fn(&Mode) -> bool) -> bool {
        let mut state = self.lock();
        if !waits(&state.mode) {
            return true;
        }
        while waits(&state.mode) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.drops
    }
}
