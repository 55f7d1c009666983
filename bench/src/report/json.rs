//! Writing the result so that the file is always a whole one: the last case's, or the one before it.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process;

use thiserror::Error;

use super::model::ResultFile;

/// Why a result cannot be written. The message ends with what the operating system said.
#[derive(Debug, Error)]
pub(crate) enum WriteError {
    /// The path names a directory.
    #[error("cannot write the result to {path}: it is a directory; add a file name")]
    IsADirectory { path: PathBuf },
    /// The directory of the file is missing or closed to us.
    #[error("cannot write the result into {directory}: {source}")]
    Directory { directory: PathBuf, source: io::Error },
    /// Writing failed, as on a full disk. A previous result at `path` is still whole.
    #[error("cannot write the result to {path}: {source}")]
    Write { path: PathBuf, source: io::Error },
    /// The result holds something that JSON cannot say.
    #[error("cannot write the result to {path} as JSON: {source}")]
    Json { path: PathBuf, source: serde_json::Error },
}

/// Finds out, before anything is measured, whether a result can be written to `path`. Leaves nothing behind.
///
/// # Errors
/// [`WriteError`], as [`write`] would give it.
pub(crate) fn check_writable(path: &Path) -> Result<(), WriteError> {
    match Destination::of(path)? {
        Destination::Stream(_) => Ok(()),
        Destination::File(file) => {
            let (temporary, _) = create_beside(&file)?;
            fs::remove_file(&temporary).map_err(|source| WriteError::Write { path: path.to_owned(), source })
        }
    }
}

/// Writes `result` to `path` in one step: readers see the old file or the new one, never a part.
///
/// A path that is no regular file, such as `/dev/stdout` or a pipe, is written to as it is.
///
/// # Errors
/// [`WriteError`]; whatever was at `path` before is then unchanged.
pub(crate) fn write(path: &Path, result: &ResultFile) -> Result<(), WriteError> {
    let mut text = serde_json::to_vec_pretty(result)
        .map_err(|source| WriteError::Json { path: path.to_owned(), source })?;
    text.push(b'\n');
    replace(path, |sink| sink.write_all(&text))
}

/// Writes a rendering to `path` in one step, as [`write`] does with a result.
///
/// # Errors
/// [`WriteError`]; whatever was at `path` before is then unchanged.
pub(crate) fn write_text(path: &Path, text: &str) -> Result<(), WriteError> {
    replace(path, |sink| sink.write_all(text.as_bytes()))
}

/// Where a path leads.
enum Destination {
    /// A regular file, or one to be created, with links followed so that the link stays one.
    File(PathBuf),
    /// A device or pipe, open. Renaming over it would replace it for everybody.
    Stream(File),
}

impl Destination {
    fn of(path: &Path) -> Result<Self, WriteError> {
        let Ok(found) = fs::metadata(path) else {
            return Ok(Self::File(path.to_owned()));
        };
        if found.is_dir() {
            return Err(WriteError::IsADirectory { path: path.to_owned() });
        }
        let failed = |source| WriteError::Write { path: path.to_owned(), source };
        if found.is_file() {
            return fs::canonicalize(path).map(Self::File).map_err(failed);
        }
        OpenOptions::new().write(true).open(path).map(Self::Stream).map_err(failed)
    }
}

/// Puts what `fill` writes at `path`, whole or not at all.
fn replace(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), WriteError> {
    let failed = |source| WriteError::Write { path: path.to_owned(), source };
    match Destination::of(path)? {
        Destination::Stream(mut stream) => fill(&mut stream).map_err(failed),
        Destination::File(file) => {
            let (temporary, open) = create_beside(&file)?;
            let done = fill_and_sync(open, fill).and_then(|()| fs::rename(&temporary, &file));
            if done.is_err() {
                // The first error is the one that matters; a leftover is all that can go wrong here.
                let _ = fs::remove_file(&temporary);
            }
            done.map_err(failed)?;
            sync_directory(&file);
            Ok(())
        }
    }
}

fn fill_and_sync(file: File, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut buffered = BufWriter::new(file);
    fill(&mut buffered)?;
    buffered.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// A new, empty file in the directory of `path`: only there a rename is one step.
fn create_beside(path: &Path) -> Result<(PathBuf, File), WriteError> {
    let directory = directory_of(path);
    let Some(name) = path.file_name() else {
        return Err(WriteError::IsADirectory { path: path.to_owned() });
    };
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.tmp", process::id()));
    let temporary = directory.join(hidden);
    // A leftover of a dead process with the same id would otherwise block this one for good.
    let _ = fs::remove_file(&temporary);
    match OpenOptions::new().write(true).create_new(true).open(&temporary) {
        Ok(file) => Ok((temporary, file)),
        Err(source) => Err(WriteError::Directory { directory, source }),
    }
}

fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Makes the rename itself survive a power cut. Some file systems refuse this; the file is whole either way.
fn sync_directory(path: &Path) {
    if let Ok(directory) = File::open(directory_of(path)) {
        let _ = directory.sync_all();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::model::example;
    use super::super::read::read;
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entry = |e: io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
        fs::read_dir(directory).unwrap().map(entry).collect()
    }

    #[test]
    fn a_written_result_reads_back_and_leaves_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("result.json");
        let result = example::passed();
        write(&path, &result).unwrap();
        write(&path, &result).unwrap();
        let back = read(&path).unwrap();
        assert_eq!(serde_json::to_value(back).unwrap(), serde_json::to_value(&result).unwrap());
        assert_eq!(names(directory.path()), ["result.json"]);
    }

    #[test]
    fn a_full_disk_keeps_the_previous_result() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("result.json");
        fs::write(&path, "whole").unwrap();
        let error = replace(&path, |sink| {
            sink.write_all(b"half")?;
            Err(io::Error::from_raw_os_error(28))
        })
        .unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
        assert_eq!(names(directory.path()), ["result.json"]);
        let text = error.to_string();
        assert!(text.contains("result.json") && text.contains("No space left"), "{text}");
    }

    #[test]
    fn a_full_device_is_an_error_with_its_path() {
        let text = write(Path::new("/dev/full"), &example::passed()).unwrap_err().to_string();
        assert!(text.contains("/dev/full") && text.contains("No space left"), "{text}");
        write(Path::new("/dev/null"), &example::passed()).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn whether_it_can_be_written_is_known_before() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        check_writable(&at("new.json")).unwrap();
        assert!(names(directory.path()).is_empty());

        let missing = check_writable(&at("no/such/new.json")).unwrap_err().to_string();
        assert!(missing.contains("no/such") && missing.contains("No such file"), "{missing}");
        let is_directory = check_writable(directory.path()).unwrap_err();
        assert!(matches!(is_directory, WriteError::IsADirectory { .. }), "{is_directory}");

        fs::write(at("old.json"), "whole").unwrap();
        check_writable(&at("old.json")).unwrap();
        assert_eq!(fs::read_to_string(at("old.json")).unwrap(), "whole");
        assert_eq!(names(directory.path()), ["old.json"]);
    }

    #[test]
    fn a_link_stays_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let (link, file) = (directory.path().join("latest.json"), directory.path().join("run.json"));
        fs::write(&file, "old").unwrap();
        symlink(&file, &link).unwrap();
        write(&link, &example::passed()).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(read(&file).is_ok());
    }
}
