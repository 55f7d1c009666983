//! Asks the NVIDIA driver's library, where it is installed, about NVLink.

use std::fmt::Write as _;
use std::sync::mpsc::channel;
use std::time::Duration;

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper::error::NvmlError;

use super::evidence::{Entry, Evidence};

/// NVML answers in milliseconds, but waits for the GPUs where no process keeps the driver awake.
const PATIENCE: Duration = Duration::from_secs(2);
/// NVLinks of one GPU, at most (`NVML_NVLINK_MAX_LINKS`).
const LINKS_MAX: u32 = 18;
/// GPUs asked, at most.
const GPUS_MAX: u32 = 64;

/// Adds `probe:nvml/links`, or `probe:nvml/error` with the reason. Without a driver nothing is loaded.
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
        Ok(links) => evidence.add("probe:nvml/links", Entry::Text(links)),
        Err(error) => evidence.add("probe:nvml/error", Entry::Text(format!("{error}\n"))),
    }
}

/// A line for each NVLink: `gpu 0 link 3 active, errors 0`. Links that a GPU does not have are left out.
fn ask() -> Result<String, NvmlError> {
    const ERRORS: [ErrorCounter; 4] =
        [ErrorCounter::DlReplay, ErrorCounter::DlRecovery, ErrorCounter::DlCrcFlit, ErrorCounter::DlCrcData];
    let nvml = Nvml::init()?;
    let mut links = String::new();
    for gpu in 0..nvml.device_count()?.min(GPUS_MAX) {
        let device = nvml.device_by_index(gpu)?;
        for number in 0..LINKS_MAX {
            let link = device.link_wrapper_for(number);
            let Ok(active) = link.is_active() else { continue };
            let errors: u64 = ERRORS.into_iter().filter_map(|counter| link.error_counter(counter).ok()).sum();
            let state = if active { "active" } else { "down" };
            // Writing to a String cannot fail.
            let _ = writeln!(links, "gpu {gpu} link {number} {state}, errors {errors}");
        }
    }
    Ok(links)
}
