//! Versions of NIXL and UCX, as far as the input says them.

use std::fmt;

/// A version: major, minor, patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

impl Version {
    /// Reads `1.4`, `v1.4.1`, `1.4.1-rc0`.
    pub fn read(text: &str) -> Option<Self> {
        let text = text.trim_start_matches('v');
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let mut parts = text[..end].split('.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?.parse().ok()?;
        let patch = parts.next().and_then(|p| p.parse().ok()).unwrap_or(0);
        Some(Self(major, minor, patch))
    }
}

/// What is known about a worker's libraries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Versions {
    /// NIXL.
    pub nixl: Option<Version>,
    /// UCX.
    pub ucx: Option<Version>,
    /// NCCL.
    pub nccl: Option<Version>,
}

impl Versions {
    /// From the image's tag when it says so (`…-nixl1.4.0`, `…_ucx-1.20`), else what was given.
    pub fn of(image: Option<&str>, given: Self) -> Self {
        let tag = image.and_then(|i| i.rsplit('/').next()).unwrap_or("").to_ascii_lowercase();
        let nixl = after(&tag, "nixl").or(given.nixl);
        let ucx = after(&tag, "ucx").or(given.ucx).or_else(|| nixl.and_then(bundled));
        Self { nixl, ucx, nccl: after(&tag, "nccl").or(given.nccl) }
    }

    /// True, false, or not known: NIXL is at least this.
    pub fn nixl_from(&self, version: Version) -> Option<bool> {
        self.nixl.map(|v| v >= version)
    }

    /// True, false, or not known: UCX is at least this.
    pub fn ucx_from(&self, version: Version) -> Option<bool> {
        self.ucx.map(|v| v >= version)
    }
}

/// The UCX inside NIXL's published wheels (read from the wheels).
fn bundled(nixl: Version) -> Option<Version> {
    match nixl {
        Version(0, 10, _) | Version(1, 0, _) => Some(Version(1, 20, 0)),
        Version(1, 3, _) => Some(Version(1, 21, 0)),
        Version(1, 4, _) => Some(Version(1, 22, 0)),
        Version(1, 5, _) => Some(Version(1, 23, 0)),
        _ => None,
    }
}

fn after(tag: &str, word: &str) -> Option<Version> {
    let rest = &tag[tag.find(word)? + word.len()..];
    Version::read(rest.trim_start_matches(['-', '_', ':', '=', 'v']))
}
