//! Events of the YAML parser to trees.

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span as ParserSpan, Tag};

use super::node::{Node, Scalar, Span, Value};

/// Keys that stand twice, told one by one.
const DUPLICATES_MAX: usize = 100;

/// What a file may ask of the reader.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Nodes that are written in a file.
    pub nodes: u64,
    /// Nodes of a file when its aliases and merge keys are expanded.
    pub expanded: u64,
    /// Mappings and lists inside each other.
    pub depth: usize,
    /// Documents in a file.
    pub documents: usize,
}

impl Default for Limits {
    /// A large rendered chart has some ten thousand nodes and a depth of about 20.
    fn default() -> Self {
        Self { nodes: 400_000, expanded: 400_000, depth: 64, documents: 5_000 }
    }
}

/// Why a file could not be read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProblemKind {
    /// It is not YAML.
    Syntax,
    /// Aliases that expand to more than the limit.
    Aliases,
    /// Deeper than the limit.
    Depth,
    /// More nodes or documents than the limit.
    Size,
    /// A key stands twice in one mapping; the last one counts.
    DuplicateKey,
}

/// Something wrong with a file, and where.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    /// What kind.
    pub kind: ProblemKind,
    /// A sentence for a person.
    pub text: String,
    /// Where.
    pub span: Span,
}

/// Reads all documents of a text. Those before a problem are returned with it.
pub(crate) fn compose(text: &str, file: u32, limits: Limits) -> (Vec<Rc<Node>>, Vec<Problem>) {
    let mut composer = Composer { file, limits, ..Composer::default() };
    let mut parser = Parser::new_from_str(text);
    loop {
        match parser.next_event() {
            None => break,
            Some(Ok((event, span))) => {
                if let Err(problem) = composer.event(event, span) {
                    composer.problems.push(problem);
                    break;
                }
            }
            Some(Err(error)) => {
                let span = composer.span(ParserSpan::empty(*error.marker()));
                let text = error.info().to_owned();
                composer.problems.push(Problem { kind: ProblemKind::Syntax, text, span });
                break;
            }
        }
    }
    (composer.documents, composer.problems)
}

/// A mapping or list whose end has not come yet.
struct Open {
    anchor: usize,
    start: ParserSpan,
    parts: Vec<Rc<Node>>,
    is_map: bool,
}

#[derive(Default)]
struct Composer {
    file: u32,
    limits: Limits,
    stack: Vec<Open>,
    anchors: HashMap<usize, Rc<Node>>,
    nodes: u64,
    /// Entries that merge keys have brought in.
    merged: u64,
    /// Nodes of all documents with their aliases expanded.
    expanded: u64,
    duplicates: usize,
    documents: Vec<Rc<Node>>,
    problems: Vec<Problem>,
}

impl Composer {
    fn event(&mut self, event: Event<'_>, span: ParserSpan) -> Result<(), Problem> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let scalar = scalar(text, style, tag.as_deref());
                let node = Rc::new(Node { value: Value::Scalar(scalar), span: self.span(span), weight: 1 });
                self.finished(node, anchor)
            }
            Event::SequenceStart(anchor, _) => self.open(anchor, span, false),
            Event::MappingStart(anchor, _) => self.open(anchor, span, true),
            Event::SequenceEnd | Event::MappingEnd => self.close(span),
            Event::Alias(anchor) => match self.anchors.get(&anchor).cloned() {
                Some(node) => self.finished(node, 0),
                None => Err(self.problem(ProblemKind::Syntax, "an alias stands inside its own anchor", span)),
            },
            Event::DocumentEnd => {
                self.anchors.clear();
                Ok(())
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) => Ok(()),
        }
    }

    fn open(&mut self, anchor: usize, start: ParserSpan, is_map: bool) -> Result<(), Problem> {
        if self.stack.len() >= self.limits.depth {
            let text = format!("deeper than {} mappings and lists inside each other", self.limits.depth);
            return Err(self.problem(ProblemKind::Depth, &text, start));
        }
        self.stack.push(Open { anchor, start, parts: Vec::new(), is_map });
        Ok(())
    }

    fn close(&mut self, end: ParserSpan) -> Result<(), Problem> {
        let Some(open) = self.stack.pop() else { return Ok(()) };
        let mut span = self.span(open.start);
        let last = open.parts.last().map_or(span, |n| n.span);
        // A block collection ends where the next thing begins: its last part says more.
        let end = self.span(end);
        (span.end_line, span.end_column) = if end.end_column > 1 && end.line == end.end_line {
            (end.end_line, end.end_column)
        } else {
            (last.end_line.max(span.line), last.end_column)
        };
        let value = if open.is_map { self.mapping(open.parts) } else { Value::List(open.parts) };
        if self.merged > self.limits.expanded {
            return Err(self.too_much(span));
        }
        let weight = match &value {
            Value::List(items) => items.iter().fold(1_u64, |sum, n| sum.saturating_add(n.weight)),
            Value::Map(entries) => entries
                .iter()
                .fold(1_u64, |sum, (k, v)| sum.saturating_add(k.weight).saturating_add(v.weight)),
            Value::Scalar(_) => 1,
        };
        if weight > self.limits.expanded {
            return Err(self.too_much(span));
        }
        self.finished(Rc::new(Node { value, span, weight }), open.anchor)
    }

    /// Keys and values to entries; `<<` brings in what is not there itself (YAML 1.1 merge key).
    fn mapping(&mut self, parts: Vec<Rc<Node>>) -> Value {
        let mut own: Vec<(Rc<Node>, Rc<Node>)> = Vec::with_capacity(parts.len() / 2);
        let mut at: HashMap<String, usize> = HashMap::new();
        let mut merged: Vec<Rc<Node>> = Vec::new();
        let mut parts = parts.into_iter();
        while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
            let name = key.scalar().map(|s| s.text.clone());
            match name {
                Some(name) if name == "<<" && key.scalar().is_some_and(|s| s.plain) => merged.push(value),
                Some(name) => {
                    if let Some(&i) = at.get(&name) {
                        self.duplicate(&name, key.span);
                        own[i] = (key, value);
                    } else {
                        at.insert(name, own.len());
                        own.push((key, value));
                    }
                }
                None => own.push((key, value)),
            }
        }
        for source in &merged {
            let maps: &[Rc<Node>] =
                if source.is_map() { std::slice::from_ref(source) } else { source.items() };
            for (key, value) in maps.iter().flat_map(|map| map.entries()) {
                let Some(name) = key.scalar().map(|s| s.text.clone()) else { continue };
                self.merged += 1;
                if self.merged > self.limits.expanded {
                    return Value::Map(own);
                }
                if let std::collections::hash_map::Entry::Vacant(free) = at.entry(name) {
                    free.insert(own.len());
                    own.push((Rc::clone(key), Rc::clone(value)));
                }
            }
        }
        Value::Map(own)
    }

    fn finished(&mut self, node: Rc<Node>, anchor: usize) -> Result<(), Problem> {
        self.nodes += 1;
        if self.nodes > self.limits.nodes || self.documents.len() >= self.limits.documents {
            let text = format!(
                "more than {} values or {} documents in one file",
                self.limits.nodes, self.limits.documents
            );
            return Err(Problem { kind: ProblemKind::Size, text, span: node.span });
        }
        if anchor > 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        match self.stack.last_mut() {
            Some(open) => open.parts.push(node),
            None => {
                self.expanded = self.expanded.saturating_add(node.weight);
                if self.expanded > self.limits.expanded {
                    return Err(self.too_much(node.span));
                }
                self.documents.push(node);
            }
        }
        Ok(())
    }

    fn too_much(&self, span: Span) -> Problem {
        let text = format!("its aliases expand to more than {} values", self.limits.expanded);
        Problem { kind: ProblemKind::Aliases, text, span }
    }

    /// Told one by one at first: a file may have nothing else.
    fn duplicate(&mut self, name: &str, span: Span) {
        self.duplicates += 1;
        let text = match self.duplicates {
            ..=DUPLICATES_MAX => format!("the key {name} stands twice; the last one counts"),
            n if n == DUPLICATES_MAX + 1 => {
                format!("more than {DUPLICATES_MAX} keys stand twice; the last ones count")
            }
            _ => return,
        };
        self.problems.push(Problem { kind: ProblemKind::DuplicateKey, text, span });
    }

    fn problem(&self, kind: ProblemKind, text: &str, span: ParserSpan) -> Problem {
        Problem { kind, text: text.to_owned(), span: self.span(span) }
    }

    fn span(&self, span: ParserSpan) -> Span {
        let (line, column) = position(span.start);
        let (end_line, end_column) = position(span.end);
        Span { file: self.file, line, column, end_line, end_column }
    }
}

fn position(marker: Marker) -> (u32, u32) {
    let line = u32::try_from(marker.line()).unwrap_or(u32::MAX).max(1);
    let column = u32::try_from(marker.col()).unwrap_or(u32::MAX - 1) + 1;
    (line, column)
}

fn scalar(text: Cow<'_, str>, style: ScalarStyle, tag: Option<&Tag>) -> Scalar {
    let tagged = tag.is_some_and(|t| t.suffix == "str");
    Scalar {
        text: text.into_owned(),
        plain: style == ScalarStyle::Plain && !tagged,
        literal: style == ScalarStyle::Literal,
    }
}
