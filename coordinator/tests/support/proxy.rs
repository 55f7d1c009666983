//! A TCP proxy whose connections can be cut or stalled, to play a bad network.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    /// Carries.
    Up,
    /// Cuts what there is and refuses what comes.
    Down,
    /// Carries nothing, and says nothing.
    Stalled,
}

pub(crate) struct Proxy {
    pub(crate) addr: SocketAddr,
    wire: watch::Sender<Wire>,
    pub(crate) accepted: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind(super::loopback()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (wire, state) = watch::channel(Wire::Up);
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&accepted);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(carry(stream, to, state.clone()));
            }
        });
        Self { addr, wire, accepted, task }
    }

    pub(crate) fn set(&self, wire: Wire) {
        self.wire.send_replace(wire);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.wire.send_replace(Wire::Down);
    }
}

async fn carry(mut near: TcpStream, to: SocketAddr, mut wire: watch::Receiver<Wire>) {
    let Ok(mut far) = TcpStream::connect(to).await else { return };
    loop {
        let now = *wire.borrow_and_update();
        match now {
            Wire::Down => return,
            Wire::Stalled => {
                if wire.changed().await.is_err() {
                    return;
                }
            }
            Wire::Up => tokio::select! {
                changed = wire.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                _ = copy_bidirectional(&mut near, &mut far) => return,
            },
        }
    }
}
