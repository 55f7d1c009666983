//! An agent: one NIXL endpoint of this process.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt;
use std::ptr::null_mut;
use std::sync::Arc;

use nixl_sys::{self as sys, Library};

use crate::error::{Result, check};
use crate::handle::{Malloced, StringList, c_string};
use crate::users::Users;

/// How an agent is set up. NIXL's own listener and metadata threads stay off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentConfig {
    /// Whether NIXL runs a thread that progresses transfers and notifications. Without it a target must call
    /// [`Agent::notifications`] all the time, or the initiator waits for ever.
    pub progress_thread: bool,
    /// Pause of that thread between two rounds, in microseconds.
    pub progress_delay_us: u64,
    /// Whether NIXL keeps telemetry for each transfer.
    pub telemetry: bool,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self { progress_thread: true, progress_delay_us: 0, telemetry: false }
    }
}

/// One NIXL agent, for one thread at a time: NIXL's own locks are off. It may be sent to another thread while nothing
/// is borrowed from it.
pub struct Agent {
    pub(crate) library: Arc<Library>,
    pub(crate) raw: sys::nixl_capi_agent_t,
    name: String,
    pub(crate) users: Users,
    quarantined: Cell<usize>,
    /// How often each peer is loaded; the last one to go invalidates its metadata.
    pub(crate) loaded: RefCell<BTreeMap<CString, usize>>,
}

// SAFETY: NIXL binds an agent to no thread; it only demands that calls do not overlap, which `!Sync` ensures. Everything
// made from an agent borrows it, so nothing stays behind when it moves.
unsafe impl Send for Agent {}

impl Agent {
    /// Creates an agent. Its name must be unique among the agents that will meet.
    ///
    /// # Errors
    /// When the name holds a zero byte or NIXL refuses.
    pub fn new(library: &Arc<Library>, name: &str, config: &AgentConfig) -> Result<Self> {
        let c_name = c_string(name, "the agent's name")?;
        let settings = sys::nixl_capi_agent_config_t {
            enable_prog_thread: config.progress_thread,
            enable_listen_thread: false,
            listen_port: 0,
            thread_sync: sys::NIXL_CAPI_THREAD_SYNC_NONE,
            num_workers: 1,
            pthr_delay_us: config.progress_delay_us,
            lthr_delay_us: 0,
            capture_telemetry: config.telemetry,
        };
        let mut raw = null_mut();
        // SAFETY: name and settings live through the call, which copies them; `raw` is writable.
        let code =
            unsafe { (library.create_configured_agent)(c_name.as_ptr(), &raw const settings, &raw mut raw) };
        check("create_configured_agent", code, || format!("agent `{name}`"))?;
        Ok(Self {
            library: Arc::clone(library),
            raw,
            name: name.to_owned(),
            users: Users::default(),
            quarantined: Cell::new(0),
            loaded: RefCell::default(),
        })
    }

    /// The agent's own name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many transfers and registrations of this agent had to be left to NIXL for good, because NIXL may still
    /// use them. They, what they depend on, and the agent itself are never freed.
    #[must_use]
    pub fn quarantined(&self) -> usize {
        self.quarantined.get()
    }

    /// Names of the plugins that this NIXL can load.
    ///
    /// # Errors
    /// When NIXL refuses.
    pub fn plugins(&self) -> Result<Vec<String>> {
        let mut raw = null_mut();
        // SAFETY: the agent is live and `raw` writable.
        let code = unsafe { (self.library.get_available_plugins)(self.raw, &raw mut raw) };
        check("get_available_plugins", code, || self)?;
        // SAFETY: NIXL made the list for us.
        unsafe { StringList::from_raw(&self.library, raw) }.to_vec()
    }

    /// What a peer must load before it can reach this agent: connection data and every registration made so far.
    ///
    /// # Errors
    /// When NIXL refuses.
    pub fn local_metadata(&self) -> Result<Vec<u8>> {
        let (mut data, mut len) = (null_mut(), 0);
        // SAFETY: the agent is live and both results are writable.
        let code = unsafe { (self.library.get_local_md)(self.raw, &raw mut data, &raw mut len) };
        check("get_local_md", code, || self)?;
        // SAFETY: NIXL allocated `len` bytes with malloc for us.
        Ok(unsafe { Malloced::new(data).to_vec(len) })
    }

    pub(crate) fn quarantine(&self) {
        self.quarantined.set(self.quarantined.get() + 1);
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if self.users.is_idle() {
            // SAFETY: the agent is live, and everything that was made from it is freed.
            unsafe { (self.library.destroy_agent)(self.raw) };
        }
    }
}

impl fmt::Display for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "agent `{}`", self.name)
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent")
            .field("name", &self.name)
            .field("quarantined", &self.quarantined)
            .finish_non_exhaustive()
    }
}
