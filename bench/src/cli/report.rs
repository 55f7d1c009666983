//! `kvwire report`.

use std::path::PathBuf;

use clap::Args;

use super::OutputArgs;
use crate::report::Format;

/// Flags of `kvwire report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Result files; several are compared with the first
    #[arg(value_name = "RESULT", required = true)]
    pub(crate) results: Vec<PathBuf>,

    /// The form of the report [default: what the name of --file asks for, else text]
    #[arg(long, short, env = "KVWIRE_FORMAT", value_name = "FORMAT")]
    pub(crate) format: Option<Format>,

    /// Write it to this file instead of standard output
    #[arg(long, short = 'o', env = "KVWIRE_FILE", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
