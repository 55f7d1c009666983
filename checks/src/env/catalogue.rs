//! The catalogue of variables: data in `catalogue.tsv`, read here.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use serde::Serialize;

const TEXT: &str = include_str!("catalogue.tsv");

/// What setting a variable does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// What it says.
    Live,
    /// It only changes what is printed, or how a failure looks.
    Diagnostic,
    /// Nothing.
    NoEffect,
    /// Nothing for the data that NIXL moves.
    NoEffectNixl,
    /// Nothing in versions that are in use: it was taken out.
    Removed,
    /// It works, and another one should be used.
    Deprecated,
    /// There is no such variable; people set it all the same.
    UnknownName,
}

/// Which of UCX's tables a variable stands in: it decides what a bad value does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// A bad value is ignored in silence.
    Global,
    /// A bad value makes the context fail: NIXL has no UCX backend.
    Context,
    /// A bad value drops the whole component: RDMA or GPU memory is gone in silence.
    Md,
    /// A bad value makes the worker fail: NIXL has no UCX backend.
    Iface,
    /// Not known, or not a variable of UCX.
    Other,
}

/// One variable.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    /// Its name; a final `*` stands for any rest.
    pub name: &'static str,
    /// Which program reads it: `ucx`, `nixl`, `vllm` and so on.
    pub read_by: &'static str,
    /// The type of its value.
    pub kind: &'static str,
    /// The default, where it is known.
    pub default: &'static str,
    /// The first version that has it; `<=1.21` when it is in the oldest table that was read. Empty where it is not known.
    pub since: &'static str,
    /// The first version that has it no longer; `0`: none ever had it.
    pub until: &'static str,
    /// The table of UCX.
    pub owner: Owner,
    /// What setting it does.
    pub effect: Effect,
    /// Where this is known from.
    pub source: &'static str,
    /// Why it matters; empty for the many that only UCX's makers need.
    pub why: &'static str,
}

impl Entry {
    /// The versions that have it, for people; empty where only the source says when it was read.
    pub fn versions(&self) -> String {
        let since = self.since.strip_prefix("<=").map_or(self.since.to_owned(), |v| format!("{v} or before"));
        match (since.as_str(), self.until, self.effect) {
            (_, "0", _) | (_, _, Effect::UnknownName) => "never existed".to_owned(),
            ("", "", _) => String::new(),
            (since, "", _) => format!("since {since}"),
            ("", until, _) => format!("until {until}"),
            (since, until, _) => format!("since {since}, until {until}"),
        }
    }
}

/// All variables.
#[derive(Debug)]
pub struct Catalogue {
    entries: Vec<Entry>,
    by_name: HashMap<&'static str, usize>,
    prefixes: Vec<usize>,
    /// Rests of names that some transport of UCX has: `TIMEOUT` of `UCX_RC_TIMEOUT`.
    rests: HashSet<&'static str>,
}

/// Transports whose variables inherit from each other in UCX (`UCX_RC_MLX5_X`, `UCX_RC_X`, `UCX_IB_X`).
const TRANSPORTS: &[&str] = &[
    "IB",
    "RC",
    "RC_MLX5",
    "RC_VERBS",
    "RC_GDA",
    "UD",
    "UD_MLX5",
    "UD_VERBS",
    "DC",
    "DC_MLX5",
    "GGA",
    "GGA_MLX5",
    "SRD",
    "GDA",
    "MM",
    "SM",
    "SCOPY",
    "POSIX",
    "SYSV",
    "SELF",
    "TCP",
    "CMA",
    "CUDA",
    "CUDA_COPY",
    "CUDA_IPC",
];

/// The catalogue.
pub fn catalogue() -> &'static Catalogue {
    static CATALOGUE: OnceLock<Catalogue> = OnceLock::new();
    CATALOGUE.get_or_init(|| Catalogue::read(TEXT))
}

impl Catalogue {
    fn read(text: &'static str) -> Self {
        let entries: Vec<Entry> = text.lines().filter_map(entry).collect();
        let mut by_name = HashMap::with_capacity(entries.len());
        let mut prefixes = Vec::new();
        let mut rests = HashSet::new();
        for (i, entry) in entries.iter().enumerate() {
            by_name.insert(entry.name, i);
            if entry.name.ends_with('*') {
                prefixes.push(i);
            }
            rests.extend(transport_rest(entry.name));
        }
        Self { entries, by_name, prefixes, rests }
    }

    /// All entries, in the order of the file.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry of a variable, its own or that of a prefix.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        let exact = self.by_name.get(name).copied();
        let by_prefix = || {
            self.prefixes
                .iter()
                .copied()
                .find(|&i| name.starts_with(self.entries[i].name.trim_end_matches('*')))
        };
        exact.or_else(by_prefix).map(|i| &self.entries[i])
    }

    /// True when UCX knows the name, also by inheritance between transports.
    pub fn knows(&self, name: &str) -> bool {
        self.get(name).is_some_and(|e| e.effect != Effect::UnknownName)
            || transport_rest(name).is_some_and(|rest| self.rests.contains(rest))
    }

    /// The known name that is most like this one, within three changes of a letter.
    pub fn nearest(&self, name: &str) -> Option<&'static str> {
        let head = name.split('_').next().unwrap_or(name);
        self.entries
            .iter()
            .filter(|e| e.effect != Effect::UnknownName && !e.name.ends_with('*') && e.name.starts_with(head))
            .map(|e| (distance(name, e.name), e.name))
            .filter(|(d, _)| *d <= 3)
            .min()
            .map(|(_, name)| name)
    }
}

/// The part of a UCX name after its transport.
fn transport_rest(name: &str) -> Option<&str> {
    let body = name.strip_prefix("UCX_")?;
    let longest = TRANSPORTS
        .iter()
        .filter_map(|t| body.strip_prefix(t)?.strip_prefix('_').map(|rest| (t.len(), rest)))
        .max_by_key(|(length, _)| *length)?;
    Some(longest.1)
}

fn entry(line: &'static str) -> Option<Entry> {
    if line.starts_with('#') || line.is_empty() {
        return None;
    }
    let mut fields = line.split('\t');
    let mut next = || fields.next().unwrap_or("");
    Some(Entry {
        name: next(),
        read_by: next(),
        kind: next(),
        default: next(),
        since: next(),
        until: next(),
        owner: match next() {
            "global" => Owner::Global,
            "context" => Owner::Context,
            "md" => Owner::Md,
            "iface" => Owner::Iface,
            _ => Owner::Other,
        },
        effect: match next() {
            "no-effect" => Effect::NoEffect,
            "no-effect-nixl" => Effect::NoEffectNixl,
            "removed" => Effect::Removed,
            "deprecated" => Effect::Deprecated,
            "unknown-name" => Effect::UnknownName,
            "diagnostic" => Effect::Diagnostic,
            _ => Effect::Live,
        },
        source: next(),
        why: next(),
    })
}

/// Changes of a letter (insert, remove, replace) from one word to the other, at most 4.
fn distance(a: &str, b: &str) -> usize {
    const MANY: usize = 4;
    if a.len().abs_diff(b.len()) >= MANY || a.len() > 128 {
        return MANY;
    }
    let b: Vec<u8> = b.bytes().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let cost = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = cost.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()].min(MANY)
}
