//! Loading NIXL in the engine, and saying what was loaded.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use checks::NixlIdentity;
use nixl::{Agent, AgentConfig};
use nixl_sys::{Candidate, Library, LoadError, SearchOptions};

use super::protocol::{EngineError, ErrorKind, Inspection, Place};
use super::session::{BACKEND, nixl_failed, require_backend};
use super::timed::ns;
use crate::proof::ucx::leaves_out;

/// A NIXL that is loaded, and how it was found.
pub(crate) struct Loaded {
    pub(crate) library: Arc<Library>,
    found: nixl_sys::Loaded,
    pub(crate) load_ns: u64,
}

/// Finds and loads NIXL.
///
/// # Errors
/// There is none, or the one found cannot be loaded.
pub(crate) fn load(nixl_lib: Option<&str>) -> Result<Loaded, EngineError> {
    let begin = Instant::now();
    let found = nixl_sys::open(&SearchOptions::from_process(nixl_lib.map(PathBuf::from))).map_err(|e| {
        let kind = match e {
            LoadError::NotFound { .. } => ErrorKind::NixlMissing,
            _ => ErrorKind::NixlUnusable,
        };
        EngineError { kind, message: e.to_string() }
    })?;
    Ok(Loaded { library: Arc::clone(&found.library), found, load_ns: ns(begin.elapsed()) })
}

/// What was loaded. UCX is known only once a backend has been created.
pub(crate) fn identity(loaded: &Loaded) -> NixlIdentity {
    // What cannot be read is shown as not known.
    let ucx = nixl_sys::maps::ucx_libraries().ok();
    let ucp = |paths: &[PathBuf]| {
        let named = |p: &&PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("libucp"));
        paths.iter().find(named).map(|p| p.display().to_string())
    };
    NixlIdentity {
        library: loaded.found.realpath.display().to_string(),
        origin: loaded.found.origin.to_string(),
        version: loaded.found.version.clone(),
        ucx_library: ucx.as_ref().and_then(|ucx| ucp(&ucx.paths)),
        ucx_version: ucx.and_then(|ucx| ucx.version),
        cuda_runtime: loaded.found.cuda_runtime.as_ref().map(ToString::to_string),
    }
}

/// Says on standard error why UCX will not know GPU memory, where that can be told before it is tried. The lines are among
/// those that explain a failure.
pub(crate) fn warn_of_gpu_memory(loaded: &Loaded) {
    if let Some(runtime) = loaded.found.cuda_runtime.as_ref().filter(|runtime| runtime.opened.is_none()) {
        say(&format!("CUDA runtime: {runtime}"));
    }
    if let Some(list) = std::env::var("UCX_TLS").ok().filter(|list| leaves_gpus_out(list)) {
        say(&format!("UCX_TLS={list} leaves GPU memory out"));
    }
}

/// A line for the supervisor, which reads what this process and the libraries in it print.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "kvwire: {text}");
}

/// Whether this `UCX_TLS` is without `cuda_copy`, by which UCX knows GPU memory.
fn leaves_gpus_out(list: &str) -> bool {
    leaves_out(list, |name| matches!(name, "all" | "cuda" | "cuda_copy" | "cuda_cpy"))
}

/// Loads NIXL and creates its UCX backend, to tell what it offers.
///
/// # Errors
/// There is no NIXL, it cannot be loaded, or it has no working UCX backend.
pub(crate) fn inspect(nixl_lib: Option<&str>) -> Result<Inspection, EngineError> {
    let loaded = load(nixl_lib)?;
    let config = AgentConfig { progress_thread: false, progress_delay_us: 0, telemetry: false };
    let agent = Agent::new(&loaded.library, "kvwire-info", &config).map_err(nixl_failed)?;
    require_backend(&agent)?;
    let info = agent.plugin(BACKEND).map_err(nixl_failed)?;
    let _backend = agent.create_backend(BACKEND, &Default::default()).map_err(nixl_failed)?;
    Ok(Inspection {
        nixl: identity(&loaded),
        plugins: agent.plugins().map_err(nixl_failed)?,
        memory_kinds: info.memory.iter().map(ToString::to_string).collect(),
        backend_params: info.params,
        searched: loaded.found.searched.iter().map(place).collect(),
    })
}

/// Every place that a search would look at, without loading anything.
pub(crate) fn places(nixl_lib: Option<PathBuf>) -> Vec<Place> {
    SearchOptions::from_process(nixl_lib).candidates().iter().map(place).collect()
}

fn place(candidate: &Candidate) -> Place {
    Place {
        path: candidate.path.display().to_string(),
        origin: candidate.origin.to_string(),
        exists: candidate.exists,
    }
}

#[cfg(test)]
mod tests {
    use super::leaves_gpus_out;

    #[test]
    fn a_list_of_transports_has_gpu_memory_by_cuda_copy_alone() {
        for list in ["tcp", "rc,cuda_ipc", "^cuda", "^tcp,cuda_copy", ""] {
            assert!(leaves_gpus_out(list), "{list}");
        }
        // UCX loses the `^` before `all`, and does not trim.
        assert!(leaves_gpus_out("tcp, cuda_copy"));
        for list in ["all", "^all", "rc,cuda", "tcp,cuda_copy", "^tcp", "^cuda_ipc", r"rc,\cuda_copy"] {
            assert!(!leaves_gpus_out(list), "{list}");
        }
    }
}
