//! `kvwire check nixl`.

use std::path::PathBuf;

use clap::Args;

use super::PodArgs;
use crate::cli::OutputArgs;

/// Flags of `kvwire check nixl`.
#[derive(Debug, Args)]
pub(crate) struct CheckNixlArgs {
    /// NIXL's C library, or a folder that contains it [default: search]
    #[arg(long, env = "KVWIRE_NIXL_LIB", value_name = "PATH", conflicts_with = "pod")]
    pub(crate) nixl_lib: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) pods: PodArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
