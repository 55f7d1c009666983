//! Asks NVML, where it is installed, about NVLink and its fabric.

use std::fmt::Write as _;

use super::evidence::{Entry, Evidence};
use crate::nvml;

/// NVML's unit of speed, in bytes per second.
const MB: u64 = 1_000_000;

/// Adds `probe:nvml/driver`, `probe:nvml/links` and `probe:nvml/fabric`, or `probe:nvml/error` with the reason. Without any
/// sign of a driver nothing is loaded. A sandbox (gVisor) may have the driver's device and nothing of it in `/proc`.
pub(super) fn probe(evidence: &mut Evidence) {
    let in_proc = evidence.text("/proc/driver/nvidia/version").is_some();
    let has_device = matches!(evidence.get("/dev/nvidiactl"), Some(Entry::Node(_)));
    if !in_proc && !has_device && !nvml::is_named() {
        return;
    }
    let asked = nvml::shared().map_err(str::to_owned);
    match asked.and_then(|nvml| Ok((nvml.driver()?, nvml.gpus()?))) {
        Ok((driver, gpus)) => {
            evidence.add("probe:nvml/driver", Entry::Text(format!("{driver}\n")));
            evidence.add("probe:nvml/links", Entry::Text(links(&gpus)));
            evidence.add("probe:nvml/fabric", Entry::Text(fabric(&gpus)));
        }
        Err(error) => evidence.add("probe:nvml/error", Entry::Text(format!("{error}\n"))),
    }
}

/// A line for each NVLink: `gpu 0 link 3 active, 26562 MB/s, errors 0`. Links that a GPU does not have are left out.
fn links(gpus: &[nvml::Gpu]) -> String {
    let mut lines = String::new();
    for gpu in gpus {
        for link in &gpu.links {
            let state = if link.active { "active" } else { "down" };
            let speed = link.bytes_per_s.map_or(String::new(), |speed| format!(" {} MB/s,", speed / MB));
            // Writing to a String cannot fail.
            let (number, errors) = (link.number, link.errors);
            let _ = writeln!(lines, "gpu {} link {number} {state},{speed} errors {errors}", gpu.index);
        }
    }
    lines
}

/// A line for each GPU: `gpu 0 state completed, …`.
fn fabric(gpus: &[nvml::Gpu]) -> String {
    gpus.iter().map(|gpu| format!("gpu {} {}\n", gpu.index, gpu.fabric.words)).collect()
}
