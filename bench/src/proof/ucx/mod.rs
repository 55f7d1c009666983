//! What UCX says in its log: protocol tables, endpoint configurations, and lines that ask for attention.

mod line;
mod log;
mod table;
pub(crate) mod trouble;

pub(crate) use log::UcxLog;
pub(crate) use table::{Lane, Row, Table};
pub(crate) use trouble::{Trouble, findings};
