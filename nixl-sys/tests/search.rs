//! The order in which places are searched, over trees made for the purpose.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops where something fails"
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nixl_sys::{LoadError, Origin, SearchOptions};
use tempfile::TempDir;

const LIBRARY: &str = "libnixl_capi.so";

/// A machine: a root, a home and a project folder in one temporary tree.
struct Machine {
    tree: TempDir,
}

impl Machine {
    fn new() -> Self {
        Self { tree: tempfile::tempdir().unwrap() }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.tree.path().join(path)
    }

    fn file(&self, path: &str) -> PathBuf {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        path
    }

    fn wheel(&self, site: &str, cuda: &str) -> PathBuf {
        self.file(&format!("{site}/.nixl_{cuda}.mesonpy.libs/{LIBRARY}"))
    }

    fn options(&self) -> SearchOptions {
        let mut options = SearchOptions::default();
        options.root = self.at("root");
        options.home = Some(self.at("home"));
        options.virtual_env = Some(self.at("venv"));
        options.current_dir = Some(self.at("project"));
        options.path = vec![self.at("bin")];
        options
    }
}

fn existing(options: &SearchOptions) -> Vec<(Origin, PathBuf)> {
    let found = options.candidates().into_iter().filter(|candidate| candidate.exists);
    found.map(|candidate| (candidate.origin, candidate.path)).collect()
}

#[test]
fn the_project_then_wheels_then_system_installations() {
    let machine = Machine::new();
    let setup_old = machine.wheel("project/.nixl/0.10.1", "cu12");
    let setup_new = machine.wheel("project/.nixl/1.5.1", "cu12");
    let venv = machine.wheel("venv/lib/python3.12/site-packages", "cu12");
    let user = machine.wheel("home/.local/lib/python3.11/site-packages", "cu12");
    let path = machine.wheel("conda/lib/python3.10/site-packages", "cu12");
    machine.file("conda/bin/python3.10");
    fs::create_dir_all(machine.at("bin")).unwrap();
    symlink(machine.at("conda/bin/python3.10"), machine.at("bin/python3")).unwrap();
    let local = machine.wheel("root/usr/local/lib/python3.11/dist-packages", "cu12");
    let system = machine.wheel("root/usr/lib/python3/dist-packages", "cu12");
    let nvidia = machine.file("root/opt/nvidia/nvda_nixl/lib/x86_64-linux-gnu/libnixl_capi.so");
    let source = machine.file("root/usr/local/nixl/lib64/libnixl_capi.so.0");

    assert_eq!(
        existing(&machine.options()),
        [
            (Origin::Setup, setup_new),
            (Origin::Setup, setup_old),
            (Origin::VirtualEnv, venv),
            (Origin::UserSite, user),
            (Origin::PathPython, path),
            (Origin::SystemSite, local),
            (Origin::SystemSite, system),
            (Origin::Prefix, nvidia),
            (Origin::Prefix, source),
        ]
    );
}

#[test]
fn cuda_12_comes_before_13_before_any_other_wheel() {
    let machine = Machine::new();
    let site = "venv/lib/python3.12/site-packages";
    let other = machine.wheel(site, "cu11");
    let cu13 = machine.wheel(site, "cu13");
    let cu12 = machine.wheel(site, "cu12");
    let paths: Vec<PathBuf> = existing(&machine.options()).into_iter().map(|(_, path)| path).collect();
    assert_eq!(paths, [cu12, cu13, other]);
}

#[test]
fn a_setup_folder_above_the_program_is_found() {
    let machine = Machine::new();
    let library = machine.wheel("checkout/.nixl/1.5.1", "cu12");
    let mut options = machine.options();
    options.executable = Some(machine.at("checkout/target/debug/kvwire"));
    assert_eq!(existing(&options), [(Origin::Setup, library)]);
}

#[test]
fn a_named_library_is_the_only_candidate() {
    let machine = Machine::new();
    machine.wheel("venv/lib/python3.12/site-packages", "cu12");
    fs::create_dir_all(machine.at("project")).unwrap();
    let wheel = machine.wheel("wheel", "cu13");
    let folder = wheel.parent().unwrap().to_path_buf();
    for named in [wheel.clone(), folder, machine.at("wheel"), PathBuf::from("../wheel")] {
        let mut options = machine.options();
        options.explicit = Some(named.clone());
        options.variable = Some(machine.at("elsewhere"));
        let found = existing(&options);
        assert_eq!(found.len(), 1, "{}", named.display());
        assert_eq!(found[0].0, Origin::Explicit);
        assert_eq!(fs::canonicalize(&found[0].1).unwrap(), fs::canonicalize(&wheel).unwrap());
        options.explicit = None;
        options.variable = Some(named);
        assert_eq!(existing(&options)[0].0, Origin::Variable);
    }
}

#[test]
fn a_named_library_that_is_missing_is_an_error_even_where_another_exists() {
    let machine = Machine::new();
    machine.wheel("venv/lib/python3.12/site-packages", "cu12");
    let mut options = machine.options();
    options.explicit = Some(machine.at("nowhere/libnixl_capi.so"));
    let Err(LoadError::NotFound { searched }) = nixl_sys::open(&options) else {
        panic!("a missing library was accepted");
    };
    assert_eq!(searched.len(), 1);
    assert_eq!(searched[0].path, machine.at("nowhere/libnixl_capi.so"));
}

#[test]
fn not_found_lists_every_place_on_its_own_line() {
    let machine = Machine::new();
    fs::create_dir_all(machine.at("venv/lib/python3.12/site-packages")).unwrap();
    let error = nixl_sys::open(&machine.options()).unwrap_err().to_string();
    let lines: Vec<&str> = error.lines().skip(1).collect();
    let root = |path: &str| machine.at(path).display().to_string();
    for place in [
        root("project/.nixl/*/.nixl*.mesonpy.libs/libnixl_capi.so (project setup)"),
        root("venv/lib/python3.12/site-packages/.nixl*.mesonpy.libs/libnixl_capi.so (virtual environment)"),
        root("home/.local/lib/python3*/*-packages/.nixl*.mesonpy.libs/libnixl_capi.so (user site-packages)"),
        root("root/opt/nvidia/nvda_nixl/lib*/libnixl_capi.so (system installation)"),
        root("root/usr/local/nixl/lib*/libnixl_capi.so (system installation)"),
    ] {
        assert!(lines.contains(&format!("  {place}").as_str()), "{place} is not in\n{error}");
    }
}

#[test]
fn the_dynamic_loader_is_the_last_resort() {
    let machine = Machine::new();
    let mut options = machine.options();
    options.by_name = true;
    let places = options.candidates();
    let last: Vec<&Path> = places.iter().rev().take(2).map(|candidate| candidate.path.as_path()).collect();
    assert_eq!(last, [Path::new("libnixl_capi.so"), Path::new("libnixl_capi.so.0")]);
}
