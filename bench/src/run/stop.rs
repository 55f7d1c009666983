//! Why a run ended before its plan was done.

use std::time::Duration;

use checks::{Finding, Status};
use coordinator::PeerError;

use crate::engine::EngineFailure;
use crate::verdict::Outcome;

/// Why a side cannot go on.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The own engine failed.
    Engine(EngineFailure),
    /// The peer is lost or has left, or the control plane is gone.
    Peer(PeerError),
    /// The peer says that it failed, and how.
    PeerFailed { finding: Box<Finding>, outcome: Outcome },
    /// The peer says that the run is over.
    PeerEnded { outcome: Outcome, summary: String },
    /// The peer lives and does not answer.
    PeerSilent(Duration),
    /// The user or the system asked the run to end.
    Interrupted(&'static str),
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
            Self::PeerFailed { outcome, .. } | Self::PeerEnded { outcome, .. } => *outcome,
            Self::Peer(_) | Self::PeerSilent(_) | Self::Interrupted(_) => Outcome::Inconclusive,
            Self::Output(_) | Self::Confused(_) => Outcome::Internal,
        }
    }

    /// The finding that goes into the result.
    pub(crate) fn finding(&self) -> Finding {
        let fail = |id: &str, title: String| Finding::new(id, Status::Fail, title);
        match self {
            Self::Engine(failure) => failure.finding(),
            Self::PeerFailed { finding, .. } => (**finding).clone(),
            Self::PeerEnded { summary, .. } => {
                fail("peer-ended", format!("the other side ended the run: {summary}"))
            }
            Self::Peer(error @ PeerError::ControlPlane { .. }) => {
                fail("control-plane-lost", error.to_string())
                    .next_step("nothing is said about the wire: mend the rendezvous and run again")
            }
            Self::Peer(error) => fail("peer-lost", error.to_string())
                .next_step("look at the other side's output and host, and run again"),
            Self::PeerSilent(after) => fail(
                "peer-silent",
                format!("the other side lives and did not answer within {} s", after.as_secs()),
            )
            .next_step("look at the other side's output and host, and run again"),
            Self::Interrupted(signal) => fail("interrupted", format!("the run was interrupted by {signal}"))
                .next_step("run again to its end"),
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
