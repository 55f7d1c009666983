//! What was read on a node, kept apart from what is thought of it: the same evidence gives the same findings,
//! whether it was read here, in a pod, or long ago on another machine.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::env::without_secrets;

/// One thing that was read, or tried to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// The text of a file, at most [`LINES_MAX`] lines.
    Text(String),
    /// The names in a directory, sorted.
    Names(Vec<String>),
    /// Where a symbolic link points, as it stands in the link.
    Link(String),
    /// A file without symbolic links in its path.
    Real(String),
    /// A device node: whether it is a character device, and what this process may do with it.
    Node(Access),
    /// The bytes of a file.
    Bytes(Vec<u8>),
    /// It is not there.
    Missing,
    /// It is there and may not be read.
    Denied,
}

/// What this process may do with a device node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// It is a character device.
    pub character: bool,
    /// It may be opened for reading.
    pub read: bool,
    /// It may be opened for writing.
    pub write: bool,
}

impl Access {
    /// True when a driver's user-space library can open it.
    pub fn usable(self) -> bool {
        self.character && self.read && self.write
    }

    /// In words, for evidence.
    pub fn words(self) -> &'static str {
        match (self.character, self.read, self.write) {
            (false, ..) => "not a character device",
            (true, true, true) => "readable and writable",
            (true, true, false) => "readable, not writable",
            (true, false, true) => "writable, not readable",
            (true, false, false) => "neither readable nor writable",
        }
    }
}

/// Where a capture notes what was looked at: `pod NAME`.
pub(super) const PLACE: &str = "probe:place";

/// Lines kept of a text file.
pub(super) const LINES_MAX: usize = 400;
/// Bytes kept of any file.
pub(super) const FILE_MAX: usize = 64 << 10;
/// Entries kept of a node. Eight HCAs with all their GIDs and counters are about 2,000.
pub(super) const ENTRIES_MAX: usize = 50_000;

/// Everything read on one node, by absolute path (`/sys/…`, `/proc/…`, `/dev/…`), by `env:NAME`, or by `probe:NAME`
/// for what is asked of a library.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    entries: BTreeMap<String, Entry>,
    /// Who read it: `kvwire 0.1.0` or `shell`.
    pub gathered_by: String,
}

impl Evidence {
    /// Nothing yet.
    pub fn new(gathered_by: impl Into<String>) -> Self {
        Self { entries: BTreeMap::new(), gathered_by: gathered_by.into() }
    }

    /// Adds what was read at `path`. Above [`ENTRIES_MAX`] nothing is added any more. What looks like a credential in a
    /// variable is left out, whoever read it: evidence is printed, saved and sent.
    pub fn add(&mut self, path: impl Into<String>, entry: Entry) {
        let path = path.into();
        let entry = match entry {
            Entry::Text(text) if path.starts_with("env:") => Entry::Text(without_secrets(&text)),
            other => other,
        };
        if self.entries.len() < ENTRIES_MAX {
            self.entries.insert(path, entry);
        }
    }

    /// Notes what was looked at, for those who judge it elsewhere: `pod NAME`.
    pub fn set_place(&mut self, place: &str) {
        self.add(PLACE, Entry::Text(format!("{place}\n")));
    }

    /// What was looked at, where that was noted.
    pub fn place(&self) -> Option<&str> {
        self.text(PLACE)
    }

    /// Everything, sorted by path.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(path, entry)| (path.as_str(), entry))
    }

    /// Changes every path and entry.
    pub(super) fn map(self, mut change: impl FnMut(String, Entry) -> (String, Entry)) -> Self {
        let entries = self.entries.into_iter().map(|(path, entry)| change(path, entry)).collect();
        Self { entries, gathered_by: self.gathered_by }
    }

    /// What was read at `path`; `None` when it was not looked at.
    pub fn get(&self, path: &str) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// The text at `path`, without white space around it; `None` when there is none or it is empty.
    pub fn text(&self, path: &str) -> Option<&str> {
        match self.get(path)? {
            Entry::Text(text) => Some(text.trim()).filter(|text| !text.is_empty()),
            _ => None,
        }
    }

    /// The text at `path` as a number.
    pub fn number(&self, path: &str) -> Option<i64> {
        let text = self.text(path)?;
        match text.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16).ok(),
            None => text.split_whitespace().next()?.parse().ok(),
        }
    }

    /// The value after `key` at the start of a line of the text at `path`.
    pub fn field(&self, path: &str, key: &str) -> Option<&str> {
        let line = self.text(path)?.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.trim_matches([' ', '\t', ':'])).filter(|value| !value.is_empty())
    }

    /// The names in the directory at `path`; empty when there are none or it was not readable.
    pub fn names(&self, path: &str) -> &[String] {
        match self.get(path) {
            Some(Entry::Names(names)) => names,
            _ => &[],
        }
    }

    /// The real path of `path`.
    pub fn real(&self, path: &str) -> Option<&str> {
        match self.get(path)? {
            Entry::Real(real) => Some(real),
            _ => None,
        }
    }

    /// Paths below the directory `folder`, with what was read there.
    pub fn below<'a>(&'a self, folder: &str) -> impl Iterator<Item = (&'a str, &'a Entry)> {
        let prefix = format!("{folder}/");
        let start = (Bound::Included(prefix.clone()), Bound::<String>::Unbounded);
        self.entries
            .range(start)
            .take_while(move |(path, _)| path.starts_with(&prefix))
            .map(|(path, entry)| (path.as_str(), entry))
    }

    /// The value of an environment variable of the process that gathered.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.text(&format!("env:{name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_below_a_folder_is_not_what_only_begins_like_it() {
        let mut evidence = Evidence::new("test");
        evidence.add("/sys/a/1", Entry::Text("x\n".into()));
        evidence.add("/sys/a-b/1", Entry::Missing);
        evidence.add("/sys/ab", Entry::Missing);
        let below: Vec<_> = evidence.below("/sys/a").map(|(path, _)| path).collect();
        assert_eq!(below, ["/sys/a/1"]);
    }

    #[test]
    fn a_credential_in_a_variable_is_never_kept() {
        let mut evidence = Evidence::new("test");
        evidence.add("env:NIXL_ETCD_ENDPOINTS", Entry::Text("http://user:pass@etcd:2379\n".into()));
        evidence.add("env:UCX_TLS", Entry::Text("rc,cuda_copy\n".into()));
        assert!(!evidence.to_capture().contains("pass@"), "{}", evidence.to_capture());
        assert_eq!(evidence.variable("UCX_TLS"), Some("rc,cuda_copy"));
    }

    #[test]
    fn numbers_are_read_in_both_notations_and_words_are_none() {
        let mut evidence = Evidence::new("test");
        evidence.add("a", Entry::Text("0x1f\n".into()));
        evidence.add("b", Entry::Text("-1\n".into()));
        evidence.add("c", Entry::Text("many\n".into()));
        assert_eq!(
            (evidence.number("a"), evidence.number("b"), evidence.number("c")),
            (Some(31), Some(-1), None)
        );
    }
}
