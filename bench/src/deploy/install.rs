//! `kvwire install`: puts this program into a folder, so that it can run in an image that does not have it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::cli::InstallArgs;
use crate::exit::Exit;
use crate::terminal::Terminal;

/// Runs `kvwire install`.
pub(crate) fn install(args: &InstallArgs) -> Exit {
    match copy(&args.folder) {
        Ok(()) => Exit::Trusted,
        Err(message) => {
            Terminal::new(&args.output).error(&message);
            Exit::Usage
        }
    }
}

fn copy(folder: &Path) -> Result<(), String> {
    let refused = |e: std::io::Error| {
        format!(
            "{} cannot be written: {e}\n  fix: name a folder that this user may write to",
            folder.display()
        )
    };
    let program = std::env::current_exe().map_err(|e| format!("this program is not found: {e}"))?;
    fs::create_dir_all(folder).map_err(refused)?;
    let to = folder.join("kvwire");
    fs::copy(&program, &to).map_err(refused)?;
    // Whoever the other container runs as.
    fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).map_err(refused)
}
