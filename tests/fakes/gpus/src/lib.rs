//! The GPUs of a test, in a folder that `KVWIRE_FAKE_GPUS` names: a file `gpus` that describes them, and a file
//! `counters` that the fakes of one run share.
//!
//! ```text
//! driver 12080
//! wire nvlink
//! gpu pci=0000:17:00.0 memory=1073741824 links=18 link_mbps=26562 pcie=5x16
//! gpu pci=0000:65:00.0 links=18 mig=1
//! fault cuMemAlloc_v2=2@after=1
//! ```
//!
//! Without the variable there is no GPU. A word that is not understood ends the process, because a test that misspells
//! something must not pass.

mod counters;
mod script;

pub use counters::{LINKS_MAX, Way, carried, pcie, tell};
pub use script::{Fault, Gpu, Script, Wire};

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

/// Names the folder.
pub const VARIABLE: &str = "KVWIRE_FAKE_GPUS";

/// The folder of this test; `None` when there are no fake GPUs.
pub fn folder() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).map(PathBuf::from)
}

/// What the test describes. Read once.
pub fn script() -> &'static Script {
    static SCRIPT: OnceLock<Script> = OnceLock::new();
    SCRIPT.get_or_init(|| {
        let Some(folder) = folder() else { return Script::default() };
        let path = folder.join("gpus");
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|e| refuse(&format!("{}: {e}", path.display())));
        Script::parse(&text).unwrap_or_else(|error| refuse(&error))
    })
}

/// The code with which this call is to fail, if it is. Counts the call.
pub fn fault(call: &str) -> Option<i32> {
    let fault = script().faults.iter().find(|fault| fault.call == call)?;
    let before = fault.calls.fetch_add(1, Ordering::Relaxed);
    (before >= fault.after).then_some(fault.code)
}

fn refuse(error: &str) -> ! {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "fake GPUs: {error}");
    std::process::abort()
}
