//! What one node says about itself: who it is, and which wire its devices could be.
//!
//! Reading and judging are apart. [`Evidence`] is read here, by a shell in a pod, or from a file; [`judge`] sees nothing
//! else, so that one node gives one set of findings however it was read.

mod capture;
mod device;
mod ethtool;
mod evidence;
pub mod expectation;
mod gather;
mod gpu;
mod identity;
mod judge;
mod mask;
mod near;
mod nvml;
mod pages;
mod pci;
mod report;
mod shell;
mod verbs;
mod wanted;

pub use capture::{CAPTURE_MAX, CaptureError};
pub use evidence::{Access, Entry, Evidence};
pub use identity::{Fabric, Namespaces, NixlIdentity, Node};
pub use judge::judge;
pub use near::{Near, near};
pub use pages::{PAGES, Page, Who, page};
pub use report::{Fact, FactPair, NodeReport};
pub use shell::script;

/// Reads this machine. Nothing here fails: what cannot be read is noted as such. `version` is kvwire's.
pub fn gather(version: &str) -> Evidence {
    let mut evidence = gather::machine(version);
    verbs::probe(&mut evidence);
    ethtool::probe(&mut evidence);
    nvml::probe(&mut evidence);
    evidence
}

/// Reads the files of this machine, without asking any library.
pub fn gather_machine() -> Evidence {
    gather::tree(std::path::Path::new("/"), "kvwire")
}

/// Reads a machine whose root directory is `root`, files alone.
pub fn gather_tree(root: &std::path::Path, gathered_by: &str) -> Evidence {
    gather::tree(root, gathered_by)
}
