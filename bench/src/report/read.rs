//! Reading a stored result, and saying what a file is that is none.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::model::{ResultFile, SCHEMA};

/// Largest file that is read: far above any real result, far below what would exhaust memory.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Why a file is not a result that this kvwire can use.
#[derive(Debug, Error)]
pub(crate) enum ReadError {
    /// The file cannot be opened or read.
    #[error("cannot read {path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    /// Too large to be a result.
    #[error("{path} is larger than {limit} MiB and so is no kvwire result", limit = MAX_FILE_BYTES >> 20)]
    TooLarge { path: PathBuf },
    /// The text ends in the middle.
    #[error("{path} ends in the middle: it is empty or was cut off; copy it again, or run again")]
    Truncated { path: PathBuf },
    /// Not JSON at all.
    #[error("{path} is not JSON: {detail}")]
    NotJson { path: PathBuf, detail: String },
    /// JSON of something else.
    #[error("{path} is JSON, but no kvwire result: its `schema` is {found}, not `{SCHEMA}`")]
    NotAResult { path: PathBuf, found: String },
    /// A result of a format that this kvwire does not know.
    #[error(
        "{path} has the format `{found}`, and this kvwire reads `{SCHEMA}`; use the kvwire that wrote it"
    )]
    OtherMajor { path: PathBuf, found: String },
    /// The right format, but a field is missing or has a wrong type.
    #[error("{path} is a kvwire result with a damaged field: {detail}")]
    Damaged { path: PathBuf, detail: String },
}

/// A result and the file that it was read from.
#[derive(Debug)]
pub(crate) struct Stored {
    /// Where it was read from.
    pub(crate) path: PathBuf,
    /// What was in it.
    pub(crate) result: ResultFile,
}

impl Stored {
    /// Reads result files.
    ///
    /// # Errors
    /// The first that is none, with the path and what to do.
    pub(crate) fn read_all(paths: &[PathBuf]) -> Result<Vec<Self>, ReadError> {
        let one = |path: &PathBuf| Ok(Self { path: path.clone(), result: read(path)? });
        paths.iter().map(one).collect()
    }
}

/// Reads a result file.
///
/// Fields that a newer minor version added are ignored.
///
/// # Errors
/// [`ReadError`], each kind with the path and what to do.
pub(crate) fn read(path: &Path) -> Result<ResultFile, ReadError> {
    parse(path, &read_limited(path)?)
}

fn read_limited(path: &Path) -> Result<Vec<u8>, ReadError> {
    let io = |source| ReadError::Io { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(io)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(ReadError::TooLarge { path: path.to_owned() });
    }
    Ok(bytes)
}

pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<ResultFile, ReadError> {
    let path = path.to_owned();
    let value: serde_json::Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(error) if error.is_eof() => return Err(ReadError::Truncated { path }),
        Err(error) => {
            let detail = error.to_string();
            return Err(ReadError::NotJson { path, detail });
        }
    };
    match value.get("schema").and_then(serde_json::Value::as_str) {
        Some(SCHEMA) => {}
        Some(found) if found.starts_with("kvwire.result/") => {
            let found = found.to_owned();
            return Err(ReadError::OtherMajor { path, found });
        }
        Some(found) => {
            let found = format!("`{found}`");
            return Err(ReadError::NotAResult { path, found });
        }
        None => {
            let found = "missing".to_owned();
            return Err(ReadError::NotAResult { path, found });
        }
    }
    serde_json::from_value(value).map_err(|error| ReadError::Damaged { path, detail: error.to_string() })
}
