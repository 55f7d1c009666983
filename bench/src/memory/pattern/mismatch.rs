//! What a failed check found, in figures for a file and in words for a person.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::measure::units::count;
use crate::workload::KvPlace;

/// A byte inside one descriptor of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Place {
    /// Index of the descriptor in the requested list, from 0.
    pub(crate) index: u64,
    /// Bytes from the start of that descriptor.
    pub(crate) offset: u64,
}

/// The first place at which the destination does not hold what was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Mismatch {
    /// Bytes from the start of the destination region to the first wrong byte.
    pub(crate) byte_offset: u64,
    /// The same byte, as descriptor and offset in it.
    pub(crate) descriptor: Option<Place>,
    /// The 8-byte word that should be there, little-endian, as `0x` and 16 hex digits. Bytes past the end of
    /// a transfer that stops inside the word are zero here and in `found`.
    #[serde(with = "hex_word")]
    #[schemars(with = "String", regex(pattern = "^0x[0-9a-f]{16}$"))]
    pub(crate) expected: u64,
    /// The word that is there.
    #[serde(with = "hex_word")]
    #[schemars(with = "String", regex(pattern = "^0x[0-9a-f]{16}$"))]
    pub(crate) found: u64,
    /// Bytes that were compared.
    pub(crate) checked_bytes: u64,
    /// Bytes among them that differ. A byte that was never written may hold the right value by chance (1 in
    /// 256).
    pub(crate) wrong_bytes: u64,
    /// What the wrong word looks like.
    pub(crate) kind: MismatchKind,
    /// The first wrong byte as a place in the KV cache of the decode side, where one was moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) place: Option<KvPlace>,
    /// The place in the KV cache of the prefill side that the data belongs to, where it is somebody else's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) belongs_to: Option<KvPlace>,
}

/// What the first wrong word looks like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "looks_like", rename_all = "snake_case")]
pub(crate) enum MismatchKind {
    /// Still the marker put there before the transfer: nothing arrived here.
    Untouched {
        /// Bytes in a row that were never written, from the first wrong byte, in the order of the
        /// descriptors.
        bytes: u64,
        /// Whether they are everything up to the end of the transfer.
        to_the_end: bool,
    },
    /// Wrong at first and right at a second look: the data arrived after the transfer was reported as done.
    Late,
    /// All bits zero.
    Zero,
    /// The right place, but the data of an earlier filling of the source.
    Stale {
        /// The filling it belongs to.
        epoch: u32,
    },
    /// The right place and filling, but the mark of an earlier transfer of the timed loop.
    StaleTransfer {
        /// The transfer it belongs to, from 1; 0 when no mark was ever written here.
        iteration: u32,
    },
    /// Data of this run that belongs somewhere else, as when two blocks are swapped.
    Elsewhere {
        /// Where it belongs: bytes from the start of the source region.
        source_offset: u64,
        /// The same place as a descriptor, if one covers it.
        descriptor: Option<Place>,
        /// The filling it belongs to, if it is an earlier one.
        stale_epoch: Option<u32>,
    },
    /// The right word with a few bits turned.
    BitFlip {
        /// Number of bits that differ in the word.
        bits: u32,
    },
    /// Nothing that this run ever wrote.
    Garbage,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "wrong data in {place}, from byte {}", count(self.byte_offset))?,
            None => write!(f, "wrong data from byte {}", count(self.byte_offset))?,
        }
        if let Some(place) = self.descriptor {
            write!(f, " ({place})")?;
        }
        write!(f, ": {}", self.kind)?;
        if let Some(place) = &self.belongs_to {
            write!(f, ", {place} of the prefill side")?;
        }
        write!(
            f,
            "; {} of {} bytes differ (first word expected {:#018x}, found {:#018x})",
            count(self.wrong_bytes),
            count(self.checked_bytes),
            self.expected,
            self.found
        )
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "descriptor {}, byte {} of it", count(self.index), count(self.offset))
    }
}

impl fmt::Display for MismatchKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Untouched { bytes, to_the_end: true } => {
                write!(f, "the last {} bytes of the transfer were never written", count(*bytes))
            }
            Self::Untouched { bytes, to_the_end: false } => {
                write!(f, "{} bytes here were never written", count(*bytes))
            }
            Self::Late => f.write_str("the right data arrived only after the transfer was reported as done"),
            Self::Zero => f.write_str("zeros instead of data"),
            Self::Stale { epoch } => write!(
                f,
                "old data: it was sent earlier in this run (filling {epoch}) and has not been replaced"
            ),
            Self::StaleTransfer { iteration: 0 } => {
                f.write_str("no transfer left its mark here, though they were reported as done")
            }
            Self::StaleTransfer { iteration } => write!(
                f,
                "the mark of transfer {}; later ones were reported as done but did not arrive",
                count(u64::from(*iteration))
            ),
            Self::Elsewhere { source_offset, descriptor, stale_epoch } => {
                write!(
                    f,
                    "right data in the wrong place: it belongs to source byte {}",
                    count(*source_offset)
                )?;
                if let Some(place) = descriptor {
                    write!(f, " ({place})")?;
                }
                match stale_epoch {
                    Some(epoch) => write!(f, " and is old (filling {epoch})"),
                    None => Ok(()),
                }
            }
            Self::BitFlip { bits: 1 } => f.write_str("one bit of the word was turned on its way"),
            Self::BitFlip { bits } => write!(f, "{bits} bits of the word were turned on their way"),
            Self::Garbage => f.write_str("data that this run never wrote"),
        }
    }
}

/// Words are hex text in files: JSON numbers lose precision beyond 2^53, and nobody reads a pattern in
/// decimal.
mod hex_word {
    use serde::de::{Deserialize as _, Deserializer, Error as _};
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(word: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{word:#018x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.strip_prefix("0x").unwrap_or(&text);
        u64::from_str_radix(digits, 16)
            .map_err(|_| D::Error::custom(format!("`{text}` is not a hexadecimal word")))
    }
}
