//! Fake GPUs for a run: what they are, what the UCX above them logs, and the libraries that show them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::{Kvwire, fake_cuda, fake_nvml};

/// Fake GPUs. They live as long as this.
#[derive(Debug)]
pub struct Gpus {
    folder: TempDir,
}

/// GPUs as `fake_gpus` describes them, one line each.
///
/// # Panics
/// There is no temporary folder.
pub fn gpus(script: &str) -> Gpus {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("gpus"), script).expect("a file in it");
    Gpus { folder }
}

impl Gpus {
    /// The folder of the script and of the counters.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A folder with the fake drivers, by the names of NVIDIA's.
    ///
    /// # Panics
    /// It cannot be made.
    pub fn driver(&self) -> PathBuf {
        let folder = self.folder().join("driver");
        if !folder.exists() {
            std::fs::create_dir(&folder).expect("a folder");
            for (library, name) in [(fake_cuda(), "libcuda.so.1"), (fake_nvml(), "libnvidia-ml.so.1")] {
                std::os::unix::fs::symlink(library, folder.join(name)).expect("a link");
            }
        }
        folder
    }

    /// Has UCX log protocol tables that say: READ and WRITE, zero-copy over this lane, for example `cuda_ipc/cuda`.
    ///
    /// # Panics
    /// The log cannot be written.
    #[must_use]
    pub fn lane(self, lane: &str) -> Self {
        self.log("zero-copy", lane)
    }

    /// The same with another word than `zero-copy`.
    ///
    /// # Panics
    /// The log cannot be written.
    #[must_use]
    pub fn log(self, how: &str, lane: &str) -> Self {
        let mut text = String::new();
        for selection in [
            "remote memory read by ucp_get*(multi) into cuda memory from cuda",
            "remote memory write by ucp_put*(multi) from cuda memory to cuda",
        ] {
            let border = "+--------+-------------+-----------------------------------+";
            let rows = [
                border,
                "| kvwire intra-node cfg#1 |",
                &format!("| {selection} |"),
                border,
                "| Range  | Description | Config |",
                border,
                &format!("| 0..inf | {how} | {lane} |"),
                border,
            ];
            for row in rows {
                let _ = writeln!(text, "[1796032136.267775] [vm:6704 :0]   {row}");
            }
        }
        std::fs::write(self.folder.path().join("ucx.log"), text).expect("a file in the folder");
        self
    }
}

impl Kvwire {
    /// Installs a driver with these GPUs: the dynamic loader finds it, and so the real UCX takes it for NVIDIA's.
    #[must_use]
    pub fn driver(self, gpus: &Gpus) -> Self {
        let text = |path: &Path| path.display().to_string();
        self.env("KVWIRE_FAKE_GPUS", &text(gpus.folder())).env("LD_LIBRARY_PATH", &text(&gpus.driver()))
    }

    /// Shows these GPUs to every process of the run, through the fake drivers.
    #[must_use]
    pub fn gpus(self, gpus: &Gpus) -> Self {
        let text = |path: &Path| path.display().to_string();
        let run = self
            .env("KVWIRE_FAKE_GPUS", &text(gpus.folder()))
            .env("KVWIRE_CUDA_LIB", &text(&fake_cuda()))
            .env("KVWIRE_NVML_LIB", &text(&fake_nvml()));
        let log = gpus.folder().join("ucx.log");
        if log.exists() { run.env("KVWIRE_FAKE_UCX_LOG", &text(&log)) } else { run }
    }
}
