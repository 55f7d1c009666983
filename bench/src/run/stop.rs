//! Why a run ended before its plan was done.

use std::time::Duration;

use checks::{Finding, Status};
use coordinator::PeerError;

use crate::engine::EngineFailure;
use crate::report::model::ResultFile;
use crate::verdict::Outcome;

/// Why a side cannot go on.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The own engine failed.
    Engine(EngineFailure),
    /// The peer is lost or has left, or the control plane is gone.
    Peer(PeerError),
    /// The peer, which served the rendezvous, is lost together with it.
    ServingPeer {
        /// The peer's identity.
        who: String,
        /// What was seen.
        error: PeerError,
    },
    /// The peer says that it failed, and how.
    PeerFailed { finding: Box<Finding>, outcome: Outcome },
    /// The peer says that the run is over. The initiator gives its result along.
    PeerEnded { outcome: Outcome, summary: String, result: Option<Box<ResultFile>> },
    /// The peer lives and does not answer.
    PeerSilent(Duration),
    /// The two sides did not come together; nothing was measured.
    Refused(Box<Finding>),
    /// One side's node cannot do what is expected of the wire.
    Unfit(Box<Finding>),
    /// The user or the system asked the run to end, on this side.
    Interrupted {
        /// `target`, `initiator`, or `run` where both are one command.
        whose: &'static str,
        /// The signal's name.
        signal: &'static str,
    },
    /// The result cannot be written.
    Output(String),
    /// Something that only a fault in kvwire explains.
    Confused(String),
}

impl Stop {
    /// What it means for the verdict: only data and transport speak against the wire.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::Engine(failure) => failure.outcome(),
            Self::Unfit(_) => Outcome::NotTrusted,
            Self::PeerFailed { outcome, .. } | Self::PeerEnded { outcome, .. } => *outcome,
            Self::Peer(_)
            | Self::ServingPeer { .. }
            | Self::PeerSilent(_)
            | Self::Refused(_)
            | Self::Interrupted { .. } => Outcome::Inconclusive,
            Self::Output(_) | Self::Confused(_) => Outcome::Internal,
        }
    }

    /// The finding that goes into the result. `at` is what this side was doing, for example
    /// `timed loop of WRITE 64 MiB x1`.
    pub(crate) fn finding(&self, at: &str) -> Finding {
        let fail = |id: &str, title: String| Finding::new(id, Status::Fail, title);
        match self {
            Self::Engine(failure) => failure.finding(),
            Self::PeerFailed { finding, .. } | Self::Refused(finding) | Self::Unfit(finding) => {
                (**finding).clone()
            }
            Self::PeerEnded { summary, .. } => {
                fail("peer-ended", format!("the other side ended the run ({at}): {summary}"))
                    .next_step("read the other side's output")
            }
            Self::Peer(error @ PeerError::ControlPlane { .. }) => {
                fail("control-plane-lost", format!("{error} ({at})"))
                    .next_step("nothing is said about the wire: mend the rendezvous and run again")
            }
            Self::Peer(error) => fail("peer-lost", format!("{error} ({at})")).next_step(LOOK_AT_PEER),
            Self::ServingPeer { who, error } => {
                fail("peer-lost", format!("lost {who}, which served the rendezvous ({at})"))
                    .evidence([error.to_string()])
                    .next_step(LOOK_AT_PEER)
            }
            Self::PeerSilent(after) => fail(
                "peer-silent",
                format!("the other side lives and did not answer within {} s ({at})", after.as_secs()),
            )
            .next_step(LOOK_AT_PEER),
            Self::Interrupted { whose, signal } => {
                fail("interrupted", format!("the {whose} was interrupted by {signal} ({at})"))
                    .next_step("run again to its end")
            }
            Self::Output(why) => fail("output-failed", format!("the result could not be written: {why}"))
                .next_step(
                    "make room, or choose another file with --output; the last complete result is intact",
                ),
            Self::Confused(why) => {
                fail("internal", why.clone()).next_step("this is a fault in kvwire; please report it")
            }
        }
    }
}

pub(crate) const LOOK_AT_PEER: &str =
    "look at the other side's output and host, and at the network between the two; then run again";
