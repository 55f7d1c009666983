//! What UCX says in its log: protocol tables, endpoint configurations, and lines that ask for attention.

mod line;
mod log;
mod table;
mod transport_list;
pub(crate) mod trouble;

pub(crate) use log::UcxLog;
pub(crate) use table::{Lane, Row, Table};
pub(crate) use transport_list::leaves_out;
pub(crate) use trouble::{Trouble, findings};
