//! The result of a run: the one thing that every report, gate and comparison reads.
//!
//! The doc comments of the fields are the descriptions in the published JSON Schema
//! (`docs/result.schema.json`).

use std::fmt;

use checks::{Finding, Node, Route};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::measure::histogram::Distribution;
use crate::memory::pattern::Mismatch;
use crate::plan::{Op, Plan};
use crate::proof::{Expected, Transport};

/// Name and major version of the format. A reader refuses another one.
pub(crate) const SCHEMA: &str = "kvwire.result/1";
/// Minor version that this kvwire writes. A reader ignores fields that a newer minor added.
pub(crate) const MINOR: u32 = 1;

/// The result of one kvwire run. Written after every case, so that a crash keeps what was measured until
/// then.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "kvwire result")]
pub(crate) struct ResultFile {
    /// Name and major version of this format: `kvwire.result/1`.
    #[schemars(regex(pattern = r"^kvwire\.result/1$"))]
    pub(crate) schema: String,
    /// Minor version: fields may have been added since 0, none was removed or changed its meaning.
    #[serde(default)]
    pub(crate) minor: u32,
    /// When and how kvwire ran.
    pub(crate) run: Run,
    /// What kvwire concludes.
    pub(crate) verdict: Verdict,
    /// What was to be measured, after all defaults were resolved.
    pub(crate) plan: Plan,
    /// Host and software of each side; null for a side that was never heard of.
    pub(crate) nodes: Sides<Node>,
    /// What the reports of the two nodes differ in; empty where they are alike, or one has none.
    #[serde(default)]
    pub(crate) node_differences: Vec<NodeDifference>,
    /// Memory the payload lay in on each side, for example `host memory` or `GPU memory (malloc)`.
    #[serde(default)]
    pub(crate) memory: Sides<String>,
    /// Where each side's engines sat, rank by rank: GPU, cores, network ports.
    #[serde(default)]
    pub(crate) placement: Sides<Vec<Placement>>,
    /// Where the two sides met, and through which own address each reached that place.
    #[serde(default)]
    pub(crate) rendezvous: Rendezvous,
    /// Time that each side needed until the first case, in named phases in their order.
    #[serde(default)]
    pub(crate) startup: Sides<Vec<Phase>>,
    /// Registration of the payload memory with NIXL on each side: bytes of all ranks, time of the slowest.
    #[serde(default)]
    pub(crate) registration: Sides<Registration>,
    /// The wire that was expected to carry the bytes; null until both sides have said what they could use.
    #[serde(default)]
    pub(crate) expectation: Option<Expected>,
    /// Every case of the plan, in the order measured; those that did not run say why.
    pub(crate) cases: Vec<CaseResult>,
    /// What a descriptor costs, for each operation of which enough cases ran.
    #[serde(default)]
    pub(crate) descriptor_costs: Vec<DescriptorCost>,
    /// Every judgement, with its evidence.
    pub(crate) findings: Vec<Finding>,
}

/// A fact that is not the same on both nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct NodeDifference {
    /// What, for example `port rate`.
    pub(crate) name: String,
    /// How it is on the initiator's node; null when it is not known there.
    pub(crate) initiator: Option<String>,
    /// How it is on the target's node; null when it is not known there.
    pub(crate) target: Option<String>,
}

/// One value for each side of a transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Sides<T> {
    /// The side that posts the transfers.
    pub(crate) initiator: Option<T>,
    /// The side whose memory is read or written.
    pub(crate) target: Option<T>,
}

impl<T> Default for Sides<T> {
    fn default() -> Self {
        Self { initiator: None, target: None }
    }
}

/// When and how kvwire ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Run {
    /// The run id that both sides joined under.
    pub(crate) id: String,
    /// Start of the run by the initiator's wall clock, in UTC (RFC 3339).
    #[schemars(extend("format" = "date-time"))]
    pub(crate) started_at: String,
    /// The side that wrote this file. The target's file is the initiator's result and what the target saw itself.
    #[serde(default)]
    pub(crate) recorded_by: Side,
    /// The command line as typed, one entry a word, with secrets left out.
    pub(crate) command_line: Vec<String>,
    /// From start to the writing of this file, by the initiator's monotonic clock, in ns.
    pub(crate) duration_ns: u64,
    /// False while the run goes on; a file that stays so is of a run that ended early.
    pub(crate) complete: bool,
}

/// One of the two sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Side {
    /// The side that posts the transfers.
    #[default]
    Initiator,
    /// The side whose memory is read or written.
    Target,
}

/// Where two sides met.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Rendezvous {
    /// Address of the rendezvous, without secrets.
    pub(crate) place: String,
    /// The initiator's way to it.
    pub(crate) initiator: Option<Route>,
    /// The target's way to it; where it serves the place itself, its end of the initiator's connection.
    pub(crate) target: Option<Route>,
}

/// What kvwire concludes from everything in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Verdict {
    /// The conclusion.
    pub(crate) outcome: Outcome,
    /// The reason in one sentence.
    pub(crate) summary: String,
    /// What was tested and therefore what the conclusion holds for: hosts, memory, workload.
    pub(crate) scope: String,
    /// The first thing to do about it; null when there is nothing to fix.
    pub(crate) first_fix: Option<String>,
    /// The exit code of both sides.
    pub(crate) exit_code: u8,
}

/// The three conclusions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// Everything that was tested held.
    Trusted,
    /// A check, a transport or the data failed.
    NotTrusted,
    /// Something needed for a conclusion was missing, such as the peer or NIXL.
    Inconclusive,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Trusted => "trusted",
            Self::NotTrusted => "not trusted",
            Self::Inconclusive => "inconclusive",
        })
    }
}

/// One step of start-up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Phase {
    /// What was done, for example `load NIXL`.
    pub(crate) name: String,
    /// How long it took, in ns.
    pub(crate) ns: u64,
}

/// Registration of memory with NIXL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Registration {
    /// Bytes registered.
    pub(crate) bytes: u64,
    /// Time of the registration call, in ns.
    pub(crate) ns: u64,
}

/// One case: a shape, an operation and a size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CaseResult {
    /// Stable name, for example `WRITE 64 KiB x1`.
    pub(crate) name: String,
    /// Direction.
    pub(crate) op: Op,
    /// How the payload is laid out: `uniform` is equal blocks, one after the other; `paged`, `slice` and `staged` are
    /// those of a KV cache; `sweep` is scattered blocks that tell what a descriptor costs.
    pub(crate) shape: String,
    /// The KV cache that was moved; null for `uniform` and `sweep`.
    #[serde(default)]
    pub(crate) kv: Option<KvCase>,
    /// Bytes in one block.
    pub(crate) block_bytes: u64,
    /// Blocks in one transfer.
    pub(crate) batch: u32,
    /// Transfers kept in flight, by each rank in each direction.
    pub(crate) depth: u32,
    /// How the case ended.
    pub(crate) status: CaseStatus,
    /// Why it failed or did not run; null for a pass.
    pub(crate) reason: Option<String>,
    /// Descriptors of one transfer.
    pub(crate) descriptors: Descriptors,
    /// Transfers completed in the timed loop.
    pub(crate) transfers: u64,
    /// Bytes those transfers moved: transfers x batch x block_bytes, where all transfers have the same size.
    pub(crate) payload_bytes: u64,
    /// Time of the timed loop, from just before its first post to its last completion, in ns.
    pub(crate) wall_ns: u64,
    /// payload_bytes / wall_ns, in bytes per second. Null unless the data was verified.
    pub(crate) bandwidth_bytes_per_s: Option<f64>,
    /// The first transfer of the case, before the warm-up, from its post to its completion, in ns. In the
    /// first case of a run it includes connecting.
    pub(crate) cold_ns: Option<u64>,
    /// Building each transfer request; null when requests were built once and posted again.
    pub(crate) prep: Option<Distribution>,
    /// The post call.
    pub(crate) post: Option<Distribution>,
    /// From the return of the post call to the completion being seen.
    pub(crate) wire: Option<Distribution>,
    /// What an inference engine waits for: prep (if any), post and wire of each transfer together.
    pub(crate) total: Option<Distribution>,
    /// Extra time of a transfer that carries a notification: the difference of pairs with and without one, at
    /// least 0. Null where transfers carry none.
    pub(crate) notify: Option<Distribution>,
    /// Preparing the descriptor lists of both sides, once before the first transfer as engines do at their handshake, in
    /// ns.
    #[serde(default)]
    pub(crate) lists_ns: Option<u64>,
    /// The same several times over, that first time included.
    #[serde(default)]
    pub(crate) lists: Option<Distribution>,
    /// From the start of making a request to the moment at which the target is known to have its notification: small
    /// READs look for it, so each figure may be too high by `notified_resolution_ns`. Null for uniform blocks.
    #[serde(default)]
    pub(crate) notified: Option<Distribution>,
    /// Median time of one such READ, in ns.
    #[serde(default)]
    pub(crate) notified_resolution_ns: Option<u64>,
    /// From the moment for which each transfer was scheduled to its completion, waiting for a free slot included. Null
    /// in a closed loop.
    #[serde(default)]
    pub(crate) scheduled: Option<Distribution>,
    /// Transfers that were scheduled and never started, since the pair fell too far behind the rate.
    #[serde(default)]
    pub(crate) unserved: u64,
    /// How long the timed loops, which never sleep, had no processor, in ns; null where it is not known.
    #[serde(default)]
    pub(crate) off_cpu_ns: Option<u64>,
    /// Transfers before the timed loop that count in nothing else.
    pub(crate) warmup_transfers: u64,
    /// What is known about the data that arrived.
    pub(crate) verification: Verification,
    /// NIXL's own times of the same transfers, where it gives them.
    pub(crate) nixl_telemetry: Option<NixlTelemetry>,
    /// Which wire carried the bytes, and the evidence; null when the case did not come that far.
    #[serde(default)]
    pub(crate) transport: Option<Transport>,
    /// What ended the timed loop; null if it did not end by itself.
    pub(crate) ended_by: Option<EndedBy>,
    /// The timed loops of the case one by one, in their order. The figures above are over all of them.
    #[serde(default)]
    pub(crate) repetitions: Vec<Repetition>,
    /// One entry for each rank and direction, where there are several: all of them moved at once, and the figures above are
    /// over all of them (`docs/measuring.md` says how).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) parts: Vec<PartResult>,
    /// The most that the path of this case can reach; null where it is not known.
    #[serde(default)]
    pub(crate) limit: Option<Limit>,
}

/// The most that a path can reach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Limit {
    /// Payload bytes per second.
    pub(crate) bytes_per_s: f64,
    /// Where the figure comes from, for example the rate of a port or a copy in memory measured on the spot.
    pub(crate) source: String,
}

/// The KV cache that a case moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct KvCase {
    /// Name of the model.
    pub(crate) model: String,
    /// Layout with the version of the engine that it was read from.
    pub(crate) layout: String,
    /// Number format of the cache.
    pub(crate) kv_dtype: String,
    /// Tensor-parallel ranks of the prefill side; as many take part as the plan says.
    pub(crate) prefill_tp: u32,
    /// Tensor-parallel ranks of the decode side; as many take part as the plan says.
    pub(crate) decode_tp: u32,
    /// Prefill ranks that a decode rank gets its prompt from; a transfer is the share of one of them.
    pub(crate) prefill_ranks_per_decode_rank: u32,
    /// Tokens of a block.
    pub(crate) block_tokens: u64,
    /// Length of each prompt in flight, in tokens.
    pub(crate) prompts: Vec<u64>,
    /// 0: the blocks of a prompt stand in a row; 1000: no two of them do.
    pub(crate) fragmentation_permille: u32,
    /// Placements of the blocks, used in turn.
    pub(crate) placements: u32,
    /// Descriptors prepared on each side, for all blocks of the pool.
    pub(crate) prepared_descriptors: u64,
}

/// What a descriptor costs, from cases that move the same bytes in more or fewer of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DescriptorCost {
    /// Direction.
    pub(crate) op: Op,
    /// Time that each descriptor adds to a transfer, in ns.
    pub(crate) ns: f64,
    /// Half of the 95 % confidence interval around it, in ns.
    pub(crate) ns_within: f64,
    /// Rate of the wire without the cost of descriptors, in bytes per second; null when the fit does not give one.
    pub(crate) wire_bytes_per_s: Option<f64>,
    /// Size of a descriptor at which the wire takes as long as the descriptor costs; smaller ones are bound by
    /// descriptors.
    pub(crate) crossover_bytes: Option<f64>,
    /// Cases that it was computed from.
    pub(crate) cases: u64,
}

/// How a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CaseStatus {
    /// Measured, and the data was right.
    Pass,
    /// Tried, and something was wrong.
    Fail,
    /// Not tried.
    NotRun,
}

/// What ended a timed loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EndedBy {
    /// The wanted number of samples was reached.
    Samples,
    /// The time budget of the case was used up first.
    Time,
}

/// Descriptors of one transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Descriptors {
    /// Descriptors that kvwire asked for.
    pub(crate) requested: u64,
    /// Descriptors that NIXL handed to its backend after merging neighbours; null when NIXL does not tell.
    pub(crate) posted: Option<u64>,
}

/// What is known about the data that arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Verification {
    /// Bytes compared one by one at the consumer, after the timed loop.
    pub(crate) verified_bytes: u64,
    /// Transfers whose first and last word were checked on their own, by either side.
    pub(crate) per_transfer_checks: u64,
    /// Those of `per_transfer_checks` that the initiator made: of READs, when their completion was seen.
    #[serde(default)]
    pub(crate) checks_at_initiator: u64,
    /// Those of `per_transfer_checks` that the target made: of marked WRITEs after the timed loop, when their notification
    /// was taken.
    #[serde(default)]
    pub(crate) checks_at_target: u64,
    /// Fillings of the source during the case; each changes every word of it.
    pub(crate) epochs: u32,
    /// The first difference; null when there was none.
    pub(crate) mismatch: Option<Mismatch>,
}

/// NIXL's telemetry of the timed transfers beside kvwire's own figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct NixlTelemetry {
    /// Transfers that NIXL gave times for.
    pub(crate) samples: u64,
    /// Median of NIXL's post time, in us.
    pub(crate) post_p50_us: Option<f64>,
    /// Median of NIXL's total time, in us.
    pub(crate) total_p50_us: Option<f64>,
    /// Median of kvwire's post time of the same transfers, in us.
    pub(crate) ours_post_p50_us: Option<f64>,
    /// Median of kvwire's post plus wire time of the same transfers, in us.
    pub(crate) ours_total_p50_us: Option<f64>,
    /// What does not fit together, in one sentence; null when the two agree.
    pub(crate) disagreement: Option<String>,
}

#[cfg(test)]
pub(crate) mod example;
mod part;
mod placement;
mod repetition;

pub(crate) use part::{MeasuredPart, PartResult};
pub(crate) use placement::{GpuUsed, Placement};
pub(crate) use repetition::Repetition;

#[cfg(test)]
mod tests;
