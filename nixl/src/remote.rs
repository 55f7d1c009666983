//! A peer whose metadata is loaded.

use std::borrow::Cow;
use std::ffi::CString;
use std::fmt;
use std::ptr::null_mut;

use crate::agent::Agent;
use crate::error::{Error, Result, check};
use crate::handle::Malloced;
use crate::users::Users;

/// A peer that this agent can reach.
///
/// Dropping it makes NIXL forget the peer and close its connections, unless the same peer was loaded more than once: then
/// the last one does. To have more of a peer's memory, load its newer metadata and keep both.
pub struct Remote<'a> {
    pub(crate) agent: &'a Agent,
    pub(crate) name: CString,
    pub(crate) users: Users,
}

impl Agent {
    /// Loads a peer's metadata. It must come from a peer that has authenticated itself: NIXL trusts these bytes.
    ///
    /// # Errors
    /// When NIXL cannot read it, or has no backend in common with the peer.
    pub fn load_remote(&self, blob: &[u8]) -> Result<Remote<'_>> {
        let mut name = null_mut();
        // SAFETY: the agent is live, the blob is readable for its length, and `name` writable.
        let code = unsafe {
            (self.library.load_remote_md)(self.raw, blob.as_ptr().cast(), blob.len(), &raw mut name)
        };
        check("load_remote_md", code, || format!("{} bytes of a peer's metadata", blob.len()))?;
        // SAFETY: NIXL allocated a C string with malloc for us.
        let name = unsafe { Malloced::new(name).to_c_string() };
        *self.loaded.borrow_mut().entry(name.clone()).or_insert(0) += 1;
        self.users.enter();
        Ok(Remote { agent: self, name, users: Users::default() })
    }

    /// Sends a notification by itself, apart from any transfer.
    ///
    /// # Errors
    /// When the peer belongs to another agent or NIXL refuses.
    pub fn notify(&self, remote: &Remote<'_>, message: &[u8]) -> Result<()> {
        if !std::ptr::eq(remote.agent, self) {
            return Err(Error::ForeignAgent { what: "the peer" });
        }
        // SAFETY: the agent is live, the name a C string, and the message readable for its length; it is copied.
        let code = unsafe {
            (self.library.gen_notif)(
                self.raw,
                remote.name.as_ptr(),
                message.as_ptr().cast(),
                message.len(),
                null_mut(),
            )
        };
        check("gen_notif", code, || remote)
    }
}

impl Remote<'_> {
    /// The peer's own name, as its metadata gives it.
    #[must_use]
    pub fn name(&self) -> Cow<'_, str> {
        self.name.to_string_lossy()
    }

    /// Connects now instead of with the first transfer.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where NIXL has no such call, otherwise when it refuses.
    pub fn connect(&self) -> Result<()> {
        const CALL: &str = "agent_make_connection";
        let call = self.agent.library.agent_make_connection.ok_or(Error::Unsupported { call: CALL })?;
        // SAFETY: the agent is live and the name a C string.
        check(CALL, unsafe { call(self.agent.raw, self.name.as_ptr(), null_mut()) }, || self)
    }
}

impl Drop for Remote<'_> {
    fn drop(&mut self) {
        // With a list left behind, NIXL may still be busy with this peer: it stays loaded.
        if !self.users.is_idle() {
            return;
        }
        let mut loaded = self.agent.loaded.borrow_mut();
        if let Some(times) = loaded.get_mut(&self.name) {
            *times -= 1;
            if *times == 0 {
                loaded.remove(&self.name);
                // SAFETY: the agent is live, the name a C string, and no list of this peer is left.
                unsafe { (self.agent.library.invalidate_remote_md)(self.agent.raw, self.name.as_ptr()) };
            }
        }
        self.agent.users.leave();
    }
}

impl fmt::Display for Remote<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "peer `{}`", self.name())
    }
}

impl fmt::Debug for Remote<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("name", &self.name).finish_non_exhaustive()
    }
}
