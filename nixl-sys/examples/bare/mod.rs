//! What both bare programs do before they measure, by NIXL's C functions alone.

use std::ffi::CStr;
use std::ptr::{null, null_mut};

use nixl_sys::*;

pub(crate) unsafe fn agent(nixl: &Library, name: &CStr, progress: bool) -> nixl_capi_agent_t {
    let config =
        nixl_capi_agent_config_t { enable_prog_thread: progress, num_workers: 1, ..Default::default() };
    let (mut agent, mut params, mut backend) = (null_mut(), null_mut(), null_mut());
    // SAFETY: names and settings live through the calls, and all results are writable.
    unsafe {
        ok((nixl.create_configured_agent)(name.as_ptr(), &raw const config, &raw mut agent));
        ok((nixl.create_params)(&raw mut params));
        ok((nixl.create_backend)(agent, c"UCX".as_ptr(), params, &raw mut backend));
    }
    agent
}

pub(crate) unsafe fn register(nixl: &Library, agent: nixl_capi_agent_t, memory: &[u8]) {
    let mut list = null_mut();
    // SAFETY: the caller keeps the memory, and all handles are live.
    unsafe {
        ok((nixl.create_reg_dlist)(NIXL_CAPI_MEM_DRAM, &raw mut list));
        ok((nixl.reg_dlist_add_desc)(list, memory.as_ptr().addr(), memory.len(), 0, null(), 0));
        ok((nixl.register_mem)(agent, list, null_mut()));
    }
}

pub(crate) fn ok(code: i32) {
    assert_eq!(code, NIXL_CAPI_SUCCESS, "a NIXL call failed");
}

pub(crate) fn number(text: &str) -> usize {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is not a number"))
}
