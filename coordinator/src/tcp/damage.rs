//! What the fuzz tests of both ends share.

use proptest::prelude::*;

/// One of the headers, with some of its bytes replaced.
pub(super) fn damaged(headers: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    (prop::sample::select(headers), damage).prop_map(|(text, damage)| {
        let mut bytes = text.as_bytes().to_vec();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes
    })
}
