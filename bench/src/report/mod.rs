//! One model of a result, and its renderings. Nothing here measures or judges.

mod compared;
mod csv;
mod hdr_log;
pub(crate) mod html;
pub(crate) mod json;
mod junit;
pub(crate) mod log;
mod markdown;
pub(crate) mod model;
mod prometheus;
pub(crate) mod read;
mod render;
pub(crate) mod table;

pub(crate) use render::{Format, run};
