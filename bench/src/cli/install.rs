//! `kvwire install`.

use std::path::PathBuf;

use clap::Args;

use super::OutputArgs;

/// Flags of `kvwire install`.
#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    /// The folder; it is made when it is missing
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
