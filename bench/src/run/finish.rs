//! The last lines of every run: the result printed, and the exit code decided.

use std::future::Future;

use serde_json::json;

use super::record::Record;
use super::stop::Stop;
use crate::cli::OutputArgs;
use crate::engine::Phase;
use crate::exit::Exit;
use crate::report::table;
use crate::terminal::Terminal;
use crate::verdict::Outcome;

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

/// A command line or value that is wrong.
pub(crate) fn say_usage(terminal: &Terminal, message: &str) -> Exit {
    terminal.error(message);
    Exit::Usage
}

/// Prints the result and decides the exit code.
pub(crate) fn finish(args: &OutputArgs, outcome: Outcome, record: &Record, terminal: &Terminal) -> Exit {
    let printed = if args.json {
        serde_json::to_string_pretty(&record.result).map(|text| text + "\n").map_err(|e| e.to_string())
    } else {
        let mut text = table::render(&record.result, terminal.color_on_stdout(), terminal.width());
        if args.verbose {
            text += &table::evidence(&record.result, terminal.width());
        }
        Ok(text)
    };
    print(printed, outcome, terminal)
}

/// Prints why nothing was measured, on a side that does not even know what was to be.
pub(crate) fn finish_without_result(args: &OutputArgs, stop: &Stop, at: Phase, terminal: &Terminal) -> Exit {
    let finding = stop.finding(&at.to_string());
    let outcome = stop.outcome();
    let text = if args.json {
        let verdict = json!({ "outcome": "inconclusive", "summary": finding.title, "first_fix": finding.next_step,
                              "exit_code": outcome.exit().code() });
        format!("{:#}\n", json!({ "verdict": verdict, "findings": [finding] }))
    } else {
        format!("INCONCLUSIVE  {}\n  fix first  {}\n", finding.title, finding.next_step)
    };
    print(Ok(text), outcome, terminal)
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
