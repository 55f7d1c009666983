//! How a process that uses NIXL leaves.

use std::io::Write;

/// Ends the process at once: buffered output is written, Rust's and C's, and no destructor runs, neither Rust's nor a library's.
///
/// Some installations crash in the exit handlers of UCX or CUDA after a good run; this keeps their crash from
/// replacing the exit code.
pub fn exit_without_destructors(code: i32) -> ! {
    // Ignored: nobody is left to be told.
    let _ = std::io::stdout().flush();
    let _ = std::io::stderr().flush();
    // What C libraries still hold back is often the line that explains the end.
    // SAFETY: a null stream means all of them; it is safe at any time.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    // SAFETY: `_exit` takes any code, touches no memory of ours and does not return.
    unsafe { libc::_exit(code) }
}
