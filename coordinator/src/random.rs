//! Random bytes from the kernel, for tokens, nonces and lease secrets.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// `N` random bytes from `getrandom(2)`.
pub(crate) fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(n) => filled += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(bytes)
}
