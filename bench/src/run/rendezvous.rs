//! Where two sides meet: served by this process, by the peer, or by etcd.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use checks::Route;
use coordinator::{
    ConnectError, Endpoint, EtcdCredentials, EtcdEndpoint, Notice, Observer, Options, RunId, ServerOptions,
    Store, TcpEndpoint, TcpServer, Token, open,
};

use super::supervisor::LEASE_MARGIN;
use crate::cli::JoinArgs;
use crate::terminal::Terminal;

/// The variable that gives both sides a token.
const TOKEN_VARIABLE: &str = "KVWIRE_TOKEN";
/// Any address with a route: TEST-NET-1, which nobody has. Nothing is sent there.
const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9);

/// How often a wait is told.
const WAITING_EVERY: Duration = Duration::from_secs(10);

/// A rendezvous that can be joined.
#[derive(Debug)]
pub(crate) struct Rendezvous {
    pub(crate) run: RunId,
    pub(crate) options: Options,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// This process serves it.
    Here { server: TcpServer, port: u16 },
    /// The peer serves it.
    AtPeer(TcpEndpoint),
    /// etcd serves it.
    Etcd(EtcdEndpoint, Box<EtcdCredentials>),
}

/// Waiting and deadlines as the flags say, with what happens told on the terminal.
pub(crate) fn options(join: &JoinArgs, terminal: &Terminal) -> Options {
    let terminal = terminal.clone();
    let last = Mutex::new(None);
    let observer = Observer::new(move |notice| {
        if !matches!(notice, Notice::Waiting { .. }) || is_due(&last) {
            tell(notice, &terminal);
        }
    });
    let lease_ttl = (join.peer_timeout / 2).max(Duration::from_millis(200));
    Options {
        lease_ttl,
        join_timeout: join.join_timeout,
        // By then a rendezvous or a peer that is gone is known to be so.
        op_timeout: lease_ttl + LEASE_MARGIN,
        peer_patience: lease_ttl + LEASE_MARGIN,
        leave_linger: Duration::from_secs(1),
        observer,
        ..Options::default()
    }
}

/// Whether another word about waiting is due.
fn is_due(last: &Mutex<Option<Instant>>) -> bool {
    let mut last = last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let due = last.is_none_or(|at| at.elapsed() >= WAITING_EVERY);
    if due {
        *last = Some(Instant::now());
    }
    due
}

fn tell(notice: &Notice, terminal: &Terminal) {
    match notice {
        Notice::Waiting { place, error, left, .. } => terminal
            .note(&format!("waiting for the rendezvous at {place}, {} s at most: {error}", left.as_secs())),
        Notice::WaitingForPeer { role, left } => {
            terminal.note(&format!("waiting for the {role}, {} s at most", left.as_secs()));
        }
        Notice::PeerCame { role, who } => terminal.detail(&format!("the {role} {who} is there")),
        Notice::Reconnecting { place, detail } => {
            terminal.note(&format!("the connection to {place} broke ({detail}); reconnecting"));
        }
        Notice::Reconnected { place } => terminal.note(&format!("reconnected to {place}")),
        Notice::Reregistered { place } => terminal.note(&format!("registered again at {place}")),
        Notice::Rejected { from, why } => terminal.note(&format!("turned {from} away: {why}")),
        _ => {}
    }
}

impl Rendezvous {
    /// The target's side: listens, or uses etcd. `listen_anywhere` listens on every address whatever host the
    /// endpoint names, for launchers that name index 0 by a service.
    ///
    /// # Errors
    /// A sentence with the flag or variable and the fix.
    pub(crate) async fn at_target(
        endpoint: &Endpoint,
        run: Option<&RunId>,
        options: Options,
        who: &str,
        listen_anywhere: bool,
    ) -> Result<Self, String> {
        let tcp = match endpoint {
            Endpoint::Etcd(etcd) => return Self::at_etcd(etcd, run, options),
            Endpoint::Tcp(tcp) => tcp,
        };
        let addresses = if listen_anywhere { wildcard(tcp.port) } else { resolve(tcp).await? };
        let loopback_only = addresses.iter().all(|a| a.ip().to_canonical().is_loopback());
        let token = match tcp.token.clone().or(token_from_environment()?) {
            None if !loopback_only => Some(Token::random().map_err(|e| format!("no random token: {e}"))?),
            given => given,
        };
        let run = match run.or(tcp.run.as_ref()) {
            Some(run) => run.clone(),
            None if listen_anywhere => default_run()?,
            None => RunId::random().map_err(|e| format!("no random run id: {e}"))?,
        };
        let server_options = ServerOptions {
            token,
            run: Some(run.clone()),
            host: who.to_owned(),
            observer: options.observer.clone(),
            ..ServerOptions::default()
        };
        let (server, bound) = bind(&addresses, server_options).await?;
        let port = bound.first().map_or(tcp.port, SocketAddr::port);
        Ok(Self { run, options, place: Place::Here { server, port } })
    }

    /// The initiator's side.
    ///
    /// # Errors
    /// A sentence with the flag or variable and the fix.
    pub(crate) fn at_initiator(
        endpoint: &Endpoint,
        run: Option<&RunId>,
        options: Options,
        by_index: bool,
    ) -> Result<Self, String> {
        let tcp = match endpoint {
            Endpoint::Etcd(etcd) => return Self::at_etcd(etcd, run, options),
            Endpoint::Tcp(tcp) => tcp,
        };
        let run = match run.or(tcp.run.as_ref()) {
            Some(run) => run.clone(),
            None if by_index => default_run()?,
            None => {
                return Err(format!(
                    "--rendezvous: {endpoint} does not say which run to join\n  fix: paste the whole join address \
                     that the target printed, or give both sides the same --run-id"
                ));
            }
        };
        let token = tcp.token.clone().or(token_from_environment()?);
        Ok(Self { run, options, place: Place::AtPeer(TcpEndpoint { token, ..tcp.clone() }) })
    }

    fn at_etcd(etcd: &EtcdEndpoint, run: Option<&RunId>, options: Options) -> Result<Self, String> {
        let credentials =
            EtcdCredentials::from_env(|name| std::env::var(name).ok()).map_err(|e| e.to_string())?;
        let run = run.cloned().map_or_else(default_run, Ok)?;
        Ok(Self { run, options, place: Place::Etcd(etcd.clone(), Box::new(credentials)) })
    }

    /// Takes this process's place in the run. Waits for the rendezvous to come up.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub(crate) async fn join(&self) -> Result<Arc<dyn Store>, ConnectError> {
        match &self.place {
            Place::Here { server, .. } => match server.local(&self.run, &self.options) {
                Ok(store) => Ok(Arc::new(store)),
                Err(e) => Err(ConnectError::Config(e.to_string())),
            },
            Place::AtPeer(tcp) => {
                open(&Endpoint::Tcp(tcp.clone()), &self.run, &EtcdCredentials::default(), &self.options).await
            }
            Place::Etcd(etcd, credentials) => {
                open(&Endpoint::Etcd(etcd.clone()), &self.run, credentials, &self.options).await
            }
        }
    }

    /// The line to paste on the other host; `None` where both sides know the place anyway.
    pub(crate) fn join_address(&self, endpoint: &Endpoint, advertise: Option<&str>) -> Option<String> {
        let (Place::Here { port, .. }, Endpoint::Tcp(tcp)) = (&self.place, endpoint) else { return None };
        let named =
            |host: &str| host.parse::<IpAddr>().map_or(!host.is_empty(), |address| !address.is_unspecified());
        let host = match advertise {
            Some(host) => host.to_owned(),
            None if named(&tcp.host) => tcp.host.clone(),
            None => Route::to(ANYWHERE).map_or_else(hostname, |route| route.local),
        };
        Some(
            TcpEndpoint { host, port: *port, token: self.printed_token(), run: Some(self.run.clone()) }
                .join_address(),
        )
    }

    /// A token that both sides have from the environment is not printed.
    fn printed_token(&self) -> Option<Token> {
        let Place::Here { server, .. } = &self.place else { return None };
        let shared = token_from_environment().ok().flatten();
        server.token().filter(|token| shared.as_ref() != Some(token)).cloned()
    }

    /// True when the peer's process serves the rendezvous: both are then lost together.
    pub(crate) fn served_by_peer(&self) -> bool {
        matches!(self.place, Place::AtPeer(_))
    }

    /// Own end of the peer's connection, where this process serves the rendezvous.
    pub(crate) fn end_of_peer(&self) -> Option<Route> {
        let Place::Here { server, .. } = &self.place else { return None };
        server.latest().map(|(here, there)| Route::of(here, there))
    }

    /// Own address and interface towards the rendezvous; `None` where this process serves it.
    pub(crate) async fn route(&self) -> Option<Route> {
        let (host, port) = match &self.place {
            Place::Here { .. } => return None,
            Place::AtPeer(tcp) => (tcp.host.clone(), tcp.port),
            Place::Etcd(etcd, _) => etcd.hosts.first()?.clone(),
        };
        let address = tokio::net::lookup_host((host.as_str(), port)).await.ok()?.next()?;
        Route::to(address)
    }

    /// Closes a rendezvous that this process serves.
    pub(crate) async fn close(self, reason: &str) {
        if let Place::Here { server, .. } = self.place {
            server.close(reason).await;
        }
    }
}

/// The run's name where both sides know the place without a join address.
fn default_run() -> Result<RunId, String> {
    "default".parse().map_err(|e| format!("--run-id: {e}"))
}

fn token_from_environment() -> Result<Option<Token>, String> {
    match std::env::var(TOKEN_VARIABLE) {
        Ok(text) if !text.is_empty() => text.parse().map(Some).map_err(|e| format!("{TOKEN_VARIABLE}: {e}")),
        _ => Ok(None),
    }
}

fn wildcard(port: u16) -> Vec<SocketAddr> {
    vec![SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))]
}

/// Listens; where the system has no IPv6, on IPv4 alone.
async fn bind(
    addresses: &[SocketAddr],
    options: ServerOptions,
) -> Result<(TcpServer, Vec<SocketAddr>), String> {
    let explain = |e: coordinator::BindError| {
        format!(
            "--rendezvous: {e}\n  fix: choose another port, or an address of this host (tcp://0.0.0.0:PORT for all)"
        )
    };
    match TcpServer::bind(addresses, options.clone()).await {
        Err(coordinator::BindError::Io { addr, .. }) if addr.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) => {
            let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, addr.port()));
            TcpServer::bind(&[v4], options).await.map_err(explain)
        }
        other => other.map_err(explain),
    }
}

async fn resolve(tcp: &TcpEndpoint) -> Result<Vec<SocketAddr>, String> {
    let found: Vec<SocketAddr> = tokio::net::lookup_host((tcp.host.as_str(), tcp.port))
        .await
        .map_err(|e| {
            format!(
                "--rendezvous: the name {} cannot be resolved: {e}\n  fix: give an address of this host",
                tcp.host
            )
        })?
        .collect();
    Ok(found)
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
