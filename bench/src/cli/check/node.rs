//! `kvwire check node`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::FalseyValueParser;

use super::PodArgs;
use crate::cli::OutputArgs;

/// Flags of `kvwire check node`.
#[derive(Debug, Args)]
pub(crate) struct CheckNodeArgs {
    #[command(flatten)]
    pub(crate) pods: PodArgs,
    /// Also save everything that was read in this file, to be judged elsewhere; `-` prints it instead of the findings
    #[arg(long, env = "KVWIRE_CAPTURE", value_name = "FILE", help_heading = "Evidence")]
    pub(crate) capture: Option<PathBuf>,
    /// Judge what --capture saved instead of this machine; give it twice to compare two nodes
    #[arg(long, env = "KVWIRE_FROM", value_name = "FILE", conflicts_with = "pod", help_heading = "Evidence")]
    pub(crate) from: Vec<PathBuf>,
    /// Replace host names, addresses and serial numbers before anything is judged or saved
    #[arg(long, env = "KVWIRE_MASK", value_parser = FalseyValueParser::new(), help_heading = "Evidence")]
    pub(crate) mask: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
