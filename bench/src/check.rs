//! `kvwire check`: judges manifests, nodes and NIXL before a byte moves between two processes.

mod contract;
mod env;
mod github;
mod kubectl;
mod nixl;
mod node;
mod offer;
mod processes;
mod rollup;
mod sarif;
mod sheet;
mod text;

#[cfg(test)]
mod tests;

use crate::cli::{CheckArgs, CheckCommand, OutputArgs};
use crate::exit::Exit;
use crate::terminal::Terminal;
use contract::Report;

/// Runs `kvwire check` or one check of it.
pub(crate) fn run(args: &CheckArgs) -> Exit {
    let output = match &args.command {
        Some(CheckCommand::Env(env)) => &env.output,
        Some(CheckCommand::Node(node)) => &node.output,
        Some(CheckCommand::Nixl(nixl)) => &nixl.output,
        None => &args.output,
    };
    let terminal = Terminal::new(output);
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            terminal.error(&format!("the system refuses an event loop: {e}"));
            return Exit::Internal;
        }
    };
    let report = runtime.block_on(async {
        match &args.command {
            // It has formats of its own.
            Some(CheckCommand::Env(args)) => return Err(env::run(args, &terminal).await),
            Some(CheckCommand::Node(node)) => Ok(node::check(node, &terminal).await),
            Some(CheckCommand::Nixl(nixl)) => Ok(nixl::check(nixl, &terminal).await),
            None => Ok(rollup::check(args, &terminal).await),
        }
    });
    let report = match report {
        Ok(report) => report,
        Err(exit) => return exit,
    };
    match report {
        Ok(Some(report)) => print(&report, output, &terminal),
        Ok(None) => Exit::Trusted,
        Err(problem) => {
            terminal.error(&problem.message);
            problem.exit
        }
    }
}

/// Why there is no report at all.
#[derive(Debug)]
struct Problem {
    message: String,
    exit: Exit,
}

impl Problem {
    fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), exit: Exit::Usage }
    }

    fn internal(message: impl Into<String>) -> Self {
        Self { message: message.into(), exit: Exit::Internal }
    }
}

fn print(report: &Report, output: &OutputArgs, terminal: &Terminal) -> Exit {
    let text = if output.json {
        serde_json::to_string_pretty(report).map(|text| text + "\n").map_err(|e| e.to_string())
    } else {
        Ok(sheet::render(report, terminal.color_on_stdout(), terminal.width()))
    };
    match text.and_then(|text| terminal.result(&text).map_err(|e| e.to_string())) {
        Ok(()) => report.exit(),
        Err(e) => {
            terminal.error(&format!("standard output cannot be written: {e}"));
            Exit::Internal
        }
    }
}
