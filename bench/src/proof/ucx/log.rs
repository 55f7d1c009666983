//! What is kept of an engine's UCX log, line by line as it comes: tables, configurations, trouble.

use std::collections::VecDeque;

use super::line::Line;
use super::table::{Reader, Table};
use super::trouble::Trouble;

/// Tables kept; the newest of one operation and endpoint replaces the older one.
const TABLES_MAX: usize = 256;
/// Endpoint lines kept.
const ENDPOINTS_MAX: usize = 32;
/// Lines of trouble kept: the first ones, since later ones repeat them.
const TROUBLE_MAX: usize = 64;

/// The part of a UCX log that says something about the wire. Bounded, whatever is logged.
#[derive(Debug, Default)]
pub(crate) struct UcxLog {
    reader: Reader,
    tables: VecDeque<Table>,
    endpoints: VecDeque<String>,
    trouble: Vec<Trouble>,
}

impl UcxLog {
    /// Takes one line of the engine's output. True for a line of a table, which explains no failure.
    pub(crate) fn push(&mut self, line: &str) -> bool {
        let line = Line::parse(line);
        if let Some(table) = self.reader.push(&line) {
            self.tables.retain(|old| old.endpoint != table.endpoint || old.selection != table.selection);
            if self.tables.len() == TABLES_MAX {
                self.tables.pop_front();
            }
            self.tables.push_back(table);
            return true;
        }
        if is_endpoint_line(line.text) {
            if self.endpoints.len() == ENDPOINTS_MAX {
                self.endpoints.pop_front();
            }
            self.endpoints.push_back(line.text.to_owned());
            return false;
        }
        if self.trouble.len() < TROUBLE_MAX {
            self.trouble.extend(Trouble::of(line.text).filter(|new| !self.trouble.contains(new)));
        }
        !line.origin.is_empty() && line.level.is_none() && line.text.starts_with(['|', '+'])
    }

    /// The newest table for a one-sided operation between two host memories, to another process.
    ///
    /// NIXL posts operations one after the other without waiting, which UCX calls `multi`; where UCX printed that
    /// table, it is the one.
    pub(crate) fn table(&self, operation: &str) -> Option<&Table> {
        let fits = |table: &&Table| !table.is_self() && table.selection.contains(operation);
        let multi = self.tables.iter().rev().filter(fits).find(|table| table.selection.contains("(multi)"));
        multi.or_else(|| self.tables.iter().rev().find(fits))
    }

    /// The newest endpoint line (`… cfg#1 rma(…) am(…)`), which UCX prints at log level info.
    pub(crate) fn endpoint(&self) -> Option<&str> {
        self.endpoints.iter().rev().map(String::as_str).find(|line| !line.contains(" self cfg#"))
    }

    /// The lines that matter.
    pub(crate) fn trouble(&self) -> &[Trouble] {
        &self.trouble
    }
}

/// `ctx intra-node cfg#1 rma_am(tcp/lo) …`, and before UCX 1.15 `ep_cfg[0]: rma_am(tcp/lo) …`.
fn is_endpoint_line(text: &str) -> bool {
    (text.contains(" cfg#") || text.starts_with("ep_cfg[")) && text.contains(" am(")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(text: &str) -> UcxLog {
        let mut log = UcxLog::default();
        for line in text.lines() {
            log.push(line);
        }
        log
    }

    #[test]
    fn endpoint_lines_of_every_version_are_kept() {
        for (text, lane) in [
            (include_str!("logs/ucx-1.13.1-info.log"), "rma_am(tcp/lo)"),
            (include_str!("logs/ucx-1.18.1-info.log"), "rma_am(tcp/lo)"),
            (include_str!("logs/ucx-1.20.1-info.log"), "rma_am(tcp/eth0)"),
            (include_str!("logs/ucx-1.21-emulation-off.log"), "rma_am(tcp/lo)"),
            (include_str!("logs/ucx-1.23-used.log"), "am(tcp/lo cma/memory)"),
        ] {
            assert!(log(text).endpoint().unwrap().contains(lane), "{lane}");
        }
    }

    #[test]
    fn the_table_of_the_operation_is_the_newest_to_another_process() {
        let log = log(include_str!("logs/ucx-1.23-tables.log"));
        assert!(log.table("ucp_get").unwrap().row(1).unwrap().is_emulated());
        let put = log.table("ucp_put").unwrap();
        assert!(put.selection.contains("(multi)") && put.endpoint.contains("intra-node"), "{put:?}");
        assert!(log.table("ucp_tag").is_none());
    }

    #[test]
    fn whatever_is_logged_the_memory_is_bounded() {
        let mut log = UcxLog::default();
        for n in 0..1000 {
            log.push(&format!("[1.0] [h:1:0]  x.c:1 UCX  WARN  unused environment variable: UCX_A{n}"));
            log.push(&format!(
                "[1.0] [h:1:0]  x.c:1 UCX  INFO  a intra-node cfg#{n} rma(tcp/lo)  am(tcp/lo)"
            ));
            log.push(&format!("[1.0] [h:1:{n}]   | a intra-node cfg#{n} | remote memory read by ucp_get* |"));
            log.push(&format!("[1.0] [h:1:{n}]   +---+"));
            log.push(&format!("[1.0] [h:1:{n}]   +---+"));
        }
        assert!(log.tables.len() <= TABLES_MAX && log.endpoints.len() <= ENDPOINTS_MAX);
        assert!(log.trouble.len() <= TROUBLE_MAX);
    }
}
