//! One transfer request: posted, polled, done, with the script's faults in between.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nixl_sys as sys;

use crate::agent::{Agent, Prepared};
use crate::script::{self, Call, Fault, Post};
use crate::segments::{self, Direction, Place, Segment};
use crate::status::{BACKEND, Failed, IN_PROGRESS, INVALID_PARAM, NO_TELEMETRY, Outcome, scripted};

/// What a poll of a stalled transfer takes.
const STALLED_POLL: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct Transfer {
    peer: String,
    place: Place,
    direction: Direction,
    /// The GPUs of both lists, ours first.
    gpus: [Option<usize>; 2],
    local: Vec<Segment>,
    remote: Vec<Segment>,
    pub(crate) notification: Option<Vec<u8>>,
    state: State,
    post_duration: Duration,
    transfer_duration: Duration,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Idle,
    /// Which post of this process it is, and when it happened.
    Posted(Post, Instant),
    Done,
    Failed(Failed),
}

/// The bytes of the first transfer of each size, kept while the script wants stale data.
static FIRST_BYTES: Mutex<BTreeMap<usize, Vec<u8>>> = Mutex::new(BTreeMap::new());

pub(crate) fn forget_first_bytes() {
    FIRST_BYTES.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

impl Transfer {
    /// Pairs the chosen descriptors of both lists. Pairs that follow each other in memory on both sides become one,
    /// unless `skip_merge`.
    pub(crate) fn new(
        operation: i32,
        local: (&Prepared, &[i32]),
        remote: (&Prepared, &[i32]),
        skip_merge: bool,
    ) -> Outcome<Self> {
        scripted(script::active(|fault| if let Fault::Make(status) = fault { Some(status) } else { None }))?;
        let direction = match operation {
            sys::NIXL_CAPI_XFER_OP_READ => Direction::FromRemote,
            sys::NIXL_CAPI_XFER_OP_WRITE => Direction::ToRemote,
            _ => return Err(INVALID_PARAM),
        };
        let peer = remote.0.peer.clone().ok_or(INVALID_PARAM)?;
        if local.0.peer.is_some() || local.1.is_empty() || local.1.len() != remote.1.len() {
            return Err(INVALID_PARAM);
        }
        crate::ucx_log::print_once();
        let mut pairs = Pairs::default();
        for (ours, theirs) in local.1.iter().zip(remote.1) {
            pairs.add(range(local.0, *ours)?, range(remote.0, *theirs)?, skip_merge)?;
        }
        Ok(Self {
            peer,
            place: remote.0.place,
            direction,
            gpus: [local.0.gpu, remote.0.gpu],
            local: pairs.local,
            remote: pairs.remote,
            notification: None,
            state: State::Idle,
            post_duration: Duration::ZERO,
            transfer_duration: Duration::ZERO,
        })
    }

    pub(crate) fn post(&mut self, agent: &Agent) -> Outcome<()> {
        let post = script::count_post(self.notification.as_deref());
        if script::active_at(post, |fault| (fault == Fault::Free).then_some(())).is_some() {
            self.state = State::Done;
            return Ok(());
        }
        script::hang(Call::Post);
        let at = Instant::now();
        if script::active_at(post, |fault| (fault == Fault::Abort).then_some(())).is_some() {
            crate::say("aborting in post");
            std::process::abort();
        }
        agent.peer(&self.peer)?;
        if matches!(self.state, State::Posted(..)) {
            return Err(BACKEND);
        }
        let refused =
            script::active_at(
                post,
                |fault| if let Fault::Post(status) = fault { Some(status) } else { None },
            );
        if let Some(status) = refused {
            self.state = State::Failed(Failed(status));
            return Err(Failed(status));
        }
        self.state = State::Posted(post, at);
        self.post_duration = at.elapsed();
        Err(IN_PROGRESS)
    }

    pub(crate) fn poll(&mut self, agent: &Agent) -> Outcome<()> {
        let (post, since) = match self.state {
            State::Idle => return Err(BACKEND),
            State::Done => return Ok(()),
            State::Failed(failed) => return Err(failed),
            State::Posted(post, since) => (post, since),
        };
        agent.peer(&self.peer)?;
        self.wait(post, since).and_then(|()| self.complete(agent, post)).inspect_err(|failed| {
            if *failed != IN_PROGRESS {
                self.state = State::Failed(*failed);
            }
        })?;
        self.transfer_duration = since.elapsed();
        self.state = State::Done;
        Ok(())
    }

    pub(crate) fn is_in_flight(&self) -> bool {
        matches!(self.state, State::Posted(..))
    }

    pub(crate) fn total_bytes(&self) -> usize {
        self.local.iter().map(|range| range.1).sum()
    }

    pub(crate) fn telemetry(&self, agent: &Agent) -> Outcome<sys::nixl_capi_xfer_telemetry_t> {
        if !agent.telemetry {
            return Err(NO_TELEMETRY);
        }
        match self.state {
            State::Done => {}
            State::Posted(..) => return Err(IN_PROGRESS),
            State::Failed(failed) => return Err(failed),
            State::Idle => return Err(BACKEND),
        }
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Ok(sys::nixl_capi_xfer_telemetry_t {
            // The real one counts from an arbitrary instant too; nobody may rely on it.
            start_time_us: 0,
            post_duration_us: micros(self.post_duration),
            xfer_duration_us: micros(self.transfer_duration),
            total_bytes: self.total_bytes() as u64,
            desc_count: self.local.len() as u64,
        })
    }

    /// Is it time to complete?
    fn wait(&self, post: Post, since: Instant) -> Outcome<()> {
        scripted(script::active_at(
            post,
            |fault| {
                if let Fault::Poll(status) = fault { Some(status) } else { None }
            },
        ))?;
        let pending = script::active_at(post, |fault| match fault {
            Fault::Stall => {
                // It will not complete: there is no time to be lost, and a core to be left to others.
                std::thread::sleep(STALLED_POLL);
                Some(())
            }
            Fault::Slow(micros) if since.elapsed() < Duration::from_micros(micros) => Some(()),
            _ => None,
        });
        pending.map_or(Ok(()), |()| Err(IN_PROGRESS))
    }

    fn complete(&self, agent: &Agent, post: Post) -> Outcome<()> {
        self.deliver(post).map_err(|error| {
            crate::say(&format!("cannot move bytes to or from `{}`: {error}", self.peer));
            BACKEND
        })?;
        if script::active_at(post, |fault| (fault == Fault::Mute).then_some(())).is_some() {
            return Ok(());
        }
        self.notification.as_ref().map_or(Ok(()), |message| agent.send(&self.peer, message))
    }

    fn deliver(&self, post: Post) -> io::Result<()> {
        if script::active_at(post, |fault| (fault == Fault::Drop).then_some(())).is_some() {
            return Ok(());
        }
        let [ours, theirs] = self.gpus;
        let (from, to) = match self.direction {
            Direction::FromRemote => (theirs, ours),
            Direction::ToRemote => (ours, theirs),
        };
        fake_gpus::carried(from, to, self.total_bytes() as u64);
        if !keeps_first_bytes() && script::active_at(post, damages).is_none() {
            // SAFETY: local ranges were registered by the caller, who keeps them mapped while the transfer runs.
            return unsafe { segments::copy(&self.local, self.place, &self.remote, self.direction) };
        }
        let here = Place::here();
        let ((source_place, source), (target_place, target)) = match self.direction {
            Direction::FromRemote => ((self.place, &self.remote), (here, &self.local)),
            Direction::ToRemote => ((here, &self.local), (self.place, &self.remote)),
        };
        // SAFETY: as above.
        let mut bytes = unsafe { source_place.read(source)? };
        if keeps_first_bytes() {
            let mut first = FIRST_BYTES.lock().unwrap_or_else(PoisonError::into_inner);
            first.entry(bytes.len()).or_insert_with(|| bytes.clone());
        }
        // Faults of the same kind are not repeated: one pass over the kinds is enough.
        for kind in [Fault::Stale, Fault::Swap, Fault::Short] {
            if script::active_at(post, |fault| (fault == kind).then_some(())).is_some() {
                self.damage(kind, &mut bytes);
            }
        }
        let flipped =
            script::active_at(
                post,
                |fault| if let Fault::Corrupt(offset) = fault { Some(offset) } else { None },
            );
        if let Some(byte) = flipped.and_then(|offset| bytes.get_mut(offset)) {
            *byte ^= 1;
        }
        let late = script::active_at(
            post,
            |fault| if let Fault::Late(micros) = fault { Some(micros) } else { None },
        );
        if let Some(micros) = late {
            let target = target.clone();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_micros(micros));
                // SAFETY: the engine keeps its pool, and its peer, until the process ends.
                if let Err(error) = unsafe { target_place.write(&target, &bytes) } {
                    crate::say(&format!("cannot move bytes late: {error}"));
                }
            });
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { target_place.write(target, &bytes) }
    }

    fn damage(&self, fault: Fault, bytes: &mut Vec<u8>) {
        match fault {
            Fault::Stale => {
                let first = FIRST_BYTES.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(first) = first.get(&bytes.len()) {
                    bytes.clone_from(first);
                }
            }
            Fault::Swap => {
                let (from, len) = match self.local.as_slice() {
                    [(_, first), (_, second), ..] if first == second => (*first, *first),
                    _ => (bytes.len() - bytes.len() / 2, bytes.len() / 2),
                };
                let (head, tail) = bytes.split_at_mut(from);
                head[..len].swap_with_slice(&mut tail[..len]);
            }
            Fault::Short => bytes.truncate(bytes.len() - bytes.len().div_ceil(4)),
            _ => {}
        }
    }
}

/// Whether a fault changes the bytes on their way, or when they come.
fn damages(fault: Fault) -> Option<()> {
    matches!(fault, Fault::Corrupt(_) | Fault::Swap | Fault::Short | Fault::Stale | Fault::Late(_))
        .then_some(())
}

/// Whether the script will want stale data now or later.
fn keeps_first_bytes() -> bool {
    script::active_at(Post { index: u64::MAX, marked: true }, |fault| (fault == Fault::Stale).then_some(()))
        .is_some()
}

fn range(list: &Prepared, index: i32) -> Outcome<Segment> {
    usize::try_from(index).ok().and_then(|index| list.ranges.get(index)).copied().ok_or(INVALID_PARAM)
}

#[derive(Debug, Default)]
struct Pairs {
    local: Vec<Segment>,
    remote: Vec<Segment>,
}

impl Pairs {
    fn add(&mut self, local: Segment, remote: Segment, skip_merge: bool) -> Outcome<()> {
        if local.1 != remote.1 {
            return Err(INVALID_PARAM);
        }
        if let (false, Some(ours), Some(theirs)) = (skip_merge, self.local.last_mut(), self.remote.last_mut())
            && ours.0 + ours.1 == local.0
            && theirs.0 + theirs.1 == remote.0
        {
            ours.1 += local.1;
            theirs.1 += remote.1;
            return Ok(());
        }
        self.local.push(local);
        self.remote.push(remote);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(peer: Option<&str>, ranges: &[Segment]) -> Prepared {
        Prepared { peer: peer.map(str::to_owned), place: Place::here(), gpu: None, ranges: ranges.to_vec() }
    }

    fn read(local: &Prepared, remote: &Prepared, indices: &[i32], skip_merge: bool) -> Outcome<Transfer> {
        Transfer::new(sys::NIXL_CAPI_XFER_OP_READ, (local, indices), (remote, indices), skip_merge)
    }

    #[test]
    fn neighbours_on_both_sides_become_one_unless_merging_is_off() {
        let local = list(None, &[(0, 8), (8, 8), (32, 8)]);
        let remote = list(Some("p"), &[(100, 8), (108, 8), (116, 8)]);
        let merged = read(&local, &remote, &[0, 1, 2], false).unwrap();
        assert_eq!(merged.local, [(0, 16), (32, 8)]);
        assert_eq!(merged.remote, [(100, 16), (116, 8)]);
        assert_eq!(read(&local, &remote, &[0, 1, 2], true).unwrap().local.len(), 3);
    }

    #[test]
    fn sides_lengths_and_indices_are_checked() {
        let local = list(None, &[(0, 8)]);
        let remote = list(Some("p"), &[(100, 4)]);
        assert_eq!(read(&local, &remote, &[0], false).unwrap_err(), INVALID_PARAM);
        let remote = list(Some("p"), &[(100, 8)]);
        assert_eq!(read(&local, &remote, &[1], false).unwrap_err(), INVALID_PARAM);
        assert_eq!(read(&local, &remote, &[-1], false).unwrap_err(), INVALID_PARAM);
        assert_eq!(read(&local, &remote, &[], false).unwrap_err(), INVALID_PARAM);
        assert_eq!(read(&remote, &local, &[0], false).unwrap_err(), INVALID_PARAM);
    }
}
