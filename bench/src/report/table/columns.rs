//! The figures of the cases as aligned columns, one table for each operation, shape and depth.

use super::super::model::{CaseResult, CaseStatus};
use super::text::{Paint, Tone, plain};
use super::{status_tone, status_word};
use crate::measure::histogram::Distribution;
use crate::measure::units::{ByteSize, count, gigabits_per_s, gigabytes_per_s, microseconds};
use crate::proof::{Class, DeviceShare, Transport};

/// Shown where there is no figure.
const NONE: &str = "-";
/// Between two columns.
const GAP: usize = 2;

/// Columns under a common title.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Case,
    Total,
    Median,
    Rest,
}

impl Group {
    fn title(self) -> &'static str {
        match self {
            Self::Total => "total, us",
            Self::Median => "p50, us",
            Self::Case | Self::Rest => "",
        }
    }

    /// Times keep some room, so that usual results of different runs look alike.
    fn least_width(self) -> usize {
        match self {
            Self::Total | Self::Median => 6,
            Self::Case | Self::Rest => 0,
        }
    }
}

/// One kind of figure.
#[derive(Clone, Copy)]
struct Column {
    head: &'static str,
    group: Group,
    /// Columns with the lowest rank go first when the line is too long; those without stay.
    rank: Option<u8>,
    /// Whether it is left out where no case has a figure for it.
    only_if_any: bool,
    cell: fn(&CaseResult) -> Option<String>,
}

const fn column(head: &'static str, group: Group, cell: fn(&CaseResult) -> Option<String>) -> Column {
    Column { head, group, rank: None, only_if_any: false, cell }
}

impl Column {
    const fn may_go(self, rank: u8) -> Self {
        Self { rank: Some(rank), ..self }
    }

    const fn only_if_any(self) -> Self {
        Self { only_if_any: true, ..self }
    }

    /// The text of a case in this column.
    fn text(&self, case: &CaseResult) -> String {
        (self.cell)(case).unwrap_or_else(|| NONE.to_owned())
    }

    fn of_the_case(&self) -> bool {
        self.group == Group::Case || self.head == "samples" || self.head == "carried by"
    }
}

/// Every column, from left to right.
const COLUMNS: [Column; 18] = [
    column("size", Group::Case, |case| Some(ByteSize::from_bytes(case.block_bytes).to_string())),
    column("batch", Group::Case, |case| Some(count(u64::from(case.batch)))),
    column("GB/s", Group::Rest, |case| case.bandwidth_bytes_per_s.map(gigabytes_per_s)),
    column("Gb/s", Group::Rest, |case| case.bandwidth_bytes_per_s.map(gigabits_per_s)),
    column("p50", Group::Total, |case| figure(case.total.as_ref(), |total| Some(total.p50))),
    column("p90", Group::Total, |case| figure(case.total.as_ref(), |total| Some(total.p90))).may_go(0),
    column("p99", Group::Total, |case| figure(case.total.as_ref(), |total| total.p99)),
    column("p99.9", Group::Total, |case| figure(case.total.as_ref(), |total| total.p999)).may_go(3),
    column("max", Group::Total, |case| figure(case.total.as_ref(), |total| Some(total.max))),
    column("prep", Group::Median, |case| figure(case.prep.as_ref(), |d| Some(d.p50))).only_if_any().may_go(2),
    column("post", Group::Median, |case| figure(case.post.as_ref(), |d| Some(d.p50))).may_go(6),
    column("wire", Group::Median, |case| figure(case.wire.as_ref(), |d| Some(d.p50))).may_go(5),
    column("notify", Group::Median, |case| figure(case.notify.as_ref(), |d| Some(d.p50)))
        .only_if_any()
        .may_go(1),
    column("notified", Group::Median, |case| figure(case.notified.as_ref(), |d| Some(d.p50)))
        .only_if_any()
        .may_go(1),
    column("sched us", Group::Rest, |case| figure(case.scheduled.as_ref(), |d| Some(d.p50)))
        .only_if_any()
        .may_go(7),
    column("cold us", Group::Rest, |case| case.cold_ns.map(microseconds)).may_go(4),
    column("samples", Group::Rest, |case| Some(count(case.transfers))),
    column("carried by", Group::Rest, |case| case.transport.as_ref().map(carried_by)).only_if_any(),
];

/// Characters for the devices of a case; more of them are counted.
const DEVICES_WIDTH: usize = 40;

/// `tcp lo`, `rdma mlx5_0:1 50.0%+mlx5_1:1 50.0%`: the class and the initiator's devices.
fn carried_by(transport: &Transport) -> String {
    let class = match (transport.class, transport.over) {
        (Class::Emulated, Some(over)) => format!("emulated/{over}"),
        (class, _) => class.to_string(),
    };
    let ours: Vec<_> = transport.devices.iter().filter(|device| device.side == "initiator").collect();
    let share = |device: &&DeviceShare| match device.share_percent {
        Some(share) if ours.len() > 1 => format!("{} {share:.0}%", device.device),
        _ => device.device.clone(),
    };
    let devices = ours.iter().map(share).collect::<Vec<_>>().join("+");
    match devices.chars().count() {
        0 => class,
        width if width > DEVICES_WIDTH => format!("{class} {} devices", ours.len()),
        _ => plain(&format!("{class} {devices}")),
    }
}

fn figure(distribution: Option<&Distribution>, of: impl Fn(&Distribution) -> Option<u64>) -> Option<String> {
    distribution.and_then(of).map(microseconds)
}

/// The columns that are shown, and how wide each is. The same for all tables, so that they stand under one
/// another.
pub(super) struct Columns {
    shown: Vec<(Column, usize)>,
    hidden: Vec<&'static str>,
}

impl Columns {
    /// As many columns for `cases` as fit into `width` characters.
    pub(super) fn of(cases: &[CaseResult], width: usize) -> Self {
        let measured = COLUMNS.into_iter().filter_map(|column| {
            if column.only_if_any && !cases.iter().any(|case| (column.cell)(case).is_some()) {
                return None;
            }
            let cells = cases.iter().map(|case| cell_of(&column, case).chars().count());
            Some((column, cells.chain([column.head.len(), column.group.least_width()]).max().unwrap_or(0)))
        });
        let mut columns = Self { shown: measured.collect(), hidden: Vec::new() };
        while columns.line_length() > width && columns.hide_one() {}
        columns
    }

    fn line_length(&self) -> usize {
        let status = "not run".len();
        self.shown.iter().map(|(_, width)| width + GAP).sum::<usize>() + status
    }

    fn hide_one(&mut self) -> bool {
        let ranked =
            self.shown.iter().enumerate().filter_map(|(index, (column, _))| Some((column.rank?, index)));
        let Some((_, index)) = ranked.min() else {
            return false;
        };
        let (column, _) = self.shown.remove(index);
        self.hidden.push(column.head);
        true
    }

    /// Names the columns that did not fit.
    pub(super) fn hidden_note(&self) -> Option<String> {
        (!self.hidden.is_empty()).then(|| {
            format!("no room for {}: widen the terminal or read the result file", self.hidden.join(", "))
        })
    }

    /// Appends one table for each operation, shape and depth, in the order of the cases.
    pub(super) fn push_tables(&self, out: &mut String, cases: &[CaseResult], paint: Paint) {
        let mut titles: Vec<String> = Vec::new();
        for case in cases {
            let title = title_of(case);
            let ran = |row: &CaseResult| title_of(row) == title && row.status != CaseStatus::NotRun;
            if titles.contains(&title) || !cases.iter().any(ran) {
                continue;
            }
            out.push('\n');
            let head = paint.text(Tone::Heading, &title);
            self.push_heads(out, &title, &head, paint);
            for row in cases.iter().filter(|case| title_of(case) == title) {
                self.push_row(out, row, paint);
            }
            titles.push(title);
        }
    }

    /// Group titles over their columns, beside the title of the table where there is room; then the heads.
    fn push_heads(&self, out: &mut String, title: &str, painted: &str, paint: Paint) {
        let groups = self.group_line();
        let room = groups.chars().take_while(|c| *c == ' ').count();
        if title.chars().count() + GAP <= room {
            let rest: String = groups.chars().skip(title.chars().count()).collect();
            out.push_str(painted);
            out.push_str(&paint.text(Tone::Quiet, &rest));
        } else {
            out.push_str(painted);
            out.push('\n');
            out.push_str(&paint.text(Tone::Quiet, &groups));
        }
        out.push('\n');
        let heads = self.line(|column| column.head.to_owned());
        out.push_str(&paint.text(Tone::Quiet, &heads));
        out.push('\n');
    }

    fn group_line(&self) -> String {
        let mut line = String::new();
        let mut index = 0;
        while let Some((column, _)) = self.shown.get(index) {
            let group = column.group;
            let run = self.shown.iter().skip(index).take_while(|(column, _)| column.group == group);
            let widths: Vec<usize> = run.map(|(_, width)| *width).collect();
            let width = widths.iter().sum::<usize>() + GAP * (widths.len() - 1);
            let title = match group.title() {
                "" => String::new(),
                title => format!(" {title} "),
            };
            if index > 0 {
                line.extend(std::iter::repeat_n(' ', GAP));
            }
            let fill = if title.is_empty() { ' ' } else { '-' };
            let left = width.saturating_sub(title.len()) / 2;
            line.extend(std::iter::repeat_n(fill, left));
            line.push_str(&title);
            line.extend(std::iter::repeat_n(fill, width.saturating_sub(title.len() + left)));
            index += widths.len();
        }
        line.trim_end().to_owned()
    }

    fn line(&self, text: impl Fn(&Column) -> String) -> String {
        let cells = self.shown.iter().map(|(column, width)| format!("{:>width$}", text(column)));
        cells.collect::<Vec<_>>().join(&" ".repeat(GAP))
    }

    fn push_row(&self, out: &mut String, case: &CaseResult, paint: Paint) {
        out.push_str(&self.line(|column| cell_of(column, case)));
        out.extend(std::iter::repeat_n(' ', GAP));
        out.push_str(&paint.text(status_tone(case.status), status_word(case.status)));
        out.push('\n');
    }
}

/// A case that did not pass shows what it was, and no figures.
fn cell_of(column: &Column, case: &CaseResult) -> String {
    if case.status == CaseStatus::Pass || column.of_the_case() { column.text(case) } else { NONE.to_owned() }
}

fn title_of(case: &CaseResult) -> String {
    let ranks = case.parts.iter().map(|part| part.rank).max().map_or(1, |last| last + 1);
    let ranks = if ranks > 1 { format!(", {ranks} ranks") } else { String::new() };
    plain(&format!("{}, {}, depth {}{ranks}", case.op, case.shape, case.depth))
}
