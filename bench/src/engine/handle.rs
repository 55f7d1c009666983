//! The supervisor's hold on its engine process: starts it, talks to it, and says how it ended.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use checks::{Finding, Status};
use coordinator::Role;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, Command as Process};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::log::{Log, collect};
use super::protocol::{Command, EngineError, ErrorKind, Event, checked_length, encode};
use crate::proof::ucx::UcxLog;
use crate::terminal::Terminal;
use crate::verdict::Outcome;

/// What a run or its engine was doing. Every failure names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Join,
    Hello,
    Starting,
    Opening,
    Connecting,
    Preparing,
    WarmUp,
    TimedLoop,
    Evidence,
    Verification,
    Looking,
    Idle,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Join => "join",
            Self::Hello => "hello",
            Self::Starting => "start",
            Self::Opening => "opening NIXL and registering memory",
            Self::Connecting => "connection",
            Self::Preparing => "preparing memory",
            Self::WarmUp => "warm-up",
            Self::TimedLoop => "timed loop",
            Self::Evidence => "taking evidence",
            Self::Verification => "verification",
            Self::Looking => "looking at single transfers",
            Self::Idle => "waiting for work",
        })
    }
}

/// How an engine failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It could not be started.
    Spawn(String),
    /// Its process ended by itself.
    Exited(i32),
    /// A signal ended it.
    Signal(i32),
    /// Somebody stopped it (SIGSTOP); it was ended after that.
    Stopped,
    /// It did not answer in time and was ended.
    Silent(Duration),
    /// It said what failed.
    Reported(EngineError),
    /// It answered something else than was asked.
    Confused(String),
}

/// Whose engine it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Whose {
    pub(crate) role: Role,
    /// Its rank, where its side has several.
    pub(crate) rank: Option<u32>,
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rank {
            Some(rank) => write!(f, "{} engine of rank {rank}", self.role),
            None => write!(f, "{} engine", self.role),
        }
    }
}

/// An engine that failed: whose, doing what, how, and the log lines that explain it.
#[derive(Debug, Clone)]
pub(crate) struct EngineFailure {
    pub(crate) whose: Whose,
    pub(crate) phase: Phase,
    pub(crate) kind: Kind,
    pub(crate) log: Vec<String>,
}

/// Time an engine has to go once its pipe is closed.
const LEAVE_TIME: Duration = Duration::from_secs(2);
/// How often a silent engine is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A running engine process. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Engine {
    whose: Whose,
    child: Child,
    pipe: UnixStream,
    log: Log,
    /// The tasks that read its output, each until its end.
    readers: Vec<JoinHandle<()>>,
    terminal: Terminal,
}

impl Engine {
    /// Starts the only engine process of a side, with `env` on top of this process's environment.
    pub(crate) fn spawn(
        role: Role,
        env: &BTreeMap<String, String>,
        terminal: &Terminal,
    ) -> Result<Self, EngineFailure> {
        Self::start(Whose { role, rank: None }, env, terminal)
    }

    /// Starts the engine processes of all ranks of a side, each with its environment.
    pub(crate) fn spawn_ranks(
        role: Role,
        environments: &[BTreeMap<String, String>],
        terminal: &Terminal,
    ) -> Result<Vec<Self>, EngineFailure> {
        let whose = |rank| Whose { role, rank: (environments.len() > 1).then_some(rank) };
        (0..).zip(environments).map(|(rank, env)| Self::start(whose(rank), env, terminal)).collect()
    }

    fn start(
        whose: Whose,
        env: &BTreeMap<String, String>,
        terminal: &Terminal,
    ) -> Result<Self, EngineFailure> {
        let failed = |e: io::Error| EngineFailure {
            whose,
            phase: Phase::Starting,
            kind: Kind::Spawn(e.to_string()),
            log: Vec::new(),
        };
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let mut process = Process::new("/proc/self/exe");
        process
            .arg0("kvwire")
            .arg("engine")
            // One socket is both directions. As standard input it needs no descriptor to be inherited by
            // number, which two engines started at the same moment could steal from each other.
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C in a terminal goes to the supervisor alone, which then ends its engine in good order.
            .process_group(0)
            .kill_on_drop(true);
        for (key, default) in LOG_DEFAULTS {
            if std::env::var_os(key).is_none() {
                process.env(key, default);
            }
        }
        for name in SECRETS {
            process.env_remove(name);
        }
        process.envs(env);
        let mut child = process.spawn().map_err(failed)?;
        let log = Log::default();
        let mut readers = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            readers.push(tokio::spawn(collect(stdout, log.clone(), whose, terminal.clone())));
        }
        if let Some(stderr) = child.stderr.take() {
            readers.push(tokio::spawn(collect(stderr, log.clone(), whose, terminal.clone())));
        }
        let pipe = UnixStream::from_std(ours).map_err(failed)?;
        if let Some(pid) = child.id() {
            terminal.detail(&format!("{whose}: process {pid}"));
        }
        Ok(Self { whose, child, pipe, log, readers, terminal: terminal.clone() })
    }

    /// Sends one command and waits for its event.
    ///
    /// Not cancel-safe: an engine whose answer was not awaited must be [ended](Self::kill).
    ///
    /// # Errors
    /// The engine said that it failed, died, was stopped, or did not answer before `deadline`.
    pub(crate) async fn request(
        &mut self,
        command: &Command,
        phase: Phase,
        deadline: Duration,
    ) -> Result<Event, EngineFailure> {
        self.terminal.detail(&format!("{}: {phase}", self.whose));
        let frame = match encode(command) {
            Ok(frame) => frame,
            Err(e) => return Err(self.failure(phase, Kind::Confused(e.to_string()))),
        };
        if matches!(command, Command::Mark) {
            self.log.expect_mark();
        }
        if self.pipe.write_all(&frame).await.is_err() {
            return Err(self.ended(phase).await);
        }
        let end = Instant::now() + deadline;
        let answer = {
            let mut read = std::pin::pin!(read_event(&mut self.pipe));
            loop {
                let left = end.saturating_duration_since(Instant::now());
                match timeout(left.min(LOOK_EVERY), &mut read).await {
                    Ok(answer) => break Ok(answer),
                    Err(_) if self.child.id().is_some_and(is_stopped) => break Err(Kind::Stopped),
                    Err(_) if Instant::now() >= end => break Err(Kind::Silent(deadline)),
                    Err(_) => self.terminal.tick(),
                }
            }
        };
        match answer {
            Ok(Ok(Event::Failed(error))) => {
                // The engine marks its log before it says that it failed: the lines that explain it come first.
                self.log.expect_mark();
                self.settle_log().await;
                Err(self.failure(phase, Kind::Reported(error)))
            }
            Ok(Ok(event)) => Ok(event),
            Ok(Err(e)) if e.kind() == io::ErrorKind::InvalidData => {
                Err(self.failure(phase, Kind::Confused(e.to_string())))
            }
            Ok(Err(_)) => Err(self.ended(phase).await),
            Err(kind) => {
                self.kill().await;
                Err(self.failure(phase, kind))
            }
        }
    }

    /// Resolves when the engine ends while nothing is asked of it. Cancel-safe.
    pub(crate) async fn gone(&mut self) -> EngineFailure {
        loop {
            match timeout(LOOK_EVERY, self.child.wait()).await {
                Ok(status) => return self.failure_of(Phase::Idle, status),
                Err(_) if self.child.id().is_some_and(is_stopped) => {
                    self.kill().await;
                    return self.failure(Phase::Idle, Kind::Stopped);
                }
                Err(_) => {}
            }
        }
    }

    /// Lets the engine go: closes its pipe, and kills it when it does not leave in time.
    pub(crate) async fn end(mut self) {
        // Without a command the engine reads the end of its pipe and leaves.
        drop(self.pipe);
        if timeout(LEAVE_TIME, self.child.wait()).await.is_err() {
            // Ignored: it fails only when the process is already gone.
            let _ = self.child.kill().await;
        }
    }

    /// Kills the process and waits until it is gone.
    pub(crate) async fn kill(&mut self) {
        // Ignored: it fails only when the process is already gone.
        let _ = self.child.kill().await;
    }

    /// The engine's process id, while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits until everything is read that the engine logged before its last [`Command::Mark`].
    pub(crate) async fn settle_log(&self) {
        // Ignored: an engine without standard error has no tables either, and that is found where they are missed.
        let _ = timeout(LOG_TIME, self.log.marked()).await;
    }

    /// Looks at what UCX logged.
    pub(crate) fn with_ucx_log<T>(&self, look: impl FnOnce(&UcxLog) -> T) -> T {
        self.log.with_ucx(look)
    }

    /// Lets the engine go, and gives what it printed that looks like trouble, to its last line.
    pub(crate) async fn trouble(mut self) -> Vec<String> {
        drop(self.pipe);
        if timeout(LEAVE_TIME, self.child.wait()).await.is_err() {
            // Ignored: it fails only when the process is already gone.
            let _ = self.child.kill().await;
        }
        for reader in self.readers {
            // Ignored: what was read until then is what there is.
            let _ = timeout(LEAVE_TIME, reader).await;
        }
        self.log.explaining()
    }

    /// The failure of an engine that answered something else than was asked.
    pub(crate) fn confused(&self, phase: Phase) -> EngineFailure {
        self.failure(phase, Kind::Confused("an event that was not asked for".to_owned()))
    }

    async fn ended(&mut self, phase: Phase) -> EngineFailure {
        match timeout(LEAVE_TIME, self.child.wait()).await {
            Ok(status) => self.failure_of(phase, status),
            Err(_) => {
                self.kill().await;
                self.failure(phase, Kind::Confused("it closed its pipe and stayed".to_owned()))
            }
        }
    }

    fn failure_of(&self, phase: Phase, status: io::Result<ExitStatus>) -> EngineFailure {
        let kind = match status {
            Ok(status) => match status.signal() {
                Some(signal) => Kind::Signal(signal),
                None => Kind::Exited(status.code().unwrap_or_default()),
            },
            Err(e) => Kind::Confused(e.to_string()),
        };
        self.failure(phase, kind)
    }

    fn failure(&self, phase: Phase, kind: Kind) -> EngineFailure {
        EngineFailure { whose: self.whose, phase, kind, log: self.log.explaining() }
    }
}

/// Logs show what went wrong and are silent otherwise; standard error is not buffered, so that even the last line
/// before an abort arrives. What the user set stays.
/// The protocol tables are printed when an endpoint is made and at the first operation of a kind, never in a
/// timed loop.
const LOG_DEFAULTS: [(&str, &str); 4] = [
    ("UCX_LOG_LEVEL", "warn"),
    ("UCX_LOG_FILE", "stderr"),
    ("UCX_PROTO_INFO", "y"),
    ("NIXL_LOG_LEVEL", "WARN"),
];

/// Time for the log to be read up to its mark.
const LOG_TIME: Duration = Duration::from_secs(2);

/// What the engine, and so any library that it loads, does not need to know.
const SECRETS: [&str; 8] = [
    "KVWIRE_TOKEN",
    "KVWIRE_RENDEZVOUS",
    "KVWIRE_ETCD_USER",
    "KVWIRE_ETCD_PASSWORD",
    "KVWIRE_ETCD_PASSWORD_FILE",
    "KVWIRE_ETCD_CA",
    "KVWIRE_ETCD_CERT",
    "KVWIRE_ETCD_KEY",
];

async fn read_event(pipe: &mut UnixStream) -> io::Result<Event> {
    let mut length = [0; 4];
    pipe.read_exact(&mut length).await?;
    let mut body = vec![0; checked_length(length)?];
    pipe.read_exact(&mut body).await?;
    serde_json::from_slice(&body).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// True when the kernel says that the process is stopped (by SIGSTOP or a debugger).
fn is_stopped(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // The state follows the command name, which is in parentheses and may itself contain some.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('T' | 't'))
}

/// SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS and SIGTRAP: the process broke by itself. Others come from outside.
const OWN_SIGNALS: [i32; 7] = [6, 7, 8, 4, 11, 31, 5];

impl EngineFailure {
    /// What the failure means for the verdict. A process that somebody else ended says nothing about the wire.
    pub(crate) fn outcome(&self) -> Outcome {
        match &self.kind {
            Kind::Signal(signal) if !OWN_SIGNALS.contains(signal) => Outcome::Inconclusive,
            Kind::Stopped | Kind::Spawn(_) => Outcome::Inconclusive,
            Kind::Reported(error) => match error.kind {
                ErrorKind::NixlMissing | ErrorKind::NixlUnusable | ErrorKind::Memory | ErrorKind::Gpu => {
                    Outcome::Inconclusive
                }
                ErrorKind::Nixl | ErrorKind::Stalled | ErrorKind::Protocol => Outcome::NotTrusted,
            },
            Kind::Signal(_) | Kind::Exited(_) | Kind::Silent(_) | Kind::Confused(_) => Outcome::NotTrusted,
        }
    }

    /// What the engine itself said, when it said something.
    pub(crate) fn reported(&self) -> Option<&EngineError> {
        match &self.kind {
            Kind::Reported(error) => Some(error),
            _ => None,
        }
    }

    /// True when the failure says by itself where it comes from: nothing on the other side can have caused it.
    pub(crate) fn speaks_for_itself(&self) -> bool {
        match &self.kind {
            Kind::Signal(signal) => !OWN_SIGNALS.contains(signal),
            Kind::Stopped | Kind::Spawn(_) => true,
            Kind::Reported(error) => {
                matches!(
                    error.kind,
                    ErrorKind::NixlMissing | ErrorKind::NixlUnusable | ErrorKind::Memory | ErrorKind::Gpu
                )
            }
            Kind::Exited(_) | Kind::Silent(_) | Kind::Confused(_) => false,
        }
    }

    /// The failure as a finding: who, in which phase, how, the log lines, and what to do next.
    pub(crate) fn finding(&self) -> Finding {
        let (id, what, next_step) = self.words();
        let title = format!("{}, {}: {what}", self.whose, self.phase);
        Finding::new(id, Status::Fail, title).evidence(self.log.iter().cloned()).next_step(next_step)
    }

    fn words(&self) -> (&'static str, String, String) {
        match &self.kind {
            Kind::Spawn(why) => (
                "engine-not-started",
                format!("could not be started: {why}"),
                "see whether this user may start more processes (ulimit -u, cgroup limits)".to_owned(),
            ),
            Kind::Exited(code) => (
                "engine-died",
                format!("the process ended by itself with exit code {code}"),
                "read the log lines below; run again with --verbose for all of them".to_owned(),
            ),
            Kind::Signal(signal) => {
                ("engine-died", format!("killed by {}", signal_name(*signal)), signal_hint(*signal))
            }
            Kind::Stopped => (
                "engine-stopped",
                "somebody stopped the process (SIGSTOP or a debugger); it was ended".to_owned(),
                "run again and leave the engine process alone".to_owned(),
            ),
            Kind::Silent(after) => (
                "engine-silent",
                format!("no answer within {} s; it was ended", after.as_secs()),
                "run again with --verbose; when it repeats, report it with the log".to_owned(),
            ),
            Kind::Reported(error) => {
                (reported_id(error.kind), error.message.clone(), reported_hint(error.kind))
            }
            Kind::Confused(why) => (
                "engine-confused",
                format!("an answer that makes no sense: {why}"),
                "this is a fault in kvwire; please report it".to_owned(),
            ),
        }
    }
}

fn reported_id(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NixlMissing => "nixl-missing",
        ErrorKind::NixlUnusable => "nixl-unusable",
        ErrorKind::Nixl => "nixl-error",
        ErrorKind::Stalled => "transfer-stalled",
        ErrorKind::Memory => "memory",
        ErrorKind::Gpu => "gpu-unusable",
        ErrorKind::Protocol => "engine-confused",
    }
}

fn reported_hint(kind: ErrorKind) -> String {
    match kind {
        ErrorKind::NixlMissing => {
            "install NIXL (pip install --no-deps nixl-cu12) or name its library with --nixl-lib; `kvwire info` shows the search"
        }
        ErrorKind::NixlUnusable => "run `kvwire info` to see what this NIXL offers, or name another one with --nixl-lib",
        ErrorKind::Nixl => "read the log lines below; run again with --verbose, and with UCX_LOG_LEVEL=info for more",
        ErrorKind::Stalled => {
            "the wire or the peer is stuck: look at the link of the device that UCX uses; a slow wire needs a longer --transfer-timeout"
        }
        ErrorKind::Memory => "lower --sizes, --batch, --depth or --pool, or raise the memory limit (ulimit -l, cgroup)",
        ErrorKind::Gpu => {
            "run `kvwire check node` and `nvidia-smi` where this side runs; --memory auto measures host memory where there is no GPU"
        }
        ErrorKind::Protocol => "this is a fault in kvwire; please report it",
    }
    .to_owned()
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        31 => "SIGSYS",
        other => return format!("signal {other}"),
    };
    format!("{name} (signal {signal})")
}

fn signal_hint(signal: i32) -> String {
    match signal {
        9 => {
            "somebody killed it; when nobody did, look for the out-of-memory killer in the kernel log (dmesg)"
        }
        7 => "memory could not be backed: a full /dev/shm or too few huge pages do this",
        6 => "UCX or NIXL gave up by abort(): the log lines below say why",
        _ if OWN_SIGNALS.contains(&signal) => {
            "NIXL or UCX crashed: run again with --verbose and report it with the log"
        }
        _ => "run again and leave the engine process alone",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(kind: Kind) -> EngineFailure {
        EngineFailure {
            whose: Whose { role: Role::Target, rank: None },
            phase: Phase::TimedLoop,
            kind,
            log: vec!["UCX ERROR x".to_owned()],
        }
    }

    #[test]
    fn a_finding_names_who_where_how_and_what_next() {
        let finding = failure(Kind::Signal(6)).finding();
        assert_eq!(finding.id, "engine-died");
        assert_eq!(finding.title, "target engine, timed loop: killed by SIGABRT (signal 6)");
        assert_eq!(finding.evidence, ["UCX ERROR x"]);
        assert!(!finding.next_step.is_empty());
        let ranked =
            EngineFailure { whose: Whose { role: Role::Target, rank: Some(3) }, ..failure(Kind::Signal(6)) };
        assert!(ranked.finding().title.starts_with("target engine of rank 3, timed loop: "));
    }

    #[test]
    fn only_what_the_engine_did_itself_speaks_against_the_wire() {
        for (kind, outcome) in [
            (Kind::Signal(6), Outcome::NotTrusted),
            (Kind::Signal(11), Outcome::NotTrusted),
            (Kind::Exited(3), Outcome::NotTrusted),
            (Kind::Silent(Duration::from_secs(1)), Outcome::NotTrusted),
            (Kind::Signal(9), Outcome::Inconclusive),
            (Kind::Signal(15), Outcome::Inconclusive),
            (Kind::Stopped, Outcome::Inconclusive),
        ] {
            assert_eq!(failure(kind.clone()).outcome(), outcome, "{kind:?}");
        }
    }

    #[test]
    fn only_a_failure_that_the_other_side_may_have_caused_waits_for_its_word() {
        for (kind, alone) in [
            (Kind::Signal(9), true),
            (Kind::Stopped, true),
            (Kind::Signal(6), false),
            (Kind::Exited(1), false),
            (Kind::Silent(Duration::from_secs(1)), false),
        ] {
            assert_eq!(failure(kind.clone()).speaks_for_itself(), alone, "{kind:?}");
        }
    }

    #[test]
    fn this_process_is_not_stopped() {
        assert!(!is_stopped(std::process::id()));
        assert!(!is_stopped(u32::MAX));
    }
}
