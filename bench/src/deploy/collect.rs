//! `kvwire collect`: what the pods found, brought here.

use std::collections::BTreeMap;
use std::fs;

use tokio::task::JoinHandle;

use super::Problem;
use super::job::{Job, Pod, Standing};
use super::logs::Log;
use crate::cli::CollectArgs;
use crate::exit::Exit;
use crate::report::read::Stored;
use crate::report::{html, json, log, table};
use crate::terminal::Terminal;

/// Logs that are being read, by the pod's name.
type Readers = BTreeMap<String, (u64, JoinHandle<Result<Log, String>>)>;

/// Follows the Job to its end, writes its result, and gives the run's exit code.
pub(super) async fn collect(job: &Job, args: &CollectArgs, terminal: &Terminal) -> Result<Exit, Problem> {
    let mut readers = Readers::new();
    let read = |standing: &Standing| {
        for pod in standing.pods.iter().filter(|pod| pod.started) {
            readers
                .entry(pod.name.clone())
                .or_insert_with(|| (pod.index, tokio::spawn(reader(job, pod, terminal))));
        }
    };
    let standing = job.wait(args.wait.timeout, terminal, read).await?;
    let mut logs = Vec::new();
    for (pod, (index, reader)) in readers {
        let read = reader.await.map_err(|e| Problem::internal(format!("the reader of {pod} broke: {e}")))?;
        let mut log = read.map_err(Problem::cluster)?;
        if log.json.is_none() {
            // A connection to a node may break while a log is followed. Now the whole log is there.
            let again = Log::follow(&job.kubectl, &pod, |_| {}).await.map_err(Problem::cluster)?;
            log = if again.json.is_some() || log.report.is_empty() { again } else { log };
        }
        logs.push((index, pod, log));
    }
    // The initiator's first: it is the side that measured.
    logs.sort_by_key(|(index, _, _)| std::cmp::Reverse(*index));
    standing.pods.iter().for_each(|pod| terminal.note(&pod.ending()));
    match logs.iter().find_map(|(_, pod, log)| Some((pod, log.json.as_ref()?))) {
        Some((pod, json)) => keep(pod, json, args, terminal)?,
        None => without_result(&logs, terminal)?,
    }
    Ok(standing.exit())
}

fn reader(job: &Job, pod: &Pod, terminal: &Terminal) -> impl Future<Output = Result<Log, String>> + use<> {
    let (kubectl, name, label) = (job.kubectl.clone(), pod.name.clone(), pod.role());
    let terminal = terminal.clone();
    async move { Log::follow(&kubectl, &name, |line| terminal.note(&format!("{label} | {line}"))).await }
}

fn keep(pod: &str, text: &str, args: &CollectArgs, terminal: &Terminal) -> Result<(), Problem> {
    let result = log::read(text, &format!("the result in the log of {pod}"))
        .map_err(|e| Problem::cluster(format!("{e}\n  fix: kubectl logs {pod} shows what is there")))?;
    let refused = |e: &dyn std::fmt::Display| Problem::internal(format!("--folder: {e}"));
    fs::create_dir_all(&args.folder)
        .map_err(|e| refused(&format!("{} cannot be made: {e}", args.folder.display())))?;
    let path = |extension: &str| args.folder.join(format!("{}.{extension}", args.wait.job.job));
    json::write(&path("json"), &result).map_err(|e| refused(&e))?;
    let stored = Stored { path: path("json"), result };
    let page = html::render(std::slice::from_ref(&stored));
    json::write_text(&path("html"), &page).map_err(|e| refused(&e))?;
    terminal.note(&format!("written: {} and {}", path("json").display(), path("html").display()));
    let printed = if args.wait.output.json {
        serde_json::to_string_pretty(&stored.result).map(|text| text + "\n").map_err(|e| refused(&e))?
    } else {
        table::render(&stored.result, terminal.color_on_stdout(), terminal.width())
    };
    terminal.result(&printed).map_err(|e| refused(&e))
}

/// Shows the reports that there are, or that there are none.
fn without_result(logs: &[(u64, String, Log)], terminal: &Terminal) -> Result<(), Problem> {
    terminal.error(
        "no log holds a result\n  fix: nothing, where no run began; else see that the plan has KVWIRE_PRINT_RESULT=true",
    );
    let report = logs.iter().map(|(_, _, log)| log.report.join("\n")).find(|report| !report.is_empty());
    let report = report.map_or_else(String::new, |report| report + "\n");
    terminal.result(&report).map_err(|e| Problem::internal(format!("standard output cannot be written: {e}")))
}
