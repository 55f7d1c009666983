//! Which shared objects are mapped in this process, from `/proc/self/maps`.
//!
//! It answers two questions that NIXL has no call for: is another NIXL already here, and which UCX did this one bind.

use std::ffi::{CStr, c_char};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library as OsLibrary, RTLD_LOCAL, RTLD_NOW};

/// UCX as it is mapped in this process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UcxLibraries {
    /// Paths of `libucp`, `libuct` (with its transport modules) and `libucs`, in the order of their addresses.
    pub paths: Vec<PathBuf>,
    /// Paths of NIXL's own libraries (`libnixl*`).
    pub nixl: Vec<PathBuf>,
    /// What `ucp_get_version_string` of the mapped `libucp` says, for example `1.20.0`. `None` while UCX is not
    /// mapped: NIXL loads its UCX plugin when the backend is created.
    pub version: Option<String>,
}

/// UCX and NIXL as they are mapped now.
///
/// Ask after a UCX backend was created: before that, UCX is not loaded.
///
/// # Errors
/// When `/proc/self/maps` cannot be read.
pub fn ucx_libraries() -> io::Result<UcxLibraries> {
    let mapped = mapped_files()?;
    let pick = |prefixes: &[&str]| {
        mapped
            .iter()
            .filter(|path| file_name(path).is_some_and(|name| prefixes.iter().any(|p| name.starts_with(p))))
            .cloned()
            .collect::<Vec<_>>()
    };
    Ok(UcxLibraries {
        paths: pick(&["libucp", "libuct", "libucs"]),
        nixl: pick(&["libnixl"]),
        version: pick(&["libucp"]).iter().find_map(|path| ucp_version(path)),
    })
}

/// Every file that is mapped into this process, each once, in the order of addresses.
///
/// # Errors
/// When `/proc/self/maps` cannot be read.
pub fn mapped_files() -> io::Result<Vec<PathBuf>> {
    Ok(parse(&fs::read_to_string("/proc/self/maps")?))
}

/// The first mapped NIXL library that does not stand in the same folder as `wanted`.
pub(crate) fn other_nixl(wanted: &Path, mapped: &[PathBuf]) -> Option<PathBuf> {
    let folder = |path: &Path| {
        let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        real.parent().map(Path::to_path_buf)
    };
    let ours = folder(wanted);
    mapped.iter().find(|path| is_nixl_core(path) && folder(path) != ours).cloned()
}

/// Whether a file is `libnixl.so` or `libnixl_capi.so`, with or without a version or a wheel's hash in its name.
fn is_nixl_core(path: &Path) -> bool {
    file_name(path).is_some_and(|name| {
        name.strip_prefix("libnixl").is_some_and(|rest| {
            let rest = rest.strip_prefix("_capi").unwrap_or(rest);
            rest.starts_with('.') || rest.starts_with('-')
        })
    })
}

/// Asks an already mapped `libucp` for its version, without loading anything.
fn ucp_version(path: &Path) -> Option<String> {
    // SAFETY: with RTLD_NOLOAD no library is loaded, so no initialiser runs; the handle only counts a reference.
    let library = unsafe { OsLibrary::open(Some(path), RTLD_NOW | RTLD_LOCAL | libc::RTLD_NOLOAD) }.ok()?;
    // SAFETY: ucp_get_version_string takes nothing and returns a static C string, in all of UCX 1.x.
    let version = unsafe {
        let get = library.get::<unsafe extern "C" fn() -> *const c_char>(b"ucp_get_version_string\0").ok()?;
        let text = get();
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    // UCX is never unloaded, not even by one reference: its threads may be running.
    std::mem::forget(library);
    version
}

fn parse(maps: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    for line in maps.lines() {
        // address perms offset dev inode path; the path may contain spaces and is absolute for a file.
        let Some(at) = line.find('/') else { continue };
        let path = Path::new(line[at..].trim_end_matches(" (deleted)"));
        if !files.iter().any(|known| known == path) {
            files.push(path.to_path_buf());
        }
    }
    files
}

fn file_name(path: &Path) -> Option<&str> {
    path.file_name().and_then(|name| name.to_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
7f00-7f10 r--p 00000000 fe:00 12  /opt/a b/libucp-1f2e.so.0.0.0
7f10-7f20 r-xp 00001000 fe:00 12  /opt/a b/libucp-1f2e.so.0.0.0
7f20-7f30 rw-p 00000000 00:00 0
7f30-7f40 r-xp 00000000 fe:00 13  /opt/n/libnixl_capi.so (deleted)
7f40-7f50 rw-p 00000000 00:00 0   [heap]
";

    #[test]
    fn files_are_listed_once_with_spaces_and_without_the_deleted_mark() {
        assert_eq!(
            parse(MAPS),
            [PathBuf::from("/opt/a b/libucp-1f2e.so.0.0.0"), PathBuf::from("/opt/n/libnixl_capi.so")]
        );
    }

    #[test]
    fn a_nixl_in_another_folder_is_another_nixl() {
        let mapped = parse(MAPS);
        assert_eq!(
            other_nixl(Path::new("/opt/m/libnixl_capi.so"), &mapped),
            Some(PathBuf::from("/opt/n/libnixl_capi.so"))
        );
        assert_eq!(other_nixl(Path::new("/opt/n/libnixl.so"), &mapped), None);
    }

    #[test]
    fn only_the_core_libraries_count_as_nixl() {
        for name in ["libnixl.so", "libnixl_capi.so.0", "libnixl-12ab.so.1", "libnixl_capi-12.so"] {
            assert!(is_nixl_core(Path::new(name)), "{name}");
        }
        for name in ["libnixl_common.so", "libnixl_build.so", "libfake_nixl_capi.so", "libucp.so"] {
            assert!(!is_nixl_core(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn this_process_is_readable_and_has_no_ucx() {
        let found = ucx_libraries().unwrap();
        assert_eq!(found.version, None);
        assert!(found.paths.is_empty());
        assert!(!mapped_files().unwrap().is_empty());
    }
}
