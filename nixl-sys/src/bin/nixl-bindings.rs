//! Regenerates `src/bindings.rs` from `include/nixl_capi.h` (`make bindings`). Needs libclang.

use std::process::ExitCode;

fn main() -> ExitCode {
    match nixl_sys::generate::bindings()
        .and_then(|text| Ok(std::fs::write(nixl_sys::generate::BINDINGS_PATH, text)?))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The message is the tool's whole output.
            #[expect(clippy::print_stderr, reason = "a command line tool for maintainers")]
            {
                eprintln!("cannot generate the NIXL bindings: {error}");
            }
            ExitCode::FAILURE
        }
    }
}
