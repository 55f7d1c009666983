//! Two NIXLs in one process. Alone in its file, because what is loaded stays loaded.

mod common;

use std::fs;
use std::path::PathBuf;

use common::built;
use nixl_sys::{Library, LoadError, SearchOptions};

#[test]
fn a_second_nixl_is_refused_and_the_same_one_is_not() {
    let site = tempfile::tempdir().unwrap();
    let install = |folder: &str| -> PathBuf {
        let path = site.path().join(folder).join("libnixl_capi.so");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(built("libfake_nixl_capi.so"), &path).unwrap();
        path
    };
    let information = site.path().join("nixl_cu12-1.2.3.dist-info");
    fs::create_dir_all(&information).unwrap();
    fs::write(information.join("METADATA"), "Name: nixl-cu12\nVersion: 1.2.3\n").unwrap();
    let first = install(".nixl_cu12.mesonpy.libs");
    let second = install("other");

    let mut options = SearchOptions::default();
    options.explicit = Some(site.path().to_path_buf());
    let loaded = nixl_sys::open(&options).unwrap();
    assert_eq!(loaded.version.as_deref(), Some("1.2.3"));

    match Library::open(&second) {
        Err(LoadError::SecondCopy { loaded, wanted }) => {
            assert_eq!(
                (fs::canonicalize(loaded).unwrap(), wanted),
                (fs::canonicalize(&first).unwrap(), second)
            );
        }
        other => panic!("{other:?}"),
    }
    Library::open(&first).unwrap();
    let mapped = nixl_sys::maps::ucx_libraries().unwrap();
    assert_eq!(mapped.nixl, [fs::canonicalize(&first).unwrap()]);
}
