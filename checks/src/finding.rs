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
}
