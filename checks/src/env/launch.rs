//! How a container is started: the script or the words, the engine in it, its flags, and what it does to the
//! environment first.

use std::rc::Rc;

use super::shell::{self, Command, Joined, Word};
use super::worker::Engine;
use super::yaml::{Node, Span};

/// How a command changes a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rule {
    /// To this value.
    Set,
    /// To this value when it is not set: `X=${X:-default}`.
    Default,
    /// Away.
    Unset,
}

/// One change of a variable by the command.
#[derive(Debug, Clone)]
pub(super) struct Change {
    /// The variable.
    pub name: String,
    /// The value as written.
    pub value: String,
    /// It has something for the shell to replace.
    pub dynamic: bool,
    /// How.
    pub rule: Rule,
    /// In a branch that may not run.
    pub conditional: bool,
    /// Where.
    pub span: Span,
}

/// A flag of the engine.
#[derive(Debug, Clone)]
pub(super) struct Flag {
    /// Without dashes in front, with dashes inside: `kv-transfer-config`.
    pub name: String,
    /// The value as written; empty for a switch.
    pub value: String,
    /// The value has something for a shell to replace.
    pub dynamic: bool,
    /// Where.
    pub span: Span,
}

/// What a program in a command is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    /// A model server.
    Engine(Engine),
    /// A model server under Dynamo.
    DynamoEngine(Engine),
    /// A frontend, router or planner.
    Other,
}

/// How a container is started.
#[derive(Debug, Clone, Default)]
pub(super) struct Launch {
    /// It runs through a shell.
    pub shell: bool,
    /// The shell stops at the first error.
    pub stops_on_error: bool,
    /// The commands of the script, or the one command.
    pub commands: Vec<Command>,
    /// Index of the command that starts the engine, and what it is.
    pub program: Option<(usize, Program)>,
    /// The engine's flags.
    pub flags: Vec<Flag>,
    /// Changes of the environment, in order.
    pub changes: Vec<Change>,
    /// Where the command stands; zero when there is none.
    pub span: Span,
}

impl Launch {
    /// Reads `command` and `args` of a container.
    pub(super) fn read(container: &Node) -> Self {
        let mut items: Vec<&Rc<Node>> = Vec::new();
        for key in ["command", "args"] {
            match container.get(key) {
                Some(node) if node.is_list() => items.extend(node.items()),
                Some(node) if node.text().is_some() => items.push(node),
                _ => {}
            }
        }
        Self::from_items(&items)
    }

    /// Reads the arguments of a running process: nothing in them is for a shell any more.
    pub(super) fn of_process(words: Vec<Word>, span: Span) -> Self {
        let command = Command { assignments: Vec::new(), words, joined: Joined::First, conditional: false };
        Self { span, commands: vec![command], ..Self::default() }.finish()
    }

    /// Reads a script that is not in a list, as some charts have.
    pub(super) fn from_script(node: &Rc<Node>) -> Self {
        let Some(scalar) = node.scalar() else { return Self::default() };
        let mut launch = Self { shell: true, span: node.span, ..Self::default() };
        launch.commands = shell::commands(scalar, node.span);
        launch.finish()
    }

    fn from_items(items: &[&Rc<Node>]) -> Self {
        let Some(first) = items.first() else { return Self::default() };
        let mut launch = Self { span: first.span, ..Self::default() };
        if let Some((script, stops)) = script_of(items) {
            let Some(scalar) = script.scalar() else { return launch };
            launch.shell = true;
            launch.stops_on_error = stops;
            launch.span = script.span;
            launch.commands = shell::commands(scalar, script.span);
            return launch.finish();
        }
        let words: Vec<Word> = items.iter().filter_map(|node| word_of(node)).collect();
        // One list item with spaces and no command: Dynamo's operator hands it to a shell, and so do entry points.
        if let [only] = items
            && let Some(scalar) = only.scalar()
            && scalar.text.contains(' ')
        {
            launch.shell = true;
            launch.commands = shell::commands(scalar, only.span);
            return launch.finish();
        }
        launch.commands =
            vec![Command { assignments: Vec::new(), words, joined: Joined::First, conditional: false }];
        launch.finish()
    }

    fn finish(mut self) -> Self {
        for (i, command) in self.commands.iter().enumerate() {
            if let Some(program) = program_of(&command.words) {
                let better = match self.program {
                    None => true,
                    Some((_, known)) => known == Program::Other && program != Program::Other,
                };
                if better {
                    self.program = Some((i, program));
                }
            }
        }
        let engine = self.program.map(|(i, _)| i);
        for (i, command) in self.commands.iter().enumerate() {
            read_changes(command, engine == Some(i), &mut self.changes);
            if engine == Some(i) {
                break;
            }
        }
        // `X=1` and, later, `export X`: only what is exported reaches the engine.
        let words = match engine {
            Some(i) => self.commands[i].words.as_slice(),
            // A container without a command of its own: the arguments are the engine's.
            None if !self.shell => self.commands.first().map_or(&[][..], |c| c.words.as_slice()),
            None => &[],
        };
        self.flags = flags_of(words);
        self
    }

    /// True for kvwire's own pods: one side of the active test.
    pub(super) fn is_active_test(&self) -> bool {
        self.commands.iter().any(|command| match command.words.as_slice() {
            [program, verb, ..] => {
                program.text.rsplit('/').next() == Some("kvwire")
                    && matches!(verb.text.as_str(), "run" | "target" | "initiator")
            }
            _ => false,
        })
    }

    /// A flag by one of its names; the last one counts.
    pub(super) fn flag(&self, names: &[&str]) -> Option<&Flag> {
        self.flags.iter().rev().find(|f| names.contains(&f.name.as_str()))
    }
}

fn word_of(node: &Rc<Node>) -> Option<Word> {
    let text = node.text()?.to_owned();
    Some(Word { text, dynamic: false, quoted: false, span: node.span })
}

/// The script of `sh -c SCRIPT`, and whether its options make it stop at the first error.
fn script_of<'a>(items: &[&'a Rc<Node>]) -> Option<(&'a Rc<Node>, bool)> {
    let program = items.first()?.text()?;
    let name = program.rsplit('/').next().unwrap_or(program);
    if !matches!(name, "sh" | "bash" | "dash" | "ash" | "zsh") {
        return None;
    }
    let mut stops = false;
    for (i, item) in items.iter().enumerate().skip(1) {
        let option = item.text()?;
        let letters = option.strip_prefix('-')?;
        let short = !letters.starts_with('-');
        stops |= short && letters.contains('e');
        if short && letters.contains('c') {
            // `-o pipefail -c`: the name of an option may stand between.
            return items.get(i + 1).map(|script| (*script, stops));
        }
    }
    None
}

fn program_of(words: &[Word]) -> Option<Program> {
    for (i, word) in words.iter().enumerate().take(24) {
        let text = word.text.as_str();
        let next = words.get(i + 1).map_or("", |w| w.text.as_str());
        let name = text.rsplit('/').next().unwrap_or(text);
        let found = match text {
            "dynamo.vllm" => Some(Program::DynamoEngine(Engine::Vllm)),
            "dynamo.sglang" => Some(Program::DynamoEngine(Engine::Sglang)),
            "dynamo.trtllm" => Some(Program::DynamoEngine(Engine::TensorRtLlm)),
            "sglang.launch_server" => Some(Program::Engine(Engine::Sglang)),
            _ if text.starts_with("dynamo.vllm") => Some(Program::DynamoEngine(Engine::Vllm)),
            _ if text.starts_with("dynamo.sglang") => Some(Program::DynamoEngine(Engine::Sglang)),
            _ if text.starts_with("dynamo.trtllm") => Some(Program::DynamoEngine(Engine::TensorRtLlm)),
            _ if text.starts_with("dynamo.") || text.starts_with("sglang_router") => Some(Program::Other),
            _ if text.starts_with("vllm.entrypoints") => Some(Program::Engine(Engine::Vllm)),
            _ if name == "vllm" && next == "serve" => Some(Program::Engine(Engine::Vllm)),
            _ if name == "sglang" && next == "serve" => Some(Program::Engine(Engine::Sglang)),
            _ if name == "trtllm-serve" || text.starts_with("tensorrt_llm.commands") => {
                Some(Program::Engine(Engine::TensorRtLlm))
            }
            _ => None,
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

fn read_changes(command: &Command, is_engine: bool, changes: &mut Vec<Change>) {
    let program = command.words.first().map_or("", |w| w.text.as_str());
    let mut set = |name: String, word: &Word, value: String| {
        let dynamic = word.dynamic;
        let same = format!("${{{name}:-");
        let rule = match value.strip_prefix(&same).or_else(|| value.strip_prefix(&format!("${{{name}-"))) {
            Some(_) if value.ends_with('}') => Rule::Default,
            _ => Rule::Set,
        };
        changes.push(Change {
            name,
            value,
            dynamic,
            rule,
            conditional: command.conditional,
            span: word.span,
        });
    };
    // In front of another program they end with it; alone they stay in the shell until `export`. Names of
    // the transport are always exported later or before, so that a plain assignment counts too.
    if is_engine || command.words.is_empty() {
        for a in &command.assignments {
            set(a.name.clone(), &a.value, a.value.text.clone());
        }
    }
    match program {
        "export" | "declare" | "typeset" => {
            for word in &command.words[1..] {
                if let Some((name, value)) = shell::split_assignment(word) {
                    set(name, word, value);
                }
            }
        }
        "env" | "exec" if is_engine => {
            for word in &command.words[1..] {
                match shell::split_assignment(word) {
                    Some((name, value)) => set(name, word, value),
                    None if word.text == "env" || word.text.starts_with('-') => {}
                    None => break,
                }
            }
        }
        "unset" => {
            for word in command.words[1..].iter().filter(|w| !w.text.starts_with('-')) {
                changes.push(Change {
                    name: word.text.clone(),
                    value: String::new(),
                    dynamic: false,
                    rule: if command.conditional { Rule::Set } else { Rule::Unset },
                    conditional: command.conditional,
                    span: word.span,
                });
            }
        }
        _ => {}
    }
}

fn flags_of(words: &[Word]) -> Vec<Flag> {
    let mut flags = Vec::new();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let Some(body) = word.text.strip_prefix("--").filter(|b| !b.is_empty()) else { continue };
        let (name, value, from) = match body.split_once('=') {
            Some((name, value)) => (name, value.to_owned(), word),
            None => match words.peek().filter(|next| !next.text.starts_with("--")) {
                Some(next) => (body, next.text.clone(), *next),
                None => (body, String::new(), word),
            },
        };
        flags.push(Flag { name: name.replace('_', "-"), value, dynamic: from.dynamic, span: from.span });
    }
    flags
}
