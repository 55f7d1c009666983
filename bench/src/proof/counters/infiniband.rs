//! RDMA ports: `/sys/class/infiniband/<device>/ports/<port>/counters` and `hw_counters`.
//!
//! Drivers differ: mlx5 and other InfiniBand-like ones have `counters/port_xmit_data` in units of four bytes; EFA and
//! bnxt_re have `hw_counters/tx_bytes`; rxe has only packets. EFA's `rdma_*_bytes` stay at zero where it sends, so the
//! sum of all kinds is used.

use std::path::Path;

use super::super::kernel_files::{NAMES_MAX, line, names, number};
use super::{Counter, Kind, Unit};

/// Bytes in the unit of `port_xmit_data` (InfiniBand PortCountersExtended).
const WORD: u64 = 4;
/// What RoCE v2 adds to the payload of a packet inside an Ethernet frame: IPv4 20, UDP 8, BTH 12, RETH 16, ICRC 4;
/// with IPv6 20 more.
const ROCE_HEADERS: u64 = 80;
/// Payload sizes that InfiniBand allows, largest first.
const PATH_MTUS: [u64; 5] = [4096, 2048, 1024, 512, 256];
/// Entries of a port's address table that are asked for its interface.
const GIDS_ASKED: u32 = 8;

/// Every port, and the longest time in ms for which a driver repeats an old value.
pub(super) fn read(sys: &Path) -> (Vec<Counter>, u64) {
    let class = sys.join("class/infiniband");
    let mut counters = Vec::new();
    let mut cached_ms = 0;
    for device in names(&class) {
        let folder = class.join(&device);
        for port in names(&folder.join("ports")) {
            let place = folder.join("ports").join(&port);
            cached_ms = cached_ms.max(number(&place.join("hw_counters/lifespan")).unwrap_or(0));
            let interface = interface(&folder, &place);
            let Some((unit, sent, received, source)) = values(sys, &folder, &place, interface.as_deref())
            else {
                continue;
            };
            counters.push(Counter {
                kind: Kind::Rdma,
                device: format!("{device}:{port}"),
                unit,
                sent,
                received,
                source,
                stacked: false,
                interface,
            });
            if counters.len() == NAMES_MAX {
                return (counters, cached_ms);
            }
        }
    }
    (counters, cached_ms)
}

fn values(
    sys: &Path,
    device: &Path,
    port: &Path,
    interface: Option<&str>,
) -> Option<(Unit, u64, u64, String)> {
    let pair = |folder: &Path, sent: &str, received: &str| {
        let values = (number(&folder.join(sent))?, number(&folder.join(received))?);
        Some((values.0, values.1, format!("{}/{{{sent},{received}}}", folder.display())))
    };
    if let Some((sent, received, source)) = pair(&port.join("counters"), "port_xmit_data", "port_rcv_data") {
        return Some((Unit::Bytes, sent.saturating_mul(WORD), received.saturating_mul(WORD), source));
    }
    for folder in [port.join("hw_counters"), device.join("hw_counters")] {
        if let Some((sent, received, source)) = pair(&folder, "tx_bytes", "rx_bytes") {
            return Some((Unit::Bytes, sent, received, source));
        }
    }
    let (sent, received, source) = pair(&port.join("hw_counters"), "sent_pkts", "rcvd_pkts")?;
    let mtu = interface.and_then(|name| number(&sys.join("class/net").join(name).join("mtu")));
    Some((Unit::Packets { payload_max: path_mtu(mtu) }, sent, received, source))
}

/// The payload of a packet on an Ethernet of this MTU; the largest that there is when it is not known.
fn path_mtu(ethernet: Option<u64>) -> u64 {
    let Some(room) = ethernet.map(|mtu| mtu.saturating_sub(ROCE_HEADERS)) else { return PATH_MTUS[0] };
    PATH_MTUS.into_iter().find(|mtu| *mtu <= room).unwrap_or(PATH_MTUS[4])
}

/// The network interface below a port: `parent` of a software adapter, else that of its first address.
fn interface(device: &Path, port: &Path) -> Option<String> {
    line(&device.join("parent"))
        .or_else(|| (0..GIDS_ASKED).find_map(|gid| line(&port.join("gid_attrs/ndevs").join(gid.to_string()))))
}
