//! `kvwire gate` and `kvwire gate calibrate`.

use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{Args, Subcommand};

use super::OutputArgs;
use crate::gate::Difference;

/// Share that a value may worsen by when nothing else says how much.
pub(crate) const TOLERANCE_DEFAULT: f64 = 0.05;

/// Flags of `kvwire gate`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct GateArgs {
    #[command(subcommand)]
    pub(crate) command: Option<GateCommand>,

    /// Result files to judge; several of one build count as repetitions
    #[arg(value_name = "RESULT", required = true)]
    pub(crate) results: Vec<PathBuf>,

    /// Result file to compare with; repeat it for several runs, whose spread then widens the tolerance
    #[arg(long, env = "KVWIRE_BASELINE", value_name = "FILE", value_delimiter = ',')]
    pub(crate) baseline: Vec<PathBuf>,

    /// TOML file with floors, ceilings and tolerances
    #[arg(long, env = "KVWIRE_THRESHOLDS", value_name = "FILE")]
    pub(crate) thresholds: Option<PathBuf>,

    /// What a value may worsen by where no threshold says another one
    #[arg(long, env = "KVWIRE_TOLERANCE", value_name = "PERCENT", default_value = "5%", value_parser = parse_share)]
    pub(crate) tolerance: f64,

    /// Compare although this differs; a comma list accepts both
    #[arg(long, env = "KVWIRE_ALLOW_DIFFERENT", value_name = "WHAT", value_delimiter = ',')]
    pub(crate) allow_different: Vec<Difference>,

    /// Pass (exit code 0) when nothing failed but something could not be decided
    #[arg(long, env = "KVWIRE_ALLOW_INCONCLUSIVE", value_parser = FalseyValueParser::new())]
    pub(crate) allow_inconclusive: bool,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// What else a gate can do.
#[derive(Debug, Subcommand)]
pub(crate) enum GateCommand {
    /// Turn runs in which nothing changed into thresholds above their noise.
    Calibrate(CalibrateArgs),
}

/// Flags of `kvwire gate calibrate`.
#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    /// Result files of the same thing, 5 at least, measured with --repeat
    #[arg(value_name = "RESULT", required = true)]
    pub(crate) results: Vec<PathBuf>,

    /// Write the thresholds to this TOML file
    #[arg(long, short = 'o', env = "KVWIRE_FILE", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// Put results together although this differs
    #[arg(long, env = "KVWIRE_ALLOW_DIFFERENT", value_name = "WHAT", value_delimiter = ',')]
    pub(crate) allow_different: Vec<Difference>,

    /// Write thresholds although the data are too few
    #[arg(long, env = "KVWIRE_ALLOW_INCONCLUSIVE", value_parser = FalseyValueParser::new())]
    pub(crate) allow_inconclusive: bool,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// A share, typed in percent: `5%`.
fn parse_share(text: &str) -> Result<f64, String> {
    let help = || format!("`{text}` is not a percentage; write it as 5%");
    let number: f64 = text.trim().strip_suffix('%').ok_or_else(help)?.trim().parse().map_err(|_| help())?;
    if number > 0.0 && number < 100.0 { Ok(number / 100.0) } else { Err(help()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_typed_in_percent() {
        assert!((parse_share("5%").unwrap() - 0.05).abs() < 1e-12);
        assert!((parse_share(" 2.5 %").unwrap() - 0.025).abs() < 1e-12);
        for text in ["5", "0%", "-1%", "100%", "x%", "NaN%"] {
            assert!(parse_share(text).is_err(), "{text}");
        }
    }
}
