//! Asks NVML, where it is installed, about NVLink.

use std::fmt::Write as _;

use super::evidence::{Entry, Evidence};
use crate::nvml;

/// Adds `probe:nvml/links`, or `probe:nvml/error` with the reason. Without a driver nothing is loaded.
pub(super) fn probe(evidence: &mut Evidence) {
    if evidence.text("/proc/driver/nvidia/version").is_none() && !nvml::is_named() {
        return;
    }
    match nvml::shared().map_err(str::to_owned).and_then(nvml::Nvml::gpus) {
        Ok(gpus) => evidence.add("probe:nvml/links", Entry::Text(lines(&gpus))),
        Err(error) => evidence.add("probe:nvml/error", Entry::Text(format!("{error}\n"))),
    }
}

/// A line for each NVLink: `gpu 0 link 3 active, errors 0`. Links that a GPU does not have are left out.
fn lines(gpus: &[nvml::Gpu]) -> String {
    let mut lines = String::new();
    for gpu in gpus {
        for link in &gpu.links {
            let state = if link.active { "active" } else { "down" };
            // Writing to a String cannot fail.
            let _ = writeln!(lines, "gpu {} link {} {state}, errors {}", gpu.index, link.number, link.errors);
        }
    }
    lines
}
