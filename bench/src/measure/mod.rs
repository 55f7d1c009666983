//! What is counted and how it is written: sizes, times, rates and latency distributions.

pub(crate) mod clock;
pub(crate) mod descriptor_cost;
pub(crate) mod histogram;
pub(crate) mod size_list;
pub(crate) mod units;
