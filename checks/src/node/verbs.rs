//! Asks libibverbs, where it is installed: can a device be opened, and does it take GPU memory as dma-buf.
//!
//! The library is opened at run time and for this process alone (`RTLD_LOCAL`): NIXL's wheel carries its own copy, and
//! one in the global scope would be bound in its place. Engines are other processes and never see this one.
#![allow(unsafe_code, reason = "the one module that calls the C verbs; each block says why it is sound")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::evidence::{Entry, Evidence};
use crate::nvml::innermost;

/// Devices asked, at most.
const DEVICES_MAX: usize = 256;
/// `IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ`
const ACCESS: c_int = 1 | 2 | 4;
/// Bytes of the memory region that is asked for and never made.
const PAGE: usize = 4096;
/// `EBADF`: the call got as far as the file descriptor, and -1 is none.
const EBADF: i32 = 9;

/// An opaque object of libibverbs.
type Object = *mut c_void;

/// The functions used, as rdma-core's `verbs.h` declares them.
struct Functions {
    get_device_list: unsafe extern "C" fn(*mut c_int) -> *mut Object,
    free_device_list: unsafe extern "C" fn(*mut Object),
    get_device_name: unsafe extern "C" fn(Object) -> *const c_char,
    open_device: unsafe extern "C" fn(Object) -> Object,
    close_device: unsafe extern "C" fn(Object) -> c_int,
    alloc_pd: unsafe extern "C" fn(Object) -> Object,
    dealloc_pd: unsafe extern "C" fn(Object) -> c_int,
    /// From rdma-core 34 on.
    reg_dmabuf_mr: Option<unsafe extern "C" fn(Object, u64, usize, u64, c_int, c_int) -> Object>,
}

/// Adds `probe:verbs/…` for each device that libibverbs knows. Without RDMA devices nothing is loaded.
pub(super) fn probe(evidence: &mut Evidence) {
    if evidence.names("/sys/class/infiniband").is_empty() {
        return;
    }
    match load() {
        Ok(functions) => ask(&functions, evidence),
        Err(error) => evidence.add("probe:verbs/error", Entry::Text(format!("{}\n", innermost(&error)))),
    }
}

fn load() -> Result<Functions, libloading::Error> {
    // SAFETY: libibverbs is a system library whose initialisers only register its providers. It is never unloaded,
    // since providers leave pointers to it behind.
    let library = unsafe { Library::open(Some("libibverbs.so.1"), RTLD_NOW | RTLD_LOCAL) }?;
    // SAFETY: the types are those of rdma-core's verbs.h, whose symbols are versioned and stable; pointers stand for
    // its opaque structures.
    let functions = unsafe {
        Functions {
            get_device_list: *library.get(b"ibv_get_device_list\0")?,
            free_device_list: *library.get(b"ibv_free_device_list\0")?,
            get_device_name: *library.get(b"ibv_get_device_name\0")?,
            open_device: *library.get(b"ibv_open_device\0")?,
            close_device: *library.get(b"ibv_close_device\0")?,
            alloc_pd: *library.get(b"ibv_alloc_pd\0")?,
            dealloc_pd: *library.get(b"ibv_dealloc_pd\0")?,
            reg_dmabuf_mr: library.get(b"ibv_reg_dmabuf_mr\0").ok().map(|symbol| *symbol),
        }
    };
    std::mem::forget(library);
    Ok(functions)
}

fn ask(functions: &Functions, evidence: &mut Evidence) {
    let mut count: c_int = 0;
    // SAFETY: `count` is a valid place for the number of devices.
    let list = unsafe { (functions.get_device_list)(&raw mut count) };
    if list.is_null() {
        let error = io::Error::last_os_error();
        evidence.add("probe:verbs/error", Entry::Text(format!("{error}\n")));
        return;
    }
    for at in 0..usize::try_from(count).unwrap_or(0).min(DEVICES_MAX) {
        // SAFETY: the list has `count` devices, and lives until it is freed below.
        let device = unsafe { *list.add(at) };
        // SAFETY: the device is of the living list; its name is a C string inside it.
        let name =
            unsafe { CStr::from_ptr((functions.get_device_name)(device)) }.to_string_lossy().into_owned();
        // SAFETY: as above.
        let (opened, dmabuf) = unsafe { one(functions, device) };
        evidence.add(format!("probe:verbs/{name}/open"), Entry::Text(format!("{opened}\n")));
        if let Some(dmabuf) = dmabuf {
            evidence.add(format!("probe:verbs/{name}/dmabuf"), Entry::Text(format!("{dmabuf}\n")));
        }
    }
    // SAFETY: the list is of `get_device_list`, is freed once, and no device of it is used after this.
    unsafe { (functions.free_device_list)(list) };
}

/// Opens one device, asks, and closes it. Whether dma-buf is taken is asked as UCX asks: by a registration of the file
/// descriptor -1, which never succeeds, and says by its error how far it got.
///
/// # Safety
/// `device` must be of a device list that has not been freed.
unsafe fn one(functions: &Functions, device: Object) -> (String, Option<String>) {
    // SAFETY: by the contract of this function.
    let context = unsafe { (functions.open_device)(device) };
    if context.is_null() {
        return (io::Error::last_os_error().to_string(), None);
    }
    // SAFETY: the context is open until the end of this function.
    let domain = unsafe { (functions.alloc_pd)(context) };
    let dmabuf = match functions.reg_dmabuf_mr {
        None => Some("this libibverbs is older than dma-buf".to_owned()),
        Some(_) if domain.is_null() => None,
        Some(register) => {
            // SAFETY: the protection domain is valid, and no memory is described: -1 is no file.
            let region = unsafe { register(domain, 0, PAGE, 0, -1, ACCESS) };
            let error = io::Error::last_os_error();
            if region.is_null() && error.raw_os_error() == Some(EBADF) {
                Some("supported".to_owned())
            } else {
                Some(format!("not supported: {error}"))
            }
        }
    };
    if !domain.is_null() {
        // SAFETY: the domain is of this context, and nothing was made in it.
        unsafe { (functions.dealloc_pd)(domain) };
    }
    // SAFETY: the context is open and used no more.
    unsafe { (functions.close_device)(context) };
    ("ok".to_owned(), dmabuf)
}
