//! Names: the run id and the keys below it. One alphabet that needs no quoting in any store or shell.

use std::fmt;
use std::str::FromStr;

use crate::error::StoreError;
use crate::random::random_bytes;

/// Longest run id in bytes.
const MAX_RUN: usize = 64;
/// Longest key in bytes.
const MAX_KEY: usize = 256;

/// The name of one run: 1 to 64 of `A-Z a-z 0-9 . _ -`, not starting with a dot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(String);

/// A text that cannot be a run id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a run id has 1 to 64 characters of A-Z a-z 0-9 . _ - and does not start with a dot")]
pub struct RunIdError;

impl RunId {
    /// A fresh run id with 64 random bits.
    ///
    /// # Errors
    /// The system's random source failed.
    pub fn random() -> std::io::Result<Self> {
        let bytes = random_bytes::<8>()?;
        Ok(Self(crate::hex::encode(&bytes)))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RunId {
    type Err = RunIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits =
            (1..=MAX_RUN).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(is_name_byte);
        if fits { Ok(Self(text.to_owned())) } else { Err(RunIdError) }
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a byte may stand in a run id or a key segment.
pub(crate) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

/// Checks a whole key.
pub(crate) fn check_key(key: &str) -> Result<(), StoreError> {
    if key.is_empty() {
        return Err(bad(key, "it is empty"));
    }
    check_prefix(key)?;
    if key.split('/').any(str::is_empty) {
        return Err(bad(key, "it has an empty segment"));
    }
    Ok(())
}

/// Checks a prefix: like a key, but it may be empty or end in a slash.
pub(crate) fn check_prefix(prefix: &str) -> Result<(), StoreError> {
    if prefix.len() > MAX_KEY {
        return Err(bad(prefix, "it is longer than 256 bytes"));
    }
    if !prefix.bytes().all(|b| b == b'/' || is_name_byte(b)) {
        return Err(bad(prefix, "only A-Z a-z 0-9 . _ - and / are allowed"));
    }
    Ok(())
}

fn bad(key: &str, why: &'static str) -> StoreError {
    StoreError::BadKey { key: key.chars().take(64).collect(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        for good in ["a", "target/hello", "blob/x/0001", "a.b-c_d"] {
            assert_eq!(check_key(good), Ok(()));
        }
        for bad in ["", "/a", "a/", "a//b", "a b", "ä", &"x".repeat(257)] {
            assert!(check_key(bad).is_err(), "{bad}");
        }
        assert_eq!(check_prefix(""), Ok(()));
        assert_eq!(check_prefix("target/"), Ok(()));
    }

    #[test]
    fn run_ids() {
        assert!("job-7.a_B".parse::<RunId>().is_ok());
        for bad in ["", ".a", "a/b", "a b", &"x".repeat(65)] {
            assert!(bad.parse::<RunId>().is_err(), "{bad}");
        }
        let (a, b) = (RunId::random().unwrap(), RunId::random().unwrap());
        assert_ne!(a, b);
        assert_eq!(a.as_str().parse::<RunId>().unwrap(), a);
    }
}
