//! A `libnvidia-ml.so.1` for tests: the GPUs of a script, and counters of what the fake NIXL moves between them.
//!
//! It has the functions that kvwire calls, with the types of nvml.h. See `fake_gpus` for what a test can say.

#![allow(non_snake_case, reason = "names of the C API")]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::time::{Duration, Instant};

use fake_gpus::{Gpu, LINKS_MAX, Way, fault, script};

const SUCCESS: c_uint = 0;
const INVALID_ARGUMENT: c_uint = 2;
const NOT_SUPPORTED: c_uint = 3;
const INSUFFICIENT_SIZE: c_uint = 7;
const DRIVER_NOT_LOADED: c_uint = 9;

/// What `nvmlDeviceGetPcieThroughput` watches.
const WINDOW: Duration = Duration::from_millis(20);

/// A device handle is the GPU's number plus one.
type Handle = *mut c_void;

/// `nvmlPciInfo_t`, version 3.
#[repr(C)]
pub struct PciInfo {
    bus_id_legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    device_id: c_uint,
    subsystem_id: c_uint,
    bus_id: [c_char; 32],
}

/// `nvmlFieldValue_t`.
#[repr(C)]
pub struct FieldValue {
    field: c_uint,
    scope: c_uint,
    timestamp: i64,
    latency: i64,
    kind: c_uint,
    status: c_uint,
    value: u64,
}

/// `nvmlGpuFabricInfo_t`.
#[repr(C)]
#[derive(Debug)]
pub struct FabricInfo {
    cluster: [u8; 16],
    status: c_uint,
    clique: c_uint,
    state: u8,
}

impl std::fmt::Debug for PciInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PciInfo").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for FieldValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FieldValue").field("field", &self.field).finish_non_exhaustive()
    }
}

/// The scripted code of a call, if it is to fail.
fn scripted(call: &str) -> Option<c_uint> {
    fault(call).map(i32::unsigned_abs)
}

fn gpu(handle: Handle) -> Option<(usize, &'static Gpu)> {
    let index = handle.addr().checked_sub(1)?;
    Some((index, script().gpus.get(index)?))
}

/// Writes through a pointer of the caller.
///
/// # Safety
/// It must be writable for one `T`.
unsafe fn give<T>(out: *mut T, value: T) -> c_uint {
    // SAFETY: the caller's word.
    unsafe { out.write(value) };
    SUCCESS
}

/// # Safety
/// `out` must have room for `len` bytes.
unsafe fn give_text(out: *mut c_char, len: usize, text: &str) -> c_uint {
    if text.len() >= len {
        return INSUFFICIENT_SIZE;
    }
    // SAFETY: the text and its zero fit.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), out, text.len());
        out.add(text.len()).write(0);
    }
    SUCCESS
}

/// As nvml.h says.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> c_uint {
    match scripted("nvmlInit_v2") {
        Some(code) => code,
        None if fake_gpus::folder().is_none() => DRIVER_NOT_LOADED,
        None => SUCCESS,
    }
}

/// As nvml.h says.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> c_uint {
    SUCCESS
}

/// As nvml.h says.
///
/// # Safety
/// As nvml.h says, here and below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(out: *mut c_char, len: c_uint) -> c_uint {
    // SAFETY: the caller's word, here and below.
    unsafe { give_text(out, len as usize, "570.0.0") }
}

/// As nvml.h says.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(out: *mut c_uint) -> c_uint {
    // SAFETY: as above.
    unsafe { give(out, script().gpus.len() as c_uint) }
}

/// As nvml.h says.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, out: *mut Handle) -> c_uint {
    if index as usize >= script().gpus.len() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: as above.
    unsafe { give(out, std::ptr::without_provenance_mut(index as usize + 1)) }
}

/// As nvml.h says.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetIndex(handle: Handle, out: *mut c_uint) -> c_uint {
    let Some((index, _)) = gpu(handle) else { return INVALID_ARGUMENT };
    // SAFETY: as above.
    unsafe { give(out, index as c_uint) }
}

/// As nvml.h says.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUUID(handle: Handle, out: *mut c_char, len: c_uint) -> c_uint {
    let Some((index, _)) = gpu(handle) else { return INVALID_ARGUMENT };
    // SAFETY: as above.
    unsafe { give_text(out, len as usize, &format!("GPU-66616b65-0000-0000-0000-0000000000{index:02x}")) }
}

/// As nvml.h says.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetName(handle: Handle, out: *mut c_char, len: c_uint) -> c_uint {
    if gpu(handle).is_none() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: as above.
    unsafe { give_text(out, len as usize, "Fake GPU of the tests") }
}

/// As nvml.h says.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(handle: Handle, out: *mut PciInfo) -> c_uint {
    let Some((_, gpu)) = gpu(handle) else { return INVALID_ARGUMENT };
    // SAFETY: as above.
    unsafe { give(out, pci_info(&gpu.pci)) }
}

/// An address such as `0000:17:00.0`, in numbers and as NVML writes it.
fn pci_info(address: &str) -> PciInfo {
    let mut numbers = address.split([':', '.']).map(|part| c_uint::from_str_radix(part, 16).unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    let mut info = PciInfo {
        bus_id_legacy: [0; 16],
        domain: next(),
        bus: next(),
        device: next(),
        device_id: 0x2335_10de,
        subsystem_id: 0,
        bus_id: [0; 32],
    };
    // SAFETY: both are arrays with room for that many bytes.
    unsafe {
        give_text(info.bus_id_legacy.as_mut_ptr(), 16, address);
        give_text(info.bus_id.as_mut_ptr(), 32, &format!("0000{}", address.to_uppercase()));
    }
    info
}

/// As nvml.h says.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCurrPcieLinkGeneration(handle: Handle, out: *mut c_uint) -> c_uint {
    let Some((_, gpu)) = gpu(handle) else { return INVALID_ARGUMENT };
    // SAFETY: as above.
    unsafe { give(out, gpu.pcie.0) }
}

/// As nvml.h says.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCurrPcieLinkWidth(handle: Handle, out: *mut c_uint) -> c_uint {
    let Some((_, gpu)) = gpu(handle) else { return INVALID_ARGUMENT };
    // SAFETY: as above.
    unsafe { give(out, gpu.pcie.1) }
}

/// As nvml.h says.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetNvLinkState(handle: Handle, link: c_uint, out: *mut c_uint) -> c_uint {
    let Some((_, gpu)) = gpu(handle) else { return INVALID_ARGUMENT };
    if link >= gpu.links {
        return NOT_SUPPORTED;
    }
    // SAFETY: as above.
    unsafe { give(out, c_uint::from(link < gpu.links - gpu.links_down.min(gpu.links))) }
}

/// As nvml.h says.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetNvLinkErrorCounter(
    handle: Handle,
    link: c_uint,
    _counter: c_uint,
    out: *mut u64,
) -> c_uint {
    match gpu(handle) {
        // SAFETY: as above.
        Some((_, gpu)) if link < gpu.links => unsafe { give(out, 0) },
        _ => NOT_SUPPORTED,
    }
}

/// As nvml.h says. At the other end is a switch, as in servers whose GPUs all reach each other.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetNvLinkRemotePciInfo_v2(
    handle: Handle,
    link: c_uint,
    out: *mut PciInfo,
) -> c_uint {
    match gpu(handle) {
        // SAFETY: as above.
        Some((_, gpu)) if link < gpu.links => unsafe { give(out, pci_info("0000:d0:00.0")) },
        _ => NOT_SUPPORTED,
    }
}

/// As nvml.h says.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGpuFabricInfo(handle: Handle, out: *mut FabricInfo) -> c_uint {
    let Some((_, gpu)) = gpu(handle) else { return INVALID_ARGUMENT };
    // A state of 0 is "not supported", 3 "completed".
    let state = if gpu.domain { 3 } else { 0 };
    // SAFETY: as above.
    unsafe { give(out, FabricInfo { cluster: *b"domain-of-a-test", status: 0, clique: 1, state }) }
}

/// As nvml.h says, from the second version of the structure on. What follows the fields of the first stays as it is.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGpuFabricInfoV(handle: Handle, out: *mut c_uint) -> c_uint {
    // SAFETY: the caller's structure begins with its version.
    unsafe { nvmlDeviceGetGpuFabricInfo(handle, out.add(1).cast()) }
}

/// As nvml.h says.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(_code: c_uint) -> *const c_char {
    c"an error of the fake NVML".as_ptr()
}

/// As nvml.h says.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetFieldValues(
    handle: Handle,
    count: c_int,
    values: *mut FieldValue,
) -> c_uint {
    let Some((index, gpu)) = gpu(handle) else { return INVALID_ARGUMENT };
    if let Some(code) = scripted("nvmlDeviceGetFieldValues") {
        return code;
    }
    for place in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the caller has room for `count` values.
        let value = unsafe { &mut *values.add(place) };
        let link = value.scope as usize;
        let has_link = link < (gpu.links as usize).min(LINKS_MAX);
        let told = match value.field {
            90 if gpu.links > 0 => Some((1, u64::from(gpu.link_mbps))),
            91 => Some((1, u64::from(gpu.links))),
            138 if has_link => Some((3, fake_gpus::tell(index, link, Way::Sent) / 1024)),
            139 if has_link => Some((3, fake_gpus::tell(index, link, Way::Received) / 1024)),
            164 if has_link => Some((1, u64::from(gpu.link_mbps))),
            197 if gpu.pcie_counted => Some((3, fake_gpus::pcie(index, Way::Sent))),
            198 if gpu.pcie_counted => Some((3, fake_gpus::pcie(index, Way::Received))),
            _ => None,
        };
        value.status = if told.is_some() { SUCCESS } else { NOT_SUPPORTED };
        if let Some((kind, number)) = told {
            (value.kind, value.value) = (kind, number);
        }
    }
    SUCCESS
}

/// As nvml.h says: what the link carried in a window for which the call waits.
///
/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPcieThroughput(
    handle: Handle,
    counter: c_uint,
    out: *mut c_uint,
) -> c_uint {
    let Some((index, gpu)) = gpu(handle) else { return INVALID_ARGUMENT };
    if let Some(code) = scripted("nvmlDeviceGetPcieThroughput") {
        return code;
    }
    let way = match counter {
        0 => Way::Sent,
        1 => Way::Received,
        _ => return INVALID_ARGUMENT,
    };
    if !gpu.pcie_sampled {
        return NOT_SUPPORTED;
    }
    let (begin, before) = (Instant::now(), fake_gpus::pcie(index, way));
    std::thread::sleep(WINDOW);
    let bytes = fake_gpus::pcie(index, way).saturating_sub(before);
    let kb_per_s = bytes as f64 / 1e3 / begin.elapsed().as_secs_f64();
    // SAFETY: as above.
    unsafe { give(out, kb_per_s as c_uint) }
}
