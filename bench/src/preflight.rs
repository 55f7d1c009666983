//! What can be found wrong before anything is started: each is a usage error that names the flag.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use nixl_sys::SearchOptions;

use crate::report::json;

/// A function that every NIXL C API has; its name stands in the file's symbol table.
const MARK: &[u8] = b"nixl_capi_create_configured_agent";
/// Larger than any NIXL C API so far (0.3 MB) by far.
const LIBRARY_BYTES_MAX: u64 = 64 << 20;

/// Looks at the file that `flag` names, without loading it. Without the flag there is nothing to check.
///
/// # Errors
/// A sentence with the flag and the fix.
pub(crate) fn nixl_lib(flag: &str, path: Option<&PathBuf>) -> Result<(), String> {
    let Some(path) = path else { return Ok(()) };
    let fix = "fix: give libnixl_capi.so, or a folder that contains it; `kvwire info` without the flag shows what can be found";
    let candidates = SearchOptions::from_process(Some(path.clone())).candidates();
    let Some(found) = candidates.iter().find(|c| c.exists) else {
        return Err(format!("{flag}: no NIXL library at {}\n  {fix}", path.display()));
    };
    looks_like_nixl(&found.path).map_err(|why| format!("{flag}: {} {why}\n  {fix}", found.path.display()))
}

fn looks_like_nixl(path: &Path) -> Result<(), String> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|e| format!("cannot be read: {e}"))?;
    file.take(LIBRARY_BYTES_MAX).read_to_end(&mut bytes).map_err(|e| format!("cannot be read: {e}"))?;
    if !bytes.starts_with(b"\x7fELF") {
        return Err("is not a shared library".to_owned());
    }
    if !bytes.windows(MARK.len()).any(|window| window == MARK) {
        return Err("is a library, but not NIXL's C API".to_owned());
    }
    Ok(())
}

/// Makes sure that the result can be written where `--output` says.
///
/// # Errors
/// A sentence with the flag and the reason.
pub(crate) fn output(path: Option<&PathBuf>) -> Result<(), String> {
    let Some(path) = path else { return Ok(()) };
    json::check_writable(path)
        .map_err(|e| format!("--output: {e}\n  fix: choose a file in a folder that you may write to"))
}

/// What is taken where the system does not say.
const LAST_LEVEL_CACHE_DEFAULT: u64 = 32 << 20;

/// The largest cache of the first CPU in bytes, as sysfs gives it.
pub(crate) fn last_level_cache_bytes() -> u64 {
    let sizes = (0..8).filter_map(|index| {
        std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size")).ok()
    });
    sizes.filter_map(|text| cache_size(&text)).max().unwrap_or(LAST_LEVEL_CACHE_DEFAULT)
}

/// `32768K` in bytes.
fn cache_size(text: &str) -> Option<u64> {
    let kib = text.trim().strip_suffix('K')?.parse::<u64>().ok()?;
    kib.checked_mul(1 << 10)
}
