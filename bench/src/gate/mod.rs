//! `kvwire gate`: whether a result is good enough, by itself and against a baseline.

mod calibrate;
mod check;
mod compare;
mod correct;
mod judge;
mod metric;
mod noise;
mod random;
mod rank;
mod same;
mod series;
mod shift;
mod show;
mod side;
mod slowest;
#[cfg(test)]
mod synthetic;
mod thresholds;

use crate::cli::{CalibrateArgs, GateArgs, GateCommand, OutputArgs};
use crate::exit::Exit;
use crate::report::json;
use crate::report::read::Stored;
use crate::terminal::Terminal;

pub(crate) use compare::{Comparison, Judgement};
pub(crate) use same::Difference;

/// Why a gate did not come to a verdict, and the exit code for it.
type Refused = (Exit, String);

/// Runs the command.
pub(crate) fn run(args: &GateArgs, terminal: &Terminal) -> Exit {
    let ended = match &args.command {
        Some(GateCommand::Calibrate(calibrate)) => calibrated(calibrate, terminal),
        None => gated(args, terminal),
    };
    ended.unwrap_or_else(|(exit, message)| {
        terminal.error(&message);
        exit
    })
}

#[expect(clippy::needless_pass_by_value, reason = "an adapter for `map_err`")]
fn usage(error: impl ToString) -> Refused {
    (Exit::Usage, error.to_string())
}

/// Compares all metrics of two results for a reader, with the tolerance that a gate takes when nothing is said.
pub(crate) fn changes(baseline: &Stored, candidate: &Stored) -> Vec<Comparison> {
    let side = |stored: &Stored| side::collect([&stored.result]);
    compare::compare(&side(baseline), &side(candidate), None, crate::cli::TOLERANCE_DEFAULT)
}

/// What stands between two results that are compared, in sentences.
pub(crate) fn differences(baseline: &Stored, candidate: &Stored) -> Vec<String> {
    let found = same::differences(&baseline.result, &candidate.result);
    found.refused.into_iter().map(|(_, text)| text).chain(found.told).collect()
}

fn gated(args: &GateArgs, terminal: &Terminal) -> Result<Exit, Refused> {
    if args.baseline.is_empty() && args.thresholds.is_none() {
        let fix = "give --baseline FILE, --thresholds FILE, or both";
        return Err(usage(format!("kvwire gate: there is nothing to hold the result against\n  fix: {fix}")));
    }
    let (candidate, baseline) =
        (Stored::read_all(&args.results).map_err(usage)?, Stored::read_all(&args.baseline).map_err(usage)?);
    let thresholds = args.thresholds.as_deref().map(thresholds::read).transpose().map_err(usage)?;
    let asked = judge::Asked {
        tolerance: args.tolerance,
        allowed: &args.allow_different,
        allow_inconclusive: args.allow_inconclusive,
    };
    let gate = judge::judge(&baseline, &candidate, thresholds.as_ref(), &asked);
    print(&args.output, terminal, &gate, || show::gate(&gate), gate.exit)
}

fn calibrated(args: &CalibrateArgs, terminal: &Terminal) -> Result<Exit, Refused> {
    let stored = Stored::read_all(&args.results).map_err(usage)?;
    if let Some(problem) = judge::unlike(&stored, &args.allow_different) {
        return Err((Exit::Inconclusive, problem));
    }
    let calibration = calibrate::calibrate(&side::collect(stored.iter().map(|one| &one.result)));
    let enough = calibration.too_few.is_empty();
    let exit = if enough || args.allow_inconclusive { Exit::Trusted } else { Exit::Inconclusive };
    let file = args.file.as_deref().filter(|_| exit == Exit::Trusted);
    if let Some(path) = file {
        let text = show::thresholds(&calibration, stored.len()).map_err(|e| (Exit::Internal, e))?;
        json::write_text(path, &text).map_err(|e| (Exit::Internal, e.to_string()))?;
    }
    let value = show::calibration_value(&calibration);
    print(&args.output, terminal, &value, || show::calibration(&calibration, file), exit)
}

/// Prints as JSON or as text.
fn print(
    args: &OutputArgs,
    terminal: &Terminal,
    value: &impl serde::Serialize,
    text: impl FnOnce() -> String,
    exit: Exit,
) -> Result<Exit, Refused> {
    let internal = |why: String| (Exit::Internal, format!("the result cannot be printed: {why}"));
    let printed = if args.json {
        serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(|e| internal(e.to_string()))?
    } else {
        text()
    };
    terminal.result(&printed).map_err(|e| internal(e.to_string()))?;
    Ok(exit)
}
