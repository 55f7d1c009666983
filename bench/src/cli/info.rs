//! `kvwire info`.

use std::path::PathBuf;

use clap::Args;

use super::OutputArgs;

/// Flags of `kvwire info`.
#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// NIXL's C library, or a folder that contains it [default: search]
    #[arg(long, env = "KVWIRE_NIXL_LIB", value_name = "PATH")]
    pub(crate) nixl_lib: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
