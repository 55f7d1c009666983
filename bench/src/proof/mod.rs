//! Which wire carried the bytes: evidence from UCX's own log and from counters, and the judgement over it.
//!
//! Reading is apart from judging: `ucx` and `counters` turn text and files into values, `judge`, `expect` and
//! `cause` are pure functions over those values.

mod ability;
mod best;
mod cause;
mod class;
pub(crate) mod counters;
mod expect;
mod gpu;
mod judge;
mod kernel_files;
mod limit;
mod rate;
pub(crate) mod ucx;

pub(crate) use ability::Ability;
pub(crate) use cause::{Setting, explain, rails, strict_doubt, two_copies, unproven, unusable_ports, wire};
pub(crate) use class::{Class, Expect};
pub(crate) use expect::{Expected, Meets, expected, meets};
pub(crate) use gpu::{gpus_here, out_of_reach};
pub(crate) use judge::{CaseFacts, DeviceShare, EngineOfSide, GpuOfSide, GpusOfSides, Transport, judge};
pub(crate) use limit::{limit, limit_of_all, paths, too_slow};
pub(crate) use rate::gpu_link;
pub(crate) use ucx::trouble as logged;
