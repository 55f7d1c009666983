//! From what the user asked for to the shapes that are measured, and to the figures that `kvwire plan` prints.

use std::fmt;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rank::Deployment;
use super::shape::{LayerRegions, Parts, Side};
use super::{
    Geometry, KvShape, Layout, RankPair, TokenCount, find_preset, nearest_preset, preset_names, read_config,
};
use crate::measure::units::ByteSize;
use crate::plan::{Op, PlanError};

/// A pool holds this many times the blocks of its prompt, so that they can lie anywhere.
const SPREAD: u64 = 2;
/// And this many times the last-level cache.
const CACHES: u64 = 2;
/// NIXL keeps about this much for each descriptor of a prepared list, in bytes (`make bench-descriptors` measures both).
const LIST_BYTES_PER_DESCRIPTOR: u64 = 48;
/// NIXL, UCX and kvwire take about this much for each descriptor of a request in flight, in bytes; nearly all of it is UCX's.
const REQUEST_BYTES_PER_DESCRIPTOR: u64 = 1300;
/// Descriptors in the sweep that tells what one costs: sizes of one, in bytes.
const SWEEP_SIZES: [u64; 5] = [2 << 10, 8 << 10, 32 << 10, 128 << 10, 512 << 10];
/// Bytes of every case of the sweep.
const SWEEP_BYTES: u64 = 32 << 20;

/// What kind of transfer a case makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Workload {
    /// Equal blocks one after the other, as nixlbench.
    Uniform,
    /// KV blocks scattered over a pool; both sides hold the same heads.
    Paged,
    /// Slices of KV blocks, between sides whose ranks hold different heads.
    Slice,
    /// One contiguous buffer for everything.
    Staged,
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uniform => "uniform",
            Self::Paged => "paged",
            Self::Slice => "slice",
            Self::Staged => "staged",
        })
    }
}

fn refuse<T>(flag: &'static str, problem: impl Into<String>, fix: impl Into<String>) -> Result<T, PlanError> {
    Err(PlanError { flag, problem: problem.into(), fix: fix.into() })
}

/// The model that `--model` names: a preset, a `config.json`, or a folder that holds one.
///
/// # Errors
/// It is neither, or the file gives no geometry.
pub(crate) fn resolve_model(typed: &str) -> Result<Geometry, PlanError> {
    if let Some(geometry) = find_preset(typed) {
        return Ok(geometry);
    }
    let path = Path::new(typed);
    if !path.exists() {
        return refuse(
            "--model",
            format!("`{typed}` is neither a known model nor a file"),
            format!(
                "did you mean {}? known are {}; or give the path of a config.json",
                nearest_preset(typed),
                preset_names().collect::<Vec<_>>().join(", ")
            ),
        );
    }
    let geometry = read_config(path).or_else(|e| {
        refuse("--model", e.to_string(), "give a config.json that says so, or a model that is known by name")
    })?;
    geometry.check()?;
    Ok(geometry)
}

/// One line of `kvwire plan`: what a prompt takes in the layout of an engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Sizing {
    /// Layout with the version of the engine that it was read from.
    pub(crate) layout: String,
    /// The kind of transfer.
    pub(crate) workload: Workload,
    /// What the engine does: READ pulls, WRITE pushes.
    pub(crate) op: Op,
    /// Tokens of a block.
    pub(crate) block_tokens: u32,
    /// Length of the prompt in tokens.
    pub(crate) tokens: u64,
    /// What one decode rank's cache keeps of the prompt, to the token.
    pub(crate) cache_bytes_per_rank: u64,
    /// The same on all decode ranks of all stages; heads that several ranks keep count for each.
    pub(crate) cache_bytes_all_ranks: u64,
    /// What is moved to one decode rank: whole blocks.
    pub(crate) moved_bytes_per_rank: u64,
    /// Descriptors for that, before NIXL merges neighbours.
    pub(crate) descriptors_per_rank: u64,
    /// Bytes of one descriptor.
    pub(crate) descriptor_bytes: u64,
    /// Prefill ranks that one decode rank gets its prompt from.
    pub(crate) prefill_ranks_per_decode_rank: u32,
}

/// What the user asked for, value by value.
#[derive(Debug, Clone)]
pub(crate) struct KvRequest {
    /// Model and ranks. `block_tokens` is filled in from the list below.
    pub(crate) deployment: Deployment,
    /// Tokens of a block; none is the engine's own.
    pub(crate) block_tokens: Vec<u32>,
    /// Layouts, in order.
    pub(crate) layouts: Vec<Layout>,
    /// Lengths of prompts, in order.
    pub(crate) tokens: Vec<u64>,
    /// Kinds of transfer; none is what the layouts and ranks make it.
    pub(crate) workloads: Vec<Workload>,
    /// 0: contiguous, 1000: fully scattered.
    pub(crate) fragmentation_permille: u32,
    /// Placements used in turn.
    pub(crate) placements: u32,
    /// Prompts in flight at once.
    pub(crate) in_flight: u32,
    /// The last-level cache, in bytes.
    pub(crate) cache_bytes: u64,
    /// Measure what a descriptor costs.
    pub(crate) sweep: bool,
}

impl KvRequest {
    /// Layouts and block sizes on the ranks.
    fn pairs(&self) -> Result<Vec<RankPair>, PlanError> {
        let sizes: Vec<Option<u32>> = match self.block_tokens.as_slice() {
            [] => vec![None],
            some => some.iter().copied().map(Some).collect(),
        };
        let mut pairs = Vec::new();
        for &layout in &self.layouts {
            for &block_tokens in &sizes {
                let pair = RankPair::new(&Deployment { block_tokens, ..self.deployment.clone() }, layout)?;
                // A staged buffer has no blocks.
                let again = |known: &RankPair| {
                    *known == pair || known.layout == Layout::TrtllmStaged && known.layout == layout
                };
                if !pairs.iter().any(again) {
                    pairs.push(pair);
                }
            }
        }
        Ok(pairs)
    }

    /// What `kvwire plan` prints.
    ///
    /// # Errors
    /// A flag whose value does not go with the others.
    pub(crate) fn sizings(&self) -> Result<Vec<Sizing>, PlanError> {
        let Deployment { geometry, element, decode_tp, windows, mtp, .. } = &self.deployment;
        let head = geometry.head_token_bytes(*element);
        let kept = |layers: &[(u32, Option<u64>)], tokens: u64| -> u64 {
            layers.iter().map(|(_, window)| tokens.min(window.unwrap_or(tokens))).sum()
        };
        let all_layers = geometry.cached_layers(*windows, *mtp);
        let mut sizings = Vec::new();
        for pair in self.pairs()? {
            let per_rank = head * u64::from(pair.heads.1);
            sizings.extend(self.tokens.iter().map(|&tokens| Sizing {
                layout: pair.layout.to_string(),
                workload: kind_of(&pair),
                op: pair.layout.op(),
                block_tokens: pair.block_tokens,
                tokens,
                cache_bytes_per_rank: per_rank * kept(&pair.cached, tokens),
                cache_bytes_all_ranks: per_rank * kept(&all_layers, tokens) * u64::from(*decode_tp),
                moved_bytes_per_rank: pair.bytes_per_decode_rank(tokens),
                descriptors_per_rank: pair.descriptors_per_decode_rank(tokens),
                descriptor_bytes: if pair.layout == Layout::TrtllmStaged {
                    pair.staged_bytes(tokens)
                } else {
                    pair.piece_bytes
                },
                prefill_ranks_per_decode_rank: pair.sources_per_decode_rank,
            }));
        }
        Ok(sizings)
    }

    /// The shapes to measure, each with what its engine does.
    ///
    /// # Errors
    /// A flag whose value does not go with the others.
    pub(crate) fn shapes(&self) -> Result<Vec<(Op, KvShape)>, PlanError> {
        self.check()?;
        let pairs = self.wanted(self.pairs()?)?;
        let mut shapes = Vec::new();
        for pair in &pairs {
            // The one descriptor of a staged transfer is as long as its prompt, and so each length is a case.
            if self.in_flight > 1 && pair.layout != Layout::TrtllmStaged {
                let prompts = self.tokens.iter().copied().cycle().take(self.in_flight as usize).collect();
                shapes.push((pair.layout.op(), self.shape(pair, prompts)?));
                continue;
            }
            for &tokens in &self.tokens {
                shapes.push((pair.layout.op(), self.shape(pair, vec![tokens; self.in_flight as usize])?));
            }
        }
        Ok(shapes)
    }

    fn check(&self) -> Result<(), PlanError> {
        if self.fragmentation_permille > 1000 {
            return refuse(
                "--fragmentation",
                "more than everything cannot be scattered",
                "give 0 to 1, for example 0.5",
            );
        }
        if self.placements == 0 || self.placements > 1024 {
            return refuse(
                "--placements",
                format!("{} placements cannot be used in turn", self.placements),
                "give 1 to 1024",
            );
        }
        if self.in_flight == 0 || self.in_flight > 256 {
            return refuse(
                "--requests-in-flight",
                format!("{} prompts in flight cannot be measured", self.in_flight),
                "give 1 to 256",
            );
        }
        if self.tokens.is_empty() {
            return refuse(
                "--tokens",
                "no prompt is given",
                "give at least one length, for example --tokens 8k",
            );
        }
        Ok(())
    }

    /// The pairs that make a kind of transfer that was asked for.
    fn wanted(&self, pairs: Vec<RankPair>) -> Result<Vec<RankPair>, PlanError> {
        let kinds: Vec<Workload> =
            self.workloads.iter().copied().filter(|kind| *kind != Workload::Uniform).collect();
        if kinds.is_empty() {
            return Ok(pairs);
        }
        let mut wanted: Vec<RankPair> = Vec::new();
        for kind in kinds {
            let found = pairs.iter().filter(|pair| kind_of(pair) == kind).cloned();
            let before = wanted.len();
            wanted.extend(found);
            if wanted.len() > before {
                continue;
            }
            match kind {
                Workload::Staged => wanted.push(RankPair::new(&self.deployment, Layout::TrtllmStaged)?),
                Workload::Paged => {
                    return refuse(
                        "--workload",
                        "paged moves whole blocks, and the ranks of the two sides hold different heads (or the layout is staged)",
                        "make --prefill-tp and --decode-tp equal, or choose --workload slice",
                    );
                }
                _ => {
                    return refuse(
                        "--workload",
                        "slice moves parts of blocks, and the ranks of the two sides hold the same heads",
                        "make --prefill-tp and --decode-tp differ, or choose --workload paged",
                    );
                }
            }
        }
        Ok(wanted)
    }

    fn shape(&self, pair: &RankPair, prompts: Vec<u64>) -> Result<KvShape, PlanError> {
        let Deployment { geometry, element, prefill_tp, decode_tp, .. } = &self.deployment;
        let staged = pair.layout == Layout::TrtllmStaged;
        let longest = prompts.iter().copied().max().unwrap_or(0);
        let side =
            |bytes: u64| Side { block_bytes: bytes.next_multiple_of(8), piece_pitch: bytes, piece_offset: 0 };
        let piece_bytes = if staged { pair.staged_bytes(longest) } else { pair.piece_bytes };
        let layers: Vec<LayerRegions> = if staged {
            vec![LayerRegions { layer: 0, window: None }]
        } else {
            pair.layers.iter().map(|&(layer, window)| LayerRegions { layer, window }).collect()
        };
        let shape = KvShape {
            kind: kind_of(pair).to_string(),
            model: geometry.name.clone(),
            layout: pair.layout.to_string(),
            element: element.to_string(),
            prefill_tp: *prefill_tp,
            decode_tp: *decode_tp,
            sources: pair.sources_per_decode_rank,
            block_tokens: if staged { longest.max(1) } else { u64::from(pair.block_tokens) },
            prompts,
            parts: pair.parts,
            layers,
            pool_blocks: Vec::new(),
            pieces: pair.pieces,
            piece_bytes,
            source: if staged { side(piece_bytes) } else { pair.source },
            destination: if staged { side(piece_bytes) } else { pair.destination },
            fragmentation_permille: self.fragmentation_permille,
            placements: self.placements,
        };
        with_pool(shape, self.cache_bytes)
    }

    /// Cases of the same bytes in descriptors of different size, all scattered: what they take apart is the cost of a
    /// descriptor.
    ///
    /// # Errors
    /// None is expected; the sizes are our own.
    pub(crate) fn sweep_shapes(&self) -> Result<Vec<KvShape>, PlanError> {
        if !self.sweep {
            return Ok(Vec::new());
        }
        let one = |bytes: u64| {
            let side = Side { block_bytes: bytes, piece_pitch: bytes, piece_offset: 0 };
            let shape = KvShape {
                kind: "sweep".to_owned(),
                model: String::new(),
                layout: String::new(),
                element: String::new(),
                prefill_tp: 1,
                decode_tp: 1,
                sources: 1,
                block_tokens: 1,
                prompts: vec![SWEEP_BYTES / bytes],
                parts: Parts::Together,
                layers: vec![LayerRegions { layer: 0, window: None }],
                pool_blocks: Vec::new(),
                pieces: 1,
                piece_bytes: bytes,
                source: side,
                destination: side,
                fragmentation_permille: 1000,
                placements: self.placements,
            };
            with_pool(shape, self.cache_bytes)
        };
        SWEEP_SIZES.into_iter().map(one).collect()
    }

    /// The longest prompt of `shape`'s kind whose memory stays below `limit`, in tokens; `None` when not even one block fits.
    pub(crate) fn longest_that_fits(&self, shape: &KvShape, limit: u64) -> Option<u64> {
        let pairs = self.wanted(self.pairs().ok()?).ok()?;
        let pair = pairs.iter().find(|pair| pair.layout.to_string() == shape.layout)?;
        let step = u64::from(pair.block_tokens).max(1);
        let fits = |blocks: u64| {
            let shape = self.shape(pair, vec![blocks * step; shape.prompts.len()]).ok()?;
            (memory_of(&shape)? <= limit).then_some(())
        };
        let (mut low, mut high) = (0, shape.prompts.iter().copied().max()?.div_ceil(step));
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if fits(middle).is_some() {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        (low > 0).then_some(low * step)
    }
}

/// Memory that one side needs for a shape: its pool, and what is kept for each descriptor.
pub(crate) fn memory_of(shape: &KvShape) -> Option<u64> {
    let lists = shape.descriptors_in_pool().checked_mul(2 * LIST_BYTES_PER_DESCRIPTOR)?;
    let in_flight: u64 = (0..shape.slots()).map(|slot| shape.descriptors(slot)).sum();
    let requests = in_flight.checked_mul(REQUEST_BYTES_PER_DESCRIPTOR)?;
    shape.footprint()?.checked_add(lists)?.checked_add(requests)
}

fn kind_of(pair: &RankPair) -> Workload {
    match pair.layout {
        Layout::TrtllmStaged => Workload::Staged,
        _ if pair.is_sliced() => Workload::Slice,
        _ => Workload::Paged,
    }
}

/// Gives each prompt its share of a pool that is larger than the prompt and than the last-level cache.
fn with_pool(shape: KvShape, cache_bytes: u64) -> Result<KvShape, PlanError> {
    let side = shape.source.block_bytes.max(shape.destination.block_bytes);
    let per_block = shape.regions().saturating_mul(side).max(1);
    let for_cache =
        (cache_bytes.saturating_mul(CACHES)).div_ceil(per_block).div_ceil(u64::from(shape.slots()).max(1));
    let share = |slot: u32| (u64::from(shape.placed_blocks(slot)) * SPREAD).max(for_cache);
    let shares: Vec<u64> = (0..shape.slots()).map(share).collect();
    let descriptors =
        shares.iter().sum::<u64>().saturating_mul(shape.regions()).saturating_mul(u64::from(shape.pieces));
    // NIXL numbers descriptors by 32-bit integers.
    if descriptors > i32::MAX.unsigned_abs().into() {
        return refuse(
            "--tokens",
            format!(
                "a pool for {} tokens would have {descriptors} descriptors of {}, more than NIXL can number",
                TokenCount(shape.prompts.iter().sum()),
                ByteSize(shape.piece_bytes)
            ),
            "lower --tokens or --requests-in-flight, or raise --block-tokens",
        );
    }
    let pool_blocks = shares.into_iter().map(|blocks| u32::try_from(blocks).unwrap_or(u32::MAX)).collect();
    Ok(KvShape { pool_blocks, ..shape })
}
