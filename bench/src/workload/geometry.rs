//! What a model keeps in its KV cache for each token.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Element;
use crate::plan::PlanError;

/// Layers, at most.
const LAYERS_MAX: usize = 4096;
/// KV heads, head size and latent width, at most.
const WIDTH_MAX: u32 = 1 << 16;
/// Ranks of one tensor-parallel group, at most.
const RANKS_MAX: u32 = 4096;

/// What attention keeps of a token in one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Attention {
    /// A key and a value for each KV head (multi-head, grouped-query and multi-query attention).
    Grouped {
        /// KV heads of the model. Tensor parallelism divides them, and repeats them where there are fewer than ranks.
        kv_heads: u32,
        /// Numbers in one key, and in one value.
        head_dim: u32,
    },
    /// One compressed vector for all heads (multi-head latent attention). Every rank keeps all of it.
    Latent {
        /// Numbers in the compressed vector (`kv_lora_rank`).
        latent: u32,
        /// Numbers beside it that carry the position (`qk_rope_head_dim`).
        rope: u32,
    },
}

/// What a layer keeps of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "keeps", rename_all = "snake_case")]
pub(crate) enum Layer {
    /// Every token.
    Everything,
    /// The last `tokens` tokens (sliding-window attention).
    Window {
        /// Width of the window in tokens.
        tokens: u64,
    },
    /// Nothing that grows with the prompt: attention-free, or it reads the cache of another layer.
    Nothing,
}

/// The KV cache of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Geometry {
    /// Name of the model.
    pub(crate) name: String,
    /// Where the figures come from.
    pub(crate) source: String,
    /// What attention keeps of a token in each layer that keeps any.
    pub(crate) attention: Attention,
    /// The layers in order.
    pub(crate) layers: Vec<Layer>,
    /// Multi-token-prediction layers after them. Engines keep a cache for these only when they speculate.
    pub(crate) mtp_layers: u32,
    /// What a reader should know about how the figures were derived.
    pub(crate) notes: Vec<String>,
}

fn refuse<T>(flag: &'static str, problem: String, fix: impl Into<String>) -> Result<T, PlanError> {
    Err(PlanError { flag, problem, fix: fix.into() })
}

impl Geometry {
    /// Refuses what no model can be.
    ///
    /// # Errors
    /// Which figure is absurd.
    pub(crate) fn check(&self) -> Result<(), PlanError> {
        let widths = match self.attention {
            Attention::Grouped { kv_heads, head_dim } => {
                [("KV heads", kv_heads), ("a head size of", head_dim)]
            }
            Attention::Latent { latent, rope } => {
                [("a latent width of", latent), ("a rotary width of", rope)]
            }
        };
        let fix = "give the config.json of a language model, or a preset (`kvwire plan --list-models`)";
        for (what, width) in widths {
            if width == 0 || width > WIDTH_MAX {
                return refuse("--model", format!("{}: {what} {width} cannot be", self.name), fix);
            }
        }
        let layers = self.layers.len() + self.mtp_layers as usize;
        if layers > LAYERS_MAX || self.layers.is_empty() {
            return refuse("--model", format!("{}: {layers} layers cannot be", self.name), fix);
        }
        if self.layers.iter().all(|layer| *layer == Layer::Nothing) {
            return refuse("--model", format!("{}: no layer keeps a KV cache", self.name), fix);
        }
        if self.layers.contains(&Layer::Window { tokens: 0 }) {
            return refuse("--model", format!("{}: a window of 0 tokens cannot be", self.name), fix);
        }
        Ok(())
    }

    /// KV heads on each of `tp` ranks; 1 for latent attention, whose vector is whole on every rank.
    ///
    /// # Errors
    /// `tp` neither divides the KV heads nor is a multiple of them.
    pub(crate) fn heads_per_rank(&self, flag: &'static str, tp: u32) -> Result<u32, PlanError> {
        if tp == 0 || tp > RANKS_MAX {
            return refuse(flag, format!("{tp} ranks cannot be"), format!("give 1 to {RANKS_MAX}"));
        }
        let Attention::Grouped { kv_heads, .. } = self.attention else { return Ok(1) };
        if kv_heads.is_multiple_of(tp) {
            return Ok(kv_heads / tp);
        }
        if tp.is_multiple_of(kv_heads) {
            return Ok(1);
        }
        refuse(
            flag,
            format!(
                "{tp} ranks do not divide the {kv_heads} KV heads of {}, nor are they a multiple",
                self.name
            ),
            format!("give a divisor or a multiple of {kv_heads}"),
        )
    }

    /// Bytes that one KV head adds to one layer for one token, key and value together; for latent attention those of
    /// the whole vector.
    pub(crate) fn head_token_bytes(&self, element: Element) -> u64 {
        let numbers = match self.attention {
            Attention::Grouped { head_dim, .. } => 2 * u64::from(head_dim),
            Attention::Latent { latent, rope } => u64::from(latent) + u64::from(rope),
        };
        numbers * element.bytes()
    }

    /// Bytes that all KV heads of the model keep of a prompt in all layers, each head once. With `windows` false,
    /// sliding-window layers keep everything, as in engines that do not manage such layers apart.
    pub(crate) fn prompt_bytes(&self, element: Element, tokens: u64, windows: bool, mtp: bool) -> u64 {
        let heads = match self.attention {
            Attention::Grouped { kv_heads, .. } => u64::from(kv_heads),
            Attention::Latent { .. } => 1,
        };
        let kept: u64 = self
            .cached_layers(windows, mtp)
            .iter()
            .map(|(_, window)| tokens.min(window.unwrap_or(tokens)))
            .sum();
        kept * heads * self.head_token_bytes(element)
    }

    /// The layers that keep a cache: their number from 0, and the window if they have one.
    pub(crate) fn cached_layers(&self, windows: bool, mtp: bool) -> Vec<(u32, Option<u64>)> {
        let mtp = std::iter::repeat_n(&Layer::Everything, if mtp { self.mtp_layers as usize } else { 0 });
        let kept = (0..).zip(self.layers.iter().chain(mtp)).filter_map(|(number, layer)| match layer {
            Layer::Everything => Some((number, None)),
            Layer::Window { tokens } => Some((number, windows.then_some(*tokens))),
            Layer::Nothing => None,
        });
        kept.collect()
    }

    /// The cached layers of the pipeline stage that keeps the most. Stages hold layers one after the other, as evenly
    /// as their number allows; prediction layers belong to the last one.
    ///
    /// # Errors
    /// There are more stages than layers.
    pub(crate) fn fullest_stage(
        &self,
        pp: u32,
        windows: bool,
        mtp: bool,
    ) -> Result<Vec<(u32, Option<u64>)>, PlanError> {
        let layers = u32::try_from(self.layers.len()).unwrap_or(u32::MAX);
        if pp == 0 || pp > layers {
            return refuse(
                "--pp",
                format!("{pp} pipeline stages cannot hold {layers} layers"),
                format!("give 1 to {layers}"),
            );
        }
        let cached = self.cached_layers(windows, mtp);
        let (share, rest) = (layers / pp, layers % pp);
        let begin_of = |stage: u32| stage * share + stage.min(rest);
        let stages = (0..pp).map(|stage| {
            let end = if stage + 1 == pp { u32::MAX } else { begin_of(stage + 1) };
            let inside = |number: u32| number >= begin_of(stage) && number < end;
            cached.iter().copied().filter(|(number, _)| inside(*number)).collect::<Vec<_>>()
        });
        // Layers that keep everything outweigh any number of windows in a long prompt.
        let weight = |stage: &Vec<(u32, Option<u64>)>| {
            let everything = stage.iter().filter(|(_, window)| window.is_none()).count();
            (everything, stage.len())
        };
        // The first of equals, not the last.
        let mut fullest = Vec::new();
        for stage in stages {
            if weight(&stage) > weight(&fullest) {
                fullest = stage;
            }
        }
        Ok(fullest)
    }
}
