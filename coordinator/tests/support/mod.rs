//! What the integration tests share: deadlines, and stores of every kind on one footing.
#![allow(dead_code, reason = "every test binary uses its own part")]

pub(crate) mod etcd;
pub(crate) mod proxy;

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use coordinator::{
    Endpoint, EtcdCredentials, Event, MemoryHub, Options, RunId, ServerLimits, ServerOptions, Store,
    TcpEndpoint, TcpServer, Token, Watch, Why, open,
};
use etcd::Etcd;

/// Far above what anything here takes; reaching it is a failure, never a wait.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LIMIT, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: not within {LIMIT:?}"),
    }
}

pub(crate) fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

pub(crate) fn run_id(text: &str) -> RunId {
    text.parse().unwrap()
}

/// Where stores of one kind are had.
pub(crate) enum Place {
    Memory(MemoryHub),
    Tcp { server: TcpServer, endpoint: TcpEndpoint },
    Etcd(Etcd),
}

impl Place {
    pub(crate) fn memory() -> Self {
        Self::Memory(MemoryHub::new(ServerLimits::default()))
    }

    pub(crate) async fn tcp() -> Self {
        let token = Token::random().unwrap();
        let options =
            ServerOptions { token: Some(token.clone()), host: "the test".into(), ..ServerOptions::default() };
        let (server, addrs) = TcpServer::bind(&[loopback()], options).await.unwrap();
        let endpoint =
            TcpEndpoint { host: "127.0.0.1".into(), port: addrs[0].port(), token: Some(token), run: None };
        Self::Tcp { server, endpoint }
    }

    pub(crate) async fn etcd() -> Self {
        Self::Etcd(Etcd::start().await)
    }

    /// Short leases: 400 ms, and etcd's shortest, which is a second.
    pub(crate) fn options(&self) -> Options {
        let lease_ttl = match self {
            Self::Etcd(_) => Duration::from_secs(1),
            _ => Duration::from_millis(400),
        };
        Options { lease_ttl, join_timeout: LIMIT, ..Options::default() }
    }

    pub(crate) async fn join(&self, run: &str) -> Arc<dyn Store> {
        let (run, options) = (run_id(run), self.options());
        let endpoint = match self {
            Self::Memory(hub) => return Arc::new(hub.join(&run, &options).unwrap()),
            Self::Tcp { endpoint, .. } => Endpoint::Tcp(endpoint.clone()),
            Self::Etcd(etcd) => etcd.endpoint(),
        };
        open(&endpoint, &run, &EtcdCredentials::default(), &options).await.unwrap()
    }

    /// etcd does not tell why a key is gone.
    pub(crate) fn told(&self, why: Why) -> Why {
        match self {
            Self::Etcd(_) => Why::Unknown,
            _ => why,
        }
    }
}

pub(crate) async fn next(watch: &mut Watch) -> Event {
    within("an event of the watch", watch.next()).await.unwrap()
}

/// Waits for the deletion of `key`, passing over everything else.
pub(crate) async fn deleted(watch: &mut Watch, key: &str) -> Why {
    loop {
        if let Event::Deleted { key: gone, why } = next(watch).await
            && gone == key
        {
            return why;
        }
    }
}
