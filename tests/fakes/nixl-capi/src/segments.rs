//! Moves bytes between lists of memory ranges, within a process or between two.

use std::io;

/// One range of memory in some process: address and length in bytes.
pub(crate) type Segment = (usize, usize);

/// The kernel takes at most this many ranges in one call (`IOV_MAX` on Linux).
const RANGES_PER_CALL: usize = 1024;

/// The process that a list of ranges lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) pid: u32,
}

impl Place {
    pub(crate) fn here() -> Self {
        Self { pid: std::process::id() }
    }

    fn is_here(self) -> bool {
        self == Self::here()
    }

    /// Reads all ranges, one after the other.
    ///
    /// # Safety
    /// Ranges in this process must be mapped. Others are checked by the kernel.
    pub(crate) unsafe fn read(self, ranges: &[Segment]) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; ranges.iter().map(|range| range.1).sum()];
        let mut at = 0;
        let local: Vec<Segment> = ranges
            .iter()
            .map(|range| {
                let part = (bytes[at..].as_mut_ptr() as usize, range.1);
                at += range.1;
                part
            })
            .collect();
        // SAFETY: `local` lies in `bytes`, and the caller vouches for `ranges`.
        unsafe { copy(&local, self, ranges, Direction::FromRemote)? };
        Ok(bytes)
    }

    /// Writes bytes over the ranges, one after the other, until either ends.
    ///
    /// # Safety
    /// As for [`Place::read`].
    pub(crate) unsafe fn write(self, ranges: &[Segment], bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        let (mut local, mut remote) = (Vec::new(), Vec::new());
        for range in ranges {
            let (part, tail) = rest.split_at(range.1.min(rest.len()));
            if part.is_empty() {
                break;
            }
            local.push((part.as_ptr() as usize, part.len()));
            remote.push((range.0, part.len()));
            rest = tail;
        }
        // SAFETY: `local` lies in `bytes`, and the caller vouches for `ranges`.
        unsafe { copy(&local, self, &remote, Direction::ToRemote) }
    }
}

/// Which way bytes go between the local and the remote ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    FromRemote,
    ToRemote,
}

/// Copies range by range; both lists have the same lengths.
///
/// # Safety
/// Local ranges, and remote ranges that lie in this process, must be mapped and not overlap each other.
pub(crate) unsafe fn copy(
    local: &[Segment],
    remote_place: Place,
    remote: &[Segment],
    direction: Direction,
) -> io::Result<()> {
    if remote_place.is_here() {
        for (ours, theirs) in local.iter().zip(remote) {
            let (from, to) = match direction {
                Direction::FromRemote => (theirs.0, ours.0),
                Direction::ToRemote => (ours.0, theirs.0),
            };
            // SAFETY: the caller vouches for both ranges; `copy` allows them to overlap.
            unsafe { std::ptr::copy(from as *const u8, to as *mut u8, ours.1) };
        }
        return Ok(());
    }
    for (ours, theirs) in local.chunks(RANGES_PER_CALL).zip(remote.chunks(RANGES_PER_CALL)) {
        // SAFETY: local ranges are the caller's word, remote ones are checked by the kernel.
        unsafe { across(remote_place.pid, ours, theirs, direction)? };
    }
    Ok(())
}

/// One call to the kernel, repeated where it moved less than everything.
///
/// # Safety
/// Local ranges must be mapped.
unsafe fn across(pid: u32, local: &[Segment], remote: &[Segment], direction: Direction) -> io::Result<()> {
    let total: usize = local.iter().map(|range| range.1).sum();
    let mut done = 0;
    while done < total {
        let (ours, theirs) = (vectors(local, done), vectors(remote, done));
        let call = match direction {
            Direction::FromRemote => libc::process_vm_readv,
            Direction::ToRemote => libc::process_vm_writev,
        };
        // SAFETY: both vectors live through the call and hold as many entries as said; the ranges are the caller's.
        let moved = unsafe {
            call(
                libc::pid_t::try_from(pid).map_err(io::Error::other)?,
                ours.as_ptr(),
                ours.len() as libc::c_ulong,
                theirs.as_ptr(),
                theirs.len() as libc::c_ulong,
                0,
            )
        };
        match usize::try_from(moved) {
            Err(_) => return Err(io::Error::last_os_error()),
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            Ok(moved) => done += moved,
        }
    }
    Ok(())
}

/// The kernel's form of the ranges, without the first `skip` bytes.
fn vectors(ranges: &[Segment], mut skip: usize) -> Vec<libc::iovec> {
    let mut vectors = Vec::with_capacity(ranges.len());
    for &(address, len) in ranges {
        let gone = skip.min(len);
        skip -= gone;
        if gone < len {
            vectors
                .push(libc::iovec { iov_base: (address + gone) as *mut libc::c_void, iov_len: len - gone });
        }
    }
    vectors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_scattered_ranges() {
        let source = *b"abcdefgh";
        let base = source.as_ptr() as usize;
        // SAFETY: the ranges lie in `source`.
        let read = unsafe { Place::here().read(&[(base + 4, 2), (base, 3)]) }.unwrap();
        assert_eq!(read, b"efabc");
        let mut target = [0_u8; 6];
        let base = target.as_mut_ptr() as usize;
        // SAFETY: the ranges lie in `target`.
        unsafe { Place::here().write(&[(base + 3, 3), (base, 3)], &read) }.unwrap();
        assert_eq!(&target, b"bc\0efa");
    }

    #[test]
    fn a_partly_moved_list_goes_on_where_it_stopped() {
        let rest = vectors(&[(1000, 4), (2000, 4)], 6);
        assert_eq!(rest.len(), 1);
        assert_eq!((rest[0].iov_base as usize, rest[0].iov_len), (2002, 2));
    }
}
