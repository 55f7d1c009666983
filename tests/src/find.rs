//! Where the binary under test and the NIXL libraries are.

use std::env;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The kvwire binary of the same build as this test.
///
/// # Panics
/// It has not been built.
pub fn kvwire() -> PathBuf {
    built("kvwire")
}

/// The fake NIXL, which moves real bytes and fails as scripted.
pub fn fake() -> PathBuf {
    built("libfake_nixl_capi.so")
}

/// The fake CUDA driver.
pub fn fake_cuda() -> PathBuf {
    built("libfake_cuda.so")
}

/// The fake NVML.
pub fn fake_nvml() -> PathBuf {
    built("libfake_nvml.so")
}

/// A library with only a few of NIXL's functions.
pub fn partial_fake() -> PathBuf {
    built("libfake_nixl_partial.so")
}

fn built(name: &str) -> PathBuf {
    // Test programs lie in <target>/<profile>/deps.
    let test = env::current_exe().expect("the path of this test");
    let path = test.ancestors().nth(2).expect("a target folder").join(name);
    assert!(path.is_file(), "{} is missing; `make test` builds it (cargo build --workspace)", path.display());
    path
}

/// Which NIXL a test runs with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nixl {
    /// The newest that kvwire supports.
    Newest,
    /// The oldest that kvwire supports.
    Oldest,
    /// The fake.
    Fake,
    /// Any library.
    At(PathBuf),
}

impl Nixl {
    /// The library's path.
    ///
    /// # Panics
    /// The environment does not name it.
    pub fn library(&self) -> PathBuf {
        let variable = |name: &str| {
            PathBuf::from(env::var_os(name).unwrap_or_else(|| panic!("{name} is not set; run `make test`")))
        };
        match self {
            Self::Newest => variable("KVWIRE_NIXL_LIB"),
            Self::Oldest => variable("KVWIRE_NIXL_LIB_OLDEST"),
            Self::Fake => fake(),
            Self::At(path) => path.clone(),
        }
    }

    /// Every real NIXL that this test run covers: the newest and the oldest, or all that are named.
    pub fn covered() -> Vec<Self> {
        match env::var_os("KVWIRE_NIXL_LIBS") {
            Some(list) => env::split_paths(&list).map(Self::At).collect(),
            None => vec![Self::Newest, Self::Oldest],
        }
    }
}
