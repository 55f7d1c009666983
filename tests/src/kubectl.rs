//! A kubectl that writes down how it was called and then does as the test says.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// A folder with a program `kubectl`, to be put on PATH.
#[derive(Debug)]
pub struct Kubectl {
    folder: tempfile::TempDir,
}

/// Lines of the stub before its behaviour: each argument goes to the record on a line of its own, newlines shown as `\n`.
const RECORD: &str = r#"#!/bin/sh
{ echo "call"; for a in "$@"; do printf '%s' "$a" | tr '\n' '~'; echo; done; } >> "${0%/*}/record"
"#;

/// Behaviour of a pod: runs what comes after `--` on this machine, without the stub's folder on PATH.
pub const RUNS_HERE: &str = r#"while [ "$1" != -- ]; do shift; done; shift
PATH=/usr/bin:/bin exec "$@""#;

impl Kubectl {
    /// A stub that does `behaviour`, which is shell.
    ///
    /// # Panics
    /// The file cannot be written.
    pub fn new(behaviour: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("kubectl");
        fs::write(&path, format!("{RECORD}{behaviour}\n")).expect("a stub");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("an executable stub");
        Self { folder }
    }

    /// A value for PATH in which the stub comes first.
    pub fn path(&self) -> String {
        format!("{}:/usr/bin:/bin", self.folder.path().display())
    }

    /// Another file beside the stub.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// How it was called, one list of arguments a call.
    pub fn calls(&self) -> Vec<Vec<String>> {
        let record = fs::read_to_string(self.file("record")).unwrap_or_default();
        let calls = record.split("call\n").skip(1);
        calls.map(|call| call.lines().map(str::to_owned).collect()).collect()
    }
}
