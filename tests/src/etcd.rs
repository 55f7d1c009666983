//! A real etcd on the third host of [`Hosts`].

use std::ffi::OsStr;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::live::Guarded;
use crate::netns::{HUB_ADDRESS, Hosts, command_in};
use crate::wait_until;

/// Port of its client interface.
const PORT: u16 = 2379;
/// Longest time that it takes to come up, on a busy machine.
const COMES_UP: Duration = Duration::from_secs(60);

/// A running etcd, and its data.
#[derive(Debug)]
pub struct Etcd {
    process: Guarded,
    namespace: String,
    folder: tempfile::TempDir,
}

impl Etcd {
    /// Starts it and waits until it answers.
    ///
    /// # Panics
    /// It is not installed or does not come up.
    pub fn start(hosts: &Hosts) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let namespace = hosts.hub();
        let etcd = Self { process: spawn(&namespace, folder.path()), namespace, folder };
        etcd.await_answer();
        etcd
    }

    /// Host and port.
    pub fn address(&self) -> String {
        format!("{HUB_ADDRESS}:{PORT}")
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// It is gone.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.process.0.id().cast_signed()).expect("a process id");
        kill_process(pid, signal).expect("etcd takes signals");
    }

    /// Ends it as a power failure would.
    ///
    /// # Panics
    /// It cannot be ended.
    pub fn kill(&mut self) {
        self.process.0.kill().expect("etcd can be killed");
        self.process.0.wait().expect("etcd can be waited for");
    }

    /// Starts it again, with or without its data, and waits until it answers.
    ///
    /// # Panics
    /// It does not come up.
    pub fn restart(&mut self, keep_data: bool) {
        if !keep_data {
            std::fs::remove_dir_all(self.folder.path().join("data")).expect("the data can be removed");
        }
        self.process = spawn(&self.namespace, self.folder.path());
        self.await_answer();
    }

    /// Every key that it holds.
    ///
    /// # Panics
    /// It does not answer.
    pub fn keys(&self) -> Vec<String> {
        let keys = self.list().unwrap_or_else(|e| panic!("etcdctl: {e}"));
        keys.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// Runs etcdctl on it.
    ///
    /// # Panics
    /// It fails.
    pub fn ctl(&self, words: &[&str]) -> String {
        self.try_ctl(words).unwrap_or_else(|e| panic!("etcdctl {words:?}: {e}"))
    }

    fn list(&self) -> Result<String, String> {
        self.try_ctl(&["get", "", "--prefix", "--keys-only"])
    }

    fn try_ctl(&self, words: &[&str]) -> Result<String, String> {
        let output = command_in(&self.namespace, OsStr::new("etcdctl"))
            .env("ETCDCTL_API", "3")
            .args([&format!("--endpoints=http://{HUB_ADDRESS}:{PORT}"), "--command-timeout=2s"])
            .args(words)
            .output()
            .map_err(|e| format!("{e} (Debian: etcd-client)"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn await_answer(&self) {
        wait_until("etcd answers", COMES_UP, || self.list().is_ok());
    }
}

fn spawn(namespace: &str, folder: &std::path::Path) -> Guarded {
    let client = format!("http://{HUB_ADDRESS}:{PORT}");
    let peer = "http://127.0.0.1:2380";
    let log = std::fs::File::create(folder.join("log")).expect("a log file");
    let child = command_in(namespace, OsStr::new("etcd"))
        .arg("--data-dir")
        .arg(folder.join("data"))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer])
        .args(["--initial-cluster", &format!("default={peer}")])
        // The shortest lease that etcd grants is 1.5 election timeouts; these let it grant one second.
        .args(["--heartbeat-interval", "60", "--election-timeout", "600"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("etcd is installed (Debian: etcd-server; `make setup-tests` installs it)");
    Guarded(child)
}
