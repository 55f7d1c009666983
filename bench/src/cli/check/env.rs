//! `kvwire check env`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::PodArgs;
use crate::cli::OutputArgs;

/// Which form the report takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// `kvwire.check/1`.
    Json,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
    /// Workflow commands of GitHub Actions.
    Github,
}

/// What makes the command fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    /// Warnings and failures.
    Warn,
    /// Failures only.
    Fail,
}

/// Flags of `kvwire check env`.
#[derive(Debug, Args)]
pub(crate) struct CheckEnvArgs {
    /// Manifests: files, folders, or - for standard input
    #[arg(required_unless_present = "pod", value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,

    /// The NIXL version of the workers, where an image's tag does not say it
    #[arg(long, env = "KVWIRE_NIXL_VERSION", value_name = "VERSION")]
    pub(crate) nixl_version: Option<String>,

    /// The UCX version of the workers [default: that of the NIXL package]
    #[arg(long, env = "KVWIRE_UCX_VERSION", value_name = "VERSION")]
    pub(crate) ucx_version: Option<String>,

    /// What ends with exit code 1
    #[arg(long, env = "KVWIRE_FAIL_ON", value_name = "STATUS", default_value = "fail")]
    pub(crate) fail_on: FailOn,

    /// Switch rules off by id; they are listed in the report
    #[arg(long, env = "KVWIRE_IGNORE", value_name = "ID", value_delimiter = ',')]
    pub(crate) ignore: Vec<String>,

    /// Configuration with rules to switch off [default: .kvwire.yaml here, when there is one]
    #[arg(long, env = "KVWIRE_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) pods: PodArgs,

    /// Form of the report
    #[arg(
        long,
        env = "KVWIRE_FORMAT",
        value_name = "FORMAT",
        default_value = "text",
        help_heading = "Output"
    )]
    pub(crate) format: Format,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
