//! The header's fingerprint: how a test without libclang knows that the bindings are current.

/// FNV-1a over 64 bits: enough to notice an edit, and small enough to have here.
#[must_use]
pub fn fingerprint(text: &[u8]) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    text.iter().fold(OFFSET_BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn is_fnv1a() {
        // Published test vectors of FNV-1a.
        assert_eq!(fingerprint(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fingerprint(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn the_bindings_were_generated_from_this_header() {
        let header = include_bytes!("../include/nixl_capi.h");
        assert_eq!(
            crate::bindings::HEADER_FINGERPRINT,
            fingerprint(header),
            "include/nixl_capi.h changed: run `make bindings`"
        );
    }

    #[cfg(feature = "bindgen")]
    #[test]
    fn the_bindings_are_what_bindgen_writes() {
        let committed = std::fs::read_to_string(crate::generate::BINDINGS_PATH).unwrap();
        assert_eq!(committed, crate::generate::bindings().unwrap(), "run `make bindings`");
    }
}
