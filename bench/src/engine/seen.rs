//! When the other side has the notification of a transfer.
//!
//! Clocks of two hosts are never subtracted, so the initiator looks for itself: the target shows in a word of its
//! registered memory how many notifications it has taken, and small READs of that word end the time.

use std::time::{Duration, Instant};

use nixl::{DescList, RemoteDescList, State, Transfer, TransferOptions};

use super::protocol::{EngineError, ErrorKind};
use super::session::{Session, nixl_failed};
use super::timed::ns;
use crate::memory::pattern::{WORD_BYTES, Word};

/// The target takes notifications all the time, so that it shows them much sooner.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);

/// The descriptors of the word on both sides.
pub(crate) struct BellLists<'a> {
    local: DescList<'a>,
    remote: RemoteDescList<'a>,
    word: usize,
}

impl<'a> BellLists<'a> {
    /// `None` where the run has no such word.
    ///
    /// # Errors
    /// The peer is not connected, or NIXL refused.
    pub(crate) fn prepare(session: &'a Session<'_>, peer: u32) -> Result<Option<Self>, EngineError> {
        let Some(first) = session.plan.bell() else { return Ok(None) };
        let offset = first + u64::from(session.rank) * WORD_BYTES;
        let peer = session.peer(peer)?;
        let range = [(offset as usize, WORD_BYTES as usize)];
        Ok(Some(Self {
            local: session.registration.describe(range).map_err(nixl_failed)?,
            remote: peer.remote.describe(&peer.region, range).map_err(nixl_failed)?,
            word: (offset / WORD_BYTES) as usize,
        }))
    }
}

/// Reads the target's word.
pub(crate) struct BellReader<'r, 's> {
    session: &'r Session<'s>,
    word: usize,
    transfer: Transfer<'r>,
    /// Times of single READs in nanoseconds.
    reads: Vec<u64>,
}

impl<'r, 's> BellReader<'r, 's> {
    /// Makes the READ once.
    ///
    /// # Errors
    /// NIXL refused.
    pub(crate) fn new(session: &'r Session<'s>, lists: &'r BellLists<'_>) -> Result<Self, EngineError> {
        let options = TransferOptions::default();
        let transfer = session
            .agent
            .make_transfer(nixl::Op::Read, &lists.local, &[0], &lists.remote, &[0], &options)
            .map_err(nixl_failed)?;
        Ok(Self { session, word: lists.word, transfer, reads: Vec::new() })
    }

    /// READs until the target has taken `wanted` notifications; false when it does not show that in time. Notifications
    /// that are lost are judged by their count afterwards, and READs that bring nothing by the check of the data.
    ///
    /// # Errors
    /// A READ failed or stalled.
    pub(crate) fn wait(&mut self, wanted: u64) -> Result<bool, EngineError> {
        let limit = self.session.plan.transfer_timeout();
        let begin = Instant::now();
        loop {
            let before = Instant::now();
            let mut state = self.transfer.post().map_err(nixl_failed)?;
            while state == State::InProgress {
                stalled_after(begin, limit)?;
                state = self.transfer.poll().map_err(nixl_failed)?;
            }
            self.reads.push(ns(before.elapsed()));
            let taken = self.session.pool.region().word(self.word).map_or(0, Word::load_first);
            if u64::from_le(taken) >= wanted {
                return Ok(true);
            }
            if begin.elapsed() > limit.min(SHOWN_WITHIN) {
                return Ok(false);
            }
        }
    }

    /// The median time of a READ.
    pub(crate) fn resolution_ns(mut self) -> u64 {
        self.reads.sort_unstable();
        self.reads.get(self.reads.len() / 2).copied().unwrap_or(0)
    }
}

fn stalled_after(begin: Instant, limit: Duration) -> Result<(), EngineError> {
    if begin.elapsed() <= limit {
        return Ok(());
    }
    Err(EngineError {
        kind: ErrorKind::Stalled,
        message: format!("a READ of 8 bytes did not complete within {limit:?}"),
    })
}
