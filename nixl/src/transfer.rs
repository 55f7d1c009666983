//! Transfers: made once, posted as often as wanted.

use std::fmt;
use std::ptr::null_mut;

use nixl_sys as sys;

use crate::agent::Agent;
use crate::descriptors::{DescList, Lengths, Prepared, RemoteDescList};
use crate::error::{Error, Result, check};
use crate::handle::OptArgs;
use crate::remote::Remote;

/// Direction of a transfer, seen from the initiator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Pulls from the peer.
    Read,
    /// Pushes to the peer.
    Write,
}

/// How a transfer is made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TransferOptions {
    /// Keeps NIXL from merging neighbouring descriptors.
    pub skip_merge: bool,
    /// Sent to the peer by every post, once the data has arrived there.
    pub notify: Option<Vec<u8>>,
}

/// Where a posted transfer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// All bytes have arrived; the transfer can be posted again.
    Done,
    /// Bytes are on their way; poll.
    InProgress,
}

/// What NIXL measured for the last post, at a resolution of one microsecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Telemetry {
    /// Start on the machine's monotonic clock.
    pub start_us: u64,
    /// Time inside the post.
    pub post_us: u64,
    /// Time from the post to the poll that saw the end.
    pub transfer_us: u64,
    /// Bytes moved.
    pub total_bytes: u64,
    /// Descriptors posted to the backend, after merging.
    pub descriptors: u64,
}

/// What NIXL expects a transfer to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Estimate {
    /// Expected duration in microseconds.
    pub duration_us: i64,
    /// Uncertainty of it in microseconds.
    pub margin_us: i64,
}

/// A transfer between two descriptor lists.
///
/// It cannot be cancelled. Dropping one whose last post has not ended, or has failed, quarantines it: nothing tells
/// whether NIXL still moves bytes, so nothing of it is freed.
pub struct Transfer<'t> {
    // What the timed loop touches comes first, as plain values.
    post: PostCall,
    status: StatusCall,
    agent_raw: sys::nixl_capi_agent_t,
    raw: sys::nixl_capi_xfer_req_t,
    phase: Phase,
    agent: &'t Agent,
    local: &'t Prepared<'t>,
    theirs: &'t Prepared<'t>,
    remote: &'t Remote<'t>,
}

type PostCall = unsafe extern "C" fn(
    sys::nixl_capi_agent_t,
    sys::nixl_capi_xfer_req_t,
    sys::nixl_capi_opt_args_t,
) -> sys::nixl_capi_status_t;
type StatusCall =
    unsafe extern "C" fn(sys::nixl_capi_agent_t, sys::nixl_capi_xfer_req_t) -> sys::nixl_capi_status_t;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing of it is with the backend: not posted yet, or ended well.
    Idle,
    /// Posted, and not known to have ended well.
    Posted,
}

impl Agent {
    /// Pairs descriptors by index: `local_indices[i]` of `local` with `remote_indices[i]` of `remote`.
    ///
    /// # Errors
    /// When there is no pair, an index is out of range, a pair differs in length, a list belongs to another agent, or
    /// NIXL refuses.
    pub fn make_transfer<'t>(
        &'t self,
        op: Op,
        local: &'t DescList<'_>,
        local_indices: &[i32],
        remote: &'t RemoteDescList<'_>,
        remote_indices: &[i32],
        options: &TransferOptions,
    ) -> Result<Transfer<'t>> {
        let (local, theirs): (&'t Prepared<'t>, &'t Prepared<'t>) = (&local.inner, &remote.inner);
        self.own(local, "the local list")?;
        self.own(theirs, "the remote list")?;
        check_pairs(&local.lengths, local_indices, &theirs.lengths, remote_indices)?;
        let args = OptArgs::new(&self.library)?;
        args.set_skip_merge(options.skip_merge)?;
        if let Some(message) = &options.notify {
            args.set_notification(message)?;
        }
        let op_raw = match op {
            Op::Read => sys::NIXL_CAPI_XFER_OP_READ,
            Op::Write => sys::NIXL_CAPI_XFER_OP_WRITE,
        };
        let mut raw = null_mut();
        // SAFETY: all handles are live and of this agent, both slices hold as many indices as said, and `raw` is
        // writable. NIXL copies indices and arguments.
        let code = unsafe {
            (self.library.make_xfer_req)(
                self.raw,
                op_raw,
                local.raw,
                local_indices.as_ptr(),
                local_indices.len(),
                theirs.raw,
                remote_indices.as_ptr(),
                remote_indices.len(),
                &raw mut raw,
                args.raw(),
            )
        };
        check("make_xfer_req", code, || {
            format!("{op:?} of {} descriptors, {}", local_indices.len(), remote.remote)
        })?;
        for users in [&self.users, &local.users, &theirs.users] {
            users.enter();
        }
        Ok(Transfer {
            post: self.library.post_xfer_req,
            status: self.library.get_xfer_status,
            agent_raw: self.raw,
            raw,
            phase: Phase::Idle,
            agent: self,
            local,
            theirs,
            remote: remote.remote,
        })
    }

    fn own(&self, list: &Prepared<'_>, what: &'static str) -> Result<()> {
        if std::ptr::eq(list.agent, self) { Ok(()) } else { Err(Error::ForeignAgent { what }) }
    }
}

/// Checks once what NIXL would check too late, or not at all in its older versions.
fn check_pairs(
    local: &Lengths,
    local_indices: &[i32],
    remote: &Lengths,
    remote_indices: &[i32],
) -> Result<()> {
    if local_indices.len() != remote_indices.len() {
        return Err(Error::UnpairedIndices { local: local_indices.len(), remote: remote_indices.len() });
    }
    if local_indices.is_empty() {
        return Err(Error::Empty { what: "the set of indices" });
    }
    if let (Lengths::Same { length, .. }, Lengths::Same { length: theirs, .. }) = (local, remote)
        && length == theirs
        && all_below(local_indices, local.count())
        && all_below(remote_indices, remote.count())
    {
        return Ok(());
    }
    let length = |lengths: &Lengths, index: i32| {
        let found = usize::try_from(index).ok().and_then(|at| lengths.get(at));
        found.ok_or(Error::IndexOutOfRange { index, len: lengths.count() })
    };
    for (pair, (ours, theirs)) in local_indices.iter().zip(remote_indices).enumerate() {
        let (local, remote) = (length(local, *ours)?, length(remote, *theirs)?);
        if local != remote {
            return Err(Error::LengthMismatch { pair, local, remote });
        }
    }
    Ok(())
}

/// Whether all indices are of a list of `count`: without a branch for each, since there may be very many.
fn all_below(indices: &[i32], count: usize) -> bool {
    // A negative one becomes a very large one.
    let largest = indices.iter().fold(0_u32, |largest, index| largest.max(index.cast_unsigned()));
    (largest as usize) < count
}

impl Transfer<'_> {
    /// Hands the transfer to the backend, with the notification it was made with. Not before the last post has ended.
    ///
    /// # Errors
    /// When NIXL refuses; the transfer then counts as in flight.
    #[inline]
    pub fn post(&mut self) -> Result<State> {
        self.phase = Phase::Posted;
        // SAFETY: both handles are live and belong together; without arguments those of the making hold.
        let code = unsafe { (self.post)(self.agent_raw, self.raw, null_mut()) };
        self.settle("post_xfer_req", code)
    }

    /// Asks where the last post stands. It also progresses the backend.
    ///
    /// # Errors
    /// When the transfer failed, or was never posted.
    #[inline]
    pub fn poll(&mut self) -> Result<State> {
        // SAFETY: both handles are live and belong together.
        let code = unsafe { (self.status)(self.agent_raw, self.raw) };
        self.settle("get_xfer_status", code)
    }

    #[inline]
    fn settle(&mut self, call: &'static str, code: i32) -> Result<State> {
        match code {
            sys::NIXL_CAPI_SUCCESS => {
                self.phase = Phase::Idle;
                Ok(State::Done)
            }
            sys::NIXL_CAPI_IN_PROG => Ok(State::InProgress),
            _ => Err(Error::call(call, code, self.remote)),
        }
    }

    /// Whether the last post is not known to have ended well. Such a transfer is quarantined when dropped.
    #[must_use]
    pub fn is_in_flight(&self) -> bool {
        self.phase == Phase::Posted
    }

    /// What NIXL measured for the last post. `None` while it is in progress, when the agent keeps no telemetry, and where
    /// this NIXL has none.
    ///
    /// # Errors
    /// When NIXL refuses.
    pub fn telemetry(&self) -> Result<Option<Telemetry>> {
        let Some(call) = self.agent.library.get_xfer_telemetry else { return Ok(None) };
        if self.is_in_flight() {
            return Ok(None);
        }
        let mut raw = sys::nixl_capi_xfer_telemetry_t::default();
        // SAFETY: both handles are live and belong together, and `raw` is writable.
        let code = unsafe { call(self.agent_raw, self.raw, &raw mut raw) };
        if code == sys::NIXL_CAPI_ERROR_NO_TELEMETRY || code == sys::NIXL_CAPI_IN_PROG {
            return Ok(None);
        }
        check("get_xfer_telemetry", code, || self.remote)?;
        Ok(Some(Telemetry {
            start_us: raw.start_time_us,
            post_us: raw.post_duration_us,
            transfer_us: raw.xfer_duration_us,
            total_bytes: raw.total_bytes,
            descriptors: raw.desc_count,
        }))
    }

    /// What the backend expects this transfer to take.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where NIXL has no such call, otherwise when the backend cannot say.
    pub fn estimate(&self) -> Result<Estimate> {
        const CALL: &str = "estimate_xfer_cost";
        let call = self.agent.library.estimate_xfer_cost.ok_or(Error::Unsupported { call: CALL })?;
        let (mut duration_us, mut margin_us, mut method) = (0, 0, 0);
        // SAFETY: both handles are live and belong together, and the three results are writable.
        let code = unsafe {
            call(
                self.agent_raw,
                self.raw,
                null_mut(),
                &raw mut duration_us,
                &raw mut margin_us,
                &raw mut method,
            )
        };
        check(CALL, code, || self.remote)?;
        Ok(Estimate { duration_us, margin_us })
    }
}

impl Drop for Transfer<'_> {
    fn drop(&mut self) {
        if self.is_in_flight() {
            self.agent.quarantine();
            return;
        }
        // SAFETY: both handles are live and belong together, and the request is not in flight.
        if unsafe { (self.agent.library.release_xfer_req)(self.agent_raw, self.raw) }
            != sys::NIXL_CAPI_SUCCESS
        {
            self.agent.quarantine();
            return;
        }
        // SAFETY: the request behind the handle was released.
        unsafe { (self.agent.library.destroy_xfer_req)(self.raw) };
        for users in [&self.agent.users, &self.local.users, &self.theirs.users] {
            users.leave();
        }
    }
}

impl fmt::Debug for Transfer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer")
            .field("remote", self.remote)
            .field("phase", &self.phase)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_checked() {
        let same = Lengths::Same { length: 8, count: 2 };
        assert!(check_pairs(&same, &[0, 1, 1], &same, &[1, 0, 0]).is_ok());
        for index in [-1, 2, i32::MAX, i32::MIN] {
            for (local, remote) in [([0, index], [0, 1]), ([0, 1], [index, 0])] {
                let outcome = check_pairs(&same, &local, &same, &remote);
                assert!(
                    matches!(outcome, Err(Error::IndexOutOfRange { index: named, len: 2 }) if named == index)
                );
            }
        }
        let larger = Lengths::Same { length: 16, count: 2 };
        let outcome = check_pairs(&same, &[0], &larger, &[0]);
        assert!(matches!(outcome, Err(Error::LengthMismatch { pair: 0, local: 8, remote: 16 })));
        let lengths = Lengths::Each(vec![8, 16]);
        assert!(check_pairs(&lengths, &[0, 1, 0], &lengths, &[0, 1, 0]).is_ok());
        assert!(matches!(
            check_pairs(&lengths, &[0], &lengths, &[0, 1]),
            Err(Error::UnpairedIndices { local: 1, remote: 2 })
        ));
        assert!(matches!(check_pairs(&lengths, &[], &lengths, &[]), Err(Error::Empty { .. })));
        for index in [-1, 2, i32::MAX, i32::MIN] {
            let outcome = check_pairs(&lengths, &[index], &lengths, &[0]);
            assert!(
                matches!(outcome, Err(Error::IndexOutOfRange { index: named, len: 2 }) if named == index)
            );
        }
        assert!(matches!(
            check_pairs(&lengths, &[0, 1], &lengths, &[0, 0]),
            Err(Error::LengthMismatch { pair: 1, local: 16, remote: 8 })
        ));
    }
}
