//! Trying NIXL out within one process: plugins, backend, registration, and a few bytes between two agents.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cuda::{Alloc, Context, Driver, GpuMemory};
use nixl::{Agent, AgentConfig, HostMemory, Op, Populate, State, TransferOptions};

use super::library::{Loaded, identity, load, warn_of_gpu_memory};
use super::protocol::{Attempt, EngineError, ErrorKind, Step, Trial};
use super::session::{BACKEND, nixl_failed, require_backend};

/// Bytes moved: enough for UCX to leave its short protocols.
const BYTES: usize = 1 << 20;
/// Time that the transfer may take.
const DEADLINE: Duration = Duration::from_secs(20);
/// What the source holds; the destination holds zeros before.
const WORD: u64 = 0x6b76_7769_7265_2131;

/// Goes as far as it gets. The step that failed is the last one of the answer.
///
/// # Errors
/// NIXL was not found or cannot be loaded: there is nothing to try.
pub(crate) fn try_out(nixl_lib: Option<&str>) -> Result<Trial, EngineError> {
    let loaded = load(nixl_lib)?;
    let mut trial = Trial {
        nixl: identity(&loaded),
        plugins: Vec::new(),
        memory_kinds: Vec::new(),
        steps: Vec::new(),
        gpu_memory: Attempt::Skipped("a step before it failed".to_owned()),
    };
    let outcome = steps(&loaded, &mut trial);
    if let Err(error) = outcome {
        trial.steps.push(Step { name: error.0.to_owned(), error: Some(error.1.message) });
    }
    // Only now is UCX bound, if it ever is.
    trial.nixl = identity(&loaded);
    Ok(trial)
}

/// A step's name with what went wrong in it.
type Failed = (&'static str, EngineError);

fn steps(loaded: &Loaded, trial: &mut Trial) -> Result<(), Failed> {
    let config = AgentConfig { progress_thread: true, progress_delay_us: 0, telemetry: false };
    let agent = |name: &str| Agent::new(&loaded.library, name, &config).map_err(nixl_failed);
    let (source, target) = agent("kvwire-trial-source")
        .and_then(|a| Ok((a, agent("kvwire-trial-target")?)))
        .map_err(|e| ("agent", e))?;
    trial.plugins = source.plugins().map_err(|e| ("plugins", nixl_failed(e)))?;
    require_backend(&source).map_err(|e| ("plugins", e))?;
    done(trial, "plugins");
    let info = source.plugin(BACKEND).map_err(|e| ("plugins", nixl_failed(e)))?;
    trial.memory_kinds = info.memory.iter().map(ToString::to_string).collect();
    // Its context before the backend, its memory after: as in a run.
    let gpu = gpu();
    if gpu.is_ok() {
        warn_of_gpu_memory(loaded);
    }
    let backend = |agent| {
        Agent::create_backend(agent, BACKEND, &BTreeMap::new()).map_err(|e| ("backend", nixl_failed(e)))
    };
    let (ours, theirs) = (backend(&source)?, backend(&target)?);
    done(trial, "backend");
    let memory = || {
        let memory = HostMemory::new(BYTES, Populate::Now);
        memory
            .map(Arc::new)
            .map_err(|e| ("host memory", EngineError { kind: ErrorKind::Memory, message: e.to_string() }))
    };
    let (from, to) = (memory()?, memory()?);
    from.words().iter().for_each(|word| word.store(WORD, Ordering::Relaxed));
    let here = source.register(&ours, &from).map_err(|e| ("host memory", nixl_failed(e)))?;
    let there = target.register(&theirs, &to).map_err(|e| ("host memory", nixl_failed(e)))?;
    done(trial, "host memory");
    trial.gpu_memory = gpu.map_or_else(
        |attempt| attempt,
        |context| {
            let memory = GpuMemory::new(&context, BYTES, Alloc::Malloc).map_err(|e| e.to_string());
            let registered = memory.and_then(|memory| {
                source.register(&ours, &Arc::new(memory)).map_err(|e| e.to_string()).map(drop)
            });
            registered.map_or_else(Attempt::Failed, |()| Attempt::Done)
        },
    );
    let transfer = || -> nixl::Result<Option<bool>> {
        let remote = source.load_remote(&target.local_metadata()?)?;
        let (local, distant) =
            (here.describe([(0, BYTES)])?, remote.describe(&there.region(), [(0, BYTES)])?);
        let mut transfer =
            source.make_transfer(Op::Write, &local, &[0], &distant, &[0], &TransferOptions::default())?;
        let end = Instant::now() + DEADLINE;
        let mut state = transfer.post()?;
        while state == State::InProgress {
            if Instant::now() > end {
                // The process ends right after this answer, so that nothing is freed under NIXL.
                std::mem::forget(transfer);
                return Ok(None);
            }
            state = transfer.poll()?;
        }
        Ok(Some(to.words().iter().all(|word| word.load(Ordering::Relaxed) == WORD)))
    };
    let wrong = |message: &str| EngineError { kind: ErrorKind::Nixl, message: message.to_owned() };
    match transfer().map_err(|e| ("loopback", nixl_failed(e)))? {
        Some(true) => done(trial, "loopback"),
        Some(false) => return Err(("loopback", wrong("the transfer completed and the bytes are wrong"))),
        None => return Err(("loopback", wrong("the transfer did not complete within 20 s"))),
    }
    Ok(())
}

/// The context of the first GPU, or why there is none.
fn gpu() -> Result<Arc<Context>, Attempt> {
    let none = |why: String| Attempt::Skipped(format!("no GPU memory to register: {why}"));
    let driver = Driver::open().map_err(|error| none(error.to_string()))?;
    let devices = driver.devices().map_err(|error| none(error.to_string()))?;
    let Some(device) = devices.first() else { return Err(none("CUDA shows no GPU".to_owned())) };
    Context::open(&driver, device).map(Arc::new).map_err(|error| Attempt::Failed(error.to_string()))
}

fn done(trial: &mut Trial, name: &str) {
    trial.steps.push(Step { name: name.to_owned(), error: None });
}
