//! Plugins, and the backends made from them.

use std::collections::BTreeMap;
use std::fmt;
use std::ptr::null_mut;

use nixl_sys::{self as sys, Library};

use crate::agent::Agent;
use crate::error::{Error, Result, check};
use crate::handle::{MemList, OptArgs, Params, c_string};
use crate::memory::MemoryKind;

/// What a plugin or a backend says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PluginInfo {
    /// Kinds of memory that it can register; kinds that are not known here are left out.
    pub memory: Vec<MemoryKind>,
    /// Its parameters: the defaults for a plugin, those it was given for a backend.
    pub params: BTreeMap<String, String>,
}

/// A backend of an agent. It lives as long as the agent, whether or not this value does.
pub struct Backend<'a> {
    pub(crate) agent: &'a Agent,
    pub(crate) raw: sys::nixl_capi_backend_t,
    name: String,
}

impl Agent {
    /// What a plugin can do and how it may be set up.
    ///
    /// # Errors
    /// When NIXL has no such plugin, or cannot load it.
    pub fn plugin(&self, name: &str) -> Result<PluginInfo> {
        let c_name = c_string(name, "the plugin's name")?;
        let (mut kinds, mut params) = (null_mut(), null_mut());
        // SAFETY: the agent is live, the name a C string, and both results are writable.
        let code = unsafe {
            (self.library.get_plugin_params)(self.raw, c_name.as_ptr(), &raw mut kinds, &raw mut params)
        };
        check("get_plugin_params", code, || format!("plugin `{name}`"))?;
        // SAFETY: NIXL made both for us.
        unsafe { self.info(kinds, params) }
    }

    /// Starts a backend. `params` overrides the plugin's defaults, which [`Agent::plugin`] lists.
    ///
    /// # Errors
    /// When NIXL cannot start it; the reason stands on stderr only.
    pub fn create_backend(&self, name: &str, params: &BTreeMap<String, String>) -> Result<Backend<'_>> {
        let c_name = c_string(name, "the backend's name")?;
        let params = Params::new(&self.library, params)?;
        let mut raw = null_mut();
        // SAFETY: all handles are live, the name is a C string, and `raw` writable.
        let code =
            unsafe { (self.library.create_backend)(self.raw, c_name.as_ptr(), params.raw(), &raw mut raw) };
        check("create_backend", code, || format!("backend `{name}`"))?;
        self.users.enter();
        Ok(Backend { agent: self, raw, name: name.to_owned() })
    }

    /// # Safety
    /// Both handles must be live and owned by nothing else.
    unsafe fn info(
        &self,
        kinds: sys::nixl_capi_mem_list_t,
        params: sys::nixl_capi_params_t,
    ) -> Result<PluginInfo> {
        // SAFETY: the caller's word.
        let (kinds, params) =
            unsafe { (MemList::from_raw(&self.library, kinds), Params::from_raw(&self.library, params)) };
        let memory = kinds.to_vec()?.into_iter().filter_map(MemoryKind::from_raw).collect();
        let mut info = PluginInfo { memory, params: BTreeMap::new() };
        params.for_each(|key, value| drop(info.params.insert(key, value)))?;
        Ok(info)
    }
}

impl Backend<'_> {
    /// The plugin's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What this backend can do and what it was given.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where NIXL cannot say, otherwise when it refuses.
    pub fn info(&self) -> Result<PluginInfo> {
        const CALL: &str = "get_backend_params";
        let call = self.agent.library.get_backend_params.ok_or(Error::Unsupported { call: CALL })?;
        let (mut kinds, mut params) = (null_mut(), null_mut());
        // SAFETY: both handles are live and belong together; both results are writable.
        let code = unsafe { call(self.agent.raw, self.raw, &raw mut kinds, &raw mut params) };
        check(CALL, code, || self)?;
        // SAFETY: NIXL made both for us.
        unsafe { self.agent.info(kinds, params) }
    }

    /// Optional arguments that restrict a call to this backend.
    pub(crate) fn only<'l>(&self, library: &'l Library) -> Result<OptArgs<'l>> {
        let args = OptArgs::new(library)?;
        // SAFETY: the handle is live.
        unsafe { args.add_backend(self.raw)? };
        Ok(args)
    }
}

impl Drop for Backend<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is our own. Only the handle goes: the backend itself belongs to the agent.
        unsafe { (self.agent.library.destroy_backend)(self.raw) };
        self.agent.users.leave();
    }
}

impl fmt::Display for Backend<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "backend `{}`", self.name)
    }
}

impl fmt::Debug for Backend<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend").field("name", &self.name).finish_non_exhaustive()
    }
}
