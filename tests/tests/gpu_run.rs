//! `tests/gpu/run.sh`, which is made for a machine with a GPU: here on one without, and with fake drivers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::collections::BTreeMap;
use std::process::Command;

use kvwire_tests::{Gpus, Nixl, gpus, kvwire, repository};

/// Exit code, and the word and text of each item.
type Summary = (i32, BTreeMap<String, (String, String)>, String);

fn run(gpus: Option<&Gpus>) -> Summary {
    let results = tempfile::tempdir().unwrap();
    let mut script = Command::new("bash");
    script.arg(repository().join("tests/gpu/run.sh")).arg(results.path());
    for (key, _) in std::env::vars_os() {
        let name = key.to_string_lossy();
        if name.starts_with("KVWIRE_") || name.starts_with("UCX_") || name.starts_with("NIXL_") {
            script.env_remove(&key);
        }
    }
    script.env("KVWIRE", kvwire()).env("KVWIRE_NIXL_LIB", Nixl::Newest.library());
    if let Some(gpus) = gpus {
        script.env("KVWIRE_FAKE_GPUS", gpus.folder()).env("LD_LIBRARY_PATH", gpus.driver());
    }
    let output = script.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let kept = std::fs::read_to_string(results.path().join("summary.txt")).unwrap();
    let mut items = BTreeMap::new();
    for line in stdout.lines() {
        let word = ["pass", "fail", "not possible"].into_iter().find(|word| line.starts_with(word));
        let Some(word) = word else { continue };
        assert!(kept.contains(line), "every item is kept: {line}\n{kept}");
        let rest = line[word.len()..].trim_start();
        let (item, text) = rest.split_once(' ').unwrap_or((rest, ""));
        items.insert(item.to_owned(), (word.to_owned(), text.trim().to_owned()));
    }
    (output.status.code().unwrap(), items, stdout)
}

const ON_A_GPU: [&str; 9] = [
    "vram-vram",
    "vram-dram",
    "dram-vram",
    "kernel-verification",
    "alloc-malloc",
    "alloc-vmm",
    "alloc-fabric",
    "kv-blocks",
    "transport-proof",
];

#[test]
fn without_a_gpu_every_item_says_why_it_is_not_possible() {
    let (code, items, text) = run(None);
    assert_eq!(code, 0, "{text}");
    for item in ["info", "node-check", "dram-dram", "all"] {
        assert_eq!(items[item].0, "pass", "{item}: {text}");
    }
    for item in ON_A_GPU {
        let (word, why) = &items[item];
        assert_eq!(word, "not possible", "{item}: {text}");
        assert!(why.contains("libcuda.so.1"), "{item}: {why}");
    }
}

#[test]
fn with_gpus_every_item_passes_and_figures_stand_beside_limits() {
    let two = gpus("gpu pci=0000:17:00.0 links=4\ngpu pci=0000:65:00.0 links=4\n");
    let (code, items, text) = run(Some(&two));
    assert_eq!(code, 0, "{text}");
    for item in ON_A_GPU {
        assert_eq!(items[item].0, "pass", "{item}: {text}");
    }
    assert!(items["transport-proof"].1.contains("nvlink"), "{text}");
    assert!(text.contains("% of 106.248 GB/s"), "{text}");
}

#[test]
fn what_breaks_fails_and_what_the_gpu_cannot_is_not_possible() {
    let poor = gpus("gpu fabric=0\nfault cuModuleLoadData=218\n");
    let (code, items, text) = run(Some(&poor));
    assert_eq!(code, 1, "{text}");
    assert_eq!(items["kernel-verification"].0, "fail", "{text}");
    assert!(items["kernel-verification"].1.contains("CUDA_ERROR_INVALID_PTX"), "{text}");
    assert_eq!(items["alloc-fabric"].0, "not possible", "{text}");
    assert_eq!(items["vram-vram"].0, "pass", "{text}");
}
