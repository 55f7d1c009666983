//! Where cargo puts the shared objects that tests load.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops where something fails"
)]

use std::path::PathBuf;

/// A shared object built as a dependency of this test: cargo puts it beside the test's own program.
pub(crate) fn built(name: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let path = program.parent().unwrap().join(name);
    assert!(path.is_file(), "{} was not built", path.display());
    path
}
