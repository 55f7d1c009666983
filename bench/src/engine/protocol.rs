//! What a supervisor and its engine say to each other: one JSON document a frame, commands down, events up.
//!
//! A frame is a 4-byte big-endian length and that many bytes. Nothing is said inside a timed loop.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use checks::NixlIdentity;
use nixl::RemoteRegion;
use serde::{Deserialize, Serialize};

use super::lookout::{Late, Looks};
use crate::measure::histogram::Distribution;
use crate::memory::Seat;
use crate::memory::pattern::Mismatch;
use crate::plan::{Part, Plan};
use crate::report::model::Placement;

/// The largest frame, in bytes: a metadata blob of many registrations fits many times over.
pub(crate) const FRAME_MAX: usize = 64 << 20;

/// The line of [`Command::Mark`].
pub(crate) const MARK: &str = "kvwire: the log is complete up to here";

/// Which end of the transfers of a case the engine's memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum End {
    /// The bytes come from here: fill with the pattern of the epoch.
    Source,
    /// The bytes arrive here: poison, so that what was there before cannot pass for what arrived.
    Consumer,
}

/// From the supervisor to its engine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Load NIXL and say what is there, without a transfer.
    Inspect { nixl_lib: Option<String> },
    /// Load NIXL and move a few bytes between two agents of this process.
    TryOut { nixl_lib: Option<String> },
    /// Say which GPUs CUDA shows, without NIXL.
    LookForGpus,
    /// Take the seat, load NIXL, create the agent and its UCX backend, allocate and register the pool.
    ///
    /// `polls`: progress NIXL while waiting for commands. The target does, since wires without hardware help need its
    /// hands for every transfer; the initiator polls its own transfers, and only then. No engine has NIXL's progress
    /// thread: asleep it answers tens of microseconds late, awake it takes the core of a timed loop.
    Open { agent: String, nixl_lib: Option<String>, polls: bool, rank: u32, plan: Box<Plan>, seat: Box<Seat> },
    /// Load the metadata of ranks across and remember where their pools are.
    Connect { peers: Vec<PeerRank> },
    /// Make this engine's memory ready for its parts of a case.
    Prepare { parts: Vec<(Part, End)>, epoch: u32 },
    /// Make the requests of this engine's parts of a case; in each the first transfer, then warm-up.
    WarmUp { parts: Vec<Part>, epoch: u32 },
    /// The timed loop over the requests that the warm-up made, of all parts at once. It begins at `start_at_ns` of the
    /// host's monotonic clock, so that those of several ranks begin together.
    Measure { epoch: u32, start_at_ns: u64 },
    /// Compare this engine's memory with the pattern.
    Verify { checks: Vec<Check>, epoch: u32 },
    /// From now on, look at every marked WRITE of these parts when its notification is taken.
    LookOut { parts: Vec<Part>, epoch: u32 },
    /// Make a marked WRITE of each slot of every part that writes, outside of everything that is measured.
    MarkWrites,
    /// Take notifications until `expected` marked WRITEs have been looked at in all or the time is over, and say what was
    /// seen of them.
    Looked { expected: u64, timeout_ms: u64 },
    /// From now on, show the initiator how many notifications have been taken.
    Listen,
    /// Say how fast this side's memory copies so many bytes within itself, outside of everything that is measured.
    CopySpeed { bytes: u64 },
    /// Write [`MARK`] to standard error: all that was logged before it has been read when it has.
    Mark,
    /// Take notifications until `expected` have come in all or the time is over, and say how many came.
    Heard { expected: u64, timeout_ms: u64 },
}

/// From the engine to its supervisor: one event for each command.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Event {
    /// To [`Command::Inspect`].
    Inspected(Box<Inspection>),
    /// To [`Command::TryOut`].
    Tried(Box<Trial>),
    /// To [`Command::LookForGpus`].
    Gpus(Vec<cuda::Device>),
    /// To [`Command::Open`].
    Opened(Box<Opened>),
    /// To [`Command::CopySpeed`].
    CopySpeed { bytes_per_s: f64 },
    /// To [`Command::Connect`], [`Command::Prepare`], [`Command::LookOut`], [`Command::Listen`] and
    /// [`Command::Mark`].
    Done { ns: u64 },
    /// To [`Command::WarmUp`]: part by part.
    Warm(Vec<WarmedUp>),
    /// To [`Command::Measure`]: part by part.
    Measured(Vec<Measured>),
    /// To [`Command::Verify`]: check by check.
    Verified(Vec<Verified>),
    /// To [`Command::MarkWrites`]: how many, part by part.
    Marked(Vec<u64>),
    /// To [`Command::Looked`]: in the order of the parts.
    Looked(Vec<Looks>),
    /// To [`Command::Heard`].
    Heard { notifications: u64 },
    /// To any command: it could not be carried out.
    Failed(EngineError),
}

/// A rank across.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PeerRank {
    /// Which.
    pub(crate) rank: u32,
    /// NIXL's metadata of its agent.
    pub(crate) metadata: Blob,
    /// Where its pool is.
    pub(crate) region: RemoteRegion,
}

/// What to compare.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Check {
    /// The part whose bytes arrived here.
    pub(crate) part: Part,
    /// `stamps[slot]` says which transfers the slot has made.
    pub(crate) stamps: Vec<SlotEnd>,
}

/// A NIXL installation as an engine found it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Inspection {
    /// What was loaded.
    pub(crate) nixl: NixlIdentity,
    /// Names of the plugins that NIXL lists.
    pub(crate) plugins: Vec<String>,
    /// Memory kinds that the UCX backend takes.
    pub(crate) memory_kinds: Vec<String>,
    /// Parameters of the UCX backend with their defaults.
    pub(crate) backend_params: BTreeMap<String, String>,
    /// Every place that was looked at, in order.
    pub(crate) searched: Vec<Place>,
}

/// How far NIXL got within one process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Trial {
    /// What was loaded.
    pub(crate) nixl: NixlIdentity,
    /// Names of the plugins that NIXL lists.
    pub(crate) plugins: Vec<String>,
    /// Memory kinds that the UCX backend takes.
    pub(crate) memory_kinds: Vec<String>,
    /// Steps in order: `agent`, `plugins`, `backend`, `host memory`, `loopback`; the last one may have failed.
    pub(crate) steps: Vec<Step>,
    /// Registration of GPU memory, beside the steps: a machine without a GPU fails none.
    pub(crate) gpu_memory: Attempt,
}

/// How something came out that is tried only where it can be.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Attempt {
    /// It worked.
    Done,
    /// It did not, and why.
    Failed(String),
    /// It was not tried, and why.
    Skipped(String),
}

/// One step of a trial.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Step {
    /// Which.
    pub(crate) name: String,
    /// Why it failed; `None` when it did not.
    pub(crate) error: Option<String>,
}

/// A place where NIXL may stand.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Place {
    /// The file; holds a `*` where no folder matched.
    pub(crate) path: String,
    /// Why it was looked at.
    pub(crate) origin: String,
    /// Whether the file is there.
    pub(crate) exists: bool,
}

/// An engine that is ready to be connected.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Opened {
    /// What was loaded.
    pub(crate) nixl: NixlIdentity,
    /// Where it sits.
    pub(crate) placement: Placement,
    /// Where the pool is, for the peer.
    pub(crate) region: RemoteRegion,
    /// NIXL's metadata of this agent, for the peer.
    pub(crate) metadata: Blob,
    /// Phases in order, with their time in nanoseconds: load, agent, backend, allocate (waiting for the pool,
    /// which is taken meanwhile), register.
    pub(crate) phases: Vec<(String, u64)>,
}

/// What happened before the timed loop.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct WarmedUp {
    /// Building descriptor lists (both sides') for the first time, in nanoseconds.
    pub(crate) prepare_ns: u64,
    /// The same several times over.
    pub(crate) prepare: Option<Distribution>,
    /// Making the request of the first slot, in nanoseconds.
    pub(crate) make_ns: u64,
    /// The first transfer of the case, in nanoseconds.
    pub(crate) cold_ns: u64,
    /// Warm-up transfers after it.
    pub(crate) transfers: u64,
}

/// Where the transfers of one slot stand at the end of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SlotEnd {
    /// Number of the last transfer.
    pub(crate) iteration: u32,
    /// Transfers since the memory was made ready.
    pub(crate) transfers: u32,
    /// Each carries its number in its data.
    pub(crate) stamped: bool,
}

/// How long it takes until the other side has taken a transfer's notification.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// From the start of making the request to the moment at which a small READ shows that the target has it.
    pub(crate) total: Option<Distribution>,
    /// Median time of such a READ: by so much the figures may be too high, in nanoseconds.
    pub(crate) resolution_ns: u64,
}

/// What the timed loop saw.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Timed transfers.
    pub(crate) transfers: u64,
    /// All transfers since the command came: the timed ones, and the few after them for telemetry and notifications.
    pub(crate) moved: u64,
    /// Bytes that they moved.
    pub(crate) moved_bytes: u64,
    /// When the loop began, by the host's monotonic clock, in nanoseconds.
    pub(crate) began_ns: u64,
    /// How long the loop, which never sleeps, had no processor, in nanoseconds.
    pub(crate) off_cpu_ns: u64,
    /// From the first post to the last completion, in nanoseconds.
    pub(crate) wall_ns: u64,
    /// True when the number of samples ended the loop, false when its time did.
    pub(crate) ended_by_samples: bool,
    /// Making the request; only when it is made per transfer.
    pub(crate) prep: Option<Distribution>,
    /// The call that posts.
    pub(crate) post: Option<Distribution>,
    /// From the return of the post to the completion.
    pub(crate) wire: Option<Distribution>,
    /// What an engine waits for.
    pub(crate) total: Option<Distribution>,
    /// Extra time of a transfer that carries a notification.
    pub(crate) notify: Option<Distribution>,
    /// Notifications that this engine has sent to the rank across in all.
    pub(crate) notifications: u64,
    /// Bytes that the timed transfers moved.
    pub(crate) payload_bytes: u64,
    /// From the moment for which each transfer was scheduled to its completion; only in an open loop.
    pub(crate) scheduled: Option<Distribution>,
    /// Transfers that were scheduled and never started, because the pair fell too far behind.
    pub(crate) unserved: u64,
    /// When the other side has the notification; only of KV transfers.
    pub(crate) seen: Option<Seen>,
    /// Where each slot's transfers stand.
    pub(crate) stamps: Vec<SlotEnd>,
    /// Transfers whose stamps this side checked at completion.
    pub(crate) checked: u64,
    /// What is wrong with the first transfer that completed without its bytes.
    pub(crate) mismatch: Option<Mismatch>,
    /// The first transfer whose bytes came after its completion.
    pub(crate) late: Option<Late>,
    /// NIXL's own timing of some more transfers, beside ours.
    pub(crate) telemetry: Option<TelemetryPair>,
}

/// One time of the same transfers by two clocks: medians in nanoseconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct TwoClocks {
    /// By kvwire.
    pub(crate) ours_ns: u64,
    /// By NIXL.
    pub(crate) nixl_ns: u64,
    /// Median of kvwire's less NIXL's, transfer by transfer.
    pub(crate) apart_ns: i64,
}

/// The same transfers timed by kvwire and by NIXL.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TelemetryPair {
    /// Transfers compared.
    pub(crate) samples: u64,
    /// NIXL's resolution.
    pub(crate) resolution_ns: u64,
    /// The post call.
    pub(crate) post: TwoClocks,
    /// From the start of the post call to the completion.
    pub(crate) total: TwoClocks,
    /// Descriptors of one transfer as NIXL posted it.
    pub(crate) descriptors: u64,
    /// Bytes of one transfer as NIXL counted it.
    pub(crate) bytes: u64,
}

/// What the check of the data found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Verified {
    /// Bytes compared.
    pub(crate) bytes: u64,
    /// The first difference.
    pub(crate) mismatch: Option<Mismatch>,
}

/// What kind of thing went wrong in an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ErrorKind {
    /// No NIXL was found.
    NixlMissing,
    /// A NIXL was found and cannot be used, or has no UCX backend.
    NixlUnusable,
    /// A NIXL or UCX call failed.
    Nixl,
    /// A posted transfer did not complete in time. The engine must not be used any more.
    Stalled,
    /// Memory could not be had.
    Memory,
    /// No GPU could be used, or it failed.
    Gpu,
    /// The supervisor asked for something impossible: a fault in kvwire.
    Protocol,
}

/// A command that could not be carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub(crate) struct EngineError {
    /// What kind of thing it is.
    pub(crate) kind: ErrorKind,
    /// What was called, on what, and what came back.
    pub(crate) message: String,
}

/// Bytes that travel in JSON, as base64.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Blob(pub Vec<u8>);

impl std::fmt::Debug for Blob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Blob({} bytes)", self.0.len())
    }
}

impl Serialize for Blob {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use base64::Engine as _;
        serializer.serialize_str(&base64::engine::general_purpose::STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use base64::Engine as _;
        let text = String::deserialize(deserializer)?;
        base64::engine::general_purpose::STANDARD.decode(text).map(Blob).map_err(serde::de::Error::custom)
    }
}

/// Writes one frame. Called by the engine, which may block.
///
/// # Errors
/// The pipe is gone, or the message is larger than [`FRAME_MAX`].
pub(crate) fn write_frame<T: Serialize>(pipe: &mut impl Write, message: &T) -> io::Result<()> {
    let frame = encode(message)?;
    pipe.write_all(&frame)?;
    pipe.flush()
}

/// One frame with its length in front.
///
/// # Errors
/// The message is larger than [`FRAME_MAX`].
pub(crate) fn encode<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message)?;
    let length = u32::try_from(frame.len() - 4).ok().filter(|n| *n as usize <= FRAME_MAX);
    let length = length.ok_or_else(|| io::Error::other("a message to the engine is too large"))?;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    Ok(frame)
}

/// Reads one frame; `None` at the end of the pipe.
///
/// # Errors
/// The pipe broke inside a frame, or the frame is not a message.
pub(crate) fn read_frame<T: for<'de> Deserialize<'de>>(pipe: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match pipe.read_exact(&mut length) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(e) => return Err(e),
    }
    let mut body = vec![0; checked_length(length)?];
    pipe.read_exact(&mut body)?;
    Ok(Some(serde_json::from_slice(&body)?))
}

/// The length of a frame from its first four bytes.
///
/// # Errors
/// It is larger than [`FRAME_MAX`].
pub(crate) fn checked_length(length: [u8; 4]) -> io::Result<usize> {
    let length = u32::from_be_bytes(length) as usize;
    if length > FRAME_MAX {
        return Err(io::Error::other(format!("a frame of {length} bytes is larger than {FRAME_MAX}")));
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_survives_the_pipe() {
        let mut pipe = Vec::new();
        write_frame(&mut pipe, &Command::Heard { expected: 7, timeout_ms: 100 }).unwrap();
        let mut pipe = pipe.as_slice();
        let back: Option<Command> = read_frame(&mut pipe).unwrap();
        assert!(matches!(back, Some(Command::Heard { expected: 7, timeout_ms: 100 })));
        assert!(read_frame::<Command>(&mut pipe).unwrap().is_none());
    }

    #[test]
    fn a_giant_frame_is_refused_before_memory_is_taken() {
        let mut pipe: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0];
        assert!(read_frame::<Command>(&mut pipe).is_err());
    }

    #[test]
    fn a_frame_cut_short_is_an_error_and_not_an_end() {
        let mut pipe: &[u8] = &[0, 0, 0, 9, b'{'];
        assert!(read_frame::<Command>(&mut pipe).is_err());
    }

    #[test]
    fn a_blob_is_base64_in_json_and_says_only_its_size_in_debug() {
        let blob = Blob(vec![0, 255, 7]);
        assert_eq!(serde_json::to_string(&blob).unwrap(), "\"AP8H\"");
        assert_eq!(serde_json::from_str::<Blob>("\"AP8H\"").unwrap(), blob);
        assert_eq!(format!("{blob:?}"), "Blob(3 bytes)");
    }
}
