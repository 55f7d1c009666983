//! Asks the NVIDIA driver's library, where it is installed, about NVLink and its fabric.
#![allow(unsafe_code, reason = "nvml-wrapper has no call for the fabric; each block says why it is sound")]

use std::ffi::c_uint;
use std::fmt::Write as _;
use std::sync::mpsc::channel;
use std::time::Duration;

use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON;
use nvml_wrapper::{Device, Nvml};

use super::evidence::{Entry, Evidence};

/// NVML answers in milliseconds, but waits for the GPUs where no process keeps the driver awake.
const PATIENCE: Duration = Duration::from_secs(2);
/// NVLinks of one GPU, at most (`NVML_NVLINK_MAX_LINKS`).
const LINKS_MAX: u32 = 18;
/// GPUs asked, at most.
const GPUS_MAX: u32 = 64;

/// What NVML said.
struct Answer {
    links: String,
    fabric: String,
}

/// Adds `probe:nvml/links` and `probe:nvml/fabric`, or `probe:nvml/error` with the reason. Without a driver nothing is
/// loaded.
pub(super) fn probe(evidence: &mut Evidence) {
    if evidence.text("/proc/driver/nvidia/version").is_none() {
        return;
    }
    let (answer, answered) = channel();
    // A thread of its own: a driver that hangs must not hang the check.
    let started = std::thread::Builder::new().name("nvml".to_owned()).spawn(move || {
        // Ignored: after the patience nobody listens.
        let _ = answer.send(ask().map_err(|error| error.to_string()));
    });
    let answer = match started {
        Ok(_) => {
            answered.recv_timeout(PATIENCE).unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}")))
        }
        Err(error) => Err(error.to_string()),
    };
    match answer {
        Ok(answer) => {
            evidence.add("probe:nvml/links", Entry::Text(answer.links));
            evidence.add("probe:nvml/fabric", Entry::Text(answer.fabric));
        }
        Err(error) => evidence.add("probe:nvml/error", Entry::Text(format!("{error}\n"))),
    }
}

/// A line for each NVLink: `gpu 0 link 3 active, 26562 MB/s, errors 0`. Links that a GPU does not have are left out. And
/// one for each GPU of what it knows of its fabric.
fn ask() -> Result<Answer, NvmlError> {
    const ERRORS: [ErrorCounter; 4] =
        [ErrorCounter::DlReplay, ErrorCounter::DlRecovery, ErrorCounter::DlCrcFlit, ErrorCounter::DlCrcData];
    let nvml = Nvml::init()?;
    let mut answer = Answer { links: String::new(), fabric: String::new() };
    for gpu in 0..nvml.device_count()?.min(GPUS_MAX) {
        let device = nvml.device_by_index(gpu)?;
        let speed = speed(&device).map_or(String::new(), |speed| format!(" {speed} MB/s,"));
        for number in 0..LINKS_MAX {
            let link = device.link_wrapper_for(number);
            let Ok(active) = link.is_active() else { continue };
            let errors: u64 = ERRORS.into_iter().filter_map(|counter| link.error_counter(counter).ok()).sum();
            let state = if active { "active" } else { "down" };
            // Writing to a String cannot fail.
            let _ = writeln!(answer.links, "gpu {gpu} link {number} {state},{speed} errors {errors}");
        }
        let _ = writeln!(answer.fabric, "gpu {gpu} {}", fabric(&nvml, &device));
    }
    Ok(answer)
}

/// Of each link of the device, in MB/s.
fn speed(device: &Device<'_>) -> Option<u64> {
    let mut values = device.field_values_for(&[FieldId(NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON)]).ok()?;
    match values.pop()?.ok()?.value.ok()? {
        SampleValue::U32(speed) => Some(u64::from(speed)),
        SampleValue::U64(speed) => Some(speed),
        SampleValue::I64(speed) => u64::try_from(speed).ok(),
        SampleValue::F64(_) => None,
    }
    .filter(|speed| *speed > 0)
}

/// `nvmlGpuFabricInfo_v2_t` of nvml.h.
#[repr(C)]
#[derive(Default)]
struct FabricInfo {
    version: c_uint,
    cluster: [u8; 16],
    status: c_uint,
    clique: c_uint,
    state: u8,
    health: c_uint,
}

/// `nvmlGpuFabricInfo_t`: what drivers older than 12.4 know.
#[repr(C)]
#[derive(Default)]
struct FabricInfoFirst {
    cluster: [u8; 16],
    status: c_uint,
    clique: c_uint,
    state: u8,
}

/// `state completed, status 0, clique 1, cluster …, health 0x155`, or why the fabric is not known.
fn fabric(nvml: &Nvml, device: &Device<'_>) -> String {
    // NVML_STRUCT_VERSION: the size, and the number of the version in the highest byte.
    let version = c_uint::try_from(size_of::<FabricInfo>()).unwrap_or(0) | 2 << 24;
    let mut info = FabricInfo { version, ..FabricInfo::default() };
    if let Ok(get) = &nvml.lib().nvmlDeviceGetGpuFabricInfoV {
        // SAFETY: the device is of this NVML, which lives longer than the call; the version in the structure tells NVML
        // its layout and size.
        let told = unsafe { get(device.handle(), (&raw mut info).cast()) };
        if told == 0 {
            return words(info.state, info.status, info.clique, info.cluster, Some(info.health));
        }
    }
    let Ok(get) = &nvml.lib().nvmlDeviceGetGpuFabricInfo else {
        return "not known: this driver's NVML has no call for it".to_owned();
    };
    let mut info = FabricInfoFirst::default();
    // SAFETY: as above; the structure is the one that this call takes.
    match unsafe { get(device.handle(), (&raw mut info).cast()) } {
        0 => words(info.state, info.status, info.clique, info.cluster, None),
        error => format!("not known: NVML error {error}"),
    }
}

fn words(state: u8, status: c_uint, clique: c_uint, cluster: [u8; 16], health: Option<c_uint>) -> String {
    let state = match state {
        0 => return "state not supported".to_owned(),
        1 => "not started",
        2 => "in progress",
        3 => "completed",
        _ => "of a kind that this kvwire does not know",
    };
    let cluster: String = cluster.iter().map(|byte| format!("{byte:02x}")).collect();
    let health = health.map_or(String::new(), |mask| format!(", health {mask:#x}"));
    format!("state {state}, status {status}, clique {clique}, cluster {cluster}{health}")
}
