//! `kvwire deploy` and `kvwire collect`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::{Args, Subcommand, ValueEnum};

use super::OutputArgs;
use crate::measure::units::parse_duration;

/// Flags of `kvwire deploy`.
#[derive(Debug, Args)]
pub(crate) struct DeployArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: DeployCommand,
}

/// What can be done with the two pods.
#[derive(Debug, Subcommand)]
pub(crate) enum DeployCommand {
    /// Print the manifests, as `kubectl apply -f -` takes them.
    Render(Box<RenderArgs>),
    /// Apply the manifests; a Job of that name from before is deleted.
    Apply(Box<RenderArgs>),
    /// Wait until the Job has ended, and end with the run's exit code.
    Wait(WaitArgs),
    /// Show progress until the Job has ended, fetch the result, and end with the run's exit code.
    Collect(CollectArgs),
    /// Delete everything that belongs to the Job.
    Delete(DeleteArgs),
}

/// Which Job.
#[derive(Debug, Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct JobArgs {
    /// Name of the Job: kvwire, or kvwire-… where a namespace has several
    #[arg(long, env = "KVWIRE_JOB", value_name = "NAME", default_value = "kvwire")]
    pub(crate) job: String,
    /// Namespace [default: kubectl's]
    #[arg(long, short, env = "KVWIRE_NAMESPACE", value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Context of kubectl's configuration [default: the current one]
    #[arg(long, env = "KVWIRE_CONTEXT", value_name = "NAME")]
    pub(crate) context: Option<String>,
}

/// The overlay: what gives the pods a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fabric {
    /// None: TCP, in any cluster.
    Tcp,
    /// InfiniBand through the shared RDMA device plugin.
    Infiniband,
    /// RoCE through the shared RDMA device plugin.
    Roce,
    /// A virtual RDMA function through SR-IOV and Multus.
    Sriov,
    /// RDMA networks of GKE.
    GkeRdma,
    /// EFA of AWS.
    AwsEfa,
    /// InfiniBand of AKS.
    AksInfiniband,
    /// NVLink between nodes, with a ComputeDomain.
    Gb200Mnnvl,
}

/// Flags of `kvwire deploy render` and `apply`.
#[derive(Debug, Args)]
pub(crate) struct RenderArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,

    /// The fabric that the pods are given
    #[arg(long, env = "KVWIRE_FABRIC", value_name = "NAME", default_value = "tcp", help_heading = "Pods")]
    pub(crate) fabric: Fabric,
    /// The image that holds kvwire [default: `kvwire` with this version as its tag, as deploy/Containerfile builds it]
    #[arg(long, env = "KVWIRE_IMAGE", value_name = "IMAGE", help_heading = "Pods")]
    pub(crate) image: Option<String>,
    /// Test the NIXL of this image (vLLM, SGLang, Dynamo, …): kvwire is copied into it when the pods start
    #[arg(long, env = "KVWIRE_INTO", value_name = "IMAGE", help_heading = "Pods")]
    pub(crate) into: Option<String>,
    /// The nodes that the pods run on, by their host name label
    #[arg(long, env = "KVWIRE_NODES", value_name = "NODE", value_delimiter = ',', help_heading = "Pods")]
    pub(crate) nodes: Vec<String>,
    /// Put both pods on one node
    #[arg(long, env = "KVWIRE_SAME_NODE", value_parser = FalseyValueParser::new(), help_heading = "Pods")]
    pub(crate) same_node: bool,
    /// GPUs of each pod
    #[arg(long, env = "KVWIRE_GPUS", value_name = "N", help_heading = "Pods")]
    pub(crate) gpus: Option<u32>,
    /// Also apply a NetworkPolicy that lets only the two pods talk to each other
    #[arg(long, env = "KVWIRE_NETWORK_POLICY", value_parser = FalseyValueParser::new(), help_heading = "Pods")]
    pub(crate) network_policy: bool,
    /// Also write results to the volume claim kvwire-results
    #[arg(long, env = "KVWIRE_RESULTS_VOLUME", value_parser = FalseyValueParser::new(), help_heading = "Pods")]
    pub(crate) results_volume: bool,

    /// Let the two sides meet in an etcd of their own instead of at the target
    #[arg(long, env = "KVWIRE_ETCD", value_parser = FalseyValueParser::new(), help_heading = "Rendezvous")]
    pub(crate) etcd: bool,
    /// Take the token from this Secret of the namespace (key `token`) [default: a token for this run alone]
    #[arg(
        long,
        env = "KVWIRE_TOKEN_SECRET",
        value_name = "NAME",
        conflicts_with = "etcd",
        help_heading = "Rendezvous"
    )]
    pub(crate) token_secret: Option<String>,

    /// Model whose KV cache is moved, by name (`kvwire plan --list-models`)
    #[arg(long, env = "KVWIRE_MODEL", value_name = "MODEL", help_heading = "What is measured")]
    pub(crate) model: Option<String>,
    /// What is moved: uniform, paged, slice, staged
    #[arg(long, env = "KVWIRE_WORKLOAD", value_name = "KIND", help_heading = "What is measured")]
    pub(crate) workload: Option<String>,
    /// Any other flag of `kvwire run` by its variable, for example KVWIRE_SIZES=4KiB,64MiB; repeat it, or separate with ';'
    #[arg(long, env = "KVWIRE_PLAN", value_name = "NAME=VALUE", value_delimiter = ';', value_parser = name_and_value,
          help_heading = "What is measured")]
    pub(crate) plan: Vec<(String, String)>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Flags of `kvwire deploy wait`.
#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// How long to wait
    #[arg(long, env = "KVWIRE_TIMEOUT", value_name = "TIME", default_value = "30m", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Flags of `kvwire collect`.
#[derive(Debug, Args)]
pub(crate) struct CollectArgs {
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    /// Where the result goes: JOB.json and JOB.html
    #[arg(long, env = "KVWIRE_FOLDER", value_name = "FOLDER", default_value = ".", help_heading = "Output")]
    pub(crate) folder: PathBuf,
}

/// Flags of `kvwire deploy delete`.
#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

fn name_and_value(text: &str) -> Result<(String, String), String> {
    let (name, value) =
        text.split_once('=').ok_or("write it as NAME=VALUE, for example KVWIRE_SIZES=4KiB")?;
    Ok((name.to_owned(), value.to_owned()))
}
