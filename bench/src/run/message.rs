//! What the two supervisors say to each other through the rendezvous, as JSON.
//!
//! The initiator leads: it sends one message and waits for one answer, but for [`Message::Finished`]. Only
//! [`Message::Failed`] and [`Message::Over`] may come unasked.

use checks::{Finding, Node, Route};
use serde::{Deserialize, Serialize};

use crate::engine::lookout::Looks;
use crate::engine::protocol::{Check, PeerRank, Verified};
use crate::plan::{Case, Part, Plan};
use crate::proof::Ability;
use crate::proof::counters::{Reading, Ways};
use crate::report::model::{CaseResult, Placement, ResultFile};
use crate::verdict::Outcome;

/// The version of this conversation; two that differ cannot talk.
pub(crate) const PROTOCOL: u32 = 3;

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
    /// Initiator: open an engine for each rank of this plan.
    Begin { plan: Box<Plan> },
    /// Target: they are open.
    Opened(Box<TargetOpened>),
    /// Initiator: make memory ready for a case.
    Prepare { case: Case, epoch: u32 },
    /// Initiator: take notifications from now on.
    Listen,
    /// Target: done (to [`Message::Prepare`], [`Message::Listen`] and [`Message::LookOut`]).
    Done,
    /// Initiator: compare memory with the pattern, for each part of a case whose bytes arrived at the target.
    Verify { checks: Vec<Check>, epoch: u32 },
    /// Target: what each comparison found.
    Verified(Vec<Verified>),
    /// Initiator: look at the marked WRITEs of these parts of a case when you take their notification, from now on.
    LookOut { parts: Vec<Part>, epoch: u32 },
    /// Initiator: this many marked WRITEs of the case were made to each rank in all; wait for them.
    Looked { expected: Vec<u64>, timeout_ms: u64 },
    /// Target: what it saw of them, part by part.
    Seen(Vec<Looks>),
    /// Initiator: this many notifications were sent to each rank in all; wait for them.
    Heard { expected: Vec<u64>, timeout_ms: u64 },
    /// Target: this many came to each.
    HeardNotifications { notifications: Vec<u64> },
    /// Initiator: read your counters, and watch the rates of links that nothing counts until the next reading.
    Count { sample: Option<Ways> },
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

/// The target's engines are open.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TargetOpened {
    /// The target, now with the NIXL that it loaded.
    pub(crate) node: Node,
    /// Where each of its ranks sits, rank by rank.
    pub(crate) placements: Vec<Placement>,
    /// Its ranks.
    pub(crate) ranks: Vec<PeerRank>,
    /// Phases of opening, with the time of the slowest rank in nanoseconds.
    pub(crate) phases: Vec<(String, u64)>,
    /// Own address and interface at which the initiator came in; only where the target serves the rendezvous.
    #[serde(default)]
    pub(crate) route: Option<Route>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a peer says, to be damaged byte by byte.
    fn said() -> Vec<Vec<u8>> {
        let hello =
            Hello { protocol: PROTOCOL, node: Node::default(), route: None, place: "tcp://h:1".to_owned() };
        let finding = Box::new(Finding::new("x", checks::Status::Fail, "title"));
        let messages = [
            Message::Done,
            Message::Count { sample: Some(Ways { sent: true, received: false }) },
            Message::HeardNotifications { notifications: vec![7, 8] },
            Message::Failed { finding, outcome: Outcome::NotTrusted },
            Message::Over { outcome: Outcome::Trusted, summary: "fine".to_owned(), result: None },
        ];
        let messages = messages.iter().map(|message| serde_json::to_vec(message).unwrap());
        messages.chain([serde_json::to_vec(&hello).unwrap()]).collect()
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            which: prop::sample::Index,
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        ) {
            let said = said();
            let mut bytes = said[which.index(said.len())].clone();
            for (at, byte) in damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            // Neither panics; what is read says no more than it was told.
            if let Ok(hello) = serde_json::from_slice::<Hello>(&bytes) {
                prop_assert!(serde_json::to_vec(&hello).unwrap().len() <= bytes.len() + 64);
            }
            let _ = serde_json::from_slice::<Message>(&bytes);
        }
    }
}
