//! What an engine and the libraries in it print: captured, and the lines that explain a failure found again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::sync::Notify;

use super::handle::Whose;
use super::protocol::MARK;
use crate::proof::ucx::UcxLog;
use crate::terminal::Terminal;

/// Lines kept of everything that is printed.
const TAIL_LINES: usize = 100;
/// Lines kept of those that look like trouble.
const TROUBLE_LINES: usize = 100;
/// Bytes kept of one line.
const LINE_BYTES: usize = 2000;
/// Lines quoted in a finding.
const QUOTED: usize = 12;

#[derive(Debug, Default)]
struct Lines {
    tail: VecDeque<String>,
    trouble: VecDeque<String>,
    ucx: UcxLog,
    /// Marks that will come less those that came.
    marks_due: i64,
}

/// The captured output of one engine, bounded. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log {
    lines: Arc<Mutex<Lines>>,
    mark_came: Arc<Notify>,
}

impl Log {
    fn push(&self, line: &str) {
        let line = shortened(line);
        let mut lines = self.lines();
        if lines.ucx.push(&line) {
            return;
        }
        if is_trouble(&line) {
            keep(&mut lines.trouble, line.clone(), TROUBLE_LINES);
        }
        keep(&mut lines.tail, line, TAIL_LINES);
    }

    /// The lines that explain a failure: those that look like trouble, else the last ones.
    pub(crate) fn explaining(&self) -> Vec<String> {
        let lines = self.lines();
        let chosen = if lines.trouble.is_empty() { &lines.tail } else { &lines.trouble };
        chosen.iter().skip(chosen.len().saturating_sub(QUOTED)).cloned().collect()
    }

    /// Looks at what UCX logged.
    pub(crate) fn with_ucx<T>(&self, look: impl FnOnce(&UcxLog) -> T) -> T {
        look(&self.lines().ucx)
    }

    /// A mark will come.
    pub(crate) fn expect_mark(&self) {
        self.lines().marks_due += 1;
    }

    /// Resolves when every mark has come.
    pub(crate) async fn marked(&self) {
        loop {
            let came = self.mark_came.notified();
            if self.lines().marks_due <= 0 {
                return;
            }
            came.await;
        }
    }

    /// Takes the mark out of the log; true when the line is one.
    fn take_mark(&self, line: &str) -> bool {
        if line != MARK {
            return false;
        }
        let mut lines = self.lines();
        lines.marks_due -= 1;
        drop(lines);
        self.mark_came.notify_waiters();
        true
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        // A poisoned lock only means that a reader panicked between two pushes; the lines are whole.
        self.lines.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn keep(lines: &mut VecDeque<String>, line: String, most: usize) {
    if lines.len() == most {
        lines.pop_front();
    }
    lines.push_back(line);
}

/// UCX and NIXL mark trouble by level; aborts and loader errors speak in their own words.
fn is_trouble(line: &str) -> bool {
    const MARKS: [&str; 9] = [
        " WARN ",
        " ERROR ",
        " FATAL ",
        "Fatal:",
        "Assertion",
        "what():",
        "cannot open",
        "undefined symbol",
        "abort",
    ];
    let glog = line.starts_with(['E', 'W', 'F']) && line.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
    glog || MARKS.iter().any(|mark| line.contains(mark))
}

fn shortened(line: &str) -> String {
    if line.len() <= LINE_BYTES {
        return line.to_owned();
    }
    let end = (0..=LINE_BYTES).rev().find(|i| line.is_char_boundary(*i)).unwrap_or(0);
    format!("{} …", &line[..end])
}

/// Reads a stream of an engine to its end, line by line.
pub(crate) async fn collect(stream: impl AsyncRead + Unpin, log: Log, whose: Whose, terminal: Terminal) {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let text = String::from_utf8_lossy(&line);
                let text = text.trim_end();
                if !text.is_empty() && !log.take_mark(text) {
                    log.push(text);
                    terminal.detail(&format!("{whose} | {text}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_quoted_before_chatter() {
        let log = Log::default();
        log.push("[1700000000.1] [host:1:0] ucp_context.c:1 UCX  WARN  transport 'rc' is not available");
        for n in 0..500 {
            log.push(&format!("chatter {n}"));
        }
        assert_eq!(log.explaining().len(), 1);
        assert!(log.explaining()[0].contains("transport 'rc'"));
    }

    #[test]
    fn without_trouble_the_last_lines_are_quoted() {
        let log = Log::default();
        (0..500).for_each(|n| log.push(&format!("chatter {n}")));
        assert_eq!(log.explaining().len(), QUOTED);
        assert_eq!(log.explaining()[QUOTED - 1], "chatter 499");
    }

    #[test]
    fn a_long_line_is_cut_at_a_character() {
        assert!(shortened(&"ä".repeat(5000)).len() < LINE_BYTES + 8);
    }
}
