//! The shared secret of a run over TCP, and what is derived from it.

use std::fmt;
use std::str::FromStr;

use hmac::{Hmac, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::key::is_name_byte;
use crate::random::random_bytes;

/// Shortest token. A proof lets whoever saw it guess offline, so short words are refused.
const MIN: usize = 16;
/// Longest token.
const MAX: usize = 128;

/// A secret that both sides of a run know. Never shown by `Debug`; [`reveal`](Self::reveal) is the
/// one way to its text, for the join address that the target prints.
#[derive(Clone)]
pub struct Token(String);

/// A text that cannot be a token. The text itself is not repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a token has 16 to 128 characters of A-Z a-z 0-9 . _ - (this one has {len} bytes{other})",
    other = if *alphabet { "" } else { ", and others among them" })]
pub struct TokenError {
    len: usize,
    alphabet: bool,
}

impl Token {
    /// A fresh token of 128 random bits.
    ///
    /// # Errors
    /// The system's random source failed.
    pub fn random() -> std::io::Result<Self> {
        Ok(Self(crate::hex::encode(&random_bytes::<16>()?)))
    }

    /// The secret text. Whoever has it can join the run.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// HMAC-SHA256 over the parts, each preceded by its length so that no two lists of parts
    /// give the same input.
    pub(crate) fn mac(&self, parts: &[&[u8]]) -> [u8; 32] {
        mac(self.0.as_bytes(), parts)
    }
}

/// HMAC-SHA256 (RFC 2104) of length-prefixed parts.
pub(crate) fn mac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = keyed(key);
    for part in parts {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

#[expect(clippy::expect_used, reason = "HMAC takes a key of any length (RFC 2104)")]
fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length")
}

/// Compares in a time that depends on the lengths only.
pub(crate) fn equal(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).into()
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let alphabet = text.bytes().all(is_name_byte);
        if alphabet && (MIN..=MAX).contains(&text.len()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(TokenError { len: text.len(), alphabet })
        }
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        equal(self.0.as_bytes(), other.0.as_bytes())
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_and_errors_show_nothing_of_it() {
        let token = Token::random().unwrap();
        assert_eq!(token.reveal().len(), 32);
        assert_eq!(format!("{token:?}"), "Token(hidden)");
        let error = "sh0rt!".parse::<Token>().unwrap_err();
        assert!(!format!("{error} {error:?}").contains("sh0rt"));
    }

    #[test]
    fn mac_is_hmac_sha256_and_parts_do_not_run_together() {
        // RFC 4231, test case 2 gives the plain HMAC; our framing is checked by difference.
        let plain = {
            let mut m = keyed(b"Jefe");
            m.update(b"what do ya want for nothing?");
            m.finalize().into_bytes()
        };
        assert_eq!(
            crate::hex::encode(&plain),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_ne!(mac(b"k", &[b"ab", b"c"]), mac(b"k", &[b"a", b"bc"]));
    }
}
