//! Reads the counters of priority flow control (PFC), which sysfs does not show: by the call that `ethtool -S` makes, for
//! which nobody has to be root.
#![allow(unsafe_code, reason = "an ioctl is no safe call; each block says why it is sound")]

use std::ffi::{c_int, c_ulong, c_void};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;

use super::evidence::{Entry, Evidence};

// linux/sockios.h and linux/ethtool.h
const SIOCETHTOOL: c_ulong = 0x8946;
const GET_STRINGS: u32 = 0x1b;
const GET_STATISTICS: u32 = 0x1d;
const GET_SET_INFO: u32 = 0x37;
const STATISTICS: u32 = 1;
const NAME_BYTES: usize = 32;
/// Counters of one interface: an mlx5 has some thousand.
const COUNTERS_MAX: u32 = 65_536;
/// Interfaces asked.
const INTERFACES_MAX: usize = 64;

unsafe extern "C" {
    fn ioctl(fd: c_int, request: c_ulong, ...) -> c_int;
}

/// `struct ifreq` as this call uses it, with the size that the kernel copies (40 bytes on 64-bit machines).
#[repr(C)]
struct Request {
    name: [u8; 16],
    data: *mut c_void,
    rest: [u64; 2],
}

/// True for a counter that tells of PFC: pauses and discards by priority.
pub(super) fn is_wanted(name: &str) -> bool {
    name.contains("prio") && (name.contains("pause") || name.contains("discard"))
}

/// Adds `probe:ethtool/INTERFACE` for the network interface of each RoCE port: a name and a number a line. An interface
/// without such counters, or one that cannot be asked, has none.
pub(super) fn probe(evidence: &mut Evidence) {
    let ndevs =
        evidence.below("/sys/class/infiniband").filter(|(path, _)| path.contains("/gid_attrs/ndevs/"));
    let mut interfaces: Vec<String> = ndevs
        .filter_map(|(_, entry)| match entry {
            Entry::Text(text) => Some(text.trim().to_owned()).filter(|name| !name.is_empty()),
            _ => None,
        })
        .collect();
    interfaces.sort();
    interfaces.dedup();
    for interface in interfaces.iter().take(INTERFACES_MAX) {
        let Ok(counters) = counters(interface) else { continue };
        let wanted = counters.iter().filter(|(name, _)| is_wanted(name));
        let text =
            wanted.fold(String::new(), |text, (name, value)| text + name + " " + &value.to_string() + "\n");
        if !text.is_empty() {
            evidence.add(format!("probe:ethtool/{interface}"), Entry::Text(text));
        }
    }
}

/// Every counter of a network interface, as its driver names it.
fn counters(interface: &str) -> io::Result<Vec<(String, u64)>> {
    // Any socket will do: the call is about the interface that is named.
    let socket = UnixDatagram::unbound()?;
    let mut info = [GET_SET_INFO, 0, 1 << STATISTICS, 0, 0];
    call(&socket, interface, &mut info)?;
    let count = if info[2] & 1 << STATISTICS == 0 { 0 } else { info[4] };
    if count == 0 || count > COUNTERS_MAX {
        return Ok(Vec::new());
    }
    // Kernels before 6.17 write as many entries as there are by now, whatever was asked for: room for a driver whose
    // queues are multiplied between the calls.
    let (wide, words) = (count as usize * 4 + 1024, NAME_BYTES / size_of::<u32>());
    let mut names = vec![0_u32; 3 + wide * words];
    names[..3].copy_from_slice(&[GET_STRINGS, STATISTICS, count]);
    call(&socket, interface, &mut names)?;
    let mut values = vec![0_u32; 2 + wide * 2];
    values[..2].copy_from_slice(&[GET_STATISTICS, count]);
    call(&socket, interface, &mut values)?;
    // The kernel says how many it wrote; the number may have changed between the calls.
    let told = (names[2].min(values[1]) as usize).min(wide);
    let one = |at: usize| {
        let bytes: Vec<u8> =
            names[3 + at * words..3 + (at + 1) * words].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
        let halves = [values[2 + at * 2].to_ne_bytes(), values[3 + at * 2].to_ne_bytes()].concat();
        let value = halves.try_into().map_or(0, u64::from_ne_bytes);
        (String::from_utf8_lossy(&bytes[..end]).into_owned(), value)
    };
    Ok((0..told).map(one).collect())
}

/// One ethtool command, of which the buffer holds the head and room for the answer.
fn call(socket: &UnixDatagram, interface: &str, buffer: &mut [u32]) -> io::Result<()> {
    let mut request = Request { name: [0; 16], data: buffer.as_mut_ptr().cast(), rest: [0; 2] };
    let bytes = interface.as_bytes();
    if bytes.len() >= request.name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    request.name[..bytes.len()].copy_from_slice(bytes);
    // SAFETY: the descriptor is open for the call; the request is as large as `struct ifreq` and names a buffer that lives
    // through it. The kernel fills the buffer's head and the entries that the interface has, for which it has room with
    // much to spare.
    let code = unsafe { ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pauses_and_discards_by_priority_are_kept() {
        for (name, wanted) in [
            ("rx_prio3_pause", true),
            ("rx_prio3_pause_duration", true),
            ("rx_prio0_discards", true),
            ("rx_prio3_bytes", false),
            ("rx_discards_phy", false),
        ] {
            assert_eq!(is_wanted(name), wanted, "{name}");
        }
    }

    #[test]
    fn this_machine_answers_or_refuses_and_names_are_names() {
        assert!(counters("no-such-thing").is_err());
        assert!(counters("a name that is longer than the kernel takes").is_err());
        for interface in std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten() {
            let name = interface.file_name().to_string_lossy().into_owned();
            for (counter, _) in counters(&name).unwrap_or_default() {
                assert!(
                    !counter.is_empty() && counter.is_ascii() && !counter.contains(char::is_control),
                    "{name}: {counter:?}"
                );
            }
        }
    }
}
