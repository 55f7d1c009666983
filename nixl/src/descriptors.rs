//! Prepared descriptor lists: what a transfer may pick from, on either side.

use std::ffi::CStr;
use std::fmt;
use std::ptr::{from_ref, null_mut};

use nixl_sys as sys;

use crate::agent::Agent;
use crate::error::{Error, Result, check};
use crate::handle::XferDlist;
use crate::memory::MemoryKind;
use crate::registration::{Registration, RemoteRegion};
use crate::remote::Remote;
use crate::users::Users;

/// Descriptors of this process' registered memory.
pub struct DescList<'r> {
    pub(crate) inner: Prepared<'r>,
    /// One entry for each run of descriptors with the same registration; each entry was entered once.
    registrations: Vec<&'r Registration<'r>>,
}

/// Descriptors of a peer's registered memory.
pub struct RemoteDescList<'r> {
    pub(crate) inner: Prepared<'r>,
    pub(crate) remote: &'r Remote<'r>,
}

/// NIXL's handle for a list, and what it takes to check the indices of a transfer.
pub(crate) struct Prepared<'r> {
    pub(crate) agent: &'r Agent,
    pub(crate) raw: sys::nixl_capi_xfer_dlist_handle_t,
    /// Length of each descriptor in bytes.
    pub(crate) lengths: Lengths,
    pub(crate) users: Users,
}

impl Agent {
    /// Prepares descriptors for parts of any registered memory of this agent, all of one kind: each a registration, an
    /// offset and a length in bytes.
    ///
    /// # Errors
    /// When there is none, one is empty or outside its registration, kinds or agents are mixed, or NIXL refuses.
    pub fn describe<'r>(
        &'r self,
        pieces: impl IntoIterator<Item = (&'r Registration<'r>, usize, usize)>,
    ) -> Result<DescList<'r>> {
        let mut registrations: Vec<&'r Registration<'r>> = Vec::new();
        let mut builder = Builder::new(self);
        for (registration, offset, len) in pieces {
            if !std::ptr::eq(from_ref(registration.agent), self) {
                return Err(Error::ForeignAgent { what: "a registration" });
            }
            let region = &registration.region;
            within(offset, len, region.len as u64)?;
            builder.add(region.kind, region.address + offset, len, region.device)?;
            if registrations.last().is_none_or(|last| !std::ptr::eq(*last, registration)) {
                registrations.push(registration);
            }
        }
        let backend = registrations.first().map_or(null_mut(), |registration| registration.args.raw());
        let inner = builder.prepare(c"", backend)?;
        for registration in &registrations {
            registration.users.enter();
        }
        Ok(DescList { inner, registrations })
    }
}

impl<'a> Remote<'a> {
    /// Prepares descriptors for parts of one region of the peer, each an offset and a length in bytes.
    ///
    /// # Errors
    /// As [`Remote::describe_many`].
    pub fn describe<'r>(
        &'r self,
        region: &RemoteRegion,
        ranges: impl IntoIterator<Item = (usize, usize)>,
    ) -> Result<RemoteDescList<'r>>
    where
        'a: 'r,
    {
        self.describe_many(ranges.into_iter().map(|(offset, len)| (region, offset, len)))
    }

    /// Prepares descriptors for parts of several regions of the peer, all of one kind.
    ///
    /// # Errors
    /// When there is none, one is empty or outside its region, a region cannot exist, kinds are mixed, or NIXL refuses,
    /// which it does for memory that the loaded metadata does not cover.
    pub fn describe_many<'r, 'd>(
        &'r self,
        pieces: impl IntoIterator<Item = (&'d RemoteRegion, usize, usize)>,
    ) -> Result<RemoteDescList<'r>>
    where
        'a: 'r,
    {
        let mut builder = Builder::new(self.agent);
        for (region, offset, len) in pieces {
            let impossible = Error::ImpossibleRegion { addr: region.addr, len: region.len };
            if region.addr.checked_add(region.len).is_none() {
                return Err(impossible);
            }
            within(offset, len, region.len)?;
            let base = usize::try_from(region.addr).map_err(|_| impossible)?;
            builder.add(region.kind, base + offset, len, region.device)?;
        }
        let inner = builder.prepare(&self.name, null_mut())?;
        self.users.enter();
        Ok(RemoteDescList { inner, remote: self })
    }
}

/// A descriptor must be inside its region and not empty.
fn within(offset: usize, len: usize, region_len: u64) -> Result<()> {
    let inside = offset.checked_add(len).is_some_and(|end| end as u64 <= region_len);
    if len > 0 && inside { Ok(()) } else { Err(Error::OutOfBounds { offset, len, region_len }) }
}

/// Lengths of the descriptors of a list, in bytes. Those of a KV cache are all the same, and very many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lengths {
    Same { length: usize, count: usize },
    Each(Vec<usize>),
}

impl Lengths {
    pub(crate) const fn none() -> Self {
        Self::Same { length: 0, count: 0 }
    }

    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Same { count, .. } => *count,
            Self::Each(lengths) => lengths.len(),
        }
    }

    pub(crate) fn get(&self, at: usize) -> Option<usize> {
        match self {
            Self::Same { length, count } => (at < *count).then_some(*length),
            Self::Each(lengths) => lengths.get(at).copied(),
        }
    }

    pub(crate) fn push(&mut self, added: usize) {
        match self {
            Self::Same { length, count } if *count == 0 || *length == added => {
                *length = added;
                *count += 1;
            }
            Self::Same { length, count } => {
                let mut each = vec![*length; *count];
                each.push(added);
                *self = Self::Each(each);
            }
            Self::Each(lengths) => lengths.push(added),
        }
    }
}

/// Collects descriptors of one kind.
struct Builder<'r> {
    agent: &'r Agent,
    list: Option<(MemoryKind, XferDlist<'r>)>,
    lengths: Lengths,
}

impl<'r> Builder<'r> {
    fn new(agent: &'r Agent) -> Self {
        Self { agent, list: None, lengths: Lengths::none() }
    }

    fn add(&mut self, kind: MemoryKind, addr: usize, len: usize, device: u64) -> Result<()> {
        let (known, list) = match &mut self.list {
            Some(list) => list,
            none => none.insert((kind, XferDlist::new(&self.agent.library, kind.raw())?)),
        };
        if *known != kind {
            return Err(Error::MixedKinds);
        }
        list.add(addr, len, device)?;
        self.lengths.push(len);
        Ok(())
    }

    /// Has NIXL look the descriptors up. An empty name means this agent's own memory.
    fn prepare(self, owner: &CStr, args: sys::nixl_capi_opt_args_t) -> Result<Prepared<'r>> {
        const CALL: &str = "prep_xfer_dlist";
        let Some((_, list)) = self.list else {
            return Err(Error::Empty { what: "the descriptor list" });
        };
        let (agent, mut raw) = (self.agent, null_mut());
        // SAFETY: all handles are live or null, the name is a C string, and `raw` writable. NIXL copies the list.
        let code = unsafe {
            (agent.library.prep_xfer_dlist)(agent.raw, owner.as_ptr(), list.raw(), &raw mut raw, args)
        };
        check(CALL, code, || {
            let whose = if owner.is_empty() {
                agent.to_string()
            } else {
                format!("peer `{}`", owner.to_string_lossy())
            };
            format!("{} descriptors of {whose}", self.lengths.count())
        })?;
        agent.users.enter();
        Ok(Prepared { agent, raw, lengths: self.lengths, users: Users::default() })
    }
}

impl Prepared<'_> {
    /// Frees the list unless a transfer was left behind; says whether it did.
    fn release(&mut self) -> bool {
        if !self.users.is_idle() {
            return false;
        }
        // SAFETY: both handles are live and belong together, and no transfer uses the list.
        unsafe { (self.agent.library.release_xfer_dlist_handle)(self.agent.raw, self.raw) };
        self.agent.users.leave();
        true
    }
}

impl DescList<'_> {
    /// Number of descriptors, at least one.
    #[expect(clippy::len_without_is_empty, reason = "a list is never empty")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.lengths.count()
    }
}

impl RemoteDescList<'_> {
    /// Number of descriptors, at least one.
    #[expect(clippy::len_without_is_empty, reason = "a list is never empty")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.lengths.count()
    }
}

impl Drop for DescList<'_> {
    fn drop(&mut self) {
        if self.inner.release() {
            for registration in &self.registrations {
                registration.users.leave();
            }
        }
    }
}

impl Drop for RemoteDescList<'_> {
    fn drop(&mut self) {
        if self.inner.release() {
            self.remote.users.leave();
        }
    }
}

impl fmt::Debug for DescList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DescList").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for RemoteDescList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteDescList")
            .field("len", &self.len())
            .field("remote", self.remote)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_kept_one_by_one_only_where_they_differ() {
        let mut lengths = Lengths::none();
        assert_eq!((lengths.count(), lengths.get(0)), (0, None));
        for _ in 0..3 {
            lengths.push(8);
        }
        assert_eq!(lengths, Lengths::Same { length: 8, count: 3 });
        assert_eq!((lengths.get(2), lengths.get(3)), (Some(8), None));
        lengths.push(16);
        assert_eq!(lengths, Lengths::Each(vec![8, 8, 8, 16]));
        assert_eq!((lengths.count(), lengths.get(3), lengths.get(4)), (4, Some(16), None));
    }
}
