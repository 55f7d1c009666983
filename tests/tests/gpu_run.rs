//! `tests/gpu/run.sh`, which is made for a machine with a GPU: here on one without, and with fake drivers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use kvwire_tests::{Gpus, Nixl, gpus, kvwire, repository};

/// What the script said.
struct Run {
    code: i32,
    /// The word and the text of each item.
    items: BTreeMap<String, (String, String)>,
    text: String,
}

impl Run {
    fn word(&self, item: &str) -> &str {
        &self.items.get(item).unwrap_or_else(|| panic!("no {item}: {}", self.text)).0
    }
}

/// `run.sh RESULTS` of this folder, without what the developer's shell sets.
fn script(folder: &Path, results: &Path) -> Command {
    let mut script = Command::new("bash");
    script.arg(folder.join("run.sh")).arg(results).stdin(Stdio::null());
    for (key, _) in std::env::vars_os() {
        let name = key.to_string_lossy();
        if name.starts_with("KVWIRE_") || name.starts_with("UCX_") || name.starts_with("NIXL_") {
            script.env_remove(&key);
        }
    }
    script
}

fn ended(mut script: Command, results: &Path) -> Run {
    let output = script.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let kept = fs::read_to_string(results.join("summary.txt")).unwrap();
    let mut items = BTreeMap::new();
    for line in text.lines() {
        let word = ["pass", "fail", "not possible"].into_iter().find(|word| line.starts_with(word));
        let Some(word) = word else { continue };
        assert!(kept.contains(line), "every item is kept: {line}\n{kept}");
        let rest = line[word.len()..].trim_start();
        let (item, text) = rest.split_once(' ').unwrap_or((rest, ""));
        items.insert(item.to_owned(), (word.to_owned(), text.trim().to_owned()));
    }
    Run { code: output.status.code().unwrap(), items, text }
}

fn run(gpus: Option<&Gpus>) -> Run {
    let results = tempfile::tempdir().unwrap();
    let mut script = script(&repository().join("tests/gpu"), results.path());
    // The kernels of these GPUs are interpreted: the sweep and large blocks would fill and check gigabytes.
    script.env("KVWIRE_NO_DESCRIPTOR_SWEEP", "1").env("LARGEST", "8MiB");
    // Figures are not what is tested here.
    script.env("KVWIRE_SAMPLES", "100").env("KVWIRE_WARMUP", "5");
    script.env("KVWIRE", kvwire()).env("KVWIRE_NIXL_LIB", Nixl::Newest.library());
    if let Some(gpus) = gpus {
        script.env("KVWIRE_FAKE_GPUS", gpus.folder()).env("LD_LIBRARY_PATH", gpus.driver());
    }
    ended(script, results.path())
}

/// Writes a program.
fn program(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/bash\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A bundle with a stand-in for kvwire and empty archives. The stand-in writes down which library it was given.
fn bundle(kvwire: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(repository().join("tests/gpu/run.sh"), folder.path().join("run.sh")).unwrap();
    program(&folder.path().join("kvwire"), kvwire);
    for flavour in ["cu12", "cu13"] {
        let tree = folder.path().join(format!("nixl-{flavour}"));
        fs::create_dir(&tree).unwrap();
        let archive = format!("nixl-{flavour}.tar.gz");
        let mut pack = Command::new("tar");
        pack.args(["-czf", &archive]).arg(tree.file_name().unwrap()).current_dir(folder.path());
        assert!(pack.status().unwrap().success());
        fs::remove_dir(tree).unwrap();
    }
    folder
}

const ON_A_GPU: [&str; 10] = [
    "vram-vram",
    "vram-dram",
    "dram-vram",
    "kernel-verification",
    "alloc-malloc",
    "alloc-vmm",
    "alloc-fabric",
    "kv-blocks",
    "transport-proof",
    "host-gpu-copies",
];

#[test]
fn without_a_gpu_every_item_says_why_it_is_not_possible() {
    let run = run(None);
    assert_eq!(run.code, 0, "{}", run.text);
    for item in ["info", "node-check", "dram-dram", "all"] {
        assert_eq!(run.word(item), "pass", "{item}: {}", run.text);
    }
    for item in ON_A_GPU {
        assert_eq!(run.word(item), "not possible", "{item}: {}", run.text);
        assert!(run.items[item].1.contains("libcuda.so.1"), "{item}: {}", run.text);
    }
    assert_eq!(run.word("two-gpus"), "not possible", "{}", run.text);
}

#[test]
fn with_gpus_every_item_passes_and_figures_stand_beside_limits() {
    let two = gpus("gpu pci=0000:17:00.0 links=4\ngpu pci=0000:65:00.0 links=4\n");
    let run = run(Some(&two));
    assert_eq!(run.code, 0, "{}", run.text);
    for item in ON_A_GPU.into_iter().chain(["two-gpus"]) {
        assert_eq!(run.word(item), "pass", "{item}: {}", run.text);
    }
    assert!(run.items["info"].1.contains("GPU 0 (Fake GPU"), "{}", run.text);
    assert!(run.items["transport-proof"].1.contains("nvlink"), "{}", run.text);
    assert!(run.text.contains("% of 106.248 GB/s"), "{}", run.text);
}

#[test]
fn what_breaks_fails_and_what_the_gpu_cannot_is_not_possible() {
    let poor = gpus("gpu fabric=0\nfault cuModuleLoadData=218\n");
    let run = run(Some(&poor));
    assert_eq!(run.code, 1, "{}", run.text);
    assert_eq!(run.word("kernel-verification"), "fail", "{}", run.text);
    assert!(run.items["kernel-verification"].1.contains("CUDA_ERROR_INVALID_PTX"), "{}", run.text);
    assert_eq!(run.word("alloc-fabric"), "not possible", "{}", run.text);
    assert_eq!(run.word("vram-vram"), "pass", "{}", run.text);
}

/// What NVIDIA's tool prints at its head.
fn nvidia_smi(cuda: &str) -> String {
    format!("echo '| NVIDIA-SMI 580.65.06    Driver Version: 580.65.06    CUDA Version: {cuda}    |'")
}

#[test]
fn the_archive_is_the_one_for_the_cuda_of_the_driver() {
    for (tool, flavour) in [
        (Some(nvidia_smi("12.8")), "cu12"),
        (Some(nvidia_smi("13.0")), "cu13"),
        (Some(nvidia_smi("N/A")), "cu12"),
        (Some("echo 'NVIDIA-SMI has failed'; exit 9".to_owned()), "cu12"),
        (None, "cu12"),
    ] {
        let bundle = bundle("echo \"$KVWIRE_NIXL_LIB\"");
        let results = bundle.path().join("results");
        let mut script = script(bundle.path(), &results);
        let tools = bundle.path().join("tools");
        fs::create_dir(&tools).unwrap();
        if let Some(tool) = &tool {
            program(&tools.join("nvidia-smi"), tool);
        }
        script.env("PATH", format!("{}:/usr/bin:/bin", tools.display()));
        let run = ended(script, &results);
        let given = fs::read_to_string(results.join("info.out")).unwrap();
        let library = format!("nixl-{flavour}/.nixl_{flavour}.mesonpy.libs/libnixl_capi.so");
        assert!(given.trim().ends_with(&library), "{tool:?}: {given}{}", run.text);
        assert!(!results.join(format!("nixl-{flavour}")).exists(), "what was unpacked is taken away again");
    }
}

/// A driver that hangs: everything that asks it is ended, and each item says so. No sum of limits can be more than the whole
/// one, by which the script ends itself.
#[test]
fn a_machine_on_which_everything_hangs_gets_its_answer_within_the_limit() {
    let hang = "trap '' TERM; while :; do sleep 0.2; done";
    let bundle = bundle(&format!("[ \"$1\" = pair ] || exit 0\necho going >&2\n{hang}"));
    let results = bundle.path().join("results");
    let mut script = script(bundle.path(), &results);
    let tools = bundle.path().join("tools");
    fs::create_dir(&tools).unwrap();
    program(&tools.join("nvidia-smi"), hang);
    script.env("PATH", format!("{}:/usr/bin:/bin", tools.display()));
    script.env("LIMIT_S", "10").env("ITEM_LIMIT_S", "1");
    let run = ended(script, &results);
    assert_eq!(run.code, 1, "{}", run.text);
    for item in ["nvidia-smi", "dram-dram", "all"].into_iter().chain(ON_A_GPU) {
        assert_eq!(run.word(item), "fail", "{item}: {}", run.text);
    }
    assert!(
        run.items["dram-dram"].1.contains("took too long; the last line of its log: going"),
        "{}",
        run.text
    );
    let seconds: u32 = run.items["all"].1.split(' ').next().unwrap().parse().unwrap();
    assert!(seconds >= 10, "it did not end by its limit, so this shows nothing: {}", run.text);
}

#[test]
fn a_folder_that_cannot_be_written_to_is_refused_before_anything_runs() {
    let bundle = bundle("echo ran >\"$0.ran\"");
    let file = bundle.path().join("file");
    fs::write(&file, "").unwrap();
    fs::create_dir_all(bundle.path().join("taken/summary.txt")).unwrap();
    for place in [file, bundle.path().join("taken")] {
        let output = script(bundle.path(), &place).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("cannot write to the folder"), "{said}");
    }
    assert!(!bundle.path().join("kvwire.ran").exists());
}
