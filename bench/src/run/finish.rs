//! The last lines of every run: the result printed, the verdict left where the system shows it, the exit code decided.

use std::fs;
use std::future::Future;
use std::path::PathBuf;

use serde_json::json;

use super::record::Record;
use super::stop::Stop;
use crate::cli::{OutputArgs, ResultArgs};
use crate::engine::Phase;
use crate::exit::Exit;
use crate::report::model::Verdict;
use crate::report::{log, table};
use crate::terminal::Terminal;
use crate::verdict::Outcome;

/// What Kubernetes keeps of a container's termination message, in bytes.
const TERMINATION_BYTES_MAX: usize = 4096;

/// Runs a command's work on an event loop of one thread: supervisors sleep while engines measure.
pub(crate) fn block_on(terminal: &Terminal, work: impl Future<Output = Exit>) -> Exit {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let exit = runtime.block_on(work);
            // Not waited for: a name that is still being looked up may take longer than any deadline here.
            runtime.shutdown_background();
            exit
        }
        Err(e) => {
            terminal.error(&format!("the system refuses an event loop: {e}"));
            Exit::Internal
        }
    }
}

/// The system does not let this process handle SIGINT and SIGTERM.
pub(crate) fn no_signals(terminal: &Terminal, error: &std::io::Error) -> Exit {
    terminal.error(&format!("the system refuses a signal handler: {error}"));
    Exit::Internal
}

/// Where and how a run says how it came out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ending<'a> {
    text: &'a OutputArgs,
    result: &'a ResultArgs,
}

impl<'a> Ending<'a> {
    /// Follows the flags.
    pub(crate) fn new(text: &'a OutputArgs, result: &'a ResultArgs) -> Self {
        Self { text, result }
    }

    /// The result file.
    pub(crate) fn output(&self) -> Option<&'a PathBuf> {
        self.result.output.as_ref()
    }

    /// The terminal, which shows progress as the flags say.
    pub(crate) fn terminal(&self, terminal: &Terminal) -> Terminal {
        terminal.showing(self.result.progress)
    }

    /// A command line or value that is wrong.
    pub(crate) fn usage(&self, terminal: &Terminal, message: &str) -> Exit {
        terminal.error(message);
        self.leave(&format!("usage: {message} (exit code {})", Exit::Usage.code()), terminal);
        Exit::Usage
    }

    /// Prints the result and decides the exit code.
    pub(crate) fn with(&self, outcome: Outcome, record: &Record, terminal: &Terminal) -> Exit {
        let printed = if self.text.json {
            serde_json::to_string_pretty(&record.result).map(|text| text + "\n")
        } else {
            let mut text = table::render(&record.result, terminal.color_on_stdout(), terminal.width());
            if self.text.verbose {
                text += &table::evidence(&record.result, terminal.width());
            }
            let line = self.result.print_result.then(|| log::line(&record.result)).transpose();
            line.map(|line| text + line.as_deref().unwrap_or_default())
        };
        self.leave(&in_one_line(&record.result.verdict), terminal);
        print(printed.map_err(|e| e.to_string()), outcome, terminal)
    }

    /// Prints why nothing was measured, on a side that does not even know what was to be.
    pub(crate) fn without_result(&self, stop: &Stop, at: Phase, terminal: &Terminal) -> Exit {
        let finding = stop.finding(&at.to_string());
        let outcome = stop.outcome();
        let (title, fix) = (&finding.title, &finding.next_step);
        let exit_code = outcome.exit().code();
        let line = format!("inconclusive: {title}; fix first: {fix} (exit code {exit_code})");
        let text = if self.text.json {
            let verdict = json!({ "outcome": "inconclusive", "summary": title, "first_fix": fix, "exit_code": exit_code });
            format!("{:#}\n", json!({ "verdict": verdict, "findings": [finding] }))
        } else {
            format!("INCONCLUSIVE  {title}\n  fix first  {fix}\n")
        };
        self.leave(&line, terminal);
        print(Ok(text), outcome, terminal)
    }

    /// Leaves the verdict as the container's last word. Without it the exit code still tells.
    fn leave(&self, line: &str, terminal: &Terminal) {
        let Some(path) = &self.result.termination_log else { return };
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        let end = line.floor_char_boundary(TERMINATION_BYTES_MAX - 1);
        // Not by a rename: Kubernetes mounts this very file.
        if let Err(e) = fs::write(path, format!("{}\n", &line[..end])) {
            terminal.error(&format!("--termination-log: {} cannot be written: {e}", path.display()));
        }
    }
}

/// A verdict without line breaks, what matters most first.
fn in_one_line(verdict: &Verdict) -> String {
    let fix = verdict.first_fix.as_ref().map_or_else(String::new, |fix| format!("; fix first: {fix}"));
    format!(
        "{}: {}{fix}; scope: {} (exit code {})",
        verdict.outcome, verdict.summary, verdict.scope, verdict.exit_code
    )
}

fn print(text: Result<String, String>, outcome: Outcome, terminal: &Terminal) -> Exit {
    match text.and_then(|text| terminal.result(&text).map_err(|e| e.to_string())) {
        Ok(()) => outcome.exit(),
        Err(e) => {
            terminal.error(&format!("the result cannot be printed: {e}"));
            outcome.max(Outcome::Internal).exit()
        }
    }
}
