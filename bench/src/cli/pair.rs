//! `kvwire pair`.

use std::path::PathBuf;

use clap::Args;

use super::{MeasureArgs, NixlArgs, OutputArgs, ResultArgs};

/// Flags of `kvwire pair`.
#[derive(Debug, Args)]
pub(crate) struct PairArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    #[command(flatten)]
    pub(crate) nixl: NixlArgs,
    /// Another NIXL for the target, to see whether two versions work together [default: the same]
    #[arg(long, env = "KVWIRE_TARGET_NIXL_LIB", value_name = "PATH", help_heading = "NIXL and UCX")]
    pub(crate) target_nixl_lib: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) result: ResultArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
