//! What the user typed, one file a command. Every flag has a `KVWIRE_…` variable; the flag wins.

mod check;
mod deploy;
mod gate;
mod info;
mod install;
mod join;
mod kv;
mod measure;
mod memory;
mod output;
mod pair;
mod plan;
mod report;
#[cfg(test)]
mod suggestions;

use clap::{Parser, Subcommand};

pub(crate) use check::{
    CheckArgs, CheckCommand, CheckEnvArgs, CheckNixlArgs, CheckNodeArgs, ExplainArgs, FailOn, Format, PodArgs,
};
#[cfg(test)]
pub(crate) use deploy::Fabric;
pub(crate) use deploy::{CollectArgs, DeleteArgs, DeployArgs, DeployCommand, JobArgs, RenderArgs, WaitArgs};
pub(crate) use gate::{CalibrateArgs, GateArgs, GateCommand, TOLERANCE_DEFAULT};
pub(crate) use info::InfoArgs;
pub(crate) use install::InstallArgs;
pub(crate) use join::{InitiatorArgs, JoinArgs, RunArgs, TargetArgs, text_of};
pub(crate) use measure::{MeasureArgs, NixlArgs};
pub(crate) use memory::named;
pub(crate) use output::{OutputArgs, ProgressWhen, ResultArgs, When};
pub(crate) use pair::PairArgs;
pub(crate) use plan::PlanArgs;
pub(crate) use report::ReportArgs;

/// Proves which wire your KV cache takes, and how fast.
///
/// kvwire moves real transfers between a prefill-side and a decode-side process through NIXL's UCX
/// backend, checks every byte, and reports bandwidth and latency.
#[derive(Debug, Parser)]
#[command(name = "kvwire", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What no flag carries, since process lists and logs would show it.
const ETCD_HELP: &str = "\
Secrets come from the environment alone:
  KVWIRE_TOKEN                 token of a tcp:// rendezvous, the same on both sides [default: made by the target]
  KVWIRE_ETCD_USER, KVWIRE_ETCD_PASSWORD or KVWIRE_ETCD_PASSWORD_FILE
  KVWIRE_ETCD_CA, KVWIRE_ETCD_CERT, KVWIRE_ETCD_KEY   PEM files for etcds://";

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure between two processes on this machine.
    ///
    /// Starts a target and an initiator, each with an engine process of its own, moves checked bytes
    /// between them, and prints a table. It says nothing about a network between two hosts.
    #[command(allow_negative_numbers = true)]
    Pair(Box<PairArgs>),
    /// Wait on this host for an initiator, and serve what it measures.
    ///
    /// Prints one line to paste on the other host. Takes no measuring flags: those are the initiator's.
    #[command(allow_negative_numbers = true, after_help = ETCD_HELP)]
    Target(Box<TargetArgs>),
    /// Measure against a target on another host.
    #[command(allow_negative_numbers = true, after_help = ETCD_HELP)]
    Initiator(Box<InitiatorArgs>),
    /// Be target or initiator by index, as a Job, Slurm or mpirun starts processes.
    #[command(allow_negative_numbers = true, after_help = ETCD_HELP)]
    Run(Box<RunArgs>),
    /// Judge results against a baseline or thresholds, and fail when they got worse.
    #[command(allow_negative_numbers = true)]
    Gate(Box<GateArgs>),
    /// Render stored results for people and machines: HTML, Markdown, JUnit, Prometheus, CSV, HdrHistogram.
    Report(Box<ReportArgs>),
    /// Print how large a model's KV cache is, and what moving it takes in each engine's layout.
    ///
    /// Moves nothing and needs no NIXL: bytes and descriptors per rank for prompts of several lengths.
    Plan(Box<PlanArgs>),
    /// Look for what keeps the KV cache from RDMA and NVLink, without moving a byte between two processes.
    ///
    /// Without a subcommand everything that can be reached: manifests (--manifest), what of them arrived in the pods
    /// (--pod), the nodes and NIXL of the pods or of this machine; one answer, and what to fix first.
    Check(Box<CheckArgs>),
    /// Explain a variable or a finding.
    Explain(ExplainArgs),
    /// Show which NIXL, UCX and GPUs would be used, and every place that was searched.
    Info(InfoArgs),
    /// Run the two sides as two pods of one Kubernetes Job.
    ///
    /// Works through your own kubectl, with the manifests of deploy/, which are part of this program.
    Deploy(DeployArgs),
    /// Fetch the result of a Job: shows progress, writes JSON and HTML, and ends with the run's exit code.
    Collect(CollectArgs),
    /// Copy this program into a folder, so that it can run in a container whose image does not have it.
    Install(InstallArgs),
    /// The child process that loads NIXL. Started by the other commands, never by hand.
    #[command(hide = true)]
    Engine,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_has_an_environment_variable_and_a_help_line() {
        fn check(command: &clap::Command) {
            let is_flag =
                |a: &&clap::Arg| !a.is_positional() && a.get_id() != "help" && a.get_id() != "version";
            for flag in command.get_arguments().filter(is_flag) {
                let name = flag.get_long().unwrap_or_default();
                let env = flag.get_env().map(|v| v.to_string_lossy().into_owned());
                let expected = format!("KVWIRE_{}", name.to_uppercase().replace('-', "_"));
                assert_eq!(env, Some(expected), "--{name} of kvwire {}", command.get_name());
                assert!(flag.get_help().is_some(), "--{name} has no help");
            }
            command.get_subcommands().filter(|c| !c.is_hide_set()).for_each(check);
        }
        Cli::command().get_subcommands().filter(|c| !c.is_hide_set()).for_each(check);
    }
}
