//! What will be measured: resolved, validated and immutable. No I/O here.
//!
//! A plan is made once, on the initiator, from what the user typed. It travels to the target and into the
//! result, so that a reader can repeat the run.

mod pair;
mod part;
mod request;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::measure::units::ByteSize;
use crate::memory::MemoryWish;
use crate::proof::Expect;
use crate::workload::KvShape;

pub(crate) use pair::Pair;
pub(crate) use part::Part;
use request::{CASE_TIME_DEFAULT, RANKS_MAX};
pub(crate) use request::{DESK_BYTES, PlanError, Request};

/// The direction of a transfer, seen from the initiator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Op {
    /// The initiator (decode) pulls from the target.
    Read,
    /// The initiator (prefill) pushes to the target.
    Write,
    /// Both at once: a READ and a WRITE are in flight together, each on memory of its own.
    #[serde(rename = "READ+WRITE")]
    #[value(skip)]
    Both,
}

impl Op {
    /// The directions that it stands for.
    pub(crate) fn directions(self) -> &'static [Self] {
        match self {
            Self::Read => &[Self::Read],
            Self::Write => &[Self::Write],
            Self::Both => &[Self::Read, Self::Write],
        }
    }

    /// The UCX call that carries one direction, as UCX's tables name it.
    pub(crate) fn ucx_name(self) -> &'static str {
        match self {
            Self::Read => "ucp_get",
            Self::Write | Self::Both => "ucp_put",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "READ",
            Self::Write => "WRITE",
            Self::Both => "READ+WRITE",
        })
    }
}

/// One case: a shape, an operation and a size. Every case of a plan ends as pass, fail or not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Case {
    /// Direction.
    pub(crate) op: Op,
    /// Bytes of one descriptor.
    pub(crate) block_bytes: u64,
    /// Descriptors in one transfer; where prompts of different length are in flight, in that of the first.
    pub(crate) batch: u32,
    /// Blocks of a KV cache instead of uniform ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kv: Option<Box<KvShape>>,
}

impl Case {
    /// A case that moves blocks of a KV cache.
    pub(crate) fn of_kv(op: Op, shape: KvShape) -> Self {
        let batch = u32::try_from(shape.descriptors(0)).unwrap_or(u32::MAX);
        Self { op, block_bytes: shape.piece_bytes, batch, kv: Some(Box::new(shape)) }
    }

    /// Payload of one transfer of `slot` in bytes.
    pub(crate) fn transfer_bytes(&self, slot: u32) -> u64 {
        match &self.kv {
            Some(shape) => shape.transfer_bytes(slot),
            None => self.block_bytes * u64::from(self.batch),
        }
    }

    /// Transfers in flight, where the plan says `depth`.
    pub(crate) fn slots(&self, depth: u32) -> u32 {
        self.kv.as_ref().map_or(depth, |shape| shape.slots())
    }

    /// Distance between two descriptors in the pool, in bytes: whole words, since the pattern is made of words.
    pub(crate) fn stride(&self) -> u64 {
        self.block_bytes.next_multiple_of(8)
    }

    /// Bytes of the pool that `depth` transfers at once occupy.
    pub(crate) fn footprint(&self, depth: u32) -> u64 {
        self.stride() * u64::from(self.batch) * u64::from(depth)
    }

    /// Byte ranges `(offset, length)` in the pool of the transfer in `slot`, the same on both sides.
    pub(crate) fn ranges(&self, slot: u32) -> impl Iterator<Item = (u64, u64)> + '_ {
        let base = self.footprint(slot);
        (0..u64::from(self.batch)).map(move |block| (base + block * self.stride(), self.block_bytes))
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kv {
            Some(shape) => write!(f, "{} {}", self.op, shape.title()),
            None => write!(f, "{} {} x{}", self.op, ByteSize(self.block_bytes), self.batch),
        }
    }
}

/// Everything that decides what is measured and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Plan {
    /// The cases in the order in which they run.
    pub(crate) cases: Vec<Case>,
    /// Transfers outstanding at once (closed loop).
    pub(crate) depth: u32,
    /// Ranks on each side, each an engine process with an agent and a pool of its own.
    #[serde(default = "once")]
    pub(crate) ranks: u32,
    /// Times that all cases are measured, round after round.
    #[serde(default = "once")]
    pub(crate) repeat: u32,
    /// Untimed transfers before the timed loop, at most; a tenth of the case time ends them earlier.
    pub(crate) warmup: u64,
    /// Timed transfers of a case, at most.
    pub(crate) samples: u64,
    /// Time of the timed loop of one case, at most, in milliseconds.
    pub(crate) case_time_ms: u64,
    /// Time of the whole run, at most, in milliseconds; a case that would start later is not run.
    pub(crate) total_time_ms: Option<u64>,
    /// Seed of the data pattern.
    pub(crate) seed: u64,
    /// Memory registered by each rank of a side, in bytes.
    pub(crate) pool_bytes: u64,
    /// NIXL may merge neighbouring descriptors into one (its default).
    pub(crate) merge: bool,
    /// A request is made anew for every transfer instead of once per case.
    pub(crate) recreate: bool,
    /// Every timed transfer carries a completion notification to the target.
    pub(crate) notify: bool,
    /// Time between the starts of two KV transfers that are scheduled whether or not earlier ones are done (open loop),
    /// in nanoseconds. Null: the next starts when one is done (closed loop).
    #[serde(default)]
    pub(crate) interval_ns: Option<u64>,
    /// A transfer that takes longer has stalled and ends the run, in milliseconds.
    pub(crate) transfer_timeout_ms: u64,
    /// Environment given to the engines on top of their own, as `KEY=VALUE` on the command line.
    pub(crate) ucx_env: BTreeMap<String, String>,
    /// The wire that is expected to carry the bytes.
    #[serde(default)]
    pub(crate) expect: Expect,
    /// UCX may not fall back to software emulation (from UCX 1.21 on).
    #[serde(default)]
    pub(crate) strict: bool,
    /// Where the payload lies on each side.
    #[serde(default)]
    pub(crate) memory: MemoryWish,
    /// Least share of what a path can reach, in percent; below it the run fails. Null: below 80 % is a warning.
    #[serde(default)]
    pub(crate) min_efficiency_percent: Option<u32>,
}

/// What `strict` sets for the engines.
const NO_EMULATION: (&str, &str) = ("UCX_PROTO_EMULATION_ENABLE", "n");

/// What plans of before there were repetitions and ranks mean.
fn once() -> u32 {
    1
}

impl Plan {
    /// Environment of the engines on top of their own.
    pub(crate) fn engine_env(&self) -> BTreeMap<String, String> {
        let mut env = self.ucx_env.clone();
        if self.strict {
            env.insert(NO_EMULATION.0.to_owned(), NO_EMULATION.1.to_owned());
        }
        env
    }

    /// Time of one timed loop, at most.
    pub(crate) fn case_time(&self) -> Duration {
        Duration::from_millis(self.case_time_ms)
    }

    /// Time of the timed loop of a case, at most: those of the sweep need no more than uniform blocks do.
    pub(crate) fn time_of(&self, case: &Case) -> Duration {
        let is_sweep = case.kv.as_ref().is_some_and(|shape| shape.is_sweep());
        if is_sweep { self.case_time().min(CASE_TIME_DEFAULT) } else { self.case_time() }
    }

    /// Time of the whole run, at most.
    pub(crate) fn total_time(&self) -> Option<Duration> {
        self.total_time_ms.map(Duration::from_millis)
    }

    /// A transfer that takes longer has stalled.
    pub(crate) fn transfer_timeout(&self) -> Duration {
        Duration::from_millis(self.transfer_timeout_ms)
    }

    /// Whether the transfers of a case carry a notification: those of a KV cache do, as in the engines.
    pub(crate) fn notifies(&self, case: &Case) -> bool {
        self.notify || case.kv.as_ref().is_some_and(|shape| !shape.is_sweep())
    }

    /// Whether the target has to take notifications.
    pub(crate) fn listens(&self) -> bool {
        self.cases.iter().any(|case| self.notifies(case))
    }

    /// What is moved, in a few words: `uniform blocks`, `KV blocks of llama-3.1-8b`.
    pub(crate) fn payload(&self) -> String {
        let mut kinds: Vec<String> = Vec::new();
        for case in &self.cases {
            let kind = match &case.kv {
                None => "uniform blocks".to_owned(),
                Some(shape) if shape.is_sweep() => continue,
                Some(shape) => format!("KV blocks of {}", shape.model),
            };
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        let ranks = if self.ranks > 1 { format!(", {} ranks a side", self.ranks) } else { String::new() };
        kinds.join(" and ") + &ranks
    }

    /// Whether a peer may ask for as many ranks.
    pub(crate) fn ranks_are_sound(&self) -> bool {
        (1..=RANKS_MAX).contains(&self.ranks)
    }

    /// Where the words at the end of the pool begin that tell each rank of the initiator how many of its notifications
    /// the target has taken. Only where the run has KV cases.
    pub(crate) fn bell(&self) -> Option<u64> {
        let has_kv = self.cases.iter().any(|case| case.kv.is_some());
        has_kv.then(|| (self.pool_bytes.saturating_sub(DESK_BYTES)) / 8 * 8)
    }

    /// The longest that a case may keep an engine busy in one command, stall included.
    pub(crate) fn longest_command(&self) -> Duration {
        // An open loop works off what is due for as long again, and each direction has some transfers after it.
        self.case_time() * 3 + self.transfer_timeout() + self.memory_command()
    }

    /// The longest that the target's engine may take to fill or compare its memory, or to count notifications. Shorter than
    /// [`Self::longest_command`], so that an engine that hangs there is not given the time of a timed loop.
    pub(crate) fn memory_command(&self) -> Duration {
        // All ranks do it at once, and may have to share one path to memory.
        let bytes = self.pool_bytes as f64 * f64::from(self.ranks);
        Duration::from_secs_f64(bytes / SLOWEST_MEMORY_BYTES_PER_S) + Duration::from_secs(5)
    }
}

/// Memory is filled and compared faster than this anywhere, also in an unoptimised build on a busy machine.
const SLOWEST_MEMORY_BYTES_PER_S: f64 = 128e6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_two_slots_do_not_touch_and_start_on_words() {
        let case = Case { op: Op::Read, block_bytes: 1001, batch: 3, kv: None };
        let all: Vec<(u64, u64)> = (0..2).flat_map(|slot| case.ranges(slot).collect::<Vec<_>>()).collect();
        for pair in all.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0);
        }
        assert!(all.iter().all(|(offset, _)| offset % 8 == 0));
        assert!(all.iter().all(|(offset, len)| offset + len <= case.footprint(2)));
    }
}
