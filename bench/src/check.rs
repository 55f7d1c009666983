//! `kvwire check`: the judgements that need no transfer.

mod env;
mod github;
mod sarif;
mod text;

#[cfg(test)]
mod tests;

use crate::cli::{CheckArgs, CheckCommand};
use crate::exit::Exit;
use crate::terminal::Terminal;

/// Runs the command.
pub(crate) fn run(args: &CheckArgs) -> Exit {
    match &args.command {
        CheckCommand::Env(args) => env::run(args, &Terminal::new(&args.output)),
    }
}
