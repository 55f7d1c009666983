//! What the program needs of an image that it is copied into.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::fs;
use std::process::Command;

use kvwire_tests::{kvwire, kvwire_command, repository};

/// The newest glibc whose symbols the program may use: that of Ubuntu 22.04.
const FLOOR: (u32, u32) = (2, 34);

/// Every `GLIBC_2.x` that the program asks for.
fn versions() -> Vec<(u32, u32)> {
    let output = Command::new("readelf").args(["--version-info", "--wide"]).arg(kvwire()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let after = |part: &str| {
        let end = part.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(part.len());
        let mut numbers = part[..end].split('.').map(|number| number.parse().unwrap());
        (numbers.next().unwrap(), numbers.next().unwrap())
    };
    text.split("GLIBC_").skip(1).map(after).collect()
}

#[test]
fn the_program_runs_with_the_glibc_that_the_page_states() {
    let newest = versions().into_iter().max().expect("a program that is linked with glibc");
    assert!(newest <= FLOOR, "it needs glibc {newest:?}");
    for page in ["docs/kubernetes.md", "deploy/components/inject/kustomization.yaml"] {
        let text = fs::read_to_string(repository().join(page)).unwrap();
        assert!(text.contains(&format!("glibc {}.{}", FLOOR.0, FLOOR.1)), "{page}");
    }
}

#[test]
fn the_program_needs_no_library_beyond_those_that_every_image_has() {
    let output = Command::new("readelf").args(["--dynamic", "--wide"]).arg(kvwire()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let needed = text.lines().filter(|line| line.contains("(NEEDED)"));
    let names: Vec<&str> = needed.filter_map(|line| line.split(['[', ']']).nth(1)).collect();
    let usual =
        ["libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "libdl.so.2", "libpthread.so.0"];
    assert!(!names.is_empty() && names.iter().all(|name| usual.contains(name)), "{names:?}");
}

#[test]
fn install_copies_the_program_and_says_why_when_it_cannot() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("opt/kvwire");
    let ended = kvwire_command("install").args([to.to_str().unwrap()]).run();
    assert_eq!(ended.code, 0, "{ended}");
    let copy = Command::new(to.join("kvwire")).arg("--version").output().unwrap();
    assert!(copy.status.success());
    let refused = kvwire_command("install").args(["/proc/kvwire"]).run();
    assert_eq!(refused.code, 2, "{refused}");
    assert!(refused.stderr.contains("/proc/kvwire") && refused.stderr.contains("fix:"), "{refused}");
}
