//! What a session writes into its keys: one line of JSON, then the payload as it is.

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use super::Role;

/// Version of the keys and their contents.
pub(crate) const VERSION: u32 = 1;
/// Longest identity or reason kept, in characters.
const MAX_LINE: usize = 1000;

/// `<role>/<name>`.
pub(crate) fn key(role: Role, name: &str) -> String {
    format!("{role}/{name}")
}

/// Key of message `n` of `role`; the digits keep listings in order.
pub(crate) fn message_key(role: Role, n: u64) -> String {
    format!("{role}/msg/{n:010}")
}

/// Blob of message `n` of `role`. Outside `<role>/`, so that a watch there does not carry it too.
pub(crate) fn blob_name(role: Role, n: u64) -> String {
    format!("blob/{role}/{n:010}")
}

/// Who holds a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Presence {
    pub(crate) session: u32,
    pub(crate) who: String,
}

impl Presence {
    pub(crate) fn of(who: &str) -> Self {
        Self { session: VERSION, who: line(who) }
    }

    pub(crate) fn encode(&self) -> Bytes {
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// Never fails: something that does not parse is version 0, shown as it is.
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let unknown = |_| Self { session: 0, who: line(&String::from_utf8_lossy(bytes)) };
        let presence: Self = serde_json::from_slice(bytes).unwrap_or_else(unknown);
        Self { who: line(&presence.who), ..presence }
    }
}

/// One line for people, whatever it was.
fn line(text: &str) -> String {
    text.chars().take(MAX_LINE).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

pub(crate) fn bye(reason: &str) -> Bytes {
    line(reason).into_bytes().into()
}

pub(crate) fn read_bye(value: &[u8]) -> String {
    line(&String::from_utf8_lossy(value))
}

/// Head of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// How many of the reader's messages the sender has read.
    pub(crate) ack: u64,
    /// The payload is not here but in the message's blob.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) blob: bool,
}

/// Room for a head beside a payload in one value, in bytes.
pub(crate) const HEAD_ROOM: usize = 128;

pub(crate) fn encode(head: Head, payload: &[u8]) -> Bytes {
    let text = serde_json::to_vec(&head).unwrap_or_default();
    let mut value = BytesMut::with_capacity(text.len() + 1 + payload.len());
    value.put_slice(&text);
    value.put_u8(b'\n');
    value.put_slice(payload);
    value.freeze()
}

pub(crate) fn decode(value: &Bytes) -> Option<(Head, Bytes)> {
    let end = value.iter().take(HEAD_ROOM).position(|b| *b == b'\n')?;
    let head = serde_json::from_slice(&value[..end]).ok()?;
    Some((head, value.slice(end + 1..)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_round_trip(ack: u64, blob: bool, payload in prop::collection::vec(any::<u8>(), 0..100)) {
            let value = encode(Head { ack, blob }, &payload);
            prop_assert!(value.len() <= payload.len() + HEAD_ROOM);
            prop_assert_eq!(decode(&value), Some((Head { ack, blob }, Bytes::from(payload))));
        }

        #[test]
        fn any_value_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&Bytes::from(bytes.clone()));
            prop_assert!(Presence::decode(&bytes).who.chars().all(|c| !c.is_control()));
        }
    }
}
