//! What `--verbose` adds: each rank and direction by itself, and what the class of each case rests on.

use std::fmt::Write as _;

use super::super::model::{CaseResult, PartResult, ResultFile};
use super::text::{plain, push_wrapped};
use crate::measure::units::{count, gigabits_per_s, gigabytes_per_s, time};

/// Every piece of evidence, case by case, and what was expected. Empty when there is none.
pub(crate) fn evidence(result: &ResultFile, width: usize) -> String {
    let mut out = String::new();
    result.cases.iter().for_each(|case| push_parts(&mut out, case));
    if let Some(expected) = &result.expectation {
        let class = expected.class.map_or("any wire", crate::proof::Class::name);
        push_wrapped(&mut out, &format!("\nexpected: {class} ({})", expected.why), 0, width);
    }
    for case in &result.cases {
        let Some(transport) = &case.transport else { continue };
        let _ = write!(out, "\n{}: {}", plain(&case.name), crate::proof::wire(transport));
        if let Some(doubt) = &transport.doubt {
            let _ = write!(out, " (doubt: {})", plain(doubt));
        }
        out.push('\n');
        for device in &transport.devices {
            let share = device.share_percent.map_or("not counted".to_owned(), |share| format!("{share} %"));
            let by = device.transport.as_deref().unwrap_or("?");
            let _ = writeln!(out, "  {} {} by {}: {share}", device.side, plain(&device.device), plain(by));
        }
        for evidence in &transport.evidence {
            let _ = writeln!(out, "  {}, {}: {}", evidence.side, evidence.source, plain(&evidence.text));
        }
    }
    out
}

/// One line for each rank and direction of a case, and those for what is wrong with it.
fn push_parts(out: &mut String, case: &CaseResult) {
    if case.parts.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{}, by rank and direction:", plain(&case.name));
    parts(case).iter().for_each(|line| _ = writeln!(out, "  {line}"));
}

/// The ranks and directions of a case, a line each, with what is wrong or doubtful below it.
pub(crate) fn parts(case: &CaseResult) -> Vec<String> {
    let rows: Vec<Vec<String>> = case.parts.iter().map(row).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let line = |(part, row): (&PartResult, &Vec<String>)| {
        let cells = row
            .iter()
            .enumerate()
            .filter(|(column, _)| width(*column) > 0)
            .map(|(column, cell)| format!("{cell:>width$}", width = width(column)));
        let doubt = part.transport.as_ref().and_then(|transport| transport.doubt.as_ref());
        let notes = [("reason", part.reason.as_ref()), ("doubt", doubt)];
        let notes = notes.into_iter().filter_map(|(word, text)| Some(format!("  {word}: {}", plain(text?))));
        [cells.collect::<Vec<_>>().join("  ")].into_iter().chain(notes).collect::<Vec<_>>()
    };
    case.parts.iter().zip(&rows).flat_map(line).collect()
}

/// The GPUs that it moved between; nothing where there is none.
fn gpus(part: &PartResult) -> String {
    if part.gpu.is_none() && part.target_gpu.is_none() {
        return String::new();
    }
    let name = |gpu: &Option<String>| gpu.as_deref().map_or("host memory".to_owned(), plain);
    format!("{} - {}", name(&part.gpu), name(&part.target_gpu))
}

fn row(part: &PartResult) -> Vec<String> {
    let rate = part.bandwidth_bytes_per_s;
    let wire = part.transport.as_ref().map_or("wire not known".to_owned(), crate::proof::wire);
    vec![
        format!("rank {} - {}", part.rank, part.target_rank),
        gpus(part),
        part.op.to_string(),
        rate.map_or("- GB/s".to_owned(), |rate| format!("{} GB/s", gigabytes_per_s(rate))),
        rate.map_or("- Gb/s".to_owned(), |rate| format!("{} Gb/s", gigabits_per_s(rate))),
        part.total.as_ref().map_or("p50 -".to_owned(), |total| format!("p50 {}", time(total.p50))),
        format!("{} samples", count(part.transfers)),
        format!("began after {}", time(part.began_after_ns)),
        wire,
        super::status_word(part.status).to_owned(),
    ]
}
