//! The scripts for Slurm and Open MPI, with launchers that start both tasks on this machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use kvwire_tests::{Nixl, kvwire, repository};
use serde_json::Value;

/// Starts the command that stands after the launcher's own flags twice, numbered; ends with the worse exit code.
const BOTH: &str = r#"
{ env "$number=0" "$@" & first=$!; env "$number=1" "$@"; second=$?; wait $first; first=$?; exit $((first > second ? first : second)); }
"#;

fn program(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/bash\n{text}")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs a script of `deploy/slurm/` beside these launchers, in `folder`.
fn run(folder: &Path, script: &str, words: &[&str]) -> Output {
    let slurm = "while [[ $1 == -* ]]; do shift; done; number=SLURM_PROCID\n";
    let mpi = "while [ \"$1\" != -x ]; do shift; done; shift 2; number=OMPI_COMM_WORLD_RANK\n";
    program(folder, "srun", &format!("{slurm}{BOTH}"));
    program(folder, "mpirun", &format!("{mpi}{BOTH}"));
    program(folder, "scontrol", "printf '127.0.0.1\\nsecond\\n'\n");
    let mut command = Command::new(repository().join("deploy/slurm").join(script));
    let tools = format!("{}:/usr/bin:/bin", folder.display());
    command.args(words).current_dir(folder).env_clear().env("PATH", tools).env("KVWIRE", kvwire());
    command.env("SLURM_JOB_ID", "77").env("SLURM_JOB_NODELIST", "n[1-2]");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    command.env("KVWIRE_PORT", free.to_string());
    command.env("KVWIRE_NIXL_LIB", Nixl::Newest.library());
    command.output().unwrap()
}

const MEASURE: [&str; 5] = ["--allow-same-host", "--sizes", "4KiB", "--case-time", "20ms"];

fn outcome(path: &Path) -> String {
    let result: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    result["verdict"]["outcome"].as_str().unwrap().to_owned()
}

#[test]
fn slurm_starts_both_sides_and_each_writes_its_own_result() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), "kvwire.sbatch", &MEASURE);
    assert!(output.status.success(), "{output:?}");
    for task in ["0", "1"] {
        assert_eq!(outcome(&folder.path().join(format!("kvwire-77-{task}.json"))), "trusted");
    }
}

#[test]
fn mpirun_starts_both_sides_and_ends_with_the_run_s_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let mut words = vec!["127.0.0.1", "second", "--output", "result.json"];
    words.extend(MEASURE);
    let output = run(folder.path(), "mpirun.sh", &words);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(outcome(&folder.path().join("result.json")), "trusted");
    words.extend(["--expect", "rdma"]);
    let refused = run(folder.path(), "mpirun.sh", &words);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
}
