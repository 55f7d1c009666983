//! The tree.

use std::rc::Rc;

/// A place in one of the files that were read. Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Span {
    /// Index of the file.
    pub file: u32,
    /// First line.
    pub line: u32,
    /// First column.
    pub column: u32,
    /// Last line.
    pub end_line: u32,
    /// The column after the last one.
    pub end_column: u32,
}

/// A node and where it stands. Nodes behind an alias are shared, not copied.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// What it is.
    pub value: Value,
    /// Where it stands; for an aliased node, where it is defined.
    pub span: Span,
    /// Nodes in the tree when every alias is expanded.
    pub(super) weight: u64,
}

/// What a node is.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    /// Text, a number, a boolean or null.
    Scalar(Scalar),
    /// A sequence.
    List(Vec<Rc<Node>>),
    /// A mapping in the order of the file, merge keys resolved.
    Map(Vec<(Rc<Node>, Rc<Node>)>),
}

/// A scalar as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scalar {
    /// The text after YAML's unescaping and folding.
    pub text: String,
    /// Written without quotes and not as a block, so that its type follows from its text.
    pub plain: bool,
    /// Written as a block with `|` (its lines are lines of the file).
    pub literal: bool,
}

/// What Kubernetes makes of a scalar. Its reader follows YAML 1.1, where `yes` and `on` are booleans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing.
    Null,
    /// true, false, yes, no, on, off.
    Bool,
    /// A number.
    Number,
    /// Text.
    Text,
}

impl Scalar {
    /// What Kubernetes makes of it.
    pub(crate) fn kind(&self) -> Kind {
        if !self.plain {
            return Kind::Text;
        }
        match self.text.as_str() {
            "" | "~" | "null" | "Null" | "NULL" => Kind::Null,
            "true" | "True" | "TRUE" | "false" | "False" | "FALSE" | "yes" | "Yes" | "YES" | "no" | "No"
            | "NO" | "on" | "On" | "ON" | "off" | "Off" | "OFF" => Kind::Bool,
            text if is_number(text) => Kind::Number,
            _ => Kind::Text,
        }
    }
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if let Some(hex) = digits.strip_prefix("0x") {
        return !hex.is_empty() && hex.chars().all(|c| c.is_ascii_hexdigit());
    }
    matches!(digits, ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN")
        || (digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
            && digits.bytes().any(|b| b.is_ascii_digit())
            && digits.parse::<f64>().is_ok())
}

impl Node {
    /// A text node that stands where another does; for text that was made from it.
    pub(crate) fn text_at(text: impl Into<String>, span: Span) -> Rc<Self> {
        let scalar = Scalar { text: text.into(), plain: false, literal: false };
        Rc::new(Self { value: Value::Scalar(scalar), span, weight: 1 })
    }

    /// Nodes in the tree when every alias is expanded.
    pub(crate) fn weight(&self) -> u64 {
        self.weight
    }

    /// An empty mapping that stands where another node does.
    pub(crate) fn empty_map(span: Span) -> Rc<Self> {
        Rc::new(Self { value: Value::Map(Vec::new()), span, weight: 1 })
    }

    /// A node with other content in the same place.
    pub(crate) fn with(&self, value: Value) -> Rc<Self> {
        let weight = match &value {
            Value::Scalar(_) => 1,
            Value::List(items) => 1 + items.iter().map(|n| n.weight).sum::<u64>(),
            Value::Map(entries) => 1 + entries.iter().map(|(k, v)| k.weight + v.weight).sum::<u64>(),
        };
        Rc::new(Self { value, span: self.span, weight })
    }

    /// The value of a key, when this is a mapping that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&Rc<Node>> {
        self.entries().iter().find(|(k, _)| k.text() == Some(key)).map(|(_, v)| v)
    }

    /// The node at the end of a path of keys.
    pub(crate) fn at(&self, path: &[&str]) -> Option<&Rc<Node>> {
        let (first, rest) = path.split_first()?;
        let next = self.get(first)?;
        if rest.is_empty() { Some(next) } else { next.at(rest) }
    }

    /// The text at the end of a path of keys.
    pub(crate) fn text_of(&self, path: &[&str]) -> Option<&str> {
        self.at(path).and_then(|n| n.text())
    }

    /// The scalar's text; none for null, lists and mappings.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(s) if s.kind() != Kind::Null => Some(&s.text),
            _ => None,
        }
    }

    /// The scalar, when it is one.
    pub(crate) fn scalar(&self) -> Option<&Scalar> {
        match &self.value {
            Value::Scalar(s) => Some(s),
            _ => None,
        }
    }

    /// The items of a list; nothing for other nodes.
    pub(crate) fn items(&self) -> &[Rc<Node>] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// The entries of a mapping; nothing for other nodes.
    pub(crate) fn entries(&self) -> &[(Rc<Node>, Rc<Node>)] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// True for a mapping.
    pub(crate) fn is_map(&self) -> bool {
        matches!(self.value, Value::Map(_))
    }

    /// True for a list.
    pub(crate) fn is_list(&self) -> bool {
        matches!(self.value, Value::List(_))
    }

    /// True for nothing, `~` or `null`.
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar(s) if s.kind() == Kind::Null)
    }
}
