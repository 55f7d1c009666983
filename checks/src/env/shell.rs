//! Shell scripts in manifests, as far as they decide what a worker's environment and flags are. This is a reader
//! of words and operators, not a shell: what only a shell can know is marked as dynamic.

use super::yaml::{Scalar, Span};

/// What stands between a command and the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Joined {
    /// The script's first command.
    First,
    /// A new line or `;`: runs whatever came of the one before.
    Then,
    /// `&&`: runs when the one before succeeded.
    And,
    /// `||`: runs when the one before failed.
    Or,
    /// `|` or `&`.
    Other,
}

/// One word after quotes are taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    /// Its text; variables are not replaced.
    pub text: String,
    /// It has a `$` or backtick that a shell acts on.
    pub dynamic: bool,
    /// It has quotes around all or a part of it.
    pub quoted: bool,
    /// Where it stands, as exactly as the manifest lets one say.
    pub span: Span,
}

/// `NAME=value` in front of a command or on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Assignment {
    /// The variable.
    pub name: String,
    /// The right side.
    pub value: Word,
}

/// One command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Command {
    /// Assignments in front of it.
    pub assignments: Vec<Assignment>,
    /// Its words, the program first. Empty when there are only assignments.
    pub words: Vec<Word>,
    /// How it is joined to the one before.
    pub joined: Joined,
    /// It stands in an `if`, a loop, a function or a subshell: it may run or not.
    pub conditional: bool,
}

/// Splits a script into commands.
pub(super) fn commands(scalar: &Scalar, span: Span) -> Vec<Command> {
    let mut reader = Reader::new(&scalar.text, span, scalar.literal);
    reader.run();
    reader.commands
}

struct Reader<'a> {
    chars: std::iter::Peekable<std::str::Chars<'a>>,
    base: Span,
    literal: bool,
    line: u32,
    commands: Vec<Command>,
    words: Vec<Word>,
    word: Option<Word>,
    joined: Joined,
    depth: u32,
    heredoc: Option<String>,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str, base: Span, literal: bool) -> Self {
        Self {
            chars: text.chars().peekable(),
            base,
            literal,
            line: 0,
            commands: Vec::new(),
            words: Vec::new(),
            word: None,
            joined: Joined::First,
            depth: 0,
            heredoc: None,
        }
    }

    fn run(&mut self) {
        while let Some(c) = self.next() {
            match c {
                '\\' => match self.next() {
                    Some('\n') | None => {}
                    Some(escaped) => {
                        let word = self.word();
                        word.text.push(escaped);
                        word.quoted = true;
                    }
                },
                '\'' => self.single_quoted(),
                '"' => self.double_quoted(),
                '$' => self.dollar(),
                '`' => self.until_backtick(),
                '#' if self.word.is_none() => self.comment(),
                ' ' | '\t' | '\r' => self.end_word(),
                '\n' => {
                    self.end_command(Joined::Then);
                    self.skip_heredoc();
                }
                ';' => self.end_command(Joined::Then),
                '&' if self.is_redirection() => self.word().text.push('&'),
                '&' if self.eat('&') => self.end_command(Joined::And),
                '|' if self.eat('|') => self.end_command(Joined::Or),
                '&' | '|' => self.end_command(Joined::Other),
                '(' => {
                    self.end_command(Joined::Then);
                    self.depth += 1;
                }
                ')' => {
                    self.end_command(Joined::Then);
                    self.depth = self.depth.saturating_sub(1);
                }
                c => self.word().text.push(c),
            }
        }
        self.end_command(Joined::Then);
    }

    fn next(&mut self) -> Option<char> {
        let c = self.chars.next();
        if c == Some('\n') {
            self.line += 1;
        }
        c
    }

    fn eat(&mut self, wanted: char) -> bool {
        self.chars.next_if_eq(&wanted).is_some()
    }

    /// `2>&1`: this `&` ends nothing.
    fn is_redirection(&self) -> bool {
        self.word.as_ref().is_some_and(|w| w.text.ends_with(['>', '<']))
    }

    fn word(&mut self) -> &mut Word {
        let span = if self.literal {
            let line = self.base.line + 1 + self.line;
            Span { line, column: 1, end_line: line, end_column: 1, ..self.base }
        } else {
            self.base
        };
        self.word.get_or_insert_with(|| Word { text: String::new(), dynamic: false, quoted: false, span })
    }

    fn single_quoted(&mut self) {
        self.word().quoted = true;
        while let Some(c) = self.next() {
            if c == '\'' {
                return;
            }
            self.word().text.push(c);
        }
    }

    fn double_quoted(&mut self) {
        self.word().quoted = true;
        while let Some(c) = self.next() {
            match c {
                '"' => return,
                '\\' => match self.next() {
                    Some('\n') | None => {}
                    Some(c @ ('"' | '\\' | '$' | '`')) => self.word().text.push(c),
                    Some(c) => {
                        self.word().text.push('\\');
                        self.word().text.push(c);
                    }
                },
                '$' => self.dollar(),
                '`' => self.until_backtick(),
                c => self.word().text.push(c),
            }
        }
    }

    /// A `$` outside single quotes: a variable, a command or arithmetic. Kept as text, marked dynamic.
    fn dollar(&mut self) {
        let next = self.chars.peek().copied();
        let word = self.word();
        word.text.push('$');
        word.dynamic |= next.is_some_and(|c| c.is_alphanumeric() || "_({@*#?!".contains(c));
        let (open, close) = match next {
            Some('(') => ('(', ')'),
            Some('{') => ('{', '}'),
            _ => return,
        };
        let mut depth = 0_u32;
        while let Some(c) = self.next() {
            self.word().text.push(c);
            if c == open {
                depth += 1;
            } else if c == close {
                depth -= 1;
                if depth == 0 {
                    return;
                }
            }
        }
    }

    fn until_backtick(&mut self) {
        let word = self.word();
        word.dynamic = true;
        word.text.push('`');
        while let Some(c) = self.next() {
            self.word().text.push(c);
            if c == '`' {
                return;
            }
        }
    }

    fn comment(&mut self) {
        while self.chars.peek().is_some_and(|c| *c != '\n') {
            self.next();
        }
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        if let Some(mark) = word.text.strip_prefix("<<")
            && !mark.starts_with('<')
        {
            self.heredoc = Some(mark.trim_start_matches('-').to_owned());
        } else if self.heredoc.as_deref() == Some("") {
            self.heredoc = Some(word.text.clone());
        }
        self.words.push(word);
    }

    /// The text of a here-document is data for a program, not commands.
    fn skip_heredoc(&mut self) {
        let Some(mark) = self.heredoc.take().filter(|m| !m.is_empty()) else { return };
        loop {
            let mut line = String::new();
            loop {
                match self.next() {
                    None => return,
                    Some('\n') => break,
                    Some(c) => line.push(c),
                }
            }
            if line.trim() == mark {
                return;
            }
        }
    }

    fn end_command(&mut self, next: Joined) {
        self.end_word();
        let mut words = std::mem::take(&mut self.words);
        let joined = std::mem::replace(&mut self.joined, next);
        if words.is_empty() {
            // A new line after `&&` keeps the operator.
            if self.commands.is_empty() || matches!(joined, Joined::And | Joined::Or | Joined::Other) {
                self.joined = joined;
            }
            return;
        }
        let mut here = self.depth;
        while let Some(first) = words.first().filter(|w| !w.quoted) {
            match first.text.as_str() {
                "if" | "while" | "until" | "for" | "case" | "select" => {
                    self.depth += 1;
                    here = self.depth;
                }
                "fi" | "done" | "esac" | "}" => self.depth = self.depth.saturating_sub(1),
                "then" | "else" | "elif" | "do" => here = self.depth,
                // A group in braces always runs; a function's body is one too, and then it may not.
                "{" => self.depth += 1,
                "!" | "time" => {}
                _ => break,
            }
            words.remove(0);
        }
        let mut assignments = Vec::new();
        while let Some((name, value)) = words.first().and_then(split_assignment) {
            let first = words.remove(0);
            assignments.push(Assignment { name, value: Word { text: value, ..first } });
        }
        if !words.is_empty() || !assignments.is_empty() {
            self.commands.push(Command { assignments, words, joined, conditional: here > 0 });
        }
    }
}

/// `NAME=value`, when the word has that form.
pub(super) fn split_assignment(word: &Word) -> Option<(String, String)> {
    let (name, value) = word.text.split_once('=')?;
    let mut chars = name.chars();
    let first = chars.next()?;
    let is_name =
        (first.is_ascii_alphabetic() || first == '_') && chars.all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then(|| (name.to_owned(), value.to_owned()))
}

/// Replaces `$NAME`, `${NAME}` and `${NAME:-default}` by what `lookup` knows. None when something stays open.
pub(super) fn expand(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['$', '`']) {
        out.push_str(&rest[..at]);
        if rest[at..].starts_with('`') {
            return None;
        }
        rest = &rest[at + 1..];
        if let Some(inner) = rest.strip_prefix('{') {
            let end = inner.find('}')?;
            let (name, default) = match inner[..end].split_once(":-").or_else(|| inner[..end].split_once('-'))
            {
                Some((name, default)) => (name, Some(default)),
                None => (&inner[..end], None),
            };
            match lookup(name).filter(|v| !v.is_empty()).or_else(|| default.map(str::to_owned)) {
                Some(value) if !value.contains('$') => out.push_str(&value),
                _ => return None,
            }
            rest = &inner[end + 1..];
        } else if rest.starts_with('(') {
            return None;
        } else {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            if end == 0 {
                out.push('$');
                continue;
            }
            out.push_str(&lookup(&rest[..end])?);
            rest = &rest[end..];
        }
        if out.len() > 1 << 20 {
            return None;
        }
    }
    out.push_str(rest);
    Some(out)
}
