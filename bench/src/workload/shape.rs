//! What one case with KV blocks moves: which bytes of which block in which region, on either side.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TokenCount;
use super::placement::Placement;
use crate::measure::units::ByteSize;
use crate::memory::pattern::Block;
use crate::plan::Op;

/// What the regions of a layer hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Parts {
    /// One region of keys and one of values.
    KeyAndValue,
    /// One region in which key and value of a block stand together.
    Packed,
    /// One region of compressed vectors.
    Latent,
    /// One region for all layers.
    Together,
}

impl Parts {
    /// Regions of one layer.
    pub(crate) const fn per_layer(self) -> u64 {
        match self {
            Self::KeyAndValue => 2,
            Self::Packed | Self::Latent | Self::Together => 1,
        }
    }

    fn name(self, part: u64) -> &'static str {
        match (self, part) {
            (Self::KeyAndValue, 0) => "K",
            (Self::KeyAndValue, _) => "V",
            (Self::Packed, _) => "K and V",
            (Self::Latent, _) => "latent",
            (Self::Together, _) => "all layers",
        }
    }
}

/// How the blocks of one side are made, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Side {
    /// Distance from one block of a region to the next.
    pub(crate) block_bytes: u64,
    /// Distance from one piece of a block to the next.
    pub(crate) piece_pitch: u64,
    /// Where the first piece begins in its block.
    pub(crate) piece_offset: u64,
}

/// A layer that has regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LayerRegions {
    /// Number of the layer in the model, from 0.
    pub(crate) layer: u32,
    /// It keeps the last so many tokens; null: all.
    pub(crate) window: Option<u64>,
}

/// Blocks of a KV cache that one transfer moves from the prefill side to the decode side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct KvShape {
    /// `paged`, `slice`, `staged`, or `sweep` for cases that only measure what a descriptor costs.
    pub(crate) kind: String,
    /// Name of the model.
    pub(crate) model: String,
    /// Layout with the version of the engine that it was read from.
    pub(crate) layout: String,
    /// Number format of the cache.
    pub(crate) element: String,
    /// Tensor-parallel ranks of the prefill side.
    pub(crate) prefill_tp: u32,
    /// Tensor-parallel ranks of the decode side.
    pub(crate) decode_tp: u32,
    /// Prefill ranks that a decode rank gets its prompt from; one of them takes part.
    pub(crate) sources: u32,
    /// Tokens of a block.
    pub(crate) block_tokens: u64,
    /// Length of each prompt in tokens; as many transfers are in flight as there are prompts.
    pub(crate) prompts: Vec<u64>,
    /// What the regions of a layer hold.
    pub(crate) parts: Parts,
    /// Layers with regions, in the order of the descriptors.
    pub(crate) layers: Vec<LayerRegions>,
    /// Blocks of each region that belong to each prompt's share of the pool.
    pub(crate) pool_blocks: Vec<u32>,
    /// Descriptors of one block in one region.
    pub(crate) pieces: u32,
    /// Bytes of one descriptor.
    pub(crate) piece_bytes: u64,
    /// The prefill side.
    pub(crate) source: Side,
    /// The decode side.
    pub(crate) destination: Side,
    /// 0: the blocks of a prompt stand in a row; 1000: no two of them do.
    pub(crate) fragmentation_permille: u32,
    /// Different placements of the blocks, used in turn.
    pub(crate) placements: u32,
}

/// A place in a KV cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct KvPlace {
    /// Layer of the model; null where one region holds all.
    pub(crate) layer: Option<u32>,
    /// `K`, `V`, `K and V`, `latent` or `all layers`.
    pub(crate) part: String,
    /// Block of the pool.
    pub(crate) block: u64,
    /// Bytes from the start of that block.
    pub(crate) offset: u64,
}

impl fmt::Display for KvPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.layer {
            Some(layer) => write!(f, "layer {layer}, {}, block {}", self.part, self.block),
            None => write!(f, "{}, block {}", self.part, self.block),
        }
    }
}

/// Which side of a transfer, for a place in its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Where {
    /// The prefill side.
    Source,
    /// The decode side.
    Destination,
}

impl KvShape {
    /// What is moved, in a few words that no other case of a run shares.
    pub(crate) fn title(&self) -> String {
        if self.is_sweep() {
            let bytes = ByteSize(self.transfer_bytes(0));
            return format!("sweep {bytes} in {}", ByteSize(self.piece_bytes));
        }
        let prompts: Vec<String> =
            self.prompts.iter().map(|tokens| TokenCount(*tokens).to_string()).collect();
        let mut text = format!("{} {} {} {}", self.kind, self.model, prompts.join("+"), self.layout);
        if self.kind != "staged" {
            text = format!("{text} b{}", self.block_tokens);
        }
        if self.prefill_tp > 1 || self.decode_tp > 1 {
            text = format!("{text} tp{}:{}", self.prefill_tp, self.decode_tp);
        }
        text
    }

    /// Whether the case only serves to tell what a descriptor costs.
    pub(crate) fn is_sweep(&self) -> bool {
        self.kind == "sweep"
    }

    /// Takes the place of `rank` on the initiator's side, and says with which rank of the target it exchanges.
    ///
    /// Where the initiator's side has more ranks than the target's, several of them meet one rank there, as in a
    /// deployment. Where it has fewer, each rank here stands for the share that one rank of the target has of a larger
    /// one. Of a sliced block each takes a slice of its own. Ranks that would write to the same bytes do not share a
    /// target, nor do those with a staged buffer, of which engines keep one for each peer.
    pub(crate) fn meet(&mut self, op: Op, rank: u32) -> u32 {
        let (ours, theirs) = match op {
            Op::Read => (self.decode_tp, self.prefill_tp),
            Op::Write | Op::Both => (self.prefill_tp, self.decode_tp),
        };
        let (ours, theirs) = (u64::from(ours.max(1)), u64::from(theirs.max(1)));
        let (source, destination) = (self.source.block_bytes.max(1), self.destination.block_bytes.max(1));
        let slices = source.max(destination) / source.min(destination);
        let apart = ours.max(theirs) / ours.min(theirs);
        let slice = u64::from(rank) % apart * slices / apart;
        let wider = if source > destination { &mut self.source } else { &mut self.destination };
        wider.piece_offset = slice * self.piece_bytes;
        let shared = ours > theirs && self.kind != "staged" && (op == Op::Read || apart == slices);
        if shared { u32::try_from(u64::from(rank) * theirs / ours).unwrap_or(rank) } else { rank }
    }

    /// Bytes of the regions on one side.
    pub(crate) fn region_bytes(&self, at: Where) -> u64 {
        self.regions() * self.blocks_in_pool() * self.side(at).block_bytes
    }

    /// Transfers in flight.
    pub(crate) fn slots(&self) -> u32 {
        u32::try_from(self.prompts.len()).unwrap_or(u32::MAX)
    }

    /// Blocks of each region in the whole pool.
    pub(crate) fn blocks_in_pool(&self) -> u64 {
        self.pool_blocks.iter().map(|blocks| u64::from(*blocks)).sum()
    }

    /// Regions on each side.
    pub(crate) fn regions(&self) -> u64 {
        self.layers.len() as u64 * self.parts.per_layer()
    }

    /// Blocks of a prompt in a layer.
    pub(crate) fn blocks(&self, tokens: u64, layer: &LayerRegions) -> u64 {
        tokens.min(layer.window.unwrap_or(tokens)).div_ceil(self.block_tokens)
    }

    /// Blocks of the prompt in `slot` in the layers that keep everything: what a placement places.
    pub(crate) fn placed_blocks(&self, slot: u32) -> u32 {
        let tokens = self.prompts.get(slot as usize).copied().unwrap_or(0);
        let most = self.layers.iter().map(|layer| self.blocks(tokens, layer)).max().unwrap_or(0);
        u32::try_from(most).unwrap_or(u32::MAX)
    }

    /// Descriptors of one transfer of `slot`.
    pub(crate) fn descriptors(&self, slot: u32) -> u64 {
        let tokens = self.prompts.get(slot as usize).copied().unwrap_or(0);
        let blocks: u64 = self.layers.iter().map(|layer| self.blocks(tokens, layer)).sum();
        blocks * self.parts.per_layer() * u64::from(self.pieces)
    }

    /// Descriptors of one side's whole pool, as they are prepared at start-up.
    pub(crate) fn descriptors_in_pool(&self) -> u64 {
        self.regions() * self.blocks_in_pool() * u64::from(self.pieces)
    }

    /// Bytes of one transfer of `slot`.
    pub(crate) fn transfer_bytes(&self, slot: u32) -> u64 {
        self.descriptors(slot) * self.piece_bytes
    }

    /// Bytes that the regions take on the larger side; `None` when 64 bits cannot say.
    pub(crate) fn footprint(&self) -> Option<u64> {
        let side = self.source.block_bytes.max(self.destination.block_bytes);
        self.regions().checked_mul(self.blocks_in_pool())?.checked_mul(side)
    }

    /// Whether every piece lies in a pool of `pool_bytes`. A shape may come from a peer, and every other function takes
    /// for granted that this holds.
    pub(crate) fn fits(&self, pool_bytes: u64) -> bool {
        let shares = self.pool_blocks.iter().try_fold(0_u32, |sum, blocks| sum.checked_add(*blocks));
        let sides = [self.source, self.destination];
        let inside = |side: &Side| {
            let last = u64::from(self.pieces.max(1) - 1).checked_mul(side.piece_pitch)?;
            let end = last.checked_add(side.piece_offset)?.checked_add(self.piece_bytes)?;
            let aligned = side.block_bytes.is_multiple_of(8) && side.piece_offset.is_multiple_of(8);
            let pitch = self.pieces == 1
                || side.piece_pitch.is_multiple_of(8) && side.piece_pitch >= self.piece_bytes;
            (end <= side.block_bytes && aligned && pitch).then_some(())
        };
        let counted = self.block_tokens > 0 && self.placements > 0 && self.pieces > 0 && self.piece_bytes > 0;
        if !counted
            || shares.is_none()
            || self.layers.is_empty()
            || self.prompts.len() != self.pool_blocks.len()
        {
            return false;
        }
        let pooled = self.footprint().is_some_and(|bytes| bytes <= pool_bytes);
        let numbered = pooled && self.descriptors_in_pool() <= u64::from(i32::MAX.unsigned_abs());
        let placed =
            || (0..self.slots()).all(|slot| self.placed_blocks(slot) <= self.pool_blocks[slot as usize]);
        numbered && sides.iter().all(|side| inside(side).is_some()) && placed()
    }

    fn side(&self, at: Where) -> Side {
        match at {
            Where::Source => self.source,
            Where::Destination => self.destination,
        }
    }

    /// Byte offset of a piece.
    fn offset(&self, at: Where, region: u64, block: u64, piece: u64) -> u64 {
        let side = self.side(at);
        (region * self.blocks_in_pool() + block) * side.block_bytes
            + piece * side.piece_pitch
            + side.piece_offset
    }

    /// Byte ranges `(offset, length)` of every piece of the pool on one side: region by region, block by block.
    pub(crate) fn all_pieces(&self, at: Where) -> impl Iterator<Item = (u64, u64)> + '_ {
        let (side, pieces) = (self.side(at), u64::from(self.pieces));
        (0..self.regions() * self.blocks_in_pool()).flat_map(move |row| {
            let block = row * side.block_bytes + side.piece_offset;
            (0..pieces).map(move |piece| (block + piece * side.piece_pitch, self.piece_bytes))
        })
    }

    /// Calls `each` for every piece of one transfer in its order: region by region, in each the blocks of the prompt.
    /// It is given the region's layer, the region, and the block on both sides.
    fn each_block(
        &self,
        slot: u32,
        placement: &Placement,
        mut each: impl FnMut(&LayerRegions, u64, u32, u32),
    ) {
        let tokens = self.prompts.get(slot as usize).copied().unwrap_or(0);
        let mut region = 0;
        for layer in &self.layers {
            // A window keeps the last blocks of the prompt.
            let kept = usize::try_from(self.blocks(tokens, layer)).unwrap_or(usize::MAX);
            let skipped = placement.source.len().saturating_sub(kept);
            for _ in 0..self.parts.per_layer() {
                for (source, destination) in placement.source.iter().zip(&placement.destination).skip(skipped)
                {
                    each(layer, region, *source, *destination);
                }
                region += 1;
            }
        }
    }

    /// The descriptor numbers of one transfer, from the block ids, as an engine computes them: into vectors that were
    /// made large enough before. Returns the number of descriptors.
    pub(crate) fn fill_indices(
        &self,
        slot: u32,
        placement: &Placement,
        source: &mut Vec<i32>,
        destination: &mut Vec<i32>,
    ) {
        source.clear();
        destination.clear();
        let (blocks, pieces) = (self.blocks_in_pool(), u64::from(self.pieces));
        self.each_block(slot, placement, |_, region, from, to| {
            let first = |block: u32| (region * blocks + u64::from(block)) * pieces;
            // The plan has made sure that all numbers fit.
            let all = |first: u64| (first..first + pieces).map(|piece| piece as i32);
            source.extend(all(first(from)));
            destination.extend(all(first(to)));
        });
    }

    /// The pieces of one transfer as the data check sees them, less those in `claimed`.
    pub(crate) fn pieces_of(&self, slot: u32, placement: &Placement, claimed: &mut Claimed) -> Vec<Block> {
        let most = usize::try_from(self.descriptors(slot)).unwrap_or(usize::MAX);
        let mut blocks = Vec::with_capacity(most.min(claimed.left(self.pieces)));
        let pieces = u64::from(self.pieces);
        self.each_block(slot, placement, |_, region, from, to| {
            if !claimed.claim(region, u64::from(to)) {
                return;
            }
            blocks.extend((0..pieces).map(|piece| Block {
                source: self.offset(Where::Source, region, u64::from(from), piece),
                destination: self.offset(Where::Destination, region, u64::from(to), piece),
                bytes: self.piece_bytes,
            }));
        });
        blocks
    }

    /// The first and the last piece of one transfer.
    pub(crate) fn ends_of(&self, slot: u32, placement: &Placement) -> Vec<Block> {
        let mut ends: Vec<Block> = Vec::new();
        let last_piece = u64::from(self.pieces).saturating_sub(1);
        let block = |region, from: u32, to: u32, piece| Block {
            source: self.offset(Where::Source, region, u64::from(from), piece),
            destination: self.offset(Where::Destination, region, u64::from(to), piece),
            bytes: self.piece_bytes,
        };
        self.each_block(slot, placement, |_, region, from, to| {
            if ends.is_empty() {
                ends.push(block(region, from, to, 0));
                ends.push(block(region, from, to, last_piece));
            }
            ends[1] = block(region, from, to, last_piece);
        });
        ends
    }

    /// What stands at a byte of one side's memory; `None` outside of the regions.
    pub(crate) fn place_at(&self, at: Where, offset: u64) -> Option<KvPlace> {
        let side = self.side(at);
        let (row, inside) = (offset / side.block_bytes, offset % side.block_bytes);
        let (region, block) = (row / self.blocks_in_pool(), row % self.blocks_in_pool());
        if region >= self.regions() {
            return None;
        }
        let (layer, part) = (region / self.parts.per_layer(), region % self.parts.per_layer());
        let layer = self.layers.get(usize::try_from(layer).ok()?)?.layer;
        let layer = (self.parts != Parts::Together).then_some(layer);
        Some(KvPlace { layer, part: self.parts.name(part).to_owned(), block, offset: inside })
    }
}

/// Blocks of the decode side that a later transfer has written, so that an earlier one is not expected there.
#[derive(Debug)]
pub(crate) struct Claimed {
    blocks: u64,
    taken: Vec<bool>,
    left: usize,
}

impl Claimed {
    /// Nothing is taken yet.
    pub(crate) fn none(shape: &KvShape) -> Self {
        let rows = usize::try_from(shape.regions() * shape.blocks_in_pool()).unwrap_or(0);
        Self { blocks: shape.blocks_in_pool(), taken: vec![false; rows], left: rows }
    }

    /// Pieces of blocks that nobody has taken.
    fn left(&self, pieces: u32) -> usize {
        self.left.saturating_mul(pieces as usize)
    }

    /// Takes a block; false when it was taken before.
    fn claim(&mut self, region: u64, block: u64) -> bool {
        let row = usize::try_from(region * self.blocks + block).ok();
        match row.and_then(|row| self.taken.get_mut(row)) {
            Some(taken) if !*taken => {
                *taken = true;
                self.left -= 1;
                true
            }
            Some(_) => false,
            None => false,
        }
    }
}
