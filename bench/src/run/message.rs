//! What the two supervisors say to each other through the rendezvous, as JSON.
//!
//! The initiator leads: it sends one message and waits for one answer, but for [`Message::Finished`]. Only
//! [`Message::Failed`] and [`Message::Over`] may come unasked.

use checks::{Finding, Node, Route};
use nixl::RemoteRegion;
use serde::{Deserialize, Serialize};

use crate::engine::protocol::{Blob, End, SlotEnd, Verified};
use crate::plan::{Case, Plan};
use crate::proof::Ability;
use crate::proof::counters::Reading;
use crate::report::model::{CaseResult, Placement, ResultFile};
use crate::verdict::Outcome;

/// The version of this conversation; two that differ cannot talk.
pub(crate) const PROTOCOL: u32 = 1;

/// What each side says of itself when it joins.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// See [`PROTOCOL`].
    pub(crate) protocol: u32,
    /// Who this side is.
    pub(crate) node: Node,
    /// Own address and interface towards the rendezvous; `None` on the side that serves it.
    pub(crate) route: Option<Route>,
    /// Where this side met the other, without secrets.
    pub(crate) place: String,
}

/// One message.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Message {
    /// Initiator: open an engine for this plan.
    Begin { plan: Box<Plan> },
    /// Target: it is open.
    Opened(Box<TargetOpened>),
    /// Initiator: make memory ready for a case.
    Prepare { case: Case, epoch: u32, end: End },
    /// Initiator: take notifications from now on.
    Listen,
    /// Target: done (to [`Message::Prepare`] and [`Message::Listen`]).
    Done,
    /// Initiator: compare memory with the pattern.
    Verify { case: Case, epoch: u32, stamps: Vec<SlotEnd> },
    /// Target: what the comparison found.
    Verified(Verified),
    /// Initiator: this many notifications were sent in all; wait for them.
    Heard { expected: u64, timeout_ms: u64 },
    /// Target: this many came.
    HeardNotifications { notifications: u64 },
    /// Initiator: read your counters.
    Count,
    /// Target: these.
    Counted(Box<Reading>),
    /// Initiator: what could you use, and what did UCX log so far?
    Testify,
    /// Target: this.
    Testimony(Box<Testimony>),
    /// Initiator: how a case came out, for the target to keep should the initiator be lost. Not answered.
    Finished { index: usize, result: Box<CaseResult> },
    /// Either: this side cannot go on. The other one records it and ends the run.
    Failed { finding: Box<Finding>, outcome: Outcome },
    /// Initiator: the run is over, with this outcome for both, and the result for the target to keep.
    Over { outcome: Outcome, summary: String, result: Option<Box<ResultFile>> },
}

/// One side's means, and what its UCX logged.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Testimony {
    /// What it could use.
    pub(crate) ability: Ability,
    /// Lines of its UCX that matter.
    pub(crate) findings: Vec<Finding>,
}

/// The target's engine is open.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TargetOpened {
    /// The target, now with the NIXL that it loaded.
    pub(crate) node: Node,
    /// Where its engine sits.
    pub(crate) placement: Placement,
    /// Where its pool is.
    pub(crate) region: RemoteRegion,
    /// NIXL's metadata of its agent.
    pub(crate) metadata: Blob,
    /// Phases of opening, with their time in nanoseconds.
    pub(crate) phases: Vec<(String, u64)>,
}
