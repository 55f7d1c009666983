//! `kvwire plan`.

use clap::Args;
use clap::builder::FalseyValueParser;

use super::OutputArgs;
use super::kv::ModelArgs;

/// Flags of `kvwire plan`.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,

    /// List the models that are known by name
    #[arg(long, env = "KVWIRE_LIST_MODELS", value_parser = FalseyValueParser::new(), help_heading = "KV cache")]
    pub(crate) list_models: bool,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
