//! Flags that decide what is printed where.

use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum};

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// When the stream is a terminal and NO_COLOR is not set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Flags that every command has.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print JSON alone on standard output instead of text
    #[arg(long, env = "KVWIRE_JSON", value_parser = FalseyValueParser::new())]
    pub(crate) json: bool,

    /// Print nothing on standard error but errors
    #[arg(long, short, env = "KVWIRE_QUIET", conflicts_with = "verbose", value_parser = FalseyValueParser::new())]
    pub(crate) quiet: bool,

    /// Also print what the engines log (NIXL and UCX lines) and each step of the run
    #[arg(long, short, env = "KVWIRE_VERBOSE", value_parser = FalseyValueParser::new())]
    pub(crate) verbose: bool,

    /// When to use colour
    #[arg(long, env = "KVWIRE_COLOR", value_name = "WHEN", default_value = "auto")]
    pub(crate) color: When,
}

/// How a run shows that it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressWhen {
    /// A moving line, when standard error is a terminal.
    Auto,
    /// A line for each case, for logs.
    Lines,
    /// Not at all.
    Never,
}

/// Where the result goes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct ResultArgs {
    /// Write the result to this JSON file, anew after every case
    #[arg(long, short, env = "KVWIRE_OUTPUT", value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Also print the result on standard output as one line of JSON after `kvwire-result: `, so that a log holds it
    #[arg(long, env = "KVWIRE_PRINT_RESULT", conflicts_with = "json", value_parser = FalseyValueParser::new())]
    pub(crate) print_result: bool,

    /// Write the verdict to this file as one line; Kubernetes shows what a container leaves in /dev/termination-log
    #[arg(long, env = "KVWIRE_TERMINATION_LOG", value_name = "FILE")]
    pub(crate) termination_log: Option<PathBuf>,

    /// How to show that the run goes on
    #[arg(long, env = "KVWIRE_PROGRESS", value_name = "HOW", default_value = "auto")]
    pub(crate) progress: ProgressWhen,
}
