//! The text that says where a run meets: `tcp://TOKEN@host:port/RUN`, `etcd://host:port,…/prefix`.

use std::fmt;
use std::str::FromStr;

use crate::key::{RunId, RunIdError, is_name_byte};
use crate::token::{Token, TokenError};

/// Longest text taken as an endpoint, in bytes.
const MAX_TEXT: usize = 2048;
/// Most etcd members in one endpoint.
const MAX_HOSTS: usize = 16;
/// Port of etcd's client interface when none is given.
const ETCD_PORT: u16 = 2379;
/// Where runs are kept in etcd when no prefix is given.
const ETCD_PREFIX: &str = "kvwire";

/// Where a run meets. `Display` hides the token; [`TcpEndpoint::join_address`] shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A kvwire process serves.
    Tcp(TcpEndpoint),
    /// An etcd cluster serves.
    Etcd(EtcdEndpoint),
}

/// `tcp://[TOKEN@]host:port[/RUN]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpEndpoint {
    /// Host name or address, without brackets.
    pub host: String,
    /// Port; 0 only makes sense for a server.
    pub port: u16,
    /// The run's secret.
    pub token: Option<Token>,
    /// The run, when the address names it.
    pub run: Option<RunId>,
}

/// `etcd://host[:2379][,host…][/prefix]`, or `etcds://` for TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdEndpoint {
    /// Members: host (without brackets) and port.
    pub hosts: Vec<(String, u16)>,
    /// Whether to speak TLS.
    pub tls: bool,
    /// Keys of all runs are below this, without slashes at its ends.
    pub prefix: String,
}

/// What is wrong with an endpoint's text. Never repeats what may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Too long to be meant.
    #[error("a rendezvous address has at most {MAX_TEXT} bytes")]
    TooLong,
    /// No `scheme://`.
    #[error("a rendezvous address starts with tcp://, etcd:// or etcds://")]
    NoScheme,
    /// Another scheme.
    #[error("unknown rendezvous {0:?}: use tcp://, etcd:// or etcds://")]
    Scheme(String),
    /// Nothing where the host belongs.
    #[error("the host is missing: write {0}host:port")]
    NoHost(&'static str),
    /// A host with characters that no host has.
    #[error("{0:?} is not a host name or address")]
    Host(String),
    /// An IPv6 address without brackets.
    #[error("an IPv6 address needs brackets: write [{0}]:port")]
    Brackets(String),
    /// No port.
    #[error("the port of {0} is missing: write {0}:port")]
    NoPort(String),
    /// Not a port.
    #[error("{0:?} is not a port (1 to 65535)")]
    Port(String),
    /// Too many etcd members.
    #[error("at most {MAX_HOSTS} etcd members can be given")]
    TooManyHosts,
    /// The part before `@` of a TCP address.
    #[error("before the @ of a tcp:// address stands the token: {0}")]
    Token(#[from] TokenError),
    /// The part after the slash of a TCP address.
    #[error("after the slash of a tcp:// address stands the run id: {0}")]
    Run(#[from] RunIdError),
    /// A bad etcd prefix.
    #[error("an etcd prefix has segments of A-Z a-z 0-9 . _ - joined by single slashes, at most 128 bytes")]
    Prefix,
    /// User or password in an etcd address.
    #[error(
        "user and password do not belong into an etcd address, where process lists and logs would show them: set KVWIRE_ETCD_USER and KVWIRE_ETCD_PASSWORD (or KVWIRE_ETCD_PASSWORD_FILE)"
    )]
    EtcdUser,
    /// `?` or `#`.
    #[error("a rendezvous address has no ? and no # part")]
    Query,
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > MAX_TEXT {
            return Err(EndpointError::TooLong);
        }
        let (scheme, rest) = text.split_once("://").ok_or(EndpointError::NoScheme)?;
        match scheme {
            "tcp" => parse_tcp(rest).map(Self::Tcp),
            "etcd" => parse_etcd(rest, false).map(Self::Etcd),
            "etcds" => parse_etcd(rest, true).map(Self::Etcd),
            other => Err(EndpointError::Scheme(other.chars().take(20).collect())),
        }
    }
}

fn parse_tcp(rest: &str) -> Result<TcpEndpoint, EndpointError> {
    let (authority, run) = split_path(rest);
    let (token, host) = match authority.rsplit_once('@') {
        Some((token, host)) => (Some(token.parse()?), host),
        None => (None, authority),
    };
    if rest.contains(['?', '#']) {
        return Err(EndpointError::Query);
    }
    let (host, port) = parse_host(host, "tcp://")?;
    let port = port.ok_or_else(|| EndpointError::NoPort(bracketed(&host)))?;
    let run = match run {
        Some("") | None => None,
        Some(run) => Some(run.parse()?),
    };
    Ok(TcpEndpoint { host, port, token, run })
}

fn parse_etcd(rest: &str, tls: bool) -> Result<EtcdEndpoint, EndpointError> {
    if rest.contains('@') {
        return Err(EndpointError::EtcdUser);
    }
    if rest.contains(['?', '#']) {
        return Err(EndpointError::Query);
    }
    let (authority, prefix) = split_path(rest);
    let mut hosts = Vec::new();
    for member in authority.split(',') {
        if hosts.len() == MAX_HOSTS {
            return Err(EndpointError::TooManyHosts);
        }
        let (host, port) = parse_host(member, if tls { "etcds://" } else { "etcd://" })?;
        hosts.push((host, port.unwrap_or(ETCD_PORT)));
    }
    let prefix = parse_prefix(prefix.unwrap_or_default())?;
    Ok(EtcdEndpoint { hosts, tls, prefix })
}

fn parse_prefix(text: &str) -> Result<String, EndpointError> {
    let text = text.strip_suffix('/').unwrap_or(text);
    if text.is_empty() {
        return Ok(ETCD_PREFIX.to_owned());
    }
    let good = text.len() <= 128 && text.split('/').all(|s| !s.is_empty() && s.bytes().all(is_name_byte));
    if good { Ok(text.to_owned()) } else { Err(EndpointError::Prefix) }
}

fn split_path(rest: &str) -> (&str, Option<&str>) {
    match rest.split_once('/') {
        Some((authority, path)) => (authority, Some(path)),
        None => (rest, None),
    }
}

/// `host`, `host:port`, `[v6]` or `[v6]:port`.
fn parse_host(text: &str, scheme: &'static str) -> Result<(String, Option<u16>), EndpointError> {
    if let Some(inner) = text.strip_prefix('[') {
        let (host, port) = inner.split_once(']').ok_or_else(|| EndpointError::Host(text.to_owned()))?;
        // A scope id (fe80::1%eth0) is the system's to check.
        let address = host.split('%').next().unwrap_or(host);
        if address.parse::<std::net::Ipv6Addr>().is_err()
            || !host.bytes().all(|b| b == b':' || b == b'%' || is_name_byte(b))
        {
            return Err(EndpointError::Host(text.to_owned()));
        }
        let port = match port.strip_prefix(':') {
            Some(port) => Some(parse_port(port)?),
            None if port.is_empty() => None,
            None => return Err(EndpointError::Host(text.to_owned())),
        };
        return Ok((host.to_owned(), port));
    }
    if text.matches(':').count() > 1 {
        return Err(EndpointError::Brackets(text.to_owned()));
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(parse_port(port)?)),
        None => (text, None),
    };
    if host.is_empty() {
        return Err(EndpointError::NoHost(scheme));
    }
    if !host.bytes().all(is_name_byte) {
        return Err(EndpointError::Host(host.to_owned()));
    }
    Ok((host.to_owned(), port))
}

fn parse_port(text: &str) -> Result<u16, EndpointError> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| digits).ok_or_else(|| EndpointError::Port(text.to_owned()))
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

impl TcpEndpoint {
    /// `host:port`, with brackets where they belong.
    #[must_use]
    pub fn authority(&self) -> String {
        format!("{}:{}", bracketed(&self.host), self.port)
    }

    /// The whole address with the token, for the one line that the target prints. Whoever has it
    /// can join the run.
    #[must_use]
    pub fn join_address(&self) -> String {
        let token = self.token.as_ref().map(|t| format!("{}@", t.reveal())).unwrap_or_default();
        format!("tcp://{token}{}{}", self.authority(), self.run_part())
    }

    fn run_part(&self) -> String {
        self.run.as_ref().map(|r| format!("/{r}")).unwrap_or_default()
    }
}

impl fmt::Display for TcpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = if self.token.is_some() { "***@" } else { "" };
        write!(f, "tcp://{token}{}{}", self.authority(), self.run_part())
    }
}

impl fmt::Display for EtcdEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<_> = self.hosts.iter().map(|(h, p)| format!("{}:{p}", bracketed(h))).collect();
        let scheme = if self.tls { "etcds" } else { "etcd" };
        write!(f, "{scheme}://{}/{}", hosts.join(","), self.prefix)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(tcp) => tcp.fmt(f),
            Self::Etcd(etcd) => etcd.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn tcp(text: &str) -> TcpEndpoint {
        match text.parse().unwrap() {
            Endpoint::Tcp(tcp) => tcp,
            Endpoint::Etcd(_) => panic!("{text} is not tcp"),
        }
    }

    #[test]
    fn tcp_addresses_round_trip() {
        for text in [
            "tcp://host:1",
            "tcp://10.0.0.1:65535/run-1",
            &format!("tcp://{TOKEN}@node7.example:7000/job-3"),
            &format!("tcp://{TOKEN}@[::1]:7000/job-3"),
            "tcp://[fe80::1%eth0]:7000",
        ] {
            assert_eq!(tcp(text).join_address(), text);
        }
        assert_eq!(tcp("tcp://h:1/").run, None);
    }

    #[test]
    fn the_token_is_shown_by_join_address_only() {
        let endpoint: Endpoint = format!("tcp://{TOKEN}@h:1/r").parse().unwrap();
        assert_eq!(endpoint.to_string(), "tcp://***@h:1/r");
        assert!(!format!("{endpoint:?} {endpoint}").contains("0123"));
        // Nor by what goes wrong right beside it.
        for text in [
            format!("tcp://{TOKEN}!@h:1"),
            format!("tcp://{TOKEN}@h"),
            format!("tcp://{TOKEN}@h:x"),
            format!("tcp://u:{TOKEN}@h:1"),
        ] {
            let error = text.parse::<Endpoint>().unwrap_err();
            assert!(!format!("{error} {error:?}").contains("0123"), "{error}");
        }
    }

    #[test]
    fn etcd_addresses() {
        let show = |text: &str| text.parse::<Endpoint>().unwrap().to_string();
        assert_eq!(show("etcd://h"), "etcd://h:2379/kvwire");
        assert_eq!(show("etcd://a:1,b:2/team/x/"), "etcd://a:1,b:2/team/x");
        assert_eq!(show("etcds://[::1],b"), "etcds://[::1]:2379,b:2379/kvwire");
    }

    #[test]
    fn errors_name_what_is_wrong() {
        for (text, part) in [
            ("host:1", "starts with tcp://"),
            ("http://h:1", "unknown rendezvous \"http\""),
            ("tcp://", "host is missing"),
            ("tcp://:7", "host is missing"),
            ("tcp://h", "port of h is missing"),
            ("tcp://h:70000", "\"70000\" is not a port"),
            ("tcp://h:+7", "\"+7\" is not a port"),
            ("tcp://::1:7", "needs brackets"),
            ("tcp://[zz]:7", "not a host"),
            ("tcp://h o:7", "not a host"),
            ("tcp://short@h:7", "the token"),
            ("tcp://h:7/a/b", "run id"),
            ("tcp://h:7?x", "no ?"),
            ("etcd://u:p@h", "KVWIRE_ETCD_PASSWORD"),
            ("etcd://h,,i", "host is missing"),
            ("etcd://h//x", "prefix"),
        ] {
            let error = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,80}") {
            let _ = text.parse::<Endpoint>();
        }

        #[test]
        fn near_addresses_never_panic_and_what_parses_round_trips(
            scheme in "(tcp|etcd|etcds)://",
            rest in "[a-f0-9@:,/\\[\\]%?#._-]{0,60}",
        ) {
            match format!("{scheme}{rest}").parse::<Endpoint>() {
                Ok(Endpoint::Tcp(tcp)) => prop_assert_eq!(tcp.join_address().parse(), Ok(Endpoint::Tcp(tcp))),
                Ok(Endpoint::Etcd(etcd)) => prop_assert_eq!(etcd.to_string().parse(), Ok(Endpoint::Etcd(etcd))),
                Err(_) => {}
            }
        }
    }
}
