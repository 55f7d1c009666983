//! Where the blocks of a prompt lie in a pool: seeded, the same on both sides of a run, different from round to round.

use super::KvShape;

/// Block ids of one prompt on both sides, in the order of its tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    /// On the prefill side.
    pub(crate) source: Vec<u32>,
    /// On the decode side.
    pub(crate) destination: Vec<u32>,
}

/// The placement of `slot` in the `round`-th of the shape's rounds.
///
/// Fragmentation cuts the prompt into runs of neighbouring blocks: at 0 it is one run, at 1000 per mille each block is
/// one. Both sides are cut at the same places, so that a run is one piece of memory here and there; the runs then lie
/// in any order on either side, with the blocks that are not of the prompt between them.
pub(crate) fn place(shape: &KvShape, seed: u64, slot: u32, round: u32) -> Placement {
    let blocks = shape.placed_blocks(slot);
    let share = shape.pool_blocks.get(slot as usize).copied().unwrap_or(0);
    let first: u32 = shape.pool_blocks.iter().take(slot as usize).sum();
    let mut chance = Chance::new(seed, slot, round);
    let runs = cut(blocks, shape.fragmentation_permille, &mut chance);
    let mut side = || scatter(&runs, blocks, share.max(blocks), first, &mut chance);
    let source = side();
    Placement { source, destination: side() }
}

/// Runs of a prompt, each the number of its first block and their count.
fn cut(blocks: u32, permille: u32, chance: &mut Chance) -> Vec<(u32, u32)> {
    let gaps = blocks.saturating_sub(1);
    let mut cuts_left = (u64::from(gaps) * u64::from(permille.min(1000))).div_ceil(1000);
    let mut runs = Vec::new();
    let mut begin = 0;
    for gap in 0..gaps {
        // Each of the remaining gaps is as likely to be cut as the others, and in the end exactly so many are.
        if chance.below(u64::from(gaps - gap)) < cuts_left {
            cuts_left -= 1;
            runs.push((begin, gap + 1 - begin));
            begin = gap + 1;
        }
    }
    if blocks > 0 {
        runs.push((begin, blocks - begin));
    }
    runs
}

/// Lays the runs and the free blocks out in a random order; gives the block id of each of the prompt's blocks.
fn scatter(runs: &[(u32, u32)], blocks: u32, share: u32, first: u32, chance: &mut Chance) -> Vec<u32> {
    // The runs by number, and a free block for each number beyond them.
    let free = share - blocks;
    let mut order: Vec<u32> = (0..runs.len() as u32 + free).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, chance.below(last as u64 + 1) as usize);
    }
    let mut ids = vec![0; blocks as usize];
    let mut next = first;
    for item in order {
        let Some((begin, count)) = runs.get(item as usize).copied() else {
            next += 1;
            continue;
        };
        for id in ids.iter_mut().skip(begin as usize).take(count as usize) {
            *id = next;
            next += 1;
        }
    }
    ids
}

/// Numbers by chance from a seed (SplitMix64). They decide places only, and must be the same on every machine.
struct Chance(u64);

impl Chance {
    fn new(seed: u64, slot: u32, round: u32) -> Self {
        let mut chance = Self(seed ^ (u64::from(slot) << 32) ^ u64::from(round));
        chance.next();
        chance
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// A number below `limit`, which is above 0.
    fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}
