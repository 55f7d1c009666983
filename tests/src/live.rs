//! A run that is going on: what it says is read line by line, and its processes can be disturbed.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{Ended, HANGS_AFTER, wait_until};

/// A run that is going on.
#[derive(Debug)]
pub struct Live {
    child: Guarded,
    begin: Instant,
    lines: Receiver<String>,
    seen: Vec<String>,
    stdout: JoinHandle<String>,
    result: Option<PathBuf>,
    // Holds the result file until it has been read.
    _folder: TempDir,
}

/// A process that does not outlive the test, however that ends.
#[derive(Debug)]
pub(crate) struct Guarded(pub(crate) Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        // Ignored: both fail only when the process is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Live {
    pub(crate) fn new(mut child: Child, result: Option<PathBuf>, folder: TempDir) -> Self {
        let stderr = child.stderr.take().expect("stderr is a pipe");
        let mut stdout = child.stdout.take().expect("stdout is a pipe");
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
        let stdout = thread::spawn(move || {
            let mut text = Vec::new();
            // A broken pipe ends the text where it broke.
            let _ = stdout.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Self {
            child: Guarded(child),
            begin: Instant::now(),
            lines,
            seen: Vec::new(),
            stdout,
            result,
            _folder: folder,
        }
    }

    /// The process id of the supervisor.
    pub fn pid(&self) -> i32 {
        self.child.0.id().cast_signed()
    }

    /// Where the result is written.
    pub fn result_path(&self) -> Option<&Path> {
        self.result.as_deref()
    }

    /// Waits until a line on standard error contains `text`.
    ///
    /// # Panics
    /// It does not come.
    pub fn await_line(&mut self, text: &str) -> String {
        self.await_line_times(text, 1)
    }

    /// Waits until it says how the other host joins it: the address with its token.
    ///
    /// # Panics
    /// It does not say it.
    pub fn join_address(&mut self) -> String {
        let line = self.await_line("on the other host:");
        line.split_once("--rendezvous ").expect("an address").1.trim().to_owned()
    }

    /// Waits until `times` lines from now on contain `text`, and gives the last of them.
    ///
    /// # Panics
    /// They do not come.
    pub fn await_line_times(&mut self, text: &str, times: usize) -> String {
        let end = Instant::now() + HANGS_AFTER;
        let mut count = 0;
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    count += usize::from(line.contains(text));
                    self.seen.push(line.clone());
                    if count == times {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("`{text}` did not come\n{}", self.seen.join("\n")),
                Err(RecvTimeoutError::Disconnected) => {
                    let printed = std::mem::replace(&mut self.stdout, thread::spawn(String::new)).join();
                    let printed = printed.expect("the reader of stdout");
                    panic!("it ended without `{text}`\n{printed}\n{}", self.seen.join("\n"))
                }
            }
        }
    }

    /// The process id of an engine, once it has been announced; needs `--verbose`.
    ///
    /// # Panics
    /// It is not announced.
    pub fn engine(&mut self, role: &str) -> i32 {
        self.engine_announced(&format!("{role} engine: process "))
    }

    /// The same of one of several ranks.
    ///
    /// # Panics
    /// It is not announced.
    pub fn engine_of_rank(&mut self, role: &str, rank: u32) -> i32 {
        self.engine_announced(&format!("{role} engine of rank {rank}: process "))
    }

    fn engine_announced(&mut self, mark: &str) -> i32 {
        let known = self.seen.iter().find_map(|line| pid_after(line, mark));
        known.unwrap_or_else(|| {
            let line = self.await_line(mark);
            pid_after(&line, mark).unwrap_or_else(|| panic!("no process id in `{line}`"))
        })
    }

    /// Sends a signal to a process of this run.
    ///
    /// # Panics
    /// The process does not exist.
    pub fn signal(&self, pid: i32, signal: Signal) {
        let pid = Pid::from_raw(pid).expect("a process id");
        kill_process(pid, signal).expect("the process takes signals");
    }

    /// Waits for the end.
    ///
    /// # Panics
    /// It hangs.
    pub fn end(mut self) -> Ended {
        let mut status = None;
        wait_until("the run ends", HANGS_AFTER, || {
            status = self.child.0.try_wait().expect("the run can be waited for");
            thread::sleep(Duration::from_millis(2));
            status.is_some()
        });
        let took = self.begin.elapsed();
        let status = status.expect("a status");
        self.seen.extend(self.lines.iter());
        let engines = ["target", "initiator"]
            .iter()
            .flat_map(|role| {
                let mark = format!("{role} engine");
                let own = self.seen.iter().filter(|line| line.contains(&mark));
                own.filter_map(|line| pid_after(line, ": process ")).collect::<Vec<_>>()
            })
            .collect();
        let result = self
            .result
            .as_ref()
            .and_then(|path| std::fs::read(path).ok())
            .map(|bytes| serde_json::from_slice(&bytes).expect("a result file is whole at any time"));
        Ended {
            code: status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()),
            stdout: self.stdout.join().expect("the reader of stdout"),
            stderr: self.seen.join("\n"),
            result,
            took,
            engines,
        }
    }
}

fn pid_after(line: &str, mark: &str) -> Option<i32> {
    line.split_once(mark)?.1.trim().parse().ok()
}

/// True while a process exists and is not a zombie.
pub fn is_alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')))
}
