//! The log of a UCX that is not there.

use std::sync::Once;

/// Prints the test's log, before the first transfer.
pub(crate) fn print_once() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        use std::io::Write as _;
        let Some(path) = std::env::var_os("KVWIRE_FAKE_UCX_LOG") else { return };
        match std::fs::read(&path) {
            Ok(text) => _ = std::io::stderr().write_all(&text),
            Err(error) => crate::say(&format!("{}: {error}", path.display())),
        }
    });
}
