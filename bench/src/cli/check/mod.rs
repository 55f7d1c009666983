//! `kvwire check`, one file a subcommand, and `kvwire explain`.

mod env;

use clap::{Args, Subcommand};

use super::OutputArgs;

pub(crate) use env::{CheckEnvArgs, FailOn, Format};

/// `kvwire check`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct CheckArgs {
    /// What to look at.
    #[command(subcommand)]
    pub(crate) command: CheckCommand,
}

/// What can be checked.
#[derive(Debug, Subcommand)]
pub(crate) enum CheckCommand {
    /// Manifests: what each worker's process will see, and what of it forbids RDMA or NVLink.
    ///
    /// Reads files, folders and rendered streams (helm template, kubectl kustomize, kubectl get -o yaml).
    /// It reads text only: at best nothing in it forbids a fast wire, which the active test then proves.
    Env(Box<CheckEnvArgs>),
}

/// Flags of `kvwire explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// A variable (UCX_TLS) or the id of a finding (tls-without-rdma) [default: list all]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
