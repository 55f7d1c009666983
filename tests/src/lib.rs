//! Runs the real binary as a user would, and says what came of it.
//!
//! ```no_run
//! use kvwire_tests::{Nixl, pair};
//! let ended = pair().args(["--sizes", "64KiB"]).nixl(&Nixl::Newest).run();
//! assert_eq!(ended.code, 0, "{ended}");
//! ```

#![expect(clippy::panic, clippy::expect_used, reason = "a helper of tests: what it cannot do fails the test")]

mod browser;
mod ended;
mod etcd;
mod evidence;
mod find;
mod gpus;
mod kubectl;
mod live;
mod machine;
pub mod manifests;
mod netns;
mod podman;
mod relay;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub use browser::Browser;
pub use ended::Ended;
pub use etcd::Etcd;
pub use evidence::{Evidence, Host};
pub use find::{Nixl, fake, fake_cuda, fake_nvml, kvwire, partial_fake, repository};
pub use gpus::{Gpus, gpus};
pub use kubectl::{Kubectl, RUNS_HERE};
pub use live::{Live, is_alive};
pub use machine::{Adapter, Machine};
pub use netns::{CONTROL, DATA, HUB_ADDRESS, Hosts, INITIATOR_ADDRESS, TARGET_ADDRESS, enter};
pub use podman::{CONTROL_GROUPS, Podman};
pub use relay::Relay;

/// A run that takes longer than this hangs.
pub const HANGS_AFTER: Duration = Duration::from_secs(90);

/// One side of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// It serves.
    Target,
    /// It measures.
    Initiator,
}

impl Side {
    /// As kvwire writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Target => "target",
            Self::Initiator => "initiator",
        }
    }

    /// The side across.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Target => Self::Initiator,
            Self::Initiator => Self::Target,
        }
    }
}

/// A command line of kvwire in the making.
#[derive(Debug)]
pub struct Kvwire {
    command: Command,
    result: Option<PathBuf>,
    folder: tempfile::TempDir,
}

/// `kvwire pair`, with a result file to look at afterwards.
pub fn pair() -> Kvwire {
    with_result("pair")
}

/// A command that takes `--output`, with a result file to look at afterwards.
pub fn with_result(command: &str) -> Kvwire {
    let mut run = kvwire_command(command);
    let path = run.folder.path().join("result.json");
    run.command.arg("--output").arg(&path);
    run.result = Some(path);
    run
}

/// `kvwire pair` without any flag but those that the test gives.
pub fn bare_pair() -> Kvwire {
    kvwire_command("pair")
}

/// Any other command.
pub fn kvwire_command(name: &str) -> Kvwire {
    let mut command = Command::new(kvwire());
    command.arg(name).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (key, _) in std::env::vars_os() {
        let name = key.to_string_lossy();
        // What the developer's shell sets must not decide how a test comes out.
        if name.starts_with("KVWIRE_") || name.starts_with("UCX_") || name.starts_with("NIXL_") {
            command.env_remove(&key);
        }
    }
    Kvwire { command, result: None, folder: tempfile::tempdir().expect("a temporary folder") }
}

impl Kvwire {
    /// Adds arguments.
    #[must_use]
    pub fn args<const N: usize>(mut self, args: [&str; N]) -> Self {
        self.command.args(args);
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.command.env(key, value);
        self
    }

    /// Chooses the NIXL.
    #[must_use]
    pub fn nixl(mut self, nixl: &Nixl) -> Self {
        self.command.arg("--nixl-lib").arg(nixl.library());
        self
    }

    /// Chooses the fake NIXL with these scripted faults on both sides. There is no UCX below it that could say which
    /// wire it uses, so that none is expected.
    #[must_use]
    pub fn fake(self, faults: &str) -> Self {
        let run = self.nixl(&Nixl::Fake).env("KVWIRE_EXPECT", "any");
        if faults.is_empty() { run } else { run.env("KVWIRE_FAKE_NIXL", faults) }
    }

    /// Runs it on a host of [`Hosts`], by the name of its namespace.
    #[must_use]
    pub fn on(self, namespace: &str) -> Self {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]);
        self.under(command)
    }

    /// Runs it as the first process of a PID namespace of its own, as in another container of one host. Needs root.
    #[must_use]
    pub fn in_own_pid_namespace(self) -> Self {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
        self.under(command)
    }

    /// Runs it by another program, which gets kvwire and its arguments behind its own.
    fn under(mut self, mut command: Command) -> Self {
        command.arg(self.command.get_program()).args(self.command.get_args());
        for (key, value) in self.command.get_envs() {
            match value {
                Some(value) => command.env(key, value),
                None => command.env_remove(key),
            };
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.command = command;
        self
    }

    /// Starts it and lets the test watch and disturb it.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn start(mut self) -> Live {
        let child = self.command.spawn().expect("kvwire starts");
        Live::new(child, self.result.take(), self.folder)
    }

    /// Runs it to its end.
    ///
    /// # Panics
    /// It cannot be started, or hangs.
    pub fn run(self) -> Ended {
        self.start().end()
    }
}

/// Waits for a condition.
///
/// # Panics
/// It does not become true within `limit`.
pub fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < end, "{what} within {limit:?}");
        std::thread::yield_now();
    }
}
