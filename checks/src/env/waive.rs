//! Rules that are switched off: on the command line, in a configuration file, or by a comment in the manifest.
//!
//! A comment `# kvwire: ignore=ID` covers its own line and the next; `# kvwire: ignore-file=ID` its whole file.

use std::collections::HashMap;

use thiserror::Error;

use super::report::Switched;
use super::rules::rule;
use super::source::Sources;
use super::yaml::{Limits, compose};
use crate::{Finding, Status};

/// Bytes of a configuration file.
const CONFIGURATION_BYTES_MAX: usize = 1 << 20;

/// A rule that is switched off everywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiver {
    /// The rule.
    pub id: String,
    /// Who says so: `--ignore`, or the file.
    pub by: String,
}

/// Why a configuration file is refused.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ConfigurationError {
    /// It is not YAML.
    #[error("line {line}: {why}")]
    Yaml {
        /// Line of the file.
        line: u32,
        /// What the reader says.
        why: String,
    },
    /// A key that means nothing.
    #[error("line {line}: there is no setting {key}; known is check.env.ignore")]
    Key {
        /// Line of the file.
        line: u32,
        /// The key.
        key: String,
    },
    /// Too large.
    #[error("it has more than 1 MiB")]
    Size,
}

/// What a configuration file says. For example:
///
/// ```yaml
/// check:
///   env:
///     ignore:
///       - one-rail
///       - id: tcp-fallback-possible
///         reason: single rack, TCP is fine in staging
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Configuration {
    /// Rules that are switched off.
    pub waivers: Vec<Waiver>,
}

impl Configuration {
    /// Reads the text of a configuration file; `name` is for messages.
    ///
    /// # Errors
    /// It is not YAML, or has keys that mean nothing.
    pub fn read(name: &str, text: &str) -> Result<Self, ConfigurationError> {
        if text.len() > CONFIGURATION_BYTES_MAX {
            return Err(ConfigurationError::Size);
        }
        let (documents, problems) = compose(text, 0, Limits::default());
        if let Some(problem) = problems.into_iter().next() {
            return Err(ConfigurationError::Yaml { line: problem.span.line, why: problem.text });
        }
        let mut configuration = Self::default();
        let Some(root) = documents.first() else { return Ok(configuration) };
        let mut level = root;
        for wanted in ["check", "env", "ignore"] {
            if let Some((key, _)) = level.entries().iter().find(|(k, _)| k.text() != Some(wanted)) {
                let key_text = key.text().unwrap_or("?").to_owned();
                return Err(ConfigurationError::Key { line: key.span.line, key: key_text });
            }
            match level.get(wanted) {
                Some(next) => level = next,
                None => return Ok(configuration),
            }
        }
        for item in level.items() {
            let id = item.text().or_else(|| item.text_of(&["id"]));
            let reason = item.text_of(&["reason"]).map_or(String::new(), |r| format!(": {r}"));
            if let Some(id) = id {
                let by = format!("{name}:{}{reason}", item.span.line);
                configuration.waivers.push(Waiver { id: id.to_owned(), by });
            }
        }
        Ok(configuration)
    }
}

/// Takes findings of rules that are switched off out of the list.
pub(super) fn apply(
    all: Vec<Finding>,
    waivers: &[Waiver],
    sources: &Sources,
) -> (Vec<Finding>, Vec<Switched>) {
    let comments = Comments::read(sources);
    let mut kept = Vec::with_capacity(all.len());
    let mut off = Vec::new();
    for finding in all {
        let by = waivers.iter().find(|w| w.id == finding.id).map(|w| w.by.clone());
        match by.or_else(|| comments.about(&finding)) {
            Some(by) => off.push(Switched { finding, by }),
            None => kept.push(finding),
        }
    }
    for waiver in waivers.iter().chain(&comments.all).filter(|w| rule(&w.id).is_none()) {
        let title = format!("{} switches off {}, which is no rule", waiver.by, waiver.id);
        kept.push(
            Finding::new("waiver-unknown", Status::Warn, title).next_step("`kvwire explain` lists the rules"),
        );
    }
    (kept, off)
}

/// Comments in the manifests.
#[derive(Debug, Default)]
struct Comments {
    /// By file and line that is covered; line 0 is the whole file.
    covered: HashMap<(String, u32), Vec<String>>,
    all: Vec<Waiver>,
}

impl Comments {
    fn read(sources: &Sources) -> Self {
        let mut comments = Self::default();
        for source in sources.files().iter().filter(|s| s.text.contains("kvwire:")) {
            for line in 1..=source.line_count() {
                let text = source.line(line);
                let Some((_, body)) = text.split_once('#').and_then(|(_, c)| c.split_once("kvwire:")) else {
                    continue;
                };
                for word in body.split_whitespace() {
                    let (ids, whole) = match (word.strip_prefix("ignore="), word.strip_prefix("ignore-file="))
                    {
                        (Some(ids), _) => (ids, false),
                        (_, Some(ids)) => (ids, true),
                        _ => continue,
                    };
                    for id in ids.split(',').filter(|id| !id.is_empty()) {
                        comments
                            .all
                            .push(Waiver { id: id.to_owned(), by: format!("{}:{line}", source.name) });
                        let lines = if whole { vec![0] } else { vec![line, line + 1] };
                        for line in lines {
                            comments
                                .covered
                                .entry((source.name.clone(), line))
                                .or_default()
                                .push(id.to_owned());
                        }
                    }
                }
            }
        }
        comments
    }

    fn about(&self, finding: &Finding) -> Option<String> {
        let source = finding.source.as_ref()?;
        [0, source.line].into_iter().find_map(|line| {
            let ids = self.covered.get(&(source.file.clone(), line))?;
            let what = if line == 0 { "a comment for the file" } else { "a comment" };
            ids.contains(&finding.id).then(|| format!("{what} in {}", source.file))
        })
    }
}
