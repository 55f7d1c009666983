//! `kvwire info`: which NIXL and UCX would be used, and which GPUs there are.

use std::fmt::Write;
use std::time::Duration;

use coordinator::Role;
use serde::Serialize;

use crate::cli::InfoArgs;
use crate::engine::protocol::{Command, Event, Inspection, Place};
use crate::engine::{Engine, EngineFailure, Phase, places};
use crate::exit::Exit;
use crate::preflight;
use crate::terminal::Terminal;

/// Loading NIXL and creating a backend, at most.
const DEADLINE: Duration = Duration::from_secs(60);

/// What `kvwire info --json` prints.
#[derive(Debug, Serialize)]
struct Report {
    kvwire: &'static str,
    found: Option<Inspection>,
    problem: Option<checks::Finding>,
    gpus: Vec<cuda::Device>,
    /// Why there is none.
    no_gpu: Option<String>,
    searched: Vec<Place>,
}

/// Runs the command.
pub(crate) fn run(args: &InfoArgs, terminal: &Terminal) -> Exit {
    if let Err(message) = preflight::nixl_lib("--nixl-lib", args.nixl_lib.as_ref()) {
        terminal.error(&message);
        return Exit::Usage;
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            terminal.error(&format!("the system refuses an event loop: {e}"));
            return Exit::Internal;
        }
    };
    let searched = places(args.nixl_lib.clone());
    let kvwire = env!("CARGO_PKG_VERSION");
    let inspected = runtime.block_on(inspect(args, terminal));
    let (gpus, no_gpu) = match runtime.block_on(look_for_gpus(terminal)) {
        Ok(gpus) => (gpus, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    let (report, exit) = match inspected {
        Ok(found) => {
            let searched = found.searched.clone();
            (Report { kvwire, found: Some(found), problem: None, gpus, no_gpu, searched }, Exit::Trusted)
        }
        Err(failure) => {
            let exit = failure.outcome().exit();
            (Report { kvwire, found: None, problem: Some(failure.finding()), gpus, no_gpu, searched }, exit)
        }
    };
    let text = if args.output.json { json(&report) } else { text(&report) };
    match terminal.result(&text) {
        Ok(()) => exit,
        Err(e) => {
            terminal.error(&format!("standard output cannot be written: {e}"));
            Exit::Internal
        }
    }
}

async fn inspect(args: &InfoArgs, terminal: &Terminal) -> Result<Inspection, EngineFailure> {
    let mut engine = Engine::spawn(Role::Initiator, &Default::default(), terminal)?;
    let nixl_lib = args.nixl_lib.as_ref().map(|p| p.display().to_string());
    let event = engine.request(&Command::Inspect { nixl_lib }, Phase::Opening, DEADLINE).await;
    let found = match event {
        Ok(Event::Inspected(found)) => Ok(*found),
        Ok(_) => Err(engine.confused(Phase::Opening)),
        Err(failure) => Err(failure),
    };
    engine.end().await;
    found
}

/// GPUs that an engine could use, or why there is none.
async fn look_for_gpus(terminal: &Terminal) -> Result<Vec<cuda::Device>, String> {
    let say = |failure: EngineFailure| match failure.reported() {
        Some(error) => error.message.clone(),
        None => failure.finding().title,
    };
    let mut engine = Engine::spawn(Role::Initiator, &Default::default(), terminal).map_err(say)?;
    let event = engine.request(&Command::LookForGpus, Phase::Opening, DEADLINE).await;
    engine.end().await;
    match event {
        Ok(Event::Gpus(gpus)) => Ok(gpus),
        Ok(_) => Err("the engine answered something that was not asked".to_owned()),
        Err(failure) => Err(say(failure)),
    }
}

fn json(report: &Report) -> String {
    let mut text = serde_json::to_string_pretty(report).unwrap_or_default();
    text.push('\n');
    text
}

fn text(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(out, "{name:<16}{value}");
    };
    let unknown = |value: &Option<String>| value.clone().unwrap_or_else(|| "not known".to_owned());
    line("kvwire", report.kvwire);
    if let Some(found) = &report.found {
        line("NIXL", &unknown(&found.nixl.version));
        line("library", &found.nixl.library);
        line("found through", &found.nixl.origin);
        line("UCX", &unknown(&found.nixl.ucx_version));
        line("UCX library", &unknown(&found.nixl.ucx_library));
        if let Some(runtime) = &found.nixl.cuda_runtime {
            line("CUDA runtime", runtime);
        }
        line("plugins", &found.plugins.join(", "));
        line("UCX memory", &found.memory_kinds.join(", "));
        for (key, value) in &found.backend_params {
            line("UCX parameter", &format!("{key} = {value}"));
        }
    }
    if let Some(problem) = &report.problem {
        line("problem", &problem.title);
        for evidence in &problem.evidence {
            line("", evidence);
        }
        line("fix", &problem.next_step);
    }
    for gpu in &report.gpus {
        line("GPU", &gpu.to_string());
    }
    if let Some(why) = &report.no_gpu {
        line("GPU", why);
    }
    let _ = writeln!(out, "\nsearched, in this order:");
    for place in &report.searched {
        let mark = if place.exists { "found" } else { "-" };
        let _ = writeln!(out, "  {mark:<6}{} ({})", place.path, place.origin);
    }
    out
}
