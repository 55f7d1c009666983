//! Flags of every command that meets a peer on another host.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::FalseyValueParser;
use coordinator::RunId;

use super::{MeasureArgs, NixlArgs, OutputArgs, ResultArgs};
use crate::measure::units::parse_duration;

/// Where a target listens when nothing is said: next to perftest's 18515.
const LISTEN_DEFAULT: &str = "tcp://0.0.0.0:18516";

/// How the two sides find each other and how long they wait.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Rendezvous")]
pub(crate) struct JoinArgs {
    /// Name of the run [default: part of the join address; `default` with etcd]
    #[arg(long, env = "KVWIRE_RUN_ID", value_name = "NAME")]
    pub(crate) run_id: Option<RunId>,

    /// How long to wait for the other side to come
    #[arg(long, env = "KVWIRE_JOIN_TIMEOUT", value_name = "TIME", default_value = "120s", value_parser = parse_duration)]
    pub(crate) join_timeout: Duration,

    /// How long a silent peer or rendezvous is waited for once the run goes on (half of it is the lease time)
    #[arg(long, env = "KVWIRE_PEER_TIMEOUT", value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(crate) peer_timeout: Duration,

    /// Accept that both sides are on one host
    #[arg(long, env = "KVWIRE_ALLOW_SAME_HOST", value_parser = FalseyValueParser::new())]
    pub(crate) allow_same_host: bool,
}

/// Flags of `kvwire target`.
#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    /// Where to meet: tcp://host:port to listen there, etcd://host:port[,…][/prefix], etcds://… for TLS
    #[arg(long, env = "KVWIRE_RENDEZVOUS", value_name = "URL", default_value = LISTEN_DEFAULT, help_heading = "Rendezvous")]
    pub(crate) rendezvous: String,

    /// Host name or address for the printed join address [default: this host's address on its default route]
    #[arg(long, env = "KVWIRE_ADVERTISE", value_name = "HOST", help_heading = "Rendezvous")]
    pub(crate) advertise: Option<String>,

    /// Serve runs one after another until stopped
    #[arg(long, env = "KVWIRE_KEEP", value_parser = FalseyValueParser::new(), help_heading = "Rendezvous")]
    pub(crate) keep: bool,

    /// GPUs of this side, where the initiator's plan wants GPU memory: numbers, UUIDs or PCI addresses, or all [default:
    /// what the initiator says]
    #[arg(
        long,
        env = "KVWIRE_GPU",
        value_name = "LIST",
        value_delimiter = ',',
        help_heading = "Where the payload lies"
    )]
    pub(crate) gpu: Vec<String>,

    #[command(flatten)]
    pub(crate) join: JoinArgs,
    #[command(flatten)]
    pub(crate) nixl: NixlArgs,
    #[command(flatten)]
    pub(crate) result: ResultArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Flags of `kvwire initiator`.
#[derive(Debug, Args)]
pub(crate) struct InitiatorArgs {
    /// Where to meet: the join address that the target printed, or etcd://host:port[,…][/prefix], etcds://…
    #[arg(long, env = "KVWIRE_RENDEZVOUS", value_name = "URL", help_heading = "Rendezvous")]
    pub(crate) rendezvous: String,

    #[command(flatten)]
    pub(crate) join: JoinArgs,
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    #[command(flatten)]
    pub(crate) nixl: NixlArgs,
    #[command(flatten)]
    pub(crate) result: ResultArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Flags of `kvwire run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Where to meet: tcp://host:port of index 0, which listens there; etcd://host:port[,…][/prefix], etcds://…
    #[arg(long, env = "KVWIRE_RENDEZVOUS", value_name = "URL", help_heading = "Rendezvous")]
    pub(crate) rendezvous: String,

    /// 0 is the target, 1 the initiator [default: JOB_COMPLETION_INDEX, SLURM_PROCID, OMPI_COMM_WORLD_RANK or RANK]
    #[arg(long, env = "KVWIRE_INDEX", value_name = "N", help_heading = "Rendezvous")]
    pub(crate) index: Option<u32>,

    #[command(flatten)]
    pub(crate) join: JoinArgs,
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
    #[command(flatten)]
    pub(crate) nixl: NixlArgs,
    #[command(flatten)]
    pub(crate) result: ResultArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Variables that launchers number their processes with, in the order in which they are looked at.
pub(crate) const INDEX_VARIABLES: [&str; 4] =
    ["JOB_COMPLETION_INDEX", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "RANK"];

impl RunArgs {
    /// This process's index: from the flag, else from the launcher.
    ///
    /// # Errors
    /// Nobody says it, or it is not a number; the message names the flag and the fix.
    pub(crate) fn index(&self, lookup: impl Fn(&str) -> Option<String>) -> Result<u32, String> {
        if let Some(index) = self.index {
            return Ok(index);
        }
        for name in INDEX_VARIABLES {
            if let Some(text) = lookup(name) {
                return text.parse().map_err(|_| {
                    format!("--index: {name} is `{text}`, which is not a number\n  fix: give --index 0 or 1")
                });
            }
        }
        Err(format!(
            "--index: neither the flag nor any of {} says which side this is\n  fix: give --index 0 for the target, --index 1 for the initiator",
            INDEX_VARIABLES.join(", ")
        ))
    }
}

/// A path as it travels to the engine.
pub(crate) fn text_of(path: Option<&PathBuf>) -> Option<String> {
    path.map(|p| p.display().to_string())
}
