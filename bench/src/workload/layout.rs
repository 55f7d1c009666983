//! How an engine lays a KV cache out, and which way it moves it. Read in the engines' sources, at the version that
//! each name carries.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::plan::Op;

/// A layout of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum Layout {
    /// vLLM `NixlConnector`, keys and values of each layer in regions of their own: one descriptor for each region and
    /// block.
    #[serde(rename = "vllm-split@00bd5131")]
    VllmSplit,
    /// vLLM `NixlConnector`, key and value of a block together: half as many descriptors of twice the size.
    #[serde(rename = "vllm-packed@00bd5131")]
    VllmPacked,
    /// vLLM `NixlConnector` with blocks that hold all layers: one descriptor a block.
    #[serde(rename = "vllm-cross-layer@00bd5131")]
    VllmCrossLayer,
    /// `SGLang`, pages of a key and a value buffer for each layer. Between ranks of different size, one descriptor for
    /// each layer, buffer and token.
    #[serde(rename = "sglang@007ba532")]
    Sglang,
    /// `TensorRT-LLM`'s C++ transfer agent: everything for a peer is gathered into one contiguous buffer first.
    #[serde(rename = "trtllm-staged@b35ac1b6")]
    TrtllmStaged,
}

impl Layout {
    /// All of them.
    pub(crate) const ALL: [Self; 5] =
        [Self::VllmSplit, Self::VllmPacked, Self::VllmCrossLayer, Self::Sglang, Self::TrtllmStaged];

    /// Name without the version.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::VllmSplit => "vllm-split",
            Self::VllmPacked => "vllm-packed",
            Self::VllmCrossLayer => "vllm-cross-layer",
            Self::Sglang => "sglang",
            Self::TrtllmStaged => "trtllm-staged",
        }
    }

    /// The commit of the engine whose source it was read in.
    pub(crate) const fn version(self) -> &'static str {
        match self {
            Self::VllmSplit | Self::VllmPacked | Self::VllmCrossLayer => "00bd5131",
            Self::Sglang => "007ba532",
            Self::TrtllmStaged => "b35ac1b6",
        }
    }

    /// What the engine does: decode pulls, or prefill pushes.
    pub(crate) const fn op(self) -> Op {
        match self {
            Self::VllmSplit | Self::VllmPacked | Self::VllmCrossLayer => Op::Read,
            Self::Sglang | Self::TrtllmStaged => Op::Write,
        }
    }

    /// Tokens of a block unless the user says otherwise. `SGLang`'s own default is 1; deployments set 64 or more.
    pub(crate) const fn block_tokens(self) -> u32 {
        match self {
            Self::VllmSplit | Self::VllmPacked | Self::VllmCrossLayer => 16,
            Self::Sglang | Self::TrtllmStaged => 64,
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}@{}", self.name(), self.version()))
    }
}

impl FromStr for Layout {
    type Err = String;

    /// A name with or without its version; `vllm` and `trtllm` alone mean the usual one.
    fn from_str(typed: &str) -> Result<Self, String> {
        let (name, version) = match typed.split_once('@') {
            Some((name, version)) => (name, Some(version)),
            None => (typed, None),
        };
        let name = match name {
            "vllm" => "vllm-split",
            "trtllm" => "trtllm-staged",
            other => other,
        };
        let known = Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|layout| layout.name() == name);
        let found = found.ok_or_else(|| format!("`{typed}` is not a known layout; known are {known}"))?;
        match version {
            Some(version) if version != found.version() => Err(format!(
                "the layout {name} was read in version {} of the engine and is not known for {version}",
                found.version()
            )),
            _ => Ok(found),
        }
    }
}
