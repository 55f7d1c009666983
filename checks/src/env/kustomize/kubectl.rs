//! `kubectl kustomize`, for what the reader here does not build. It reads files below the folder and nothing else: git
//! and proxies are closed for it, so that a reference to the network ends in an error and not in a download.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::super::source::FILE_BYTES_MAX;

/// Time that a build may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// Bytes kept of what it says on standard error.
const STDERR_MAX: u64 = 16 << 10;
/// Characters of a failure that are shown.
const SHOWN_CHARS_MAX: usize = 300;

/// The objects that `kubectl kustomize FOLDER` prints.
///
/// # Errors
/// A sentence: it cannot be started, fails, prints too much or does not end.
pub(super) fn build(kubectl: &Path, folder: &Path) -> Result<Vec<u8>, String> {
    let nowhere = "http://127.0.0.1:9";
    let mut child = Command::new(kubectl)
        .args(["kustomize", "--"])
        .arg(folder)
        .env("GIT_ALLOW_PROTOCOL", "")
        .envs(["HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"].map(|name| (name, nowhere)))
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{} cannot be started: {e}", kubectl.display()))?;
    let stdout = reader(child.stdout.take(), FILE_BYTES_MAX + 1);
    let stderr = reader(child.stderr.take(), STDERR_MAX);
    let succeeded = wait(&mut child)?;
    let said = stderr.join().unwrap_or_default();
    let printed = stdout.join().unwrap_or_default();
    if succeeded {
        return Ok(printed);
    }
    let said = String::from_utf8_lossy(&said);
    let line = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
    Err(line.trim_start_matches("error: ").chars().take(SHOWN_CHARS_MAX).collect())
}

/// Reads a pipe to its end, so that the program never waits for a reader, and keeps the first bytes.
fn reader(pipe: Option<impl Read + Send + 'static>, max: u64) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // A pipe that breaks leaves what came before.
            let _ = pipe.by_ref().take(max).read_to_end(&mut bytes);
            let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        }
        bytes
    })
}

/// Whether it ended well; one that does not end in time is ended.
fn wait(child: &mut Child) -> Result<bool, String> {
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.success()),
            Ok(None) if begin.elapsed() < DEADLINE => thread::sleep(Duration::from_millis(10)),
            Ok(None) => {
                // Both only fail when it has just ended by itself.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it did not end within {} s", DEADLINE.as_secs()));
            }
            Err(e) => return Err(format!("it cannot be waited for: {e}")),
        }
    }
}
