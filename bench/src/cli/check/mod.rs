//! `kvwire check`, one file a subcommand, and `kvwire explain`.

mod env;
mod nixl;
mod node;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::OutputArgs;
use crate::measure::units::parse_duration;

pub(crate) use env::{CheckEnvArgs, FailOn, Format};
pub(crate) use nixl::CheckNixlArgs;
pub(crate) use node::CheckNodeArgs;

/// Flags of `kvwire check`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct CheckArgs {
    /// One check alone.
    #[command(subcommand)]
    pub(crate) command: Option<CheckCommand>,
    /// Judge these manifests too: a file or folder, or - for standard input; may be given several times
    #[arg(long, env = "KVWIRE_MANIFEST", value_name = "PATH", value_delimiter = ',')]
    pub(crate) manifest: Vec<PathBuf>,
    /// NIXL's C library, or a folder that contains it [default: search]
    #[arg(long, env = "KVWIRE_NIXL_LIB", value_name = "PATH")]
    pub(crate) nixl_lib: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) pods: PodArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// The checks.
#[derive(Debug, Subcommand)]
pub(crate) enum CheckCommand {
    /// Manifests and running pods: what each worker's process sees, and what of it forbids RDMA or NVLink.
    ///
    /// Reads files, folders and rendered streams (helm template, kubectl kustomize, kubectl get -o yaml), and with --pod
    /// the environment of the worker's process; given both, it says what was declared and did not arrive.
    /// It reads text only: at best nothing in it forbids a fast wire, which the active test then proves.
    Env(Box<CheckEnvArgs>),
    /// Read this node's fabric, or that of a pod, and judge it.
    ///
    /// Looks at RDMA devices, ports, addresses, GPUs, limits and libraries. Reads files and asks driver libraries;
    /// changes nothing, moves nothing and needs no tool.
    Node(CheckNodeArgs),
    /// Load NIXL here, or in a pod, and move a few bytes within one process.
    Nixl(CheckNixlArgs),
}

/// Which pods are looked at. Without any: this machine.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Pods")]
pub(crate) struct PodArgs {
    /// Look at this pod through kubectl; give it twice for the prefill and the decode side
    #[arg(long, env = "KVWIRE_POD", value_name = "NAME", value_delimiter = ',')]
    pub(crate) pod: Vec<String>,
    /// Namespace of the pods [default: kubectl's]
    #[arg(long, short, env = "KVWIRE_NAMESPACE", value_name = "NAME", requires = "pod")]
    pub(crate) namespace: Option<String>,
    /// Container within the pods [default: the first]
    #[arg(long, short, env = "KVWIRE_CONTAINER", value_name = "NAME", requires = "pod")]
    pub(crate) container: Option<String>,
    /// Context of kubectl's configuration [default: the current one]
    #[arg(long, env = "KVWIRE_CONTEXT", value_name = "NAME", requires = "pod")]
    pub(crate) context: Option<String>,
    /// How long one command in a pod may take
    #[arg(long, env = "KVWIRE_POD_TIMEOUT", value_name = "TIME", default_value = "20s", value_parser = parse_duration)]
    pub(crate) pod_timeout: Duration,
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
