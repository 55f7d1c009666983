//! The log of one pod, read while it is written: progress is shown, the report kept, the result taken out.

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, BufReader};

use super::job::CONTAINER;
use super::kubectl::Kubectl;
use crate::report::log;

/// Longest line: a result with whole histograms is far shorter.
const LINE_MAX: usize = 64 << 20;
/// Lines of the report that are kept for a log without a result.
const REPORT_LINES_MAX: usize = 2000;
/// The words that a report begins with.
const VERDICTS: [&str; 3] = ["TRUSTED", "NOT TRUSTED", "INCONCLUSIVE"];

/// What a log held.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// JSON of the result.
    pub(super) json: Option<String>,
    /// The report for people.
    pub(super) report: Vec<String>,
}

impl Log {
    /// Reads a log to its end and gives what comes before the report to `show`, line by line.
    ///
    /// # Errors
    /// kubectl cannot be started.
    pub(super) async fn follow(kubectl: &Kubectl, pod: &str, show: impl FnMut(&str)) -> Result<Self, String> {
        let container = format!("--container={CONTAINER}");
        let mut child = kubectl.start(&["logs", "--follow", pod, &container])?;
        let mut log = Self::default();
        if let Some(stdout) = child.stdout.take() {
            log.read(&mut BufReader::new(stdout), show).await;
        }
        // How the follower ended says nothing about the pod.
        let _ = child.wait().await;
        Ok(log)
    }

    async fn read(&mut self, stream: &mut (impl AsyncBufRead + Unpin), mut show: impl FnMut(&str)) {
        while let Some(line) = next_line(stream).await {
            if let Some(json) = log::json_of(&line) {
                self.json = Some(json.to_owned());
            } else if !self.report.is_empty() || VERDICTS.iter().any(|word| line.starts_with(word)) {
                if self.report.len() < REPORT_LINES_MAX {
                    self.report.push(line);
                }
            } else {
                show(&line);
            }
        }
    }
}

/// The next line without its end, cut at [`LINE_MAX`]; `None` at the end of the stream.
async fn next_line(stream: &mut (impl AsyncBufRead + Unpin)) -> Option<String> {
    let mut line = Vec::new();
    loop {
        let chunk = stream.fill_buf().await.ok()?;
        if chunk.is_empty() {
            return (!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned());
        }
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let (part, used) = end.map_or((chunk, chunk.len()), |end| (&chunk[..end], end + 1));
        line.extend_from_slice(&part[..part.len().min(LINE_MAX.saturating_sub(line.len()))]);
        stream.consume(used);
        if end.is_some() {
            return Some(String::from_utf8_lossy(&line).into_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn progress_is_shown_the_report_kept_and_the_result_taken_out() {
        let text = "waiting for the target\ncase 1 of 2: READ\nTRUSTED  all ran\n\nrun x\nkvwire-result: {\"a\":1}\n";
        let (mut log, mut shown) = (Log::default(), Vec::new());
        log.read(&mut text.as_bytes(), |line| shown.push(line.to_owned())).await;
        assert_eq!(shown, ["waiting for the target", "case 1 of 2: READ"]);
        assert_eq!(log.report, ["TRUSTED  all ran", "", "run x"]);
        assert_eq!(log.json.as_deref(), Some("{\"a\":1}"));
    }
}
