//! Reaching etcd. The client connects lazily and hides why it could not, so each member's port is
//! tried by hand first, and one cheap request is made under a deadline before anything is believed.

use std::time::Duration;

use etcd_client::{Client, ConnectOptions, Error, GetOptions};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::core::{Core, INVALID_ARGUMENT, PERMISSION_DENIED, UNAUTHENTICATED, code, text};
use super::credentials::EtcdCredentials;
use crate::endpoint::EtcdEndpoint;
use crate::error::ConnectError;
use crate::key::RunId;
use crate::options::{Notice, Options};

/// Pause between attempts: it doubles up to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// HTTP/2 pings; etcd ends connections that ping more often than every 5 s
/// (`--grpc-keepalive-min-time`).
const PING: (Duration, Duration) = (Duration::from_secs(6), Duration::from_secs(3));

pub(crate) async fn join(
    endpoint: &EtcdEndpoint,
    run: &RunId,
    credentials: &EtcdCredentials,
    options: &Options,
) -> Result<Core, ConnectError> {
    let start = Instant::now();
    let deadline = start + options.join_timeout;
    let place = endpoint.to_string();
    let settings = credentials.apply(
        ConnectOptions::new().with_connect_timeout(options.connect_timeout).with_keep_alive(PING.0, PING.1),
        endpoint.tls,
    )?;
    let (mut pause, mut attempts, mut told) = (PAUSES.0, 0, None);
    loop {
        attempts += 1;
        let error = match attempt(endpoint, run, &settings, options).await {
            Ok(core) => return Ok(core),
            Err(error) if !error.is_transient() => return Err(error),
            Err(error) => error,
        };
        let now = Instant::now();
        if now + pause >= deadline {
            return Err(ConnectError::Deadline { waited: now - start, attempts, last: Box::new(error) });
        }
        if told.as_ref() != Some(&error) {
            options.observer.tell(&Notice::Waiting {
                place: place.clone(),
                error: error.clone(),
                waited: now - start,
                left: deadline - now,
            });
            told = Some(error);
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

async fn attempt(
    endpoint: &EtcdEndpoint,
    run: &RunId,
    settings: &ConnectOptions,
    options: &Options,
) -> Result<Core, ConnectError> {
    let place = endpoint.to_string();
    let limit = options.connect_timeout;
    probe(endpoint, limit).await?;
    let late = |step| ConnectError::Timeout { addr: place.clone(), step, after: limit };
    let failed = |e: Error| failure(&place, &e);
    let scheme = if endpoint.tls { "https" } else { "http" };
    let urls: Vec<String> =
        endpoint.hosts.iter().map(|(host, port)| format!("{scheme}://{}", authority(host, *port))).collect();
    let greeting = "waiting for its answer; it may not be etcd, or it may expect TLS (etcds://)";
    let connecting = Client::connect(urls, Some(settings.clone()));
    let mut client = timeout(limit, connecting).await.map_err(|_| late(greeting))?.map_err(failed)?;
    timeout(limit, client.status()).await.map_err(|_| late(greeting))?.map_err(failed)?;
    // Neither of the other two requests needs a right; reading our own keys does.
    let base = format!("{}/{run}/", endpoint.prefix);
    let looking = client.get(base.clone(), Some(GetOptions::new().with_prefix().with_count_only()));
    timeout(limit, looking).await.map_err(|_| late("reading the run's keys"))?.map_err(failed)?;
    let since = Instant::now();
    let granting = client.lease_grant(whole_seconds(options.lease_ttl), None);
    let lease = timeout(limit, granting).await.map_err(|_| late("taking a lease"))?.map_err(failed)?;
    let ttl = Duration::from_secs(u64::try_from(lease.ttl()).unwrap_or(1).max(1));
    Ok(Core::new(client, base, place.clone(), (lease.id(), ttl, since), options))
}

/// etcd counts leases in whole seconds.
pub(crate) fn whole_seconds(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_millis().div_ceil(1000).max(1)).unwrap_or(i64::MAX)
}

fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Whether any member's port takes a connection; if none, why.
async fn probe(endpoint: &EtcdEndpoint, limit: Duration) -> Result<(), ConnectError> {
    let mut last = None;
    for (host, port) in &endpoint.hosts {
        let addr = authority(host, *port);
        last = Some(match timeout(limit, reach(host, *port)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(e)) => e,
            Err(_) => ConnectError::Timeout {
                addr,
                step: "connecting; a firewall that drops packets looks like this",
                after: limit,
            },
        });
    }
    Err(last.unwrap_or_else(|| ConnectError::Config("no etcd member given".into())))
}

async fn reach(host: &str, port: u16) -> Result<(), ConnectError> {
    let unresolved = |detail: String| ConnectError::Resolve { host: host.to_owned(), detail };
    let addrs = tokio::net::lookup_host((host, port)).await.map_err(|e| unresolved(e.to_string()))?;
    let mut last = unresolved("it has no address".into());
    for addr in addrs {
        match TcpStream::connect(addr).await {
            Ok(_) => return Ok(()),
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => {
                last = ConnectError::Refused { addr: addr.to_string() }
            }
            Err(e) => last = ConnectError::Io { addr: addr.to_string(), detail: e.to_string() },
        }
    }
    Err(last)
}

fn failure(place: &str, error: &Error) -> ConnectError {
    let detail = text(error);
    let lower = detail.to_ascii_lowercase();
    let addr = place.to_owned();
    match code(error) {
        Some(INVALID_ARGUMENT | PERMISSION_DENIED | UNAUTHENTICATED) => {
            ConnectError::Credentials { addr, detail }
        }
        _ if lower.contains("auth is not enabled") || lower.contains("authentication is not enabled") => {
            ConnectError::Config(format!("{place} has no users: unset KVWIRE_ETCD_USER ({detail})"))
        }
        // An alert is etcd's word about us, any other failure ours about etcd.
        _ if lower.contains("received fatal alert") => ConnectError::Config(format!(
            "{place} does not accept this process's certificate, or the lack of one: set KVWIRE_ETCD_CERT and \
             KVWIRE_ETCD_KEY to a client certificate of its authority and the key ({detail})"
        )),
        _ if lower.contains("certificate") || lower.contains("tls") => {
            ConnectError::Config(format!("TLS with {place} failed: {detail}"))
        }
        _ if lower.contains("http2") || lower.contains("http/2") || lower.contains("frame") => {
            ConnectError::NotKvwire { addr, detail: format!("nor is it etcd: {detail}") }
        }
        // The alert that would say so is often lost with the connection.
        _ if place.starts_with("etcds://") => ConnectError::Io {
            addr,
            detail: format!(
                "{detail}; an etcd that asks for a client certificate breaks the connection like this: \
                 KVWIRE_ETCD_CERT and KVWIRE_ETCD_KEY name one"
            ),
        },
        _ => ConnectError::Io { addr, detail },
    }
}
