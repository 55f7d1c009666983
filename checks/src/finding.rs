//! The one type for every judgement kvwire makes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a judgement came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Looked at, and as it should be.
    Ok,
    /// Works, but a reader should know.
    Warn,
    /// Wrong: a run with this finding cannot be trusted.
    Fail,
    /// Not looked at, on purpose.
    Skipped,
    /// Looked at, and could not be decided.
    Unknown,
}

/// A place in a text file. Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct SourceSpan {
    /// The file as it was given, `-` for standard input.
    pub file: String,
    /// First line.
    pub line: u32,
    /// First column.
    pub column: u32,
    /// Last line.
    pub end_line: u32,
    /// The column after the last one.
    pub end_column: u32,
}

/// One judgement: what was looked at, how it came out, why, and what to do next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Stable name, lower case with dashes, for example `data-mismatch`.
    pub id: String,
    /// How it came out.
    pub status: Status,
    /// One sentence for a person.
    pub title: String,
    /// What exactly was seen, in more words. Empty when the title says it all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Log lines, values and files that the judgement rests on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// The next thing to do. Empty when there is nothing to do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub next_step: String,
    /// Why it matters for the transport. Empty where the title says it all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Text to paste in place of what is there. Empty when there is no such text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fix: String,
    /// Where in a file it was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceSpan>,
    /// Which workers of a manifest it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<String>,
}

impl Finding {
    /// A finding with an id, a status and a title; the rest is added with the builder calls.
    pub fn new(id: &str, status: Status, title: impl Into<String>) -> Self {
        Self {
            id: id.to_owned(),
            status,
            title: title.into(),
            detail: String::new(),
            evidence: Vec::new(),
            next_step: String::new(),
            why: String::new(),
            fix: String::new(),
            source: None,
            workers: Vec::new(),
        }
    }

    /// Adds what exactly was seen.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Adds lines that the judgement rests on.
    #[must_use]
    pub fn evidence(mut self, lines: impl IntoIterator<Item = String>) -> Self {
        self.evidence.extend(lines);
        self
    }

    /// Adds the next thing to do.
    #[must_use]
    pub fn next_step(mut self, step: impl Into<String>) -> Self {
        self.next_step = step.into();
        self
    }

    /// Adds why it matters.
    #[must_use]
    pub fn why(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        self
    }

    /// Adds text to paste.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = fix.into();
        self
    }

    /// Adds where it was found.
    #[must_use]
    pub fn source(mut self, source: Option<SourceSpan>) -> Self {
        self.source = source;
        self
    }

    /// Adds a worker that it is about.
    #[must_use]
    pub fn worker(mut self, name: &str) -> Self {
        self.workers.push(name.to_owned());
        self
    }
}
