//! One prefill rank and one decode rank that exchange a prompt: how large the pieces are and where they lie in a block.

use super::layout::Layout;
use super::shape::{Parts, Side};
use super::{Attention, Element, Geometry};
use crate::plan::PlanError;

/// Tokens in a block, at most.
const BLOCK_TOKENS_MAX: u32 = 1 << 20;

/// How both sides run the model, as the user says it.
#[derive(Debug, Clone)]
pub(crate) struct Deployment {
    /// The model.
    pub(crate) geometry: Geometry,
    /// The number format of the cache.
    pub(crate) element: Element,
    /// Tensor-parallel ranks of the prefill side.
    pub(crate) prefill_tp: u32,
    /// Tensor-parallel ranks of the decode side.
    pub(crate) decode_tp: u32,
    /// Pipeline stages of both sides.
    pub(crate) pp: u32,
    /// Tokens in a block; `None` is the engine's own.
    pub(crate) block_tokens: Option<u32>,
    /// Sliding-window layers move their window only, as engines do that manage those layers apart.
    pub(crate) windows: bool,
    /// Prediction layers keep a cache too.
    pub(crate) mtp: bool,
}

/// What one prefill rank and one decode rank exchange in the layout of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RankPair {
    /// The layout.
    pub(crate) layout: Layout,
    /// Tokens in a block.
    pub(crate) block_tokens: u32,
    /// Layers of the stage that have regions of their own, with their window. Empty where one region holds all.
    pub(crate) layers: Vec<(u32, Option<u64>)>,
    /// What a region holds.
    pub(crate) parts: Parts,
    /// Bytes of one descriptor; for a staged layout, bytes of one token.
    pub(crate) piece_bytes: u64,
    /// Descriptors in one block of one region.
    pub(crate) pieces: u32,
    /// The prefill side's blocks.
    pub(crate) source: Side,
    /// The decode side's blocks.
    pub(crate) destination: Side,
    /// Prefill ranks that one decode rank gets the pieces of a block from.
    pub(crate) sources_per_decode_rank: u32,
    /// KV heads on a prefill rank and on a decode rank; 1 for latent attention.
    pub(crate) heads: (u32, u32),
    /// Layers of the stage that keep a cache, with their window: what a staged buffer is made of.
    pub(crate) cached: Vec<(u32, Option<u64>)>,
}

fn refuse<T>(flag: &'static str, problem: impl Into<String>, fix: impl Into<String>) -> Result<T, PlanError> {
    Err(PlanError { flag, problem: problem.into(), fix: fix.into() })
}

impl RankPair {
    /// Puts the model on the ranks.
    ///
    /// # Errors
    /// The flag whose value does not go with the others.
    pub(crate) fn new(deployment: &Deployment, layout: Layout) -> Result<Self, PlanError> {
        let geometry = &deployment.geometry;
        geometry.check()?;
        let block_tokens = deployment.block_tokens.unwrap_or(layout.block_tokens());
        if block_tokens == 0 || block_tokens > BLOCK_TOKENS_MAX {
            return refuse(
                "--block-tokens",
                format!("blocks of {block_tokens} tokens cannot be"),
                format!("give 1 to {BLOCK_TOKENS_MAX}"),
            );
        }
        let prefill = geometry.heads_per_rank("--prefill-tp", deployment.prefill_tp)?;
        let decode = geometry.heads_per_rank("--decode-tp", deployment.decode_tp)?;
        let (common, most) = (prefill.min(decode), prefill.max(decode));
        if !most.is_multiple_of(common) {
            return refuse(
                "--decode-tp",
                format!(
                    "{prefill} KV heads on a prefill rank and {decode} on a decode rank do not divide each other"
                ),
                "choose two sizes of which one is a multiple of the other",
            );
        }
        let cached = geometry.fullest_stage(deployment.pp, deployment.windows, deployment.mtp)?;
        let pair = Pair { deployment, layout, block_tokens, prefill, decode, cached };
        pair.resolve()
    }

    /// Whether the two sides' ranks hold different shares, so that one moves slices of the other's blocks.
    pub(crate) fn is_sliced(&self) -> bool {
        self.heads.0 != self.heads.1
    }

    /// Blocks of a prompt in the layer with that window.
    pub(crate) fn blocks(&self, tokens: u64, window: Option<u64>) -> u64 {
        tokens.min(window.unwrap_or(tokens)).div_ceil(u64::from(self.block_tokens))
    }

    /// Descriptors that one decode rank's transfers of a prompt hold, before NIXL merges neighbours.
    pub(crate) fn descriptors_per_decode_rank(&self, tokens: u64) -> u64 {
        let sources = u64::from(self.sources_per_decode_rank);
        if self.layout == Layout::TrtllmStaged {
            return sources;
        }
        let blocks: u64 = self.layers.iter().map(|(_, window)| self.blocks(tokens, *window)).sum();
        blocks * self.parts.per_layer() * u64::from(self.pieces) * sources
    }

    /// Bytes that one decode rank receives: whole blocks, as engines move them.
    pub(crate) fn bytes_per_decode_rank(&self, tokens: u64) -> u64 {
        let sources = u64::from(self.sources_per_decode_rank);
        if self.layout == Layout::TrtllmStaged {
            return self.staged_bytes(tokens) * sources;
        }
        self.descriptors_per_decode_rank(tokens) * self.piece_bytes
    }

    /// Bytes of the one buffer of a staged layout: whole tokens, no padding.
    pub(crate) fn staged_bytes(&self, tokens: u64) -> u64 {
        let kept: u64 = self.cached.iter().map(|(_, window)| tokens.min(window.unwrap_or(tokens))).sum();
        kept * self.piece_bytes
    }
}

struct Pair<'a> {
    deployment: &'a Deployment,
    layout: Layout,
    block_tokens: u32,
    prefill: u32,
    decode: u32,
    cached: Vec<(u32, Option<u64>)>,
}

impl Pair<'_> {
    fn resolve(self) -> Result<RankPair, PlanError> {
        let latent = matches!(self.deployment.geometry.attention, Attention::Latent { .. });
        let head = self.deployment.geometry.head_token_bytes(self.deployment.element);
        let (parts, head) = match self.layout {
            Layout::VllmCrossLayer | Layout::TrtllmStaged => (Parts::Together, head),
            _ if latent => (Parts::Latent, head),
            Layout::VllmSplit | Layout::Sglang => (Parts::KeyAndValue, head / 2),
            Layout::VllmPacked => (Parts::Packed, head),
        };
        let layers = match self.layout {
            Layout::VllmCrossLayer => self.one_region_for_all()?,
            Layout::TrtllmStaged => Vec::new(),
            _ => self.cached.clone(),
        };
        // A cross-layer block holds a token of every layer.
        let layers_in_a_block =
            if self.layout == Layout::VllmCrossLayer { self.cached.len() as u64 } else { 1 };
        let common = u64::from(self.prefill.min(self.decode));
        let token = head * common * layers_in_a_block;
        let tokens = u64::from(self.block_tokens);
        let per_token = self.layout == Layout::Sglang && self.prefill != self.decode;
        let (piece_bytes, pieces) = match self.layout {
            Layout::TrtllmStaged => (token, 1),
            _ if per_token => (token, self.block_tokens),
            _ => (token * tokens, 1),
        };
        if !piece_bytes.is_multiple_of(8) {
            return refuse(
                "--kv-dtype",
                format!(
                    "a descriptor would have {piece_bytes} bytes, and the data check works on 8-byte words"
                ),
                "choose a wider number format or larger blocks",
            );
        }
        let side = |heads: u32| {
            let ratio = u64::from(heads) / common;
            Side {
                block_bytes: piece_bytes * u64::from(pieces) * ratio,
                piece_pitch: piece_bytes * ratio,
                piece_offset: 0,
            }
        };
        Ok(RankPair {
            layout: self.layout,
            block_tokens: self.block_tokens,
            layers,
            parts,
            piece_bytes,
            pieces,
            source: side(self.prefill),
            destination: side(self.decode),
            sources_per_decode_rank: (self.decode / self.prefill.min(self.decode)).max(1),
            heads: (self.prefill, self.decode),
            cached: self.cached,
        })
    }

    /// The cross-layer layout has one region, in which all layers keep the same tokens.
    fn one_region_for_all(&self) -> Result<Vec<(u32, Option<u64>)>, PlanError> {
        if self.prefill != self.decode {
            return refuse(
                "--layout",
                "vllm-cross-layer is known for ranks that hold the same heads on both sides only",
                "make --prefill-tp and --decode-tp equal, or choose vllm-split or vllm-packed",
            );
        }
        match self.cached.iter().any(|(_, window)| window.is_some()) {
            true => refuse(
                "--layout",
                "vllm-cross-layer keeps the same tokens for all layers, and this model has sliding-window layers",
                "add --no-hybrid-cache, or choose vllm-split or vllm-packed",
            ),
            false => Ok(vec![(0, None)]),
        }
    }
}
