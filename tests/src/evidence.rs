//! What a scenario left behind that ran in two virtual machines with real RDMA verbs (`make test-rdma`).

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Ended;

/// A host of the scenario: the guest that it runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    /// Guest `a`.
    Initiator,
    /// Guest `b`.
    Target,
}

/// The folder of one scenario: how kvwire ended on both hosts, and the kernels' counters before and after it.
#[derive(Debug)]
pub struct Evidence {
    /// How the initiator ended.
    pub ended: Ended,
    /// How the target ended; none when its host is gone or kvwire was killed there.
    pub target: Option<Ended>,
    /// Time from what the scenario did to the run (a link went down, a process was killed) to the initiator's end, by the
    /// guest's clock; none when it did nothing.
    pub after_strike: Option<Duration>,
    before: BTreeMap<String, u64>,
    after: BTreeMap<String, u64>,
    folder: PathBuf,
}

impl Evidence {
    /// Reads what the scenario left.
    ///
    /// # Panics
    /// It left nothing, or did not come to its end.
    pub fn of(scenario: &str) -> Self {
        let folder = std::env::var_os("KVWIRE_RDMA_EVIDENCE")
            .map(PathBuf::from)
            .expect("KVWIRE_RDMA_EVIDENCE is not set; run `make test-rdma`")
            .join(scenario);
        let console = || fs::read_to_string(folder.with_file_name("a.log")).unwrap_or_default();
        assert!(folder.join("done").exists(), "{scenario} did not come to its end\n{}", console());
        let seconds: Vec<f64> = ["uptime", "struck"]
            .iter()
            .flat_map(|name| text(&folder, name).split_whitespace().map(str::to_owned).collect::<Vec<_>>())
            .filter_map(|number| number.parse().ok())
            .collect();
        let since = |from: usize| {
            let span = seconds.get(1)? - seconds.get(from)?;
            Duration::try_from_secs_f64(span).ok()
        };
        let took = since(0).expect("when the run began and ended");
        Self {
            ended: ended(&folder, took).unwrap_or_else(|| panic!("{scenario}: no exit code")),
            target: ended(&folder.join("target"), took),
            after_strike: since(2),
            before: counters(&folder.join("counters.before")),
            after: counters(&folder.join("counters.after")),
            folder,
        }
    }

    /// A JSON document that the scenario left in this file.
    ///
    /// # Panics
    /// There is none.
    pub fn json(&self, name: &str) -> serde_json::Value {
        let text = text(&self.folder, name);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}: {text}\n{self}"))
    }

    /// Packets that a host's RDMA device sent while the scenario ran, acknowledgements and repetitions included.
    ///
    /// # Panics
    /// There is no such device.
    pub fn packets(&self, host: Host, device: &str) -> u64 {
        let node = match host {
            Host::Initiator => 'a',
            Host::Target => 'b',
        };
        self.grown(&format!("{node}/infiniband/{device}/ports/1/hw_counters/sent_pkts"))
    }

    /// Payload that the timed loops moved, in bytes.
    ///
    /// # Panics
    /// There is no result.
    pub fn payload(&self) -> u64 {
        self.ended.cases().iter().filter_map(|case| case["payload_bytes"].as_u64()).sum()
    }

    fn grown(&self, name: &str) -> u64 {
        let value = |counters: &BTreeMap<String, u64>| {
            counters.get(name).copied().unwrap_or_else(|| panic!("no counter `{name}`\n{self}"))
        };
        value(&self.after) - value(&self.before)
    }
}

fn text(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap_or_default()
}

/// How the kvwire ended that wrote into this folder, when it did.
fn ended(folder: &Path, took: Duration) -> Option<Ended> {
    let code = text(folder, "code").trim().parse().ok()?;
    let result = fs::read(folder.join("result.json")).ok();
    Some(Ended {
        code,
        stdout: text(folder, "stdout"),
        stderr: text(folder, "stderr"),
        result: result
            .map(|bytes| serde_json::from_slice(&bytes).expect("a result file is whole at any time")),
        took,
        engines: Vec::new(),
    })
}

fn counters(path: &Path) -> BTreeMap<String, u64> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let pair = |line: &str| Some((line.split_once(' ')?.0.to_owned(), line.split_once(' ')?.1.parse().ok()?));
    text.lines().filter_map(pair).collect()
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.ended)?;
        match &self.target {
            Some(target) => writeln!(f, "--- the target\n{target}")?,
            None => writeln!(f, "--- nothing of the target")?,
        }
        writeln!(f, "--- counters that moved")?;
        for (name, after) in &self.after {
            let before = self.before.get(name).copied().unwrap_or_default();
            if *after != before {
                writeln!(f, "{name}: {before} -> {after}")?;
            }
        }
        Ok(())
    }
}
