//! Short-lived NIXL handles that depend on no agent: each is freed when dropped.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut};

use nixl_sys::{self as sys, Library};

use crate::error::{Error, Result, check};

/// Defines an owner of one handle: how it is made and how it is freed.
macro_rules! owned {
    ($(#[$doc:meta])* $name:ident, $raw:ty, $free:ident) => {
        $(#[$doc])*
        pub(crate) struct $name<'l> {
            library: &'l Library,
            raw: $raw,
        }

        impl Drop for $name<'_> {
            fn drop(&mut self) {
                // SAFETY: the handle is our own and live, and nothing else refers to it.
                unsafe { (self.library.$free)(self.raw) };
            }
        }
    };
}

/// Gives out the handle for calls that take it.
macro_rules! lent {
    ($($name:ident, $raw:ty;)*) => {$(
        impl $name<'_> {
            pub(crate) fn raw(&self) -> $raw {
                self.raw
            }
        }
    )*};
}

lent! {
    OptArgs, sys::nixl_capi_opt_args_t;
    Params, sys::nixl_capi_params_t;
    RegDlist, sys::nixl_capi_reg_dlist_t;
    XferDlist, sys::nixl_capi_xfer_dlist_t;
    NotifMap, sys::nixl_capi_notif_map_t;
}

owned!(
    /// Optional arguments of a call.
    OptArgs, sys::nixl_capi_opt_args_t, destroy_opt_args
);
owned!(
    /// Backend parameters.
    Params, sys::nixl_capi_params_t, destroy_params
);
owned!(
    /// A list of memory kinds.
    MemList, sys::nixl_capi_mem_list_t, destroy_mem_list
);
owned!(
    /// A list of texts.
    StringList, sys::nixl_capi_string_list_t, destroy_string_list
);
owned!(
    /// Ranges to register.
    RegDlist, sys::nixl_capi_reg_dlist_t, destroy_reg_dlist
);
owned!(
    /// Ranges to transfer.
    XferDlist, sys::nixl_capi_xfer_dlist_t, destroy_xfer_dlist
);
owned!(
    /// Notifications that arrived.
    NotifMap, sys::nixl_capi_notif_map_t, destroy_notif_map
);

impl<'l> OptArgs<'l> {
    pub(crate) fn new(library: &'l Library) -> Result<Self> {
        let mut raw = null_mut();
        // SAFETY: `raw` is writable.
        check("create_opt_args", unsafe { (library.create_opt_args)(&raw mut raw) }, || "a call")?;
        Ok(Self { library, raw })
    }

    /// Restricts the call to one backend.
    ///
    /// # Safety
    /// `backend` must be a live handle.
    pub(crate) unsafe fn add_backend(&self, backend: sys::nixl_capi_backend_t) -> Result<()> {
        // SAFETY: both handles are live; NIXL keeps the backend behind the handle, not the handle.
        check(
            "opt_args_add_backend",
            unsafe { (self.library.opt_args_add_backend)(self.raw, backend) },
            || "a backend",
        )
    }

    /// Skips the merging of neighbours, or not.
    pub(crate) fn set_skip_merge(&self, skip: bool) -> Result<()> {
        // SAFETY: the handle is live.
        let code = unsafe { (self.library.opt_args_set_skip_desc_merge)(self.raw, skip) };
        check("opt_args_set_skip_desc_merge", code, || "a transfer")
    }

    /// Sends `message` to the peer when the transfer is complete.
    pub(crate) fn set_notification(&self, message: &[u8]) -> Result<()> {
        // SAFETY: the handle is live and the bytes are copied.
        let code = unsafe {
            (self.library.opt_args_set_notif_msg)(self.raw, message.as_ptr().cast(), message.len())
        };
        check("opt_args_set_notif_msg", code, || "a transfer")?;
        // SAFETY: the handle is live.
        let code = unsafe { (self.library.opt_args_set_has_notif)(self.raw, true) };
        check("opt_args_set_has_notif", code, || "a transfer")
    }
}

impl<'l> Params<'l> {
    pub(crate) fn new<'p>(
        library: &'l Library,
        pairs: impl IntoIterator<Item = (&'p String, &'p String)>,
    ) -> Result<Self> {
        let mut raw = null_mut();
        // SAFETY: `raw` is writable.
        check("create_params", unsafe { (library.create_params)(&raw mut raw) }, || "a backend")?;
        let params = Self { library, raw };
        for (key, value) in pairs {
            let (c_key, c_value) = (c_string(key, "a parameter")?, c_string(value, "a parameter")?);
            // SAFETY: the handle is live and both are C strings, which are copied.
            let code = unsafe { (library.params_add)(raw, c_key.as_ptr(), c_value.as_ptr()) };
            check("params_add", code, || format!("parameter `{key}`"))?;
        }
        Ok(params)
    }

    /// Takes over a handle that NIXL made.
    ///
    /// # Safety
    /// `raw` must be live and owned by nothing else.
    pub(crate) unsafe fn from_raw(library: &'l Library, raw: sys::nixl_capi_params_t) -> Self {
        Self { library, raw }
    }

    /// Calls `each` with every pair.
    pub(crate) fn for_each(&self, mut each: impl FnMut(String, String)) -> Result<()> {
        let mut raw = null_mut();
        // SAFETY: the handle is live and `raw` writable.
        let code = unsafe { (self.library.params_create_iterator)(self.raw, &raw mut raw) };
        check("params_create_iterator", code, || "backend parameters")?;
        let cursor = ParamCursor { library: self.library, raw };
        let mut more = true;
        while more {
            let (mut key, mut value) = (null(), null());
            // SAFETY: the iterator is live and the three results are writable.
            let code = unsafe {
                (self.library.params_iterator_next)(cursor.raw, &raw mut key, &raw mut value, &raw mut more)
            };
            check("params_iterator_next", code, || "backend parameters")?;
            // At the end of an empty list both stay null.
            if key.is_null() || value.is_null() {
                break;
            }
            // SAFETY: NIXL gives C strings that live until the next step.
            unsafe { each(lossy(key), lossy(value)) };
        }
        Ok(())
    }
}

owned!(
    /// A walk over parameters.
    ParamCursor, sys::nixl_capi_param_iter_t, params_destroy_iterator
);

impl<'l> MemList<'l> {
    /// Takes over a handle that NIXL made.
    ///
    /// # Safety
    /// `raw` must be live and owned by nothing else.
    pub(crate) unsafe fn from_raw(library: &'l Library, raw: sys::nixl_capi_mem_list_t) -> Self {
        Self { library, raw }
    }

    /// The kinds as NIXL's numbers.
    pub(crate) fn to_vec(&self) -> Result<Vec<i32>> {
        let mut len = 0;
        // SAFETY: the handle is live and `len` writable.
        let code = unsafe { (self.library.mem_list_size)(self.raw, &raw mut len) };
        check("mem_list_size", code, || "memory kinds")?;
        (0..len)
            .map(|index| {
                let mut kind = sys::NIXL_CAPI_MEM_UNKNOWN;
                // SAFETY: the handle is live, the index below its size, and `kind` writable.
                let code = unsafe { (self.library.mem_list_get)(self.raw, index, &raw mut kind) };
                check("mem_list_get", code, || "memory kinds").map(|()| kind)
            })
            .collect()
    }
}

impl<'l> StringList<'l> {
    /// Takes over a handle that NIXL made.
    ///
    /// # Safety
    /// `raw` must be live and owned by nothing else.
    pub(crate) unsafe fn from_raw(library: &'l Library, raw: sys::nixl_capi_string_list_t) -> Self {
        Self { library, raw }
    }

    pub(crate) fn to_vec(&self) -> Result<Vec<String>> {
        let mut len = 0;
        // SAFETY: the handle is live and `len` writable.
        let code = unsafe { (self.library.string_list_size)(self.raw, &raw mut len) };
        check("string_list_size", code, || "a list")?;
        (0..len)
            .map(|index| {
                let mut text = null();
                // SAFETY: the handle is live, the index below its size, and `text` writable.
                let code = unsafe { (self.library.string_list_get)(self.raw, index, &raw mut text) };
                check("string_list_get", code, || "a list")?;
                // SAFETY: NIXL gives a C string that lives as long as the list.
                Ok(unsafe { lossy(text) })
            })
            .collect()
    }
}

impl<'l> RegDlist<'l> {
    /// A list with one range.
    pub(crate) fn new(library: &'l Library, kind: i32, addr: usize, len: usize, device: u64) -> Result<Self> {
        let mut raw = null_mut();
        // SAFETY: `raw` is writable.
        let code = unsafe { (library.create_reg_dlist)(kind, &raw mut raw) };
        check("create_reg_dlist", code, || "a registration")?;
        let list = Self { library, raw };
        // SAFETY: the handle is live; no metadata is given.
        let code = unsafe { (library.reg_dlist_add_desc)(raw, addr, len, device, null(), 0) };
        check("reg_dlist_add_desc", code, || "a registration").map(|()| list)
    }
}

impl<'l> XferDlist<'l> {
    pub(crate) fn new(library: &'l Library, kind: i32) -> Result<Self> {
        let mut raw = null_mut();
        // SAFETY: `raw` is writable.
        let code = unsafe { (library.create_xfer_dlist)(kind, &raw mut raw) };
        check("create_xfer_dlist", code, || "a descriptor list").map(|()| Self { library, raw })
    }

    pub(crate) fn add(&self, addr: usize, len: usize, device: u64) -> Result<()> {
        // SAFETY: the handle is live. An address is only a number until a transfer is posted.
        let code = unsafe { (self.library.xfer_dlist_add_desc)(self.raw, addr, len, device) };
        check("xfer_dlist_add_desc", code, || "a descriptor list")
    }
}

impl<'l> NotifMap<'l> {
    pub(crate) fn new(library: &'l Library) -> Result<Self> {
        let mut raw = null_mut();
        // SAFETY: `raw` is writable.
        let code = unsafe { (library.create_notif_map)(&raw mut raw) };
        check("create_notif_map", code, || "notifications").map(|()| Self { library, raw })
    }
}

/// Bytes that NIXL allocated with `malloc` for its caller.
pub(crate) struct Malloced(*mut c_void);

impl Malloced {
    /// # Safety
    /// `memory` must be null or come from `malloc`, owned by nothing else.
    pub(crate) unsafe fn new<T>(memory: *mut T) -> Self {
        Self(memory.cast())
    }

    /// # Safety
    /// The memory must hold `len` bytes.
    pub(crate) unsafe fn to_vec(&self, len: usize) -> Vec<u8> {
        if self.0.is_null() || len == 0 {
            return Vec::new();
        }
        // SAFETY: the caller's word.
        unsafe { std::slice::from_raw_parts(self.0.cast::<u8>(), len) }.to_vec()
    }

    /// # Safety
    /// The memory must hold a C string.
    pub(crate) unsafe fn to_c_string(&self) -> CString {
        if self.0.is_null() {
            return CString::default();
        }
        // SAFETY: the caller's word.
        unsafe { CStr::from_ptr(self.0.cast()) }.to_owned()
    }
}

impl Drop for Malloced {
    fn drop(&mut self) {
        // SAFETY: it came from malloc, and free takes null too.
        unsafe { libc::free(self.0) };
    }
}

pub(crate) fn c_string(text: &str, what: &'static str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::ZeroByte { what })
}

/// The text of a C string, or nothing for null.
///
/// # Safety
/// `text` must be null or a C string.
pub(crate) unsafe fn lossy(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's word.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
