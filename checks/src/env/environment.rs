//! The environment that a worker's process sees, with where every value comes from.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::launch::{Launch, Rule};
use super::secret;
use super::worker::Placed;
use super::yaml::{Kind, Node, Span};

/// Variables of one worker that are followed. A process takes no more than some thousand in practice.
const VARIABLES_MAX: usize = 5_000;
/// Bytes of one value after `$(NAME)` is replaced: Linux takes no longer argument or variable.
const VALUE_BYTES_MAX: usize = 128 << 10;
/// Bytes that replacing `$(NAME)` may make for one worker.
const EXPANDED_BYTES_MAX: usize = 4 << 20;

/// Characters of a value that are shown.
const SHOWN_CHARS_MAX: usize = 1_000;

/// ConfigMaps of the input, and the names of its Secrets.
#[derive(Debug, Default)]
pub(super) struct Maps {
    /// Name to keys and values.
    pub config: HashMap<String, BTreeMap<String, Rc<Node>>>,
}

/// What a variable is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// This text.
    Text(String),
    /// It is set, and the files do not say to what. The reason is for people.
    Unknown(String),
}

/// One variable.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    /// Its name.
    pub name: String,
    /// Its value.
    pub content: Content,
    /// What set it: `graph env`, `service env`, `container env`, `command`.
    pub origin: &'static str,
    /// Where its value stands, or its name when there is none.
    pub span: Span,
    /// What it overrides: origin and place.
    pub overrides: Vec<(&'static str, Span)>,
}

impl Setting {
    /// The value, when the files say it.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Text(text) => Some(text),
            Content::Unknown(_) => None,
        }
    }

    /// The value for people, without secrets.
    pub(super) fn shown(&self) -> String {
        match &self.content {
            Content::Text(text) if text.chars().count() > SHOWN_CHARS_MAX => {
                let start: String = text.chars().take(SHOWN_CHARS_MAX).collect();
                format!("{}… ({} bytes)", secret::value(&self.name, &start), text.len())
            }
            Content::Text(text) => secret::value(&self.name, text),
            Content::Unknown(why) => format!("({why})"),
        }
    }
}

/// Something wrong with an entry of an `env` list.
#[derive(Debug, Clone)]
pub(super) enum Oddity {
    /// The value is a boolean, a number, a list or a mapping. What it was written as.
    NotText(String),
    /// A key that belongs to no environment entry, as `value: rc,cuda_copy` in braces makes.
    StrayKey(String),
    /// The name stands twice in one list with different values.
    Twice,
    /// `${X}` in a value, which Kubernetes leaves as it is.
    ShellSyntax,
    /// `$(X)` in a value, with an X that is not set before it: Kubernetes leaves it as it is.
    Undefined(String),
}

/// All variables of a worker.
#[derive(Debug, Clone, Default)]
pub(super) struct Environment {
    settings: Vec<Setting>,
    /// Where each name stands in the list.
    by_name: HashMap<String, usize>,
    /// Sources whose names the files do not state: `envFrom` of a Secret or of a ConfigMap that is elsewhere.
    pub open: Vec<Placed>,
    /// Variables that a patch takes away, and where.
    pub removed: Vec<Placed>,
    /// Bytes that replacing `$(NAME)` has made.
    expanded: usize,
    /// More variables than the limit were stated.
    pub is_cut: bool,
    /// What is wrong with entries: variable, where, what.
    pub oddities: Vec<(String, Span, Oddity)>,
}

impl Environment {
    /// The setting of a variable.
    pub(super) fn get(&self, name: &str) -> Option<&Setting> {
        self.by_name.get(name).and_then(|&i| self.settings.get(i))
    }

    /// The value of a variable, when the files say it.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Setting::text)
    }

    /// All settings.
    pub(super) fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// True when the variable is not stated, and nothing could set it unseen.
    pub(super) fn lacks(&self, name: &str) -> bool {
        self.get(name).is_none() && self.open.is_empty()
    }

    fn set(&mut self, mut setting: Setting) {
        self.removed.retain(|r| r.text != setting.name);
        let is_full = self.settings.len() >= VARIABLES_MAX;
        match self.by_name.get(&setting.name).and_then(|&i| self.settings.get_mut(i)) {
            Some(old) => {
                setting.overrides.clone_from(&old.overrides);
                setting.overrides.push((old.origin, old.span));
                *old = setting;
            }
            None if is_full => self.is_cut = true,
            None => {
                self.by_name.insert(setting.name.clone(), self.settings.len());
                self.settings.push(setting);
            }
        }
    }

    fn remove(&mut self, name: &str, span: Span) {
        if let Some(at) = self.by_name.remove(name) {
            self.settings.remove(at);
            self.by_name.values_mut().filter(|i| **i > at).for_each(|i| *i -= 1);
        }
        self.removed.push(Placed { text: name.to_owned(), span });
    }

    /// Adds an `envFrom` list or a Dynamo `envFromSecret`.
    pub(super) fn add_sources(&mut self, node: &Node, maps: &Maps) {
        if let Some(name) = node.text() {
            self.open.push(Placed { text: format!("Secret {name}"), span: node.span });
        }
        for item in node.items() {
            let prefix = item.text_of(&["prefix"]).unwrap_or("");
            if let Some(name) = item.at(&["secretRef", "name"]) {
                let text = format!("Secret {}", name.text().unwrap_or("?"));
                self.open.push(Placed { text, span: name.span });
            } else if let Some(name) = item.at(&["configMapRef", "name"]) {
                let Some(entries) = maps.config.get(name.text().unwrap_or("")) else {
                    let text = format!("ConfigMap {}", name.text().unwrap_or("?"));
                    self.open.push(Placed { text, span: name.span });
                    continue;
                };
                for (key, value) in entries {
                    let content = Content::Text(value.text().unwrap_or("").to_owned());
                    self.set(Setting {
                        name: format!("{prefix}{key}"),
                        content,
                        origin: "ConfigMap",
                        span: value.span,
                        overrides: Vec::new(),
                    });
                }
            }
        }
    }

    /// Adds an `env` list; later lists win, by name.
    pub(super) fn add_list(&mut self, list: &Node, origin: &'static str, maps: &Maps) {
        let mut seen: HashMap<&str, Option<&str>> = HashMap::new();
        for entry in list.items() {
            if self.settings.len() >= VARIABLES_MAX {
                self.is_cut = true;
                return;
            }
            let Some(name_node) = entry.get("name") else { continue };
            let Some(name) = name_node.text() else { continue };
            if entry.text_of(&["$patch"]) == Some("delete") {
                self.remove(name, name_node.span);
                continue;
            }
            let value = entry.get("value");
            let text = value.and_then(|v| v.text());
            if let Some(before) = seen.insert(name, text)
                && before != text
            {
                self.oddities.push((name.to_owned(), name_node.span, Oddity::Twice));
            }
            for (key, _) in entry.entries() {
                let key = (key.text().unwrap_or(""), key.span);
                if !matches!(key.0, "name" | "value" | "valueFrom" | "$patch") {
                    self.oddities.push((name.to_owned(), key.1, Oddity::StrayKey(key.0.to_owned())));
                }
            }
            let (content, span) = match (value, entry.get("valueFrom")) {
                (_, Some(from)) => (self.referenced(from, maps), from.span),
                (Some(value), None) => (self.content_of(name, value), value.span),
                (None, None) => (Content::Text(String::new()), name_node.span),
            };
            self.set(Setting { name: name.to_owned(), content, origin, span, overrides: Vec::new() });
        }
    }

    /// Adds a variable as a running process has it: its value is final.
    pub(super) fn add_process(&mut self, name: &str, value: &str, span: Span) {
        self.set(Setting {
            name: name.to_owned(),
            content: Content::Text(value.to_owned()),
            origin: "process",
            span,
            overrides: Vec::new(),
        });
    }

    /// Adds an `env` that is a mapping of names to values, as profiles have.
    pub(super) fn add_map(&mut self, map: &Node, origin: &'static str) {
        for (key, value) in map.entries() {
            let Some(name) = key.text() else { continue };
            let content = Content::Text(value.text().unwrap_or("").to_owned());
            self.set(Setting {
                name: name.to_owned(),
                content,
                origin,
                span: value.span,
                overrides: Vec::new(),
            });
        }
    }

    fn content_of(&mut self, name: &str, value: &Node) -> Content {
        let Some(scalar) = value.scalar() else {
            let kind = if value.is_map() { "a mapping" } else { "a list" };
            self.oddities.push((name.to_owned(), value.span, Oddity::NotText(kind.to_owned())));
            return Content::Unknown("not a text".to_owned());
        };
        match scalar.kind() {
            // `value:` alone is an empty text to Kubernetes.
            Kind::Null => return Content::Text(String::new()),
            Kind::Text => {}
            Kind::Bool | Kind::Number => {
                self.oddities.push((name.to_owned(), value.span, Oddity::NotText(scalar.text.clone())));
            }
        }
        let text = &scalar.text;
        if text.contains("{{") {
            return Content::Unknown("a template that is not rendered".to_owned());
        }
        if text.contains("${") {
            self.oddities.push((name.to_owned(), value.span, Oddity::ShellSyntax));
        }
        let open = std::cell::Cell::new(false);
        let undefined = std::cell::RefCell::new(None);
        let expanded = expand_references(text, &|name| match self.get(name).map(|s| &s.content) {
            Some(Content::Text(known)) => Some(known.clone()),
            Some(Content::Unknown(_)) => {
                open.set(true);
                None
            }
            None if self.open.is_empty() => {
                undefined.borrow_mut().get_or_insert_with(|| name.to_owned());
                None
            }
            // A Secret may define it.
            None => {
                open.set(true);
                None
            }
        });
        if let Some(missing) = undefined.into_inner() {
            self.oddities.push((name.to_owned(), value.span, Oddity::Undefined(missing)));
        }
        if expanded.len() > text.len() {
            self.expanded += expanded.len();
        }
        if expanded.len() > VALUE_BYTES_MAX || self.expanded > EXPANDED_BYTES_MAX {
            return Content::Unknown("longer than the limits".to_owned());
        }
        if open.get() {
            Content::Unknown("made from an unknown value".to_owned())
        } else {
            Content::Text(expanded)
        }
    }

    fn referenced(&self, from: &Node, maps: &Maps) -> Content {
        if let Some(reference) = from.get("configMapKeyRef") {
            let name = reference.text_of(&["name"]).unwrap_or("?");
            let key = reference.text_of(&["key"]).unwrap_or("?");
            let found = maps.config.get(name).and_then(|entries| entries.get(key));
            return match found.and_then(|v| v.text()) {
                Some(text) => Content::Text(text.to_owned()),
                None => Content::Unknown(format!("from ConfigMap {name}, which is not in the input")),
            };
        }
        if from.get("secretKeyRef").is_some() {
            return Content::Unknown("from a Secret, not shown".to_owned());
        }
        match from.text_of(&["fieldRef", "fieldPath"]) {
            Some(field) => Content::Unknown(format!("from {field} at run time")),
            None => Content::Unknown("known only at run time".to_owned()),
        }
    }

    /// Adds what the command sets: exports and assignments win over everything else.
    pub(super) fn add_launch(&mut self, launch: &Launch) {
        for change in &launch.changes {
            let lookup = |name: &str| {
                let setting = self.get(name)?;
                setting.text().map(str::to_owned)
            };
            match &change.rule {
                Rule::Unset => self.remove(&change.name, change.span),
                // `${X:-d}` of the same name yields to a value that is set, even to one that is unknown.
                Rule::Default if self.get(&change.name).is_some() => {}
                Rule::Default | Rule::Set => {
                    let value = if change.dynamic {
                        super::shell::expand(&change.value, &lookup)
                    } else {
                        Some(change.value.clone())
                    };
                    let content = match value {
                        Some(text) if !change.conditional || self.text(&change.name) == Some(&text) => {
                            Content::Text(text)
                        }
                        Some(_) => Content::Unknown("set in a branch of the command".to_owned()),
                        None => Content::Unknown("computed in the command".to_owned()),
                    };
                    self.set(Setting {
                        name: change.name.clone(),
                        content,
                        origin: "command",
                        span: change.span,
                        overrides: Vec::new(),
                    });
                }
            }
        }
    }

    /// Replaces `$(NAME)` in a command's word, as Kubernetes does. None when a value is unknown.
    pub(super) fn expand_word(&self, text: &str) -> Option<String> {
        let open = std::cell::Cell::new(false);
        let out = expand_references(text, &|name| {
            let setting = self.get(name)?;
            if setting.text().is_none() {
                open.set(true);
            }
            setting.text().map(str::to_owned)
        });
        (!open.get()).then_some(out)
    }
}

/// `$(NAME)` by its value where there is one, else as it stands; `$$` is one dollar sign (the rules of Kubernetes).
fn expand_references(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match lookup(name) {
                Some(value) if out.len() + value.len() <= VALUE_BYTES_MAX => out.push_str(&value),
                _ => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}
