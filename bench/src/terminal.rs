//! What a person sees: the result on standard output, the talk on standard error.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::{OutputArgs, ProgressWhen, When};

/// Characters in a line where nobody says.
const WIDTH_DEFAULT: usize = 120;

/// Where text goes, decided once. Clones share the progress line.
#[derive(Debug, Clone)]
pub(crate) struct Terminal {
    quiet: bool,
    verbose: bool,
    color: When,
    progress_when: ProgressWhen,
    progress: Arc<Mutex<Option<Progress>>>,
}

/// The progress line, and when the run will be about done.
#[derive(Debug, Clone)]
struct Progress {
    bar: ProgressBar,
    case: String,
    end: Instant,
}

impl Terminal {
    /// Follows the output flags.
    pub(crate) fn new(args: &OutputArgs) -> Self {
        Self {
            quiet: args.quiet,
            verbose: args.verbose,
            color: args.color,
            progress_when: ProgressWhen::Auto,
            progress: Arc::default(),
        }
    }

    /// The same terminal, which shows how a run goes on in this way.
    pub(crate) fn showing(&self, progress: ProgressWhen) -> Self {
        Self { progress_when: progress, ..self.clone() }
    }

    /// True when text on standard output may carry colour.
    pub(crate) fn color_on_stdout(&self) -> bool {
        self.color_on(io::stdout().is_terminal())
    }

    fn color_on(&self, is_terminal: bool) -> bool {
        match self.color {
            When::Always => true,
            When::Never => false,
            // NO_COLOR counts when it is set and not empty (no-color.org).
            When::Auto => is_terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
        }
    }

    /// Characters in a line of standard output; what fits most logs where it is no terminal.
    pub(crate) fn width(&self) -> usize {
        rustix::termios::tcgetwinsize(io::stdout()).map_or(WIDTH_DEFAULT, |size| usize::from(size.ws_col))
    }

    /// Prints the result. A reader that has gone away (a closed pipe) is no error.
    ///
    /// # Errors
    /// Standard output cannot be written, for example on a full disk.
    pub(crate) fn result(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        match written {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }

    /// Says something that a person should know while waiting. Silent with `--quiet`.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            self.talk(text);
        }
    }

    /// Says something without which the other side cannot go on, always.
    pub(crate) fn say(&self, text: &str) {
        self.talk(text);
    }

    /// Says something that only `--verbose` shows.
    pub(crate) fn detail(&self, text: &str) {
        if self.verbose {
            self.talk(text);
        }
    }

    /// Says what went wrong, always.
    pub(crate) fn error(&self, text: &str) {
        let label =
            if self.color_on(io::stderr().is_terminal()) { "\x1b[1;31merror\x1b[0m" } else { "error" };
        self.talk(&format!("{label}: {text}"));
    }

    fn talk(&self, text: &str) {
        let write = || {
            // Nobody is left to hear that standard error is closed.
            let _ = writeln!(io::stderr().lock(), "{text}");
        };
        match self.progress_bar() {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    fn progress_bar(&self) -> Option<ProgressBar> {
        self.locked().as_ref().map(|progress| progress.bar.clone())
    }

    fn locked(&self) -> MutexGuard<'_, Option<Progress>> {
        self.progress.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Shows how far the run of `cases` cases is: a moving line when standard error is a terminal, or a line for each
    /// case, as `--progress` says; nothing with `--quiet`.
    pub(crate) fn start_progress(&self, cases: u64) {
        let target = match self.progress_when {
            ProgressWhen::Auto if !self.quiet && io::stderr().is_terminal() => ProgressDrawTarget::stderr(),
            ProgressWhen::Lines if !self.quiet => ProgressDrawTarget::hidden(),
            _ => return,
        };
        let bar = ProgressBar::with_draw_target(Some(cases), target);
        if let Ok(style) = ProgressStyle::with_template("{percent:>3}% {bar:24} {pos}/{len} {msg}") {
            bar.set_style(style);
        }
        *self.locked() = Some(Progress { bar, case: String::new(), end: Instant::now() });
    }

    /// Shows which case runs now and about how much time is left.
    pub(crate) fn show_case(&self, done: u64, case: &str, left: Duration) {
        if self.progress_when == ProgressWhen::Lines
            && let Some(all) = self.progress_bar().and_then(|bar| bar.length())
        {
            let left = left.as_secs_f64().ceil();
            self.talk(&format!("case {} of {all}: {case}, about {left} s left", done + 1));
        }
        if let Some(progress) = self.locked().as_mut() {
            progress.case = case.to_owned();
            progress.end = Instant::now() + left;
            progress.bar.set_position(done);
        }
        self.tick();
    }

    /// Brings the time that is left up to date.
    pub(crate) fn tick(&self) {
        if let Some(Progress { bar, case, end }) = self.locked().clone() {
            let left = end.saturating_duration_since(Instant::now()).as_secs_f64().ceil();
            bar.set_message(format!("{case}, about {left} s left"));
            bar.tick();
        }
    }

    /// Takes the progress line away.
    pub(crate) fn end_progress(&self) {
        if let Some(progress) = self.locked().take() {
            progress.bar.finish_and_clear();
        }
    }
}
