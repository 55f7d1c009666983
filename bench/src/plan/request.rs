//! From what a user asked for to a plan: expanded, held against memory and time, or refused with the flag and the fix.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Case, Op, Plan};
use crate::measure::units::ByteSize;
use crate::memory::{MemoryWish, Nics, UCX_NET_DEVICES};
use crate::proof::Expect;
use crate::workload::{KvRequest, TokenCount, memory_of};

/// What a user asked for, already parsed value by value, not yet checked as a whole.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Whether uniform blocks are measured.
    pub(crate) uniform: bool,
    /// The KV cache to move.
    pub(crate) kv: Option<KvRequest>,
    /// See [`Plan::interval_ns`].
    pub(crate) interval_ns: Option<u64>,
    /// Descriptor sizes in bytes, in order.
    pub(crate) sizes: Vec<u64>,
    /// Descriptors per transfer, in order.
    pub(crate) batches: Vec<u32>,
    /// Directions, in order; none is both for uniform blocks, and the engine's own for a KV cache.
    pub(crate) ops: Vec<Op>,
    /// READ and WRITE at once, instead of one after the other.
    pub(crate) bidirectional: bool,
    /// See [`Plan::depth`].
    pub(crate) depth: u32,
    /// See [`Plan::ranks`].
    pub(crate) ranks: u32,
    /// See [`Plan::repeat`].
    pub(crate) repeat: u32,
    /// See [`Plan::warmup`].
    pub(crate) warmup: u64,
    /// See [`Plan::samples`].
    pub(crate) samples: u64,
    /// Time of one timed loop; `None` lets the total time decide, or the default.
    pub(crate) case_time: Option<Duration>,
    /// See [`Plan::total_time_ms`].
    pub(crate) total_time: Option<Duration>,
    /// Seed; `None` draws one.
    pub(crate) seed: u64,
    /// Bytes to register on each side; `None` takes what the largest case needs.
    pub(crate) pool: Option<u64>,
    /// Bytes that one side may take; `None` means `memory_limit`.
    pub(crate) max_memory: Option<u64>,
    /// Bytes that one side can have on this machine, and why that many.
    pub(crate) memory_limit: u64,
    /// See [`Plan::merge`].
    pub(crate) merge: bool,
    /// See [`Plan::recreate`].
    pub(crate) recreate: bool,
    /// See [`Plan::notify`].
    pub(crate) notify: bool,
    /// See [`Plan::transfer_timeout_ms`].
    pub(crate) transfer_timeout: Duration,
    /// See [`Plan::ucx_env`].
    pub(crate) ucx_env: BTreeMap<String, String>,
    /// See [`Plan::expect`].
    pub(crate) expect: Expect,
    /// See [`Plan::strict`].
    pub(crate) strict: bool,
    /// See [`Plan::memory`].
    pub(crate) memory: MemoryWish,
    /// See [`Plan::min_efficiency_percent`].
    pub(crate) min_efficiency_percent: Option<u32>,
}

/// A value that cannot be measured: which flag, what is wrong with it, what to type instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{flag}: {problem}\n  fix: {fix}")]
pub(crate) struct PlanError {
    /// The flag to change, for example `--pool`.
    pub(crate) flag: &'static str,
    /// What is wrong.
    pub(crate) problem: String,
    /// What to type instead.
    pub(crate) fix: String,
}

fn refuse<T>(flag: &'static str, problem: impl Into<String>, fix: impl Into<String>) -> Result<T, PlanError> {
    Err(PlanError { flag, problem: problem.into(), fix: fix.into() })
}

/// Time of one timed loop when neither `--case-time` nor `--total-time` is given.
pub(super) const CASE_TIME_DEFAULT: Duration = Duration::from_millis(500);
/// The same where a KV cache is moved: a prompt takes a hundred times as long as a block, and a median needs some dozens.
const CASE_TIME_KV: Duration = Duration::from_secs(5);
/// Share of the total time that the timed loops may take; the rest is filling, warm-up and checking.
const TIMED_SHARE: f64 = 0.6;
/// Descriptors of one transfer, at most: NIXL's index lists are 32-bit and a request holds them all.
const BATCH_MAX: u32 = 1 << 20;
/// Descriptors of one KV transfer, at most: what a prompt of a million tokens has in the layouts of today.
const DESCRIPTORS_MAX: u64 = 1 << 24;
/// The end of the pool that KV cases keep for kvwire's own words, in bytes.
pub(crate) const DESK_BYTES: u64 = 4096;
/// Outstanding requests, at most.
const DEPTH_MAX: u32 = 4096;
/// Ranks on each side, at most: each has a word of its own at the end of the pool.
pub(super) const RANKS_MAX: u32 = 64;
/// Rounds of all cases, at most: far more than a comparison needs.
const REPEAT_MAX: u32 = 1_000;
/// Registered memory is a multiple of this, so that large pages can back it.
const POOL_UNIT: u64 = 2 << 20;

impl Request {
    /// Checks the request as a whole and expands it into cases.
    ///
    /// # Errors
    /// The first value that cannot be measured, with the flag and the fix.
    pub(crate) fn resolve(self) -> Result<Plan, PlanError> {
        self.check_counts()?;
        let cases = self.expand()?;
        let case_time = self.resolve_case_time(cases.len() * self.repeat as usize)?;
        let pool_bytes = self.resolve_pool(&cases)?;
        Ok(Plan {
            cases,
            depth: self.depth,
            ranks: self.ranks,
            repeat: self.repeat,
            warmup: self.warmup,
            samples: self.samples,
            case_time_ms: millis(case_time),
            total_time_ms: self.total_time.map(millis),
            seed: self.seed,
            pool_bytes,
            merge: self.merge,
            recreate: self.recreate,
            notify: self.notify,
            interval_ns: self.interval_ns,
            transfer_timeout_ms: millis(self.transfer_timeout),
            ucx_env: self.ucx_env,
            expect: self.expect,
            strict: self.strict,
            memory: self.memory,
            min_efficiency_percent: self.min_efficiency_percent,
        })
    }

    fn check_counts(&self) -> Result<(), PlanError> {
        if self.sizes.is_empty() {
            return refuse("--sizes", "no size is given", "give at least one, for example --sizes 64KiB");
        }
        if matches!(self.memory.nics, Nics::List(_)) && self.ucx_env.contains_key(UCX_NET_DEVICES) {
            return refuse(
                "--nics",
                format!("--ucx-env {UCX_NET_DEVICES} names the devices as well"),
                "give one of the two: --nics for the ports alone, --ucx-env for a list of UCX's own",
            );
        }
        if let Some(batch) = self.batches.iter().find(|b| **b == 0 || **b > BATCH_MAX) {
            return refuse(
                "--batch",
                format!("{batch} descriptors in one transfer cannot be measured"),
                format!("give 1 to {BATCH_MAX}"),
            );
        }
        if self.depth == 0 || self.depth > DEPTH_MAX {
            return refuse(
                "--depth",
                format!("{} outstanding requests cannot be measured", self.depth),
                format!("give 1 to {DEPTH_MAX}"),
            );
        }
        if self.ranks == 0 || self.ranks > RANKS_MAX {
            return refuse(
                "--ranks",
                format!("{} ranks on each side cannot be measured", self.ranks),
                format!("give 1 to {RANKS_MAX}"),
            );
        }
        if self.bidirectional && self.ops.len() == 1 {
            return refuse(
                "--bidirectional",
                format!("READ and WRITE cannot run at once where --op allows {} alone", self.ops[0]),
                "drop --op or --bidirectional",
            );
        }
        if self.repeat == 0 || self.repeat > REPEAT_MAX {
            return refuse(
                "--repeat",
                format!("{} rounds cannot be measured", self.repeat),
                format!("give 1 to {REPEAT_MAX}"),
            );
        }
        if self.samples == 0 {
            return refuse("--samples", "a case without a timed transfer says nothing", "give 1 or more");
        }
        if self.samples < u64::from(self.depth) {
            return refuse(
                "--samples",
                format!("{} timed transfers cannot keep --depth {} outstanding", self.samples, self.depth),
                format!("give {} or more, or lower --depth", self.depth),
            );
        }
        if self.min_efficiency_percent.is_some_and(|percent| percent > 100) {
            return refuse("--min-efficiency", "no path reaches more than its limit", "give 0 to 100");
        }
        if self.transfer_timeout < Duration::from_millis(1) {
            return refuse(
                "--transfer-timeout",
                "every transfer would count as stalled",
                "give a time that no healthy transfer needs, for example 10s",
            );
        }
        Ok(())
    }

    fn resolve_case_time(&self, cases: usize) -> Result<Duration, PlanError> {
        let default = if self.kv.is_some() { CASE_TIME_KV } else { CASE_TIME_DEFAULT };
        let case_time = match (self.case_time, self.total_time) {
            (Some(case), Some(total)) if case > total => {
                return refuse(
                    "--case-time",
                    format!("one case may take {case:?}, longer than the whole run ({total:?})"),
                    "make --case-time shorter or --total-time longer",
                );
            }
            (Some(case), _) => case,
            (None, Some(total)) => total.mul_f64(TIMED_SHARE / cases.max(1) as f64).min(default),
            (None, None) => default,
        };
        if case_time < Duration::from_millis(1) {
            let flag = if self.case_time.is_some() { "--case-time" } else { "--total-time" };
            return refuse(
                flag,
                format!("{case_time:?} for each of {cases} cases is too short to measure"),
                "give at least 1ms a case",
            );
        }
        Ok(case_time)
    }

    fn expand(&self) -> Result<Vec<Case>, PlanError> {
        let mut cases = Vec::new();
        let ops = match self.ops.as_slice() {
            _ if self.bidirectional => &[Op::Both],
            [] => Op::Both.directions(),
            some => some,
        };
        for &op in ops.iter().filter(|_| self.uniform) {
            for &batch in &self.batches {
                for &block_bytes in &self.sizes {
                    cases.push(Case { op, block_bytes, batch, kv: None });
                }
            }
        }
        if let Some(kv) = &self.kv {
            self.expand_kv(kv, &mut cases)?;
        }
        Ok(cases)
    }

    fn expand_kv(&self, kv: &KvRequest, cases: &mut Vec<Case>) -> Result<(), PlanError> {
        let mut used: Vec<Op> = Vec::new();
        for (own, shape) in kv.shapes()? {
            let ops = match self.ops.as_slice() {
                _ if self.bidirectional => vec![Op::Both],
                [] => vec![own],
                some => some.to_vec(),
            };
            if shape.descriptors(0) > DESCRIPTORS_MAX {
                return refuse(
                    "--tokens",
                    format!("{} has {} descriptors in one request", shape.title(), shape.descriptors(0)),
                    format!(
                        "lower --tokens or raise --block-tokens until there are {DESCRIPTORS_MAX} at most"
                    ),
                );
            }
            for op in ops {
                cases.push(Case::of_kv(op, shape.clone()));
                // A descriptor has a cost in each direction.
                used.extend(
                    op.directions().iter().filter(|op| !used.contains(op)).copied().collect::<Vec<_>>(),
                );
            }
        }
        for shape in kv.sweep_shapes()? {
            cases.extend(used.iter().map(|op| Case::of_kv(*op, shape.clone())));
        }
        Ok(())
    }

    fn resolve_pool(&self, cases: &[Case]) -> Result<u64, PlanError> {
        let limit = self.max_memory.unwrap_or(self.memory_limit);
        self.check_kv_memory(cases, limit)?;
        let Some((needed, largest)) = self.largest(cases) else {
            return refuse(
                "--batch",
                "one transfer would be larger than 64-bit addresses can say",
                "lower --sizes, --batch or --depth",
            );
        };
        let pool = match self.pool {
            Some(pool) if pool < needed => {
                return refuse(
                    "--pool",
                    format!(
                        "{} is too small: {largest} with --depth {} needs {}",
                        ByteSize(pool),
                        self.depth,
                        ByteSize(needed)
                    ),
                    format!("give --pool {} or more, or lower --sizes, --batch or --depth", plain(needed)),
                );
            }
            Some(pool) => pool,
            None => needed.next_multiple_of(POOL_UNIT),
        };
        let all = pool.saturating_mul(u64::from(self.ranks));
        if all > limit {
            let (flag, why) = match self.max_memory {
                Some(_) => ("--max-memory", "--max-memory allows"),
                None if self.ranks > 1 => ("--ranks", "this machine can spare for one side"),
                None if self.pool.is_some() => ("--pool", "this machine can spare for one side"),
                None if self.depth > 1 => ("--depth", "this machine can spare for one side"),
                None if largest.batch > 1 => ("--batch", "this machine can spare for one side"),
                None => ("--sizes", "this machine can spare for one side"),
            };
            return refuse(
                flag,
                format!(
                    "{largest} with --depth {}{} needs {} of registered memory on each side, more than the {} that {why}",
                    self.depth,
                    if self.ranks > 1 { format!(" and --ranks {}", self.ranks) } else { String::new() },
                    ByteSize(all),
                    ByteSize(limit),
                ),
                "lower --sizes, --batch, --depth, --ranks or --pool, or raise --max-memory",
            );
        }
        Ok(pool)
    }

    /// Refuses a KV case that does not fit, and says which prompt would.
    fn check_kv_memory(&self, cases: &[Case], limit: u64) -> Result<(), PlanError> {
        let Some(kv) = &self.kv else { return Ok(()) };
        let pool = self.pool.unwrap_or(u64::MAX);
        for case in cases {
            let Some(shape) = &case.kv else { continue };
            // Each rank and direction takes as much.
            let shares = u64::from(self.ranks) * case.op.directions().len() as u64;
            let memory = memory_of(shape).and_then(|one| one.checked_mul(shares)).unwrap_or(u64::MAX);
            let pool_needed = case
                .pool_bytes(self.depth)
                .and_then(|bytes| bytes.checked_add(DESK_BYTES))
                .unwrap_or(u64::MAX);
            if memory <= limit && pool_needed <= pool {
                continue;
            }
            let (flag, most) = if pool_needed > pool {
                ("--pool", pool.saturating_sub(DESK_BYTES) / case.op.directions().len() as u64)
            } else {
                ("--tokens", limit / shares)
            };
            let fix = match kv.longest_that_fits(shape, most) {
                Some(tokens) => format!("the longest prompt that fits has {} tokens: --tokens {}", tokens, TokenCount(tokens)),
                None => "not even one block fits: choose another --layout, or give more memory (--max-memory, --pool)".to_owned(),
            };
            let of_all =
                if self.ranks > 1 { format!(" for all {} ranks", self.ranks) } else { String::new() };
            return refuse(
                flag,
                format!(
                    "{case} needs {} on each side{of_all} (pool and descriptors), more than the {} that it may take",
                    approximate(memory),
                    approximate(limit.min(pool))
                ),
                fix,
            );
        }
        Ok(())
    }

    /// Bytes of the largest case, and that case; `None` when the product does not fit 64 bits.
    fn largest<'a>(&self, cases: &'a [Case]) -> Option<(u64, &'a Case)> {
        let mut found: Option<(u64, &Case)> = None;
        for case in cases {
            let bytes = case.pool_bytes(self.depth)?;
            let bytes = bytes.checked_add(if self.kv.is_some() { DESK_BYTES } else { 0 })?;
            let bytes = bytes.checked_add(POOL_UNIT)? - POOL_UNIT;
            if found.is_none_or(|(most, _)| bytes > most) {
                found = Some((bytes, case));
            }
        }
        found
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A size to three digits, where the exact one is nobody's concern.
fn approximate(bytes: u64) -> String {
    match bytes as f64 {
        b if b < 1024.0 * 1024.0 => ByteSize(bytes).to_string(),
        b if b < 1024.0 * 1024.0 * 1024.0 => format!("{:.1} MiB", b / f64::from(1 << 20)),
        b => format!("{:.1} GiB", b / f64::from(1 << 30)),
    }
}

/// A size as a person would type it back into a flag: `64MiB`.
fn plain(bytes: u64) -> String {
    ByteSize(bytes).to_string().replace(' ', "")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::plan) fn request() -> Request {
        Request {
            uniform: true,
            kv: None,
            interval_ns: None,
            sizes: vec![4096, 64 << 20],
            batches: vec![1],
            ops: vec![Op::Read, Op::Write],
            bidirectional: false,
            depth: 1,
            ranks: 1,
            repeat: 1,
            warmup: 100,
            samples: 10_000,
            case_time: None,
            total_time: None,
            seed: 1,
            pool: None,
            max_memory: None,
            memory_limit: 1 << 30,
            merge: true,
            recreate: false,
            notify: false,
            transfer_timeout: Duration::from_secs(10),
            ucx_env: BTreeMap::new(),
            expect: Expect::Auto,
            strict: false,
            memory: MemoryWish::default(),
            min_efficiency_percent: None,
        }
    }

    #[test]
    fn cases_are_every_op_and_size_in_order() {
        let plan = request().resolve().unwrap();
        let names: Vec<String> = plan.cases.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["READ 4 KiB x1", "READ 64 MiB x1", "WRITE 4 KiB x1", "WRITE 64 MiB x1"]);
        assert_eq!(plan.pool_bytes, 64 << 20);
    }

    #[test]
    fn a_pool_that_is_too_small_names_the_flag_and_the_size_to_give() {
        let error = Request { pool: Some(1 << 20), ..request() }.resolve().unwrap_err();
        assert_eq!(error.flag, "--pool");
        assert!(error.fix.contains("--pool 64MiB"), "{error}");
    }

    #[test]
    fn what_cannot_fit_names_the_flag_that_made_it_large() {
        let flag = |r: Request| r.resolve().unwrap_err().flag;
        assert_eq!(flag(Request { depth: 64, ..request() }), "--depth");
        assert_eq!(flag(Request { ranks: 17, ..request() }), "--ranks");
        assert!(Request { ranks: 16, ..request() }.resolve().is_ok());
        assert!(Request { ranks: 16, bidirectional: true, ..request() }.resolve().is_err());
        assert_eq!(flag(Request { batches: vec![64], ..request() }), "--batch");
        assert_eq!(flag(Request { sizes: vec![8 << 30], ..request() }), "--sizes");
        assert_eq!(flag(Request { max_memory: Some(1 << 20), ..request() }), "--max-memory");
        assert_eq!(flag(Request { sizes: vec![u64::MAX], ..request() }), "--batch");
        assert_eq!(flag(Request { pool: Some(2 << 30), ..request() }), "--pool");
    }

    #[test]
    fn devices_are_named_once() {
        let devices = |nics| Request {
            memory: MemoryWish { nics, ..MemoryWish::default() },
            ucx_env: [(UCX_NET_DEVICES.to_owned(), "mlx5_1:1".to_owned())].into(),
            ..request()
        };
        let twice = devices(Nics::List(vec!["mlx5_0:1".to_owned()])).resolve().unwrap_err();
        assert_eq!(twice.flag, "--nics");
        assert!(twice.problem.contains("--ucx-env UCX_NET_DEVICES"), "{twice}");
        assert!(devices(Nics::Auto).resolve().is_ok());
    }

    #[test]
    fn counts_of_zero_are_refused() {
        let flag = |r: Request| r.resolve().unwrap_err().flag;
        assert_eq!(flag(Request { depth: 0, ..request() }), "--depth");
        assert_eq!(flag(Request { batches: vec![0], ..request() }), "--batch");
        assert_eq!(flag(Request { samples: 0, ..request() }), "--samples");
        assert_eq!(flag(Request { repeat: 0, ..request() }), "--repeat");
        assert_eq!(flag(Request { ranks: 0, ..request() }), "--ranks");
        assert_eq!(flag(Request { ranks: 65, ..request() }), "--ranks");
        let one_way = Request { bidirectional: true, ops: vec![Op::Read], ..request() };
        assert_eq!(flag(one_way), "--bidirectional");
        assert_eq!(flag(Request { samples: 3, depth: 4, ..request() }), "--samples");
        assert_eq!(flag(Request { sizes: vec![], ..request() }), "--sizes");
        assert_eq!(flag(Request { transfer_timeout: Duration::ZERO, ..request() }), "--transfer-timeout");
    }

    #[test]
    fn a_total_time_is_shared_by_the_cases() {
        let plan = Request { total_time: Some(Duration::from_secs(1)), ..request() }.resolve().unwrap();
        assert_eq!(plan.case_time_ms, 150);
        let long = Request { case_time: Some(Duration::from_secs(9)), ..request() };
        let error = Request { total_time: Some(Duration::from_secs(1)), ..long }.resolve().unwrap_err();
        assert_eq!(error.flag, "--case-time");
        let short = Request { total_time: Some(Duration::from_millis(3)), ..request() };
        assert_eq!(short.resolve().unwrap_err().flag, "--total-time");
    }
}
