//! What happens to a file that was found.

mod common;

use std::fs;

use common::built;
use nixl_sys::{Library, LoadError, OLDEST_SUPPORTED, Origin, SearchOptions};

#[test]
fn a_library_without_a_required_function_is_refused_by_its_name() {
    let path = built("libfake_nixl_partial.so");
    let error = Library::open(&path).unwrap_err();
    let text = error.to_string();
    match error {
        LoadError::MissingSymbol { path: named, symbol, since } => {
            assert_eq!((named, symbol, since), (path, "nixl_capi_get_local_md", OLDEST_SUPPORTED));
        }
        other => panic!("{other}"),
    }
    assert!(text.contains("nixl_capi_get_local_md") && text.contains("0.10.1"), "{text}");
}

#[test]
fn a_file_that_is_no_library_is_refused_in_the_loaders_words() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libnixl_capi.so");
    fs::write(&path, "not a library").unwrap();
    let Err(LoadError::NotALibrary { path: named, dlerror }) = Library::open(&path) else {
        panic!("a text file was accepted");
    };
    assert_eq!(named, path);
    assert!(
        dlerror.contains("libnixl_capi.so: file too short") || dlerror.contains("invalid ELF"),
        "{dlerror}"
    );
}

#[test]
fn a_loaded_library_says_where_it_came_from() {
    let mut options = SearchOptions::default();
    options.explicit = Some(built("libfake_nixl_capi.so"));
    let loaded = nixl_sys::open(&options).unwrap();
    assert_eq!(loaded.origin, Origin::Explicit);
    assert_eq!(loaded.path, built("libfake_nixl_capi.so"));
    assert_eq!(loaded.library.path(), loaded.path);
    assert_eq!(loaded.realpath, fs::canonicalize(&loaded.path).unwrap());
    assert_eq!(loaded.version, None);
    assert_eq!(loaded.searched.len(), 1);
    assert!(loaded.library.get_xfer_telemetry.is_some(), "an optional function was not found");
}
