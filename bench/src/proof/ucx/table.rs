//! UCX's protocol tables (`UCX_PROTO_INFO=y`): for each operation and size, how and over which lanes.
//!
//! Two layouts are read: up to UCX 1.21 the first row holds endpoint and operation side by side, from 1.22 on they
//! stand in two rows above a header.

use std::collections::BTreeMap;

use super::line::Line;

/// Rows kept of one table; UCX prints a handful.
const ROWS_MAX: usize = 64;
/// Threads whose tables are read side by side.
const ORIGINS_MAX: usize = 64;
/// Lanes kept of one row.
const LANES_MAX: usize = 64;

/// How UCX carries one kind of operation over one endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    /// Name of the endpoint configuration, for example `kvwire-initiator-7 intra-node cfg#1`.
    pub(crate) endpoint: String,
    /// The operation, for example `remote memory read by ucp_get*(multi) into host memory from host`.
    pub(crate) selection: String,
    /// One row for each range of sizes. None at all when UCX found no protocol.
    pub(crate) rows: Vec<Row>,
}

/// One range of sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// Smallest and largest size in bytes; the largest may be `u64::MAX`.
    pub(crate) sizes: (u64, u64),
    /// How, for example `zero-copy` or `software emulation`.
    pub(crate) how: String,
    /// Over what.
    pub(crate) lanes: Vec<Lane>,
}

/// A part of the way: one device by one transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lane {
    /// UCX's transport, for example `rc_mlx5`.
    pub(crate) transport: String,
    /// The device, for example `mlx5_0:1`.
    pub(crate) device: String,
    /// Part of the bytes that UCX plans for it, in percent; `None` when it is the only one.
    pub(crate) percent: Option<u8>,
}

impl Table {
    /// True for an endpoint of a process to itself, which carries no payload.
    pub(crate) fn is_self(&self) -> bool {
        self.endpoint.contains(" self cfg#")
    }

    /// The row for operations of `bytes`.
    pub(crate) fn row(&self, bytes: u64) -> Option<&Row> {
        self.rows.iter().find(|row| row.sizes.0 <= bytes && bytes <= row.sizes.1)
    }
}

impl Row {
    /// True when software on the other side takes part in every operation.
    pub(crate) fn is_emulated(&self) -> bool {
        self.how.contains("software emulation")
    }
}

/// Reads tables from lines that come one by one, threads mixed.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    open: BTreeMap<String, Open>,
}

#[derive(Debug)]
enum Open {
    /// The first title row of the newer layout has been read.
    Titled(String),
    /// Both titles have been read.
    Body { table: Table, separators: u8, header: Option<Header> },
}

#[derive(Debug, Clone, Copy)]
struct Header {
    counted: bool,
}

impl Reader {
    /// Takes one line; gives back a table when the line ends one.
    pub(crate) fn push(&mut self, line: &Line<'_>) -> Option<Table> {
        if line.level.is_some() {
            return None;
        }
        if line.text.starts_with("+-") {
            return self.separator(line.origin);
        }
        let cells = cells(line.text)?;
        self.row(line.origin, &cells);
        None
    }

    fn separator(&mut self, origin: &str) -> Option<Table> {
        let Some(Open::Body { table, separators, header }) = self.open.get_mut(origin) else { return None };
        *separators += 1;
        let over = !table.rows.is_empty() || (*separators >= 2 && header.is_none()) || *separators >= 3;
        if !over {
            return None;
        }
        match self.open.remove(origin) {
            Some(Open::Body { table, .. }) => Some(table),
            _ => None,
        }
    }

    fn row(&mut self, origin: &str, cells: &[&str]) {
        match (self.open.remove(origin), cells) {
            (_, [endpoint]) if is_endpoint(endpoint) => {
                self.keep(origin, Open::Titled((*endpoint).to_owned()));
            }
            (_, [endpoint, selection]) if is_endpoint(endpoint) => {
                self.keep(origin, body(endpoint, selection));
            }
            (Some(Open::Titled(endpoint)), [selection]) => self.keep(origin, body(&endpoint, selection)),
            (Some(Open::Body { mut table, separators, header }), cells) => {
                let header = match cells {
                    ["Range", ..] => Some(Header { counted: false }),
                    ["Count", ..] => Some(Header { counted: true }),
                    _ => {
                        if let Some(row) = row(cells, header).filter(|_| table.rows.len() < ROWS_MAX) {
                            table.rows.push(row);
                        }
                        header
                    }
                };
                self.keep(origin, Open::Body { table, separators, header });
            }
            _ => {}
        }
    }

    fn keep(&mut self, origin: &str, open: Open) {
        if self.open.len() < ORIGINS_MAX || self.open.contains_key(origin) {
            self.open.insert(origin.to_owned(), open);
        }
    }
}

fn body(endpoint: &str, selection: &str) -> Open {
    let table = Table { endpoint: endpoint.to_owned(), selection: selection.to_owned(), rows: Vec::new() };
    Open::Body { table, separators: 0, header: None }
}

fn cells(text: &str) -> Option<Vec<&str>> {
    let inner = text.strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

fn is_endpoint(cell: &str) -> bool {
    cell.split_once(" cfg#").is_some_and(|(before, number)| {
        let place = before.rsplit(' ').next().unwrap_or_default();
        matches!(place, "self" | "intra-node" | "inter-node")
            && number.starts_with(|c: char| c.is_ascii_digit())
    })
}

fn row(cells: &[&str], header: Option<Header>) -> Option<Row> {
    let (range, how, config) = match (cells, header) {
        ([_, range, how, config], Some(Header { counted: true })) => (*range, *how, *config),
        ([range, how, config], _) => (*range, *how, *config),
        _ => return None,
    };
    // The older layout puts the count of `UCX_PROTO_INFO=used` in front of the range, in the same cell.
    let range = range.split_whitespace().last()?;
    Some(Row { sizes: sizes(range)?, how: how.trim_start_matches("(?) ").to_owned(), lanes: lanes(config) })
}

fn sizes(range: &str) -> Option<(u64, u64)> {
    match range.split_once("..") {
        Some((from, to)) => Some((size(from)?, size(to)?)),
        None => size(range).map(|only| (only, only)),
    }
}

fn size(text: &str) -> Option<u64> {
    if text == "inf" {
        return Some(u64::MAX);
    }
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..)? {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_shl(unit)
}

/// `tcp/lo`, `52% on tcp/lo and 48% on tcp/eth0`, `rc_mlx5/mlx5_0:1 50% on path0 and 50% on path1`.
fn lanes(config: &str) -> Vec<Lane> {
    let mut lanes: Vec<Lane> = Vec::new();
    for part in config.replace(", and ", ", ").replace(" and ", ", ").split(", ").take(LANES_MAX) {
        let (percent, place) = match part.split_once("% on ") {
            Some((before, place)) => {
                let (device, percent) = before.rsplit_once(' ').unwrap_or(("", before));
                // The device of several paths stands once, in front.
                (percent.parse().ok(), if device.is_empty() { place } else { device })
            }
            None => (None, part),
        };
        match place.split_once('/') {
            Some((transport, device)) => lanes.push(Lane {
                transport: transport.trim().to_owned(),
                device: device.split('/').next().unwrap_or(device).trim().to_owned(),
                percent,
            }),
            None => {
                if let Some(previous) = lanes.last().cloned().filter(|_| place.starts_with("path")) {
                    lanes.push(Lane { percent, ..previous });
                }
            }
        }
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(text: &str) -> Vec<Table> {
        let mut reader = Reader::default();
        text.lines().filter_map(|line| reader.push(&Line::parse(line))).collect()
    }

    fn lane(transport: &str, device: &str, percent: Option<u8>) -> Lane {
        Lane { transport: transport.to_owned(), device: device.to_owned(), percent }
    }

    fn found<'a>(tables: &'a [Table], operation: &str) -> &'a Table {
        tables.iter().rfind(|t| !t.is_self() && t.selection.contains(operation)).unwrap()
    }

    #[test]
    fn the_layout_of_ucx_1_20_is_read() {
        let tables = tables(include_str!("logs/ucx-1.20-tables.log"));
        assert_eq!(tables.len(), 2);
        let put = found(&tables, "ucp_put*").row(1 << 20).unwrap();
        assert_eq!((put.how.as_str(), &put.lanes[..]), ("zero-copy", &[lane("tcp", "eth0", None)][..]));
        assert!(found(&tables, "ucp_get*").row(4096).unwrap().is_emulated());
    }

    #[test]
    fn the_layout_of_ucx_1_21_is_read_with_its_counts() {
        let tables = tables(include_str!("logs/ucx-1.21-used.log"));
        let get = found(&tables, "ucp_get*").row(0).unwrap();
        assert_eq!((get.sizes, &get.lanes[..]), ((0, u64::MAX), &[lane("cma", "memory", None)][..]));
    }

    #[test]
    fn a_table_without_a_protocol_has_no_rows() {
        let tables = tables(include_str!("logs/ucx-1.21-emulation-off.log"));
        let put = tables.iter().find(|t| t.selection.contains("ucp_put*")).unwrap();
        assert!(put.rows.is_empty());
        let am = tables.iter().find(|t| t.selection.ends_with("ucp_am_send* from host memory")).unwrap();
        assert_eq!(am.rows.len(), 4);
        assert_eq!(am.row(300_000).unwrap().how, "rendezvous fragmented copy-in copy-out");
        let fast = tables.iter().find(|t| t.selection.contains("send*(fast-completion)")).unwrap();
        assert_eq!(fast.row(1 << 20).unwrap().sizes.0, 256 << 10);
    }

    #[test]
    fn the_layout_of_ucx_1_23_is_read_for_several_lanes_and_threads() {
        let tables = tables(include_str!("logs/ucx-1.23-tables.log"));
        let put = found(&tables, "ucp_put*").row(4096).unwrap();
        assert_eq!(put.lanes, [lane("tcp", "lo", Some(52)), lane("tcp", "eth0", Some(48))]);
        assert!(found(&tables, "ucp_get*").row(4096).unwrap().is_emulated());
        let used = self::tables(include_str!("logs/ucx-1.23-used.log"));
        assert_eq!(found(&used, "ucp_put*").row(1).unwrap().lanes, [lane("cma", "memory", None)]);
        assert_eq!(found(&used, "ucp_am_send*").rows.len(), 3);
    }

    #[test]
    fn tables_of_devices_are_no_protocol_tables() {
        assert!(tables(include_str!("logs/ucx-1.22-devices.log")).is_empty());
    }

    #[test]
    fn lanes_are_read_in_each_of_their_forms() {
        assert_eq!(lanes("rc_mlx5/mlx5_0:1"), [lane("rc_mlx5", "mlx5_0:1", None)]);
        assert_eq!(lanes("rc_mlx5/mlx5_0:1/path1"), [lane("rc_mlx5", "mlx5_0:1", None)]);
        let half = Some(50);
        assert_eq!(
            lanes("rc_mlx5/mlx5_0:1 50% on path0 and 50% on path1"),
            [lane("rc_mlx5", "mlx5_0:1", half), lane("rc_mlx5", "mlx5_0:1", half)]
        );
        assert_eq!(
            lanes("34% on srd/a:1, 33% on srd/b:1, and 33% on srd/c:1"),
            [lane("srd", "a:1", Some(34)), lane("srd", "b:1", Some(33)), lane("srd", "c:1", Some(33))]
        );
        assert!(lanes("").is_empty());
    }

    #[test]
    fn two_threads_that_print_at_once_do_not_mix() {
        let text = "\
[1.0] [h:1:0]   | a intra-node cfg#1 | remote memory read by ucp_get* into host memory from host |
[1.0] [h:1:1]   | b intra-node cfg#2 | remote memory write by ucp_put* from host memory to host |
[1.0] [h:1:0]   +---+---+
[1.0] [h:1:1]   +---+---+
[1.0] [h:1:0]   | 0..inf | zero-copy | cma/memory |
[1.0] [h:1:1]   | 0..inf | zero-copy | tcp/lo |
[1.0] [h:1:1]   +---+---+
[1.0] [h:1:0]   +---+---+";
        let tables = tables(text);
        assert_eq!(tables[0].row(1).unwrap().lanes[0].transport, "tcp");
        assert_eq!(tables[1].row(1).unwrap().lanes[0].transport, "cma");
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_reader_fail(text in "([|+ a-z0-9%./#-]|cfg#|\n){0,400}") {
            let _ = tables(&text);
        }
    }
}
