//! Small files and folders in which the kernel says what a node has. What is missing or unreadable is nothing.

use std::fs;
use std::io::Read;
use std::path::Path;

/// Names in a folder that are looked at, at most.
pub(super) const NAMES_MAX: usize = 512;
/// Bytes of a file that are read: each says one thing.
const FILE_MAX: u64 = 256;

/// Names in a folder, sorted.
pub(super) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).take(NAMES_MAX).collect();
    names.sort();
    names
}

/// The first line of a file, when it holds something.
pub(super) fn line(path: &Path) -> Option<String> {
    let mut text = String::new();
    // Some files answer with an error where there is nothing to say: `speed` of an interface without a link.
    fs::File::open(path).ok()?.take(FILE_MAX).read_to_string(&mut text).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// The number in a file; `None` also where it is no number (`N/A (no PMA)`).
pub(super) fn number(path: &Path) -> Option<u64> {
    line(path)?.parse().ok()
}

/// Writes a file of a tree that stands for `/sys` or `/proc`, with the folders that it lies in.
#[cfg(test)]
pub(super) fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}
