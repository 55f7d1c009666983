//! What a finished run left behind.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

/// A run that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit code; 128 and the signal's number when a signal ended it.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// The result file, when there is one.
    pub result: Option<Value>,
    /// From start to end.
    pub took: Duration,
    /// Process ids of the engines that the run announced (only with `--verbose`).
    pub engines: Vec<i32>,
}

impl Ended {
    /// The result.
    ///
    /// # Panics
    /// There is none.
    pub fn result(&self) -> &Value {
        self.result.as_ref().unwrap_or_else(|| panic!("no result file\n{self}"))
    }

    /// Standard output on one line: where it breaks depends on what it names.
    pub fn words(&self) -> String {
        self.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// The cases of the result.
    ///
    /// # Panics
    /// There is no result.
    pub fn cases(&self) -> &[Value] {
        self.result()["cases"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Statuses of all cases, in order.
    ///
    /// # Panics
    /// There is no result.
    pub fn statuses(&self) -> Vec<&str> {
        self.cases().iter().map(|c| c["status"].as_str().unwrap_or("?")).collect()
    }

    /// The finding with this id.
    ///
    /// # Panics
    /// There is none.
    pub fn finding(&self, id: &str) -> &Value {
        let findings = self.result()["findings"].as_array().map_or(&[][..], Vec::as_slice);
        findings.iter().find(|f| f["id"] == id).unwrap_or_else(|| panic!("no finding `{id}`\n{self}"))
    }

    /// The title of the finding with this id.
    ///
    /// # Panics
    /// There is none.
    pub fn title(&self, id: &str) -> &str {
        self.finding(id)["title"].as_str().unwrap_or("?")
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let findings = self.result.as_ref().map(|r| r["findings"].to_string()).unwrap_or_default();
        write!(
            f,
            "exit code {} after {:?}\n--- stdout\n{}\n--- stderr\n{}\n--- findings\n{findings}",
            self.code, self.took, self.stdout, self.stderr
        )
    }
}
