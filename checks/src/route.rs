//! Which own address and interface a peer is reached through.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The way from this host to a peer, as the kernel's routing table has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Route {
    /// Own address.
    pub local: String,
    /// The peer's address and port.
    pub remote: String,
    /// Own network interface; `None` when the routing table does not tell.
    pub interface: Option<String>,
}

impl Route {
    /// The own end of a connection that stands.
    pub fn of(local: SocketAddr, remote: SocketAddr) -> Self {
        let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
        Self {
            local: local.ip().to_canonical().to_string(),
            remote: remote.to_string(),
            interface: interface(remote.ip()),
        }
    }

    /// Asks the kernel. Sends nothing: a datagram socket that is connected only looks the route up.
    pub fn to(remote: SocketAddr) -> Option<Self> {
        let any: SocketAddr = match remote {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(remote).ok()?;
        let local = socket.local_addr().ok()?.ip();
        Some(Self { local: local.to_string(), remote: remote.to_string(), interface: interface(remote.ip()) })
    }
}

fn interface(remote: IpAddr) -> Option<String> {
    match remote.to_canonical() {
        address if address.is_loopback() => Some("lo".to_owned()),
        IpAddr::V4(address) => best_v4(&fs::read_to_string("/proc/net/route").ok()?, address),
        IpAddr::V6(address) => best_v6(&fs::read_to_string("/proc/net/ipv6_route").ok()?, address),
    }
}

/// The interface of the most specific route in the format of `/proc/net/route`. Addresses there are hexadecimal
/// words in the byte order of the machine.
fn best_v4(table: &str, address: Ipv4Addr) -> Option<String> {
    let address = u32::from_ne_bytes(address.octets());
    let mut best: Option<(u32, String)> = None;
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [name, destination, _, _, _, _, _, mask, ..] = fields.as_slice() else { continue };
        let (Ok(destination), Ok(mask)) =
            (u32::from_str_radix(destination, 16), u32::from_str_radix(mask, 16))
        else {
            continue;
        };
        let specific = mask.count_ones();
        if address & mask == destination && best.as_ref().is_none_or(|(most, _)| specific > *most) {
            best = Some((specific, (*name).to_owned()));
        }
    }
    best.map(|(_, name)| name)
}

/// The same for `/proc/net/ipv6_route`, where a route is destination, prefix length, …, interface.
fn best_v6(table: &str, address: Ipv6Addr) -> Option<String> {
    let address = u128::from(address);
    let mut best: Option<(u32, String)> = None;
    for line in table.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [destination, length, .., name] = fields.as_slice() else { continue };
        let (Ok(destination), Ok(length)) =
            (u128::from_str_radix(destination, 16), u32::from_str_radix(length, 16))
        else {
            continue;
        };
        let mask = if length == 0 { 0 } else { u128::MAX.checked_shl(128 - length).unwrap_or(0) };
        if *name != "lo"
            && address & mask == destination
            && best.as_ref().is_none_or(|(most, _)| length > *most)
        {
            best = Some((length, (*name).to_owned()));
        }
    }
    best.map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0
veth1\t0000010A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
";

    #[test]
    #[cfg(target_endian = "little")]
    fn the_most_specific_route_wins() {
        assert_eq!(best_v4(V4, Ipv4Addr::new(10, 1, 0, 7)).as_deref(), Some("veth1"));
        assert_eq!(best_v4(V4, Ipv4Addr::new(8, 8, 8, 8)).as_deref(), Some("eth0"));
        assert_eq!(best_v4("Iface\nx y\n", Ipv4Addr::LOCALHOST), None);
    }

    #[test]
    fn ipv6_routes_are_read_too() {
        let table = "\
fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001 veth6
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003 eth0
";
        assert_eq!(best_v6(table, "fd00::2".parse().unwrap()).as_deref(), Some("veth6"));
        assert_eq!(best_v6(table, "2001:db8::1".parse().unwrap()).as_deref(), Some("eth0"));
    }

    #[test]
    fn loopback_is_reached_through_lo() {
        let route = Route::to(SocketAddr::from((Ipv4Addr::LOCALHOST, 9))).unwrap();
        assert_eq!((route.local.as_str(), route.interface.as_deref()), ("127.0.0.1", Some("lo")));
    }
}
