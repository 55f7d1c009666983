//! Two processes, over the fake and over a real NIXL: bytes, notifications, and ends that no code survives.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops where something fails"
)]
#![allow(clippy::print_stdout, reason = "what one process tells the other")]

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Instant;

use common::{DEADLINE, agent, fill, memory, pattern, receive, run, ucx, word};
use nixl::{Op, RemoteRegion, TransferOptions};
use nixl_sys::{Library, NIXL_LIB_VARIABLE};

/// Names the library to the processes that a test starts.
const LIBRARY: &str = "KVWIRE_TEST_LIBRARY";
const BYTES: usize = 1 << 20;

fn fake() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().join("libfake_nixl_capi.so")
}

fn real() -> PathBuf {
    let named = std::env::var_os(NIXL_LIB_VARIABLE).map(PathBuf::from);
    named.unwrap_or_else(|| {
        panic!("{NIXL_LIB_VARIABLE} must name a real libnixl_capi.so for this test; `make test` sets it")
    })
}

/// Another process of this program that runs one of the ignored tests below.
struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Process {
    fn start(role: &str, library: &Path, script: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", role, "--ignored", "--nocapture"])
            .env(LIBRARY, library)
            .env("KVWIRE_FAKE_NIXL", script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// The rest of the next line that starts with `word`; everything else is the test harness' talk.
    fn hear(&mut self, word: &str) -> String {
        let mut line = String::new();
        while self.lines.read_line(&mut line).unwrap() > 0 {
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
            line.clear();
        }
        panic!("the process ended without `{word}`");
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn end(mut self) -> ExitStatus {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the process did not end");
            std::thread::yield_now();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn library() -> Arc<Library> {
    Arc::new(Library::open(Path::new(&std::env::var_os(LIBRARY).unwrap())).unwrap())
}

#[test]
#[ignore = "the other process of the tests in this file"]
fn target() {
    let library = library();
    let agent = agent(&library, "target");
    let backend = ucx(&agent);
    let memory = memory(BYTES);
    let registration = agent.register(&backend, &memory).unwrap();
    let region = serde_json::to_string(&registration.region()).unwrap();
    let blob = serde_json::to_string(&agent.local_metadata().unwrap()).unwrap();
    println!("REGION {region}\nBLOB {blob}");
    let arrived = receive(&agent, 1);
    println!("ARRIVED {}", String::from_utf8_lossy(&arrived[0].1));
    let wrong = (0..BYTES / 8).filter(|at| word(&memory, *at) != pattern(1, *at)).count();
    println!("WRONG {wrong}");
    fill(&memory, 2);
    println!("REFILLED");
    // The peer says when it has read: memory stays registered until then.
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
#[ignore = "the other process of the tests in this file"]
fn initiator_that_posts_once() {
    let library = library();
    let (initiator, target) = (agent(&library, "one"), agent(&library, "two"));
    let (backend, target_backend) = (ucx(&initiator), ucx(&target));
    let (here, there) = (memory(64), memory(64));
    let (ours, theirs) =
        (initiator.register(&backend, &here).unwrap(), target.register(&target_backend, &there).unwrap());
    let remote = initiator.load_remote(&target.local_metadata().unwrap()).unwrap();
    let local_list = ours.describe([(0, 64)]).unwrap();
    let remote_list = remote.describe(&theirs.region(), [(0, 64)]).unwrap();
    let options = TransferOptions::default();
    let mut transfer =
        initiator.make_transfer(Op::Write, &local_list, &[0], &remote_list, &[0], &options).unwrap();
    println!("POSTING");
    run(&mut transfer).unwrap();
    println!("POSTED");
}

fn bytes_cross(path: &Path) {
    let mut process = Process::start("target", path, "");
    let region: RemoteRegion = serde_json::from_str(&process.hear("REGION ")).unwrap();
    let blob: Vec<u8> = serde_json::from_str(&process.hear("BLOB ")).unwrap();

    let library = Arc::new(Library::open(path).unwrap());
    let agent = agent(&library, "initiator");
    let backend = ucx(&agent);
    let memory = memory(BYTES);
    let registration = agent.register(&backend, &memory).unwrap();
    let remote = agent.load_remote(&blob).unwrap();
    let blocks = || (0..256).map(|at| (at * 4096, 4096));
    let (local, there) =
        (registration.describe(blocks()).unwrap(), remote.describe(&region, blocks()).unwrap());
    let indices: Vec<i32> = (0..256).collect();

    fill(&memory, 1);
    let options = TransferOptions { skip_merge: true, notify: Some(b"written".to_vec()) };
    let mut write = agent.make_transfer(Op::Write, &local, &indices, &there, &indices, &options).unwrap();
    run(&mut write).unwrap();
    assert_eq!(process.hear("ARRIVED "), "written");
    assert_eq!(process.hear("WRONG "), "0");

    process.hear("REFILLED");
    let options = TransferOptions::default();
    let mut read = agent.make_transfer(Op::Read, &local, &indices, &there, &indices, &options).unwrap();
    run(&mut read).unwrap();
    for at in 0..BYTES / 8 {
        assert_eq!(word(&memory, at), pattern(2, at), "word {at}");
    }
    process.tell("read");
    assert!(process.end().success());
}

#[test]
fn bytes_cross_processes_through_the_fake() {
    bytes_cross(&fake());
}

#[test]
fn bytes_cross_processes_through_nixl() {
    bytes_cross(&real());
}

#[test]
fn a_scripted_abort_ends_the_process_inside_post() {
    let mut process = Process::start("initiator_that_posts_once", &fake(), "abort");
    process.hear("POSTING");
    assert_signal(process.end(), libc::SIGABRT);
}

#[test]
fn a_scripted_crash_at_exit_comes_after_the_work() {
    let mut process = Process::start("initiator_that_posts_once", &fake(), "exit_crash");
    process.hear("POSTED");
    assert_signal(process.end(), libc::SIGSEGV);
}

#[test]
fn a_misspelt_script_ends_the_process_before_anything_passes() {
    let process = Process::start("initiator_that_posts_once", &fake(), "stal");
    assert_signal(process.end(), libc::SIGABRT);
}

fn assert_signal(status: ExitStatus, signal: i32) {
    use std::os::unix::process::ExitStatusExt as _;
    assert_eq!(status.signal(), Some(signal), "{status}");
}
