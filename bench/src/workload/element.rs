//! The number format of a KV cache.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What one number of the cache is stored as. Scales of the 8-bit kinds are per tensor in the engines and not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Element {
    /// 2 bytes.
    Bf16,
    /// 2 bytes.
    Fp16,
    /// 4 bytes.
    Fp32,
    /// 1 byte, whatever the split into exponent and mantissa.
    Fp8,
    /// 1 byte.
    Int8,
}

impl Element {
    /// Bytes of one number.
    pub(crate) const fn bytes(self) -> u64 {
        match self {
            Self::Bf16 | Self::Fp16 => 2,
            Self::Fp32 => 4,
            Self::Fp8 | Self::Int8 => 1,
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
            Self::Fp32 => "fp32",
            Self::Fp8 => "fp8",
            Self::Int8 => "int8",
        })
    }
}
