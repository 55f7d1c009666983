//! Notifications between agents: one Unix datagram socket an agent, in the abstract namespace. That one ends at a
//! network namespace; with a folder in `KVWIRE_FAKE_NIXL_MAIL` the sockets lie there instead.

use std::collections::BTreeMap;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::wire::{Reader, put};

/// A sender that waits longer than this for a receiver gives up.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// Linux' default limit for one datagram is a little above this.
const LARGEST_MESSAGE_BYTES: usize = 160 * 1024;

/// Messages by sender, in the order of arrival.
pub(crate) type Messages = BTreeMap<String, Vec<Vec<u8>>>;

/// An agent's address and what has arrived there.
///
/// A thread takes messages off the socket, as a progress thread would: the kernel holds only a few.
#[derive(Debug)]
pub(crate) struct Mailbox {
    owner: String,
    address: SocketAddr,
    socket: UnixDatagram,
    arrived: Arc<Mutex<Messages>>,
    receiver: Option<JoinHandle<()>>,
}

impl Mailbox {
    pub(crate) fn open(owner: &str) -> io::Result<Self> {
        let address = address(std::process::id(), owner)?;
        let socket = UnixDatagram::bind_addr(&address)?;
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        let arrived = Arc::new(Mutex::new(Messages::new()));
        let receiver = std::thread::Builder::new().name("fake-nixl-mail".to_owned()).spawn({
            let (socket, arrived) = (socket.try_clone()?, Arc::clone(&arrived));
            move || receive(&socket, &arrived)
        })?;
        Ok(Self { owner: owner.to_owned(), address, socket, arrived, receiver: Some(receiver) })
    }

    /// Sends a message to another agent, which may be in another process.
    pub(crate) fn send(&self, pid: u32, name: &str, message: &[u8]) -> io::Result<()> {
        let mut datagram = Vec::with_capacity(16 + self.owner.len() + message.len());
        put(&mut datagram, self.owner.len() as u64);
        datagram.extend_from_slice(self.owner.as_bytes());
        datagram.extend_from_slice(message);
        self.socket.send_to_addr(&datagram, &address(pid, name)?).map(drop)
    }

    /// Everything that arrived since the last call.
    pub(crate) fn take(&self) -> Messages {
        std::mem::take(&mut *self.arrived.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        // An empty datagram ends the receiver.
        let woken = self.socket.send_to_addr(&[], &self.address).is_ok();
        if let Some(receiver) = self.receiver.take().filter(|_| woken) {
            let _ = receiver.join();
        }
    }
}

fn address(pid: u32, name: &str) -> io::Result<SocketAddr> {
    match std::env::var_os("KVWIRE_FAKE_NIXL_MAIL") {
        Some(folder) => SocketAddr::from_pathname(Path::new(&folder).join(format!("{pid}-{name}"))),
        None => SocketAddr::from_abstract_name(format!("kvwire-fake-nixl/{pid}/{name}")),
    }
}

fn receive(socket: &UnixDatagram, arrived: &Mutex<Messages>) {
    let mut buffer = vec![0; LARGEST_MESSAGE_BYTES];
    loop {
        match socket.recv(&mut buffer) {
            Ok(0) => return,
            Ok(len) => {
                let mut reader = Reader::new(&buffer[..len]);
                let sender = reader
                    .size()
                    .and_then(|len| reader.bytes(len))
                    .map(|name| String::from_utf8_lossy(name).into_owned());
                if let Some(sender) = sender {
                    let message = reader.rest().to_vec();
                    let mut arrived = arrived.lock().unwrap_or_else(PoisonError::into_inner);
                    arrived.entry(sender).or_default().push(message);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
