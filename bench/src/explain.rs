//! `kvwire explain`: what a variable or a finding means.

use std::fmt::Write as _;

use checks::env::{Catalogue, Effect, Entry, Owner, RULES, Rule, catalogue, rule};
use checks::node::{PAGES, Page, page};

use crate::cli::ExplainArgs;
use crate::exit::Exit;
use crate::terminal::Terminal;

/// Runs the command.
pub(crate) fn run(args: &ExplainArgs, terminal: &Terminal) -> Exit {
    let catalogue = catalogue();
    // Reports call a finding about a manifest `env:ID`.
    let name = args.name.as_deref().map(|name| name.strip_prefix("env:").unwrap_or(name));
    let text = match name {
        None if args.output.json => {
            json(&serde_json::json!({"rules": RULES, "pages": PAGES, "variables": catalogue.entries()}))
        }
        None => list(catalogue),
        Some(name) if page(name).is_some() => match page(name) {
            Some(page) if args.output.json => json(page),
            page => page.map_or_else(String::new, of_page),
        },
        Some(name) => match (rule(name), catalogue.get(&name.to_ascii_uppercase())) {
            (Some(rule), _) if args.output.json => json(rule),
            (Some(rule), _) => of_rule(rule),
            (None, Some(entry)) if args.output.json => json(entry),
            (None, Some(entry)) => of_entry(name, entry),
            (None, None) => {
                terminal.error(&unknown(name, catalogue));
                return Exit::Usage;
            }
        },
    };
    match terminal.result(&text) {
        Ok(()) => Exit::Trusted,
        Err(e) => {
            terminal.error(&format!("standard output cannot be written: {e}"));
            Exit::Internal
        }
    }
}

fn json<T: serde::Serialize>(value: &T) -> String {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}

fn unknown(name: &str, catalogue: &Catalogue) -> String {
    let near = catalogue.nearest(&name.to_ascii_uppercase());
    let hint = near.map_or(String::new(), |n| format!("; is {n} meant?"));
    format!(
        "{name} is neither a variable of the catalogue nor a finding{hint}\n  fix: `kvwire explain` lists both"
    )
}

fn list(catalogue: &Catalogue) -> String {
    let mut out = String::from("findings in manifests:\n");
    for rule in RULES.iter().filter(|rule| page(rule.id).is_none()) {
        let _ = writeln!(out, "  {:<26}{}", rule.id, rule.title);
    }
    out.push_str("\nfindings about nodes, pods and NIXL:\n");
    for page in PAGES {
        let _ = writeln!(out, "  {:<26}{}", page.id, page.title);
    }
    out.push_str("\nvariables that decide the wire:\n");
    for entry in catalogue.entries().iter().filter(|e| !e.why.is_empty()) {
        let _ = writeln!(out, "  {:<44}{}", entry.name, entry.why);
    }
    let rest = catalogue.entries().iter().filter(|e| e.why.is_empty()).count();
    let _ = writeln!(out, "\nand {rest} more variables of UCX, known by name and default");
    out
}

fn of_rule(rule: &Rule) -> String {
    format!("{}\n\n{}.\n\nWhy it matters: {}\n\nWhat to do: {}\n", rule.id, rule.title, rule.why, rule.remedy)
}

fn of_page(page: &Page) -> String {
    format!(
        "{}\n\n{}.\n\nCause: {}\n\nConfirm by hand: {}\n\nWhat to do: {}\n\nWho can: {}\n",
        page.id,
        page.title,
        page.cause,
        page.confirm,
        page.fix,
        page.who.words()
    )
}

fn of_entry(name: &str, entry: &Entry) -> String {
    let mut out = format!("{}\n", name.to_ascii_uppercase());
    if !entry.why.is_empty() {
        let _ = writeln!(out, "\n{}", entry.why);
    }
    out.push('\n');
    let mut line = |label: &str, text: &str| {
        if !text.is_empty() && text != "-" {
            let _ = writeln!(out, "{label:<14}{text}");
        }
    };
    line("read by", entry.read_by);
    line("type", &kind(entry.kind));
    line("default", entry.default);
    line("versions", &entry.versions());
    line("effect", effect(entry.effect));
    line("a bad value", bad_value(entry.owner));
    line("source", entry.source);
    out
}

fn kind(kind: &str) -> String {
    match kind.split_once([':', '=']) {
        Some(("enum", choices)) => format!("one of {}", choices.replace(',', ", ")),
        _ => match kind {
            "bool" => "y, yes, on, 1 or n, no, off, 0; not true or false".to_owned(),
            "ternary" => "as a boolean, or try; not true or false".to_owned(),
            "switch" | "ternary_auto" => "as a boolean, or try, or auto; not true or false".to_owned(),
            "list" => "names with commas and no blanks; ^ only as the first character, for the whole list"
                .to_owned(),
            other => other.to_owned(),
        },
    }
}

fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::Live => "",
        Effect::Diagnostic => "only what is printed, or how a failure looks",
        Effect::NoEffect => "none",
        Effect::NoEffectNixl => "none for the data that NIXL moves",
        Effect::Removed => "none: it was taken out",
        Effect::Deprecated => "deprecated",
        Effect::UnknownName => "none: no program reads it",
    }
}

fn bad_value(owner: Owner) -> &'static str {
    match owner {
        Owner::Global => "is ignored in silence",
        Owner::Context | Owner::Iface => "makes NIXL's UCX backend fail",
        Owner::Md => "drops the whole component in silence: RDMA or GPU memory is gone",
        Owner::Other => "",
    }
}
