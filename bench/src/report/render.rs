//! `kvwire report`: stored results in the form that somebody or something reads.

use std::path::Path;

use clap::ValueEnum;

use super::read::Stored;
use super::{csv, hdr_log, html, json, junit, markdown, prometheus, table};
use crate::cli::ReportArgs;
use crate::exit::Exit;
use crate::terminal::Terminal;

/// Columns of a table that goes into a file.
const FILE_WIDTH: usize = 120;

/// The forms of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// The table of the terminal.
    Text,
    /// One file for a browser, with charts; it loads nothing.
    Html,
    /// Markdown, as job summaries of CI take it.
    Md,
    /// The cases as comma-separated values.
    Csv,
    /// JUnit XML: one test case for each case.
    Junit,
    /// Prometheus text, for a node exporter's textfile folder.
    Prometheus,
    /// HdrHistogram log of all latencies.
    Hdr,
    /// The result itself.
    Json,
}

impl Format {
    /// The form that a file name asks for.
    fn of(path: &Path) -> Option<Self> {
        Some(match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "txt" => Self::Text,
            "html" | "htm" => Self::Html,
            "md" => Self::Md,
            "csv" => Self::Csv,
            "xml" => Self::Junit,
            "prom" => Self::Prometheus,
            "hlog" => Self::Hdr,
            "json" => Self::Json,
            _ => return None,
        })
    }
}

/// Runs the command.
pub(crate) fn run(args: &ReportArgs, terminal: &Terminal) -> Exit {
    match rendered(args, terminal) {
        Ok(()) => Exit::Trusted,
        Err((exit, message)) => {
            terminal.error(&message);
            exit
        }
    }
}

fn rendered(args: &ReportArgs, terminal: &Terminal) -> Result<(), (Exit, String)> {
    let results = Stored::read_all(&args.results).map_err(|e| (Exit::Usage, e.to_string()))?;
    let asked = args.output.json.then_some(Format::Json).or(args.format);
    let format = asked.or_else(|| args.file.as_deref().and_then(Format::of)).unwrap_or(Format::Text);
    let internal = |why: String| (Exit::Internal, format!("the report cannot be made: {why}"));
    let text = match format {
        Format::Text => as_text(&results, args.file.is_none(), args.output.verbose, terminal),
        Format::Html => html::render(&results),
        Format::Md => markdown::render(&results),
        Format::Csv => csv::render(&results),
        Format::Junit => junit::render(&results).map_err(internal)?,
        Format::Prometheus => prometheus::render(&results),
        Format::Hdr => hdr_log::render(&results).map_err(internal)?,
        Format::Json => match results.as_slice() {
            [one] => serde_json::to_string_pretty(&one.result).map_err(|e| internal(e.to_string()))? + "\n",
            _ => return Err((Exit::Usage, "--format json holds one result\n  fix: give one".to_owned())),
        },
    };
    match &args.file {
        Some(path) => json::write_text(path, &text).map_err(|e| (Exit::Internal, e.to_string())),
        None => terminal.result(&text).map_err(|e| internal(e.to_string())),
    }
}

fn as_text(results: &[Stored], to_terminal: bool, verbose: bool, terminal: &Terminal) -> String {
    let (colour, width) =
        if to_terminal { (terminal.color_on_stdout(), terminal.width()) } else { (false, FILE_WIDTH) };
    let one = |stored: &Stored| {
        let mut text = table::render(&stored.result, colour, width);
        if verbose {
            text += &table::evidence(&stored.result, width);
        }
        text
    };
    results.iter().map(one).collect::<Vec<_>>().join("\n")
}
