//! Flags that decide what is measured. Given once, on the initiator.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::FalseyValueParser;

use super::kv::KvArgs;
use super::memory::MemoryArgs;
use crate::measure::size_list::SizeList;
use crate::measure::units::{ByteSize, parse_duration};
use crate::plan::{Op, Plan, PlanError, Request};
use crate::proof::Expect;

/// The measuring flags.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "What is measured")]
pub(crate) struct MeasureArgs {
    #[command(flatten)]
    pub(crate) kv: KvArgs,

    #[command(flatten)]
    pub(crate) memory: MemoryArgs,

    /// Block sizes: a list (4KiB,1MiB) or a range in powers of two (4KiB..64MiB)
    #[arg(long, env = "KVWIRE_SIZES", value_name = "LIST", default_value = "4KiB..64MiB")]
    pub(crate) sizes: SizeList,

    /// Blocks (descriptors) in one transfer; a comma list measures each
    #[arg(long, env = "KVWIRE_BATCH", value_name = "N", default_value = "1", value_delimiter = ',')]
    pub(crate) batch: Vec<u32>,

    /// Direction: read (the initiator pulls), write (the initiator pushes); a comma list measures each [default: both,
    /// and for a KV cache what the engine of the layout does]
    #[arg(long, env = "KVWIRE_OP", value_name = "OP", value_delimiter = ',')]
    pub(crate) op: Vec<Op>,

    /// READ and WRITE at once, each on memory of its own, instead of one after the other
    #[arg(long, env = "KVWIRE_BIDIRECTIONAL", value_parser = FalseyValueParser::new())]
    pub(crate) bidirectional: bool,

    /// Ranks on each side, each a process with an agent and memory of its own; all of them move at once
    #[arg(long, env = "KVWIRE_RANKS", value_name = "N", default_value_t = 1)]
    pub(crate) ranks: u32,

    /// Transfers outstanding at once, in each rank and direction
    #[arg(long, env = "KVWIRE_DEPTH", value_name = "N", default_value_t = 1)]
    pub(crate) depth: u32,

    /// Measure all cases this many times, round after round, and keep each: a gate compares repetitions
    #[arg(long, env = "KVWIRE_REPEAT", value_name = "N", default_value_t = 1)]
    pub(crate) repeat: u32,

    /// Untimed transfers before each case, at most
    #[arg(long, env = "KVWIRE_WARMUP", value_name = "N", default_value_t = 100)]
    pub(crate) warmup: u64,

    /// Timed transfers of a case, at most; p99 needs 1,000 and p99.9 needs 10,000
    #[arg(long, env = "KVWIRE_SAMPLES", value_name = "N", default_value_t = 10_000)]
    pub(crate) samples: u64,

    /// Time of a case, at most [default: 500ms, 5s for a KV cache; less when --total-time asks for it]
    #[arg(long, env = "KVWIRE_CASE_TIME", value_name = "TIME", value_parser = parse_duration)]
    pub(crate) case_time: Option<Duration>,

    /// Time of the whole run; cases that would start later are not run
    #[arg(long, env = "KVWIRE_TOTAL_TIME", value_name = "TIME", value_parser = parse_duration)]
    pub(crate) total_time: Option<Duration>,

    /// Seed of the data pattern, to repeat a run exactly [default: random]
    #[arg(long, env = "KVWIRE_SEED", value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Make a request anew for each transfer instead of once per case
    #[arg(long, env = "KVWIRE_RECREATE", value_parser = FalseyValueParser::new())]
    pub(crate) recreate: bool,

    /// Send a completion notification with each transfer, as inference engines do, and time its cost
    #[arg(long, env = "KVWIRE_NOTIFY", value_parser = FalseyValueParser::new())]
    pub(crate) notify: bool,

    /// Keep NIXL from merging neighbouring blocks into one descriptor
    #[arg(long, env = "KVWIRE_NO_MERGE", value_parser = FalseyValueParser::new())]
    pub(crate) no_merge: bool,

    /// The wire that must carry the bytes, or a better one [auto: the best that the two nodes could use]
    #[arg(
        long,
        env = "KVWIRE_EXPECT",
        value_name = "WIRE",
        default_value = "auto",
        help_heading = "Proof of the wire"
    )]
    pub(crate) expect: Expect,

    /// Forbid UCX to fall back to software emulation, so that a transfer fails instead (UCX 1.21 or newer)
    #[arg(long, env = "KVWIRE_STRICT", value_parser = FalseyValueParser::new(),
          help_heading = "Proof of the wire")]
    pub(crate) strict: bool,

    /// Least share of what the path can reach, in percent: below it the run fails [default: below 80 % is a warning]
    #[arg(long, env = "KVWIRE_MIN_EFFICIENCY", value_name = "PERCENT", help_heading = "Limits")]
    pub(crate) min_efficiency: Option<u32>,

    /// Memory that each rank registers [default: what the largest case needs]
    #[arg(long, env = "KVWIRE_POOL", value_name = "SIZE", help_heading = "Limits")]
    pub(crate) pool: Option<ByteSize>,

    /// Memory that one side may take [default: 40 % of what is available]
    #[arg(long, env = "KVWIRE_MAX_MEMORY", value_name = "SIZE", help_heading = "Limits")]
    pub(crate) max_memory: Option<ByteSize>,

    /// A transfer that takes longer counts as stalled and ends the run
    #[arg(long, env = "KVWIRE_TRANSFER_TIMEOUT", value_name = "TIME", default_value = "5s",
          value_parser = parse_duration, help_heading = "Limits")]
    pub(crate) transfer_timeout: Duration,
}

/// Which NIXL, and its environment.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "NIXL and UCX")]
pub(crate) struct NixlArgs {
    /// NIXL's C library, or a folder that contains it [default: search, see `kvwire info`]
    #[arg(long, env = "KVWIRE_NIXL_LIB", value_name = "PATH")]
    pub(crate) nixl_lib: Option<PathBuf>,

    /// Environment for the engines, for example UCX_TLS=tcp; repeat it, or separate with ';'
    #[arg(
        long,
        env = "KVWIRE_UCX_ENV",
        value_name = "KEY=VALUE",
        value_delimiter = ';',
        value_parser = parse_key_value
    )]
    pub(crate) ucx_env: Vec<(String, String)>,
}

impl NixlArgs {
    /// The environment as a map; the last value of a name wins.
    pub(crate) fn environment(&self) -> BTreeMap<String, String> {
        self.ucx_env.iter().cloned().collect()
    }
}

/// Share of the available memory that one side takes at most, so that two sides on one host fit.
const MEMORY_SHARE: f64 = 0.4;

impl MeasureArgs {
    /// The plan that these flags describe, with `nixl`'s environment. `available` is the memory that can be had on this host, in bytes.
    ///
    /// # Errors
    /// The first flag that cannot be measured, with the fix.
    pub(crate) fn plan(&self, nixl: &NixlArgs, available: Option<u64>) -> Result<Plan, PlanError> {
        Request {
            uniform: self.kv.uniform(),
            kv: self.kv.request(crate::preflight::last_level_cache_bytes())?,
            interval_ns: self.kv.rate,
            sizes: self.sizes.sizes().iter().map(|size| size.0).collect(),
            batches: self.batch.clone(),
            ops: self.op.clone(),
            bidirectional: self.bidirectional,
            depth: self.depth,
            ranks: self.ranks,
            repeat: self.repeat,
            warmup: self.warmup,
            samples: self.samples,
            case_time: self.case_time,
            total_time: self.total_time,
            seed: self.seed.unwrap_or_else(random_seed),
            pool: self.pool.map(|size| size.0),
            max_memory: self.max_memory.map(|size| size.0),
            memory_limit: available.map_or(u64::MAX, |bytes| (bytes as f64 * MEMORY_SHARE) as u64),
            merge: !self.no_merge,
            recreate: self.recreate,
            notify: self.notify,
            transfer_timeout: self.transfer_timeout,
            ucx_env: nixl.environment(),
            expect: self.expect,
            strict: self.strict,
            memory: self.memory.wish(),
            min_efficiency_percent: self.min_efficiency,
        }
        .resolve()
    }
}

/// A seed that differs from run to run. It need not be secret, only recorded.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let hash = std::collections::hash_map::RandomState::new().build_hasher().finish();
    // JSON readers hold integers up to 2^53 exactly.
    hash & ((1 << 53) - 1)
}

fn parse_key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it as KEY=VALUE, for example UCX_TLS=tcp")?;
    let name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if key.is_empty() || !key.chars().all(name) || key.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!("`{key}` is not the name of an environment variable"));
    }
    if value.contains('\0') {
        return Err("a value cannot contain a NUL byte".to_owned());
    }
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_a_name_and_a_value_that_may_hold_commas_and_signs() {
        assert_eq!(parse_key_value("UCX_TLS=^tcp,x=y"), Ok(("UCX_TLS".into(), "^tcp,x=y".into())));
        assert_eq!(parse_key_value("UCX_TLS="), Ok(("UCX_TLS".into(), String::new())));
        assert!(parse_key_value("UCX_TLS").is_err());
        assert!(parse_key_value("=tcp").is_err());
        assert!(parse_key_value("UCX TLS=tcp").is_err());
        assert!(parse_key_value("1A=tcp").is_err());
    }

    #[test]
    fn seeds_differ_and_fit_a_json_number() {
        let seeds: Vec<u64> = (0..4).map(|_| random_seed()).collect();
        assert!(seeds.windows(2).all(|s| s[0] != s[1]));
        assert!(seeds.iter().all(|s| *s < 1 << 53));
    }
}
