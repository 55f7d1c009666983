//! Flags that say which model's KV cache is meant, and how it is moved.

use clap::Args;
use clap::builder::FalseyValueParser;

use crate::plan::PlanError;
use crate::workload::{Deployment, Element, KvRequest, Layout, TokenCount, Workload, resolve_model};

/// The model and its ranks.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "KV cache")]
pub(crate) struct ModelArgs {
    /// A model by name (`kvwire plan --list-models`), or the path of its Hugging Face config.json
    #[arg(long, env = "KVWIRE_MODEL", value_name = "MODEL")]
    pub(crate) model: Option<String>,

    /// Lengths of prompts in tokens, for example 1k,8k [default: 8k; 1k,8k,32k,128k for `kvwire plan`]
    #[arg(long, env = "KVWIRE_TOKENS", value_name = "LIST", value_delimiter = ',')]
    pub(crate) tokens: Vec<TokenCount>,

    /// Number format of the cache
    #[arg(long, env = "KVWIRE_KV_DTYPE", value_name = "TYPE", default_value = "bf16")]
    pub(crate) kv_dtype: Element,

    /// Tensor-parallel ranks of the prefill side
    #[arg(long, env = "KVWIRE_PREFILL_TP", value_name = "N", default_value_t = 1)]
    pub(crate) prefill_tp: u32,

    /// Tensor-parallel ranks of the decode side
    #[arg(long, env = "KVWIRE_DECODE_TP", value_name = "N", default_value_t = 1)]
    pub(crate) decode_tp: u32,

    /// Pipeline stages of both sides; the fullest stage is taken
    #[arg(long, env = "KVWIRE_PP", value_name = "N", default_value_t = 1)]
    pub(crate) pp: u32,

    /// Tokens in a block; a comma list takes each [default: the engine's]
    #[arg(long, env = "KVWIRE_BLOCK_TOKENS", value_name = "N", value_delimiter = ',')]
    pub(crate) block_tokens: Vec<u32>,

    /// Layouts: vllm (vllm-split), vllm-packed, vllm-cross-layer, sglang, trtllm-staged; a comma list takes each
    /// [default: vllm; all for `kvwire plan`]
    #[arg(long, env = "KVWIRE_LAYOUT", value_name = "LAYOUT", value_delimiter = ',')]
    pub(crate) layout: Vec<Layout>,

    /// Count the cache of multi-token-prediction layers too, as engines that speculate with them keep it
    #[arg(long, env = "KVWIRE_MTP", value_parser = FalseyValueParser::new())]
    pub(crate) mtp: bool,

    /// Move whole prompts in sliding-window layers too, as engines without a hybrid cache manager do
    #[arg(long, env = "KVWIRE_NO_HYBRID_CACHE", value_parser = FalseyValueParser::new())]
    pub(crate) no_hybrid_cache: bool,
}

impl ModelArgs {
    /// The request that these flags describe, with `tokens` and `layouts` where none are given. `None` without a model.
    ///
    /// # Errors
    /// The model is unknown.
    pub(crate) fn request(&self, tokens: &[u64], layouts: &[Layout]) -> Result<Option<KvRequest>, PlanError> {
        let Some(model) = &self.model else { return Ok(None) };
        let deployment = Deployment {
            geometry: resolve_model(model)?,
            element: self.kv_dtype,
            prefill_tp: self.prefill_tp,
            decode_tp: self.decode_tp,
            pp: self.pp,
            block_tokens: self.block_tokens.first().copied(),
            windows: !self.no_hybrid_cache,
            mtp: self.mtp,
        };
        let typed: Vec<u64> = self.tokens.iter().map(|count| count.0).collect();
        Ok(Some(KvRequest {
            deployment,
            block_tokens: self.block_tokens.clone(),
            layouts: if self.layout.is_empty() { layouts.to_vec() } else { self.layout.clone() },
            tokens: if typed.is_empty() { tokens.to_vec() } else { typed },
            workloads: Vec::new(),
            fragmentation_permille: 1000,
            placements: 1,
            in_flight: 1,
            cache_bytes: 0,
            sweep: false,
        }))
    }
}

/// How a KV cache is moved.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "KV cache")]
pub(crate) struct KvArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,

    /// What is moved: uniform, paged, slice, staged; a comma list measures each [default: uniform, or what layout and
    /// ranks make of --model]
    #[arg(long, env = "KVWIRE_WORKLOAD", value_name = "KIND", value_delimiter = ',')]
    pub(crate) workload: Vec<Workload>,

    /// How scattered a prompt's blocks are: 0 in a row, 1 no two together
    #[arg(long, env = "KVWIRE_FRAGMENTATION", value_name = "0..1", default_value = "1", value_parser = parse_share)]
    pub(crate) fragmentation: u32,

    /// Placements of the blocks, used in turn from transfer to transfer
    #[arg(long, env = "KVWIRE_PLACEMENTS", value_name = "N", default_value_t = 8)]
    pub(crate) placements: u32,

    /// Prompts in flight at once; they take the lengths of --tokens in turn
    #[arg(long, env = "KVWIRE_REQUESTS_IN_FLIGHT", value_name = "N", default_value_t = 1)]
    pub(crate) requests_in_flight: u32,

    /// Start KV transfers at this rate a second, whether or not earlier ones are done, and time each from then
    #[arg(long, env = "KVWIRE_RATE", value_name = "PER_SECOND", value_parser = parse_rate)]
    pub(crate) rate: Option<u64>,

    /// Do not measure what a descriptor costs
    #[arg(long, env = "KVWIRE_NO_DESCRIPTOR_SWEEP", value_parser = FalseyValueParser::new())]
    pub(crate) no_descriptor_sweep: bool,
}

impl KvArgs {
    /// The KV request, or `None` where only uniform blocks are asked for. `cache_bytes` is the last-level cache.
    ///
    /// # Errors
    /// The first flag that does not go with the others.
    pub(crate) fn request(&self, cache_bytes: u64) -> Result<Option<KvRequest>, PlanError> {
        let kinds_of_kv = self.workload.iter().any(|kind| *kind != Workload::Uniform);
        let refuse = |flag: &'static str, problem: String, fix: &str| {
            Err(PlanError { flag, problem, fix: fix.to_owned() })
        };
        let Some(request) = self.model.request(&[8192], &[Layout::VllmSplit])? else {
            if kinds_of_kv {
                return refuse(
                    "--workload",
                    "KV blocks are those of a model, and none is given".to_owned(),
                    "add --model, for example --model llama-3.1-8b",
                );
            }
            if self.rate.is_some() {
                return refuse(
                    "--rate",
                    "a rate of KV transfers needs a model".to_owned(),
                    "add --model, for example --model llama-3.1-8b",
                );
            }
            let model = &self.model;
            let without_use = [
                ("--tokens", !model.tokens.is_empty()),
                ("--layout", !model.layout.is_empty()),
                ("--block-tokens", !model.block_tokens.is_empty()),
            ];
            if let Some((flag, _)) = without_use.into_iter().find(|(_, given)| *given) {
                return refuse(
                    flag,
                    "uniform blocks have no model".to_owned(),
                    "add --model, for example --model llama-3.1-8b",
                );
            }
            return Ok(None);
        };
        if !self.workload.is_empty() && !kinds_of_kv {
            return refuse(
                "--model",
                "uniform blocks have no model".to_owned(),
                "drop --model, or add paged, slice or staged to --workload",
            );
        }
        Ok(Some(KvRequest {
            workloads: self.workload.clone(),
            fragmentation_permille: self.fragmentation,
            placements: self.placements,
            in_flight: self.requests_in_flight,
            cache_bytes,
            sweep: !self.no_descriptor_sweep,
            ..request
        }))
    }

    /// Whether uniform blocks are measured.
    pub(crate) fn uniform(&self) -> bool {
        match self.workload.as_slice() {
            [] => self.model.model.is_none(),
            kinds => kinds.contains(&Workload::Uniform),
        }
    }
}

/// A share from 0 to 1 in thousandths.
fn parse_share(typed: &str) -> Result<u32, String> {
    let share = typed.trim().parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share
        .map(|share| (share * 1000.0).round() as u32)
        .ok_or_else(|| format!("`{typed}` is not a share from 0 to 1"))
}

/// A rate a second, as the nanoseconds between two.
fn parse_rate(typed: &str) -> Result<u64, String> {
    const MOST: f64 = 1e6;
    let rate = typed.trim().parse::<f64>().ok().filter(|rate| *rate >= 1e-3 && *rate <= MOST);
    rate.map(|rate| (1e9 / rate) as u64)
        .ok_or_else(|| format!("`{typed}` is not a rate from 0.001 to 1000000 a second"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_rates_are_bounded() {
        assert_eq!(parse_share("0.25"), Ok(250));
        assert_eq!(parse_share("1"), Ok(1000));
        for wrong in ["-0.1", "1.1", "nan", "half", ""] {
            assert!(parse_share(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_rate("250"), Ok(4_000_000));
        for wrong in ["0", "-1", "inf", "1e9", "nan"] {
            assert!(parse_rate(wrong).is_err(), "{wrong}");
        }
    }
}
