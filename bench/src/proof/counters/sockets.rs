//! Bytes of the TCP connections of one process, from the kernel's socket diagnostics (`man 7 sock_diag`).
//!
//! Interface counters count everybody's bytes; these are the engine's own, so other traffic does not disturb them.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with, sockopt,
};

use super::SocketBytes;

/// Descriptors of the engine that are looked at.
const DESCRIPTORS_MAX: usize = 65_536;
/// Answers of the kernel that are read for one family.
const ANSWERS_MAX: usize = 4096;
/// The kernel fills at most 32 KiB of one answer.
const ANSWER_BYTES: usize = 64 << 10;
/// The kernel answers at once.
const PATIENCE: Duration = Duration::from_millis(500);

const NLMSG_HEADER: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const INET_DIAG_INFO: u16 = 2;
/// Offsets of the two addresses in `struct inet_diag_msg`.
const SOURCE_AT: usize = 8;
const DESTINATION_AT: usize = 24;
/// Offset of the inode in `struct inet_diag_msg`, and its size.
const INODE_AT: usize = 68;
const DIAG_MSG: usize = 72;
/// Offsets in `struct tcp_info`: `tcpi_bytes_acked` and `tcpi_bytes_received` (Linux 4.1).
const ACKED_AT: usize = 120;
const RECEIVED_AT: usize = 128;

/// The connections of each of these processes together; `None` when the kernel does not tell.
pub(super) fn read(proc: &Path, pids: &[u32]) -> Option<Vec<SocketBytes>> {
    let inodes: Vec<BTreeSet<u64>> = pids.iter().map(|pid| inodes(proc, *pid)).collect::<Option<_>>()?;
    let mut of_each = vec![SocketBytes::default(); pids.len()];
    for family in [AF_INET, AF_INET6] {
        if pids.is_empty() {
            break;
        }
        let all = dump(family)?;
        for (sum, inodes) in of_each.iter_mut().zip(&inodes) {
            let own = all.iter().filter(|connection| inodes.contains(&u64::from(connection.inode)));
            *sum = own.map(Connection::bytes).fold(*sum, SocketBytes::and);
        }
    }
    Some(of_each)
}

/// Inodes of the sockets that a process holds.
fn inodes(proc: &Path, pid: u32) -> Option<BTreeSet<u64>> {
    let entries = std::fs::read_dir(proc.join(pid.to_string()).join("fd")).ok()?;
    let inode = |link: &Path| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok();
    let links = entries.flatten().take(DESCRIPTORS_MAX).filter_map(|e| std::fs::read_link(e.path()).ok());
    Some(links.filter_map(|link| inode(&link)).collect())
}

#[derive(Debug, PartialEq, Eq)]
struct Connection {
    inode: u32,
    sent: u64,
    received: u64,
    local: bool,
}

impl Connection {
    fn bytes(&self) -> SocketBytes {
        let local = |bytes: u64| if self.local { bytes } else { 0 };
        SocketBytes {
            sent: self.sent,
            received: self.received,
            local_sent: local(self.sent),
            local_received: local(self.received),
            connections: 1,
        }
    }
}

fn dump(family: u8) -> Option<Vec<Connection>> {
    let fd = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )
    .ok()?;
    sockopt::set_socket_timeout(&fd, sockopt::Timeout::Recv, Some(PATIENCE)).ok()?;
    // A netlink socket that is not connected sends to the kernel.
    send(&fd, &request(family), SendFlags::empty()).ok()?;
    let mut connections = Vec::new();
    let mut buffer = vec![0; ANSWER_BYTES];
    for _ in 0..ANSWERS_MAX {
        let (length, _) = recv(&fd, buffer.as_mut_slice(), RecvFlags::empty()).ok()?;
        if parse(buffer.get(..length)?, &mut connections)? {
            return Some(connections);
        }
    }
    None
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`, for all states and with `tcp_info`.
fn request(family: u8) -> [u8; 72] {
    let mut bytes = [0; 72];
    bytes[0..4].copy_from_slice(&72_u32.to_ne_bytes());
    bytes[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&DUMP.to_ne_bytes());
    bytes[16] = family;
    bytes[17] = IPPROTO_TCP;
    bytes[18] = 1 << (INET_DIAG_INFO - 1);
    bytes[20..24].copy_from_slice(&u32::MAX.to_ne_bytes());
    bytes
}

/// Takes one answer apart. `Some(true)` at its end, `None` when the kernel refused.
fn parse(mut bytes: &[u8], connections: &mut Vec<Connection>) -> Option<bool> {
    while bytes.len() >= NLMSG_HEADER {
        let length = u32_at(bytes, 0)? as usize;
        match u16_at(bytes, 4)? {
            NLMSG_DONE => return Some(true),
            NLMSG_ERROR => return None,
            SOCK_DIAG_BY_FAMILY => connections.extend(connection(bytes.get(NLMSG_HEADER..length)?)),
            _ => {}
        }
        if length < NLMSG_HEADER {
            return None;
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(false)
}

fn connection(message: &[u8]) -> Option<Connection> {
    let inode = u32_at(message, INODE_AT)?;
    let mut attributes = message.get(DIAG_MSG..)?;
    while attributes.len() >= 4 {
        let length = usize::from(u16_at(attributes, 0)?);
        if u16_at(attributes, 2)? == INET_DIAG_INFO {
            let info = attributes.get(4..length)?;
            return Some(Connection {
                inode,
                sent: u64_at(info, ACKED_AT)?,
                received: u64_at(info, RECEIVED_AT)?,
                local: message.get(SOURCE_AT..DESTINATION_AT)?
                    == message.get(DESTINATION_AT..DESTINATION_AT + 16)?,
            });
        }
        if length < 4 {
            return None;
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn bytes_of_this_process_are_counted() {
        let proc = Path::new("/proc");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        let before = read(proc, &[std::process::id()]).unwrap()[0];
        ours.write_all(&[7; 50_000]).unwrap();
        let mut taken = vec![0; 50_000];
        theirs.read_exact(&mut taken).unwrap();
        let after = read(proc, &[std::process::id()]).unwrap()[0];
        // Other tests of this process may move bytes meanwhile, never fewer.
        assert!(after.received - before.received >= 50_000, "{before:?} {after:?}");
        assert!(after.local_received - before.local_received >= 50_000, "{before:?} {after:?}");
        assert!(after.connections >= 2);
    }

    #[test]
    fn a_process_that_is_gone_has_no_sockets_to_count() {
        assert_eq!(read(Path::new("/proc"), &[u32::MAX]), None);
        assert_eq!(read(Path::new("/no/such/proc"), &[1]), None);
        assert_eq!(read(Path::new("/proc"), &[]), Some(Vec::new()));
    }

    proptest::proptest! {
        #[test]
        fn no_answer_makes_the_parser_fail(bytes in proptest::collection::vec(0_u8.., 0..400)) {
            let mut connections = Vec::new();
            let _ = parse(&bytes, &mut connections);
        }
    }
}
