//! Versions that stand in file names and package metadata, since NIXL itself cannot be asked.

use std::cmp::Reverse;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

/// A METADATA file starts with its headers; more than this is not read.
const METADATA_LIMIT_BYTES: u64 = 64 * 1024;

/// Sorts folders by the numbers in their names, the highest first: `1.10.0` before `1.9.2`.
pub(crate) fn newest_first(mut folders: Vec<PathBuf>) -> Vec<PathBuf> {
    folders.sort_by_cached_key(|folder| {
        Reverse(folder.file_name().and_then(|name| name.to_str()).map(numbers).unwrap_or_default())
    });
    folders
}

fn numbers(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

/// The version of the wheel that a library came with.
///
/// A wheel's libraries stand in `.<package>.mesonpy.libs`, and its version in `<package>-<version>.dist-info/METADATA`
/// beside that folder. `None` for a library that came by another way.
pub(crate) fn wheel_version(library: &Path) -> Option<String> {
    let folder = library.parent()?;
    let package = folder.file_name()?.to_str()?.strip_prefix('.')?.strip_suffix(".mesonpy.libs")?;
    let information = fs::read_dir(folder.parent()?).ok()?.flatten().find_map(|entry| {
        let name = entry.file_name();
        let rest = name.to_str()?.strip_prefix(package)?.strip_prefix('-')?;
        rest.ends_with(".dist-info").then(|| entry.path())
    })?;
    let metadata = BufReader::new(File::open(information.join("METADATA")).ok()?.take(METADATA_LIMIT_BYTES));
    metadata
        .lines()
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .find_map(|line| line.strip_prefix("Version:").map(|version| version.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_sort_by_number() {
        let folders = ["/n/1.9.2", "/n/0.10.1", "/n/1.10.0", "/n/readme"].map(PathBuf::from).to_vec();
        assert_eq!(
            newest_first(folders),
            ["/n/1.10.0", "/n/1.9.2", "/n/0.10.1", "/n/readme"].map(PathBuf::from)
        );
    }

    #[test]
    fn the_version_is_read_from_the_headers_of_the_right_package() {
        let site = tempfile::tempdir().unwrap();
        let folder = site.path().join(".nixl_cu12.mesonpy.libs");
        fs::create_dir(&folder).unwrap();
        for (package, version) in [("nixl_cu13", "9.9"), ("nixl_cu12", "1.5.1")] {
            let information = site.path().join(format!("{package}-{version}.dist-info"));
            fs::create_dir(&information).unwrap();
            let text = format!("Metadata-Version: 2.4\nName: x\nVersion: {version}\n\nVersion: 0\n");
            fs::write(information.join("METADATA"), text).unwrap();
        }
        assert_eq!(wheel_version(&folder.join("libnixl_capi.so")).as_deref(), Some("1.5.1"));
        assert_eq!(wheel_version(&site.path().join("libnixl_capi.so")), None);
    }
}
