//! `kvwire explain`: what a variable or a finding means.

mod run_pages;

use std::fmt::Write as _;

use checks::env::{Catalogue, Effect, Entry, Owner, RULES, Rule, catalogue, rule};
use checks::node::{PAGES, Page};

use crate::cli::ExplainArgs;
use crate::exit::Exit;
use crate::proof::logged;
use crate::terminal::Terminal;
use run_pages::RUN_PAGES;

/// Runs the command.
pub(crate) fn run(args: &ExplainArgs, terminal: &Terminal) -> Exit {
    let catalogue = catalogue();
    // Reports call a finding about a manifest `env:ID`.
    let name = args.name.as_deref().map(|name| name.strip_prefix("env:").unwrap_or(name));
    let text = match name {
        None if args.output.json => json(&serde_json::json!({
            "rules": RULES,
            "pages": pages().collect::<Vec<_>>(),
            "lines": logged::listed().into_iter().map(|(id, _)| logged_json(id)).collect::<Vec<_>>(),
            "variables": catalogue.entries(),
        })),
        None => list(catalogue),
        Some(name) => match explained(name, args.output.json, catalogue) {
            Some(text) => text,
            None => {
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

/// The pages of all findings that have one.
fn pages() -> impl Iterator<Item = &'static Page> {
    PAGES.iter().chain(RUN_PAGES)
}

/// What is known of a finding or a variable of this name.
fn explained(name: &str, as_json: bool, catalogue: &Catalogue) -> Option<String> {
    if let Some(page) = pages().find(|page| page.id == name) {
        return Some(if as_json { json(page) } else { of_page(page) });
    }
    if let Some(rule) = rule(name) {
        return Some(if as_json { json(rule) } else { of_rule(rule) });
    }
    if !logged::explained(name).is_empty() {
        return Some(if as_json { json(&logged_json(name)) } else { of_logged(name) });
    }
    let entry = catalogue.get(&name.to_ascii_uppercase())?;
    Some(if as_json { json(entry) } else { of_entry(name, entry) })
}

fn of_logged(id: &str) -> String {
    let mut out = format!(
        "{id}\n\nA line that UCX, NIXL or libibverbs wrote into the engine's log; the finding quotes it.\n"
    );
    for (title, next, marks) in logged::explained(id) {
        let _ = write!(out, "\n{title}.\n\nKnown by: {}\n\nWhat to do: {next}\n", marks.join(" … "));
    }
    out
}

fn logged_json(id: &str) -> serde_json::Value {
    let rules = logged::explained(id);
    let rules = rules
        .into_iter()
        .map(|(title, next, marks)| serde_json::json!({"title": title, "fix": next, "line": marks}));
    serde_json::json!({"id": id, "rules": rules.collect::<Vec<_>>()})
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
    for rule in RULES.iter().filter(|rule| pages().all(|page| page.id != rule.id)) {
        let _ = writeln!(out, "  {:<26}{}", rule.id, rule.title);
    }
    out.push_str("\nfindings about nodes, pods and NIXL:\n");
    for page in PAGES {
        let _ = writeln!(out, "  {:<26}{}", page.id, page.title);
    }
    out.push_str("\nfindings of runs and gates:\n");
    for (id, title) in RUN_PAGES.iter().map(|page| (page.id, page.title)).chain(logged::listed()) {
        let _ = writeln!(out, "  {id:<26}{title}");
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::*;

    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tests.rs") {
                found.push(path);
            }
        }
    }

    /// The ids in the code of this program, as they are given to what makes a finding.
    fn ids() -> BTreeSet<String> {
        let mut files = Vec::new();
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
        let mut ids = BTreeSet::new();
        for file in files {
            let text = std::fs::read_to_string(file).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for mark in ["Finding::new(", "unknown(", "fail(", "refused(", "ErrorKind::"] {
                for rest in code.split(mark).skip(1) {
                    let rest = if mark == "ErrorKind::" {
                        rest.split_once("=> ").map_or("", |(_, id)| id)
                    } else {
                        rest
                    };
                    let Some(text) = rest.trim_start().strip_prefix('"') else { continue };
                    let id = text.split('"').next().unwrap_or_default();
                    if id.contains('-')
                        && id.bytes().all(|b| b.is_ascii_lowercase() || b == b'-' || b.is_ascii_digit())
                    {
                        ids.insert(id.to_owned());
                    }
                }
            }
        }
        ids
    }

    #[test]
    fn every_finding_of_this_program_is_explained() {
        let ids = ids();
        for known in ["transport-below-expected", "peer-lost", "nixl-error", "gate-regression", "join-failed"]
        {
            assert!(ids.contains(known), "{known} is found in the code: {ids:?}");
        }
        let missing: Vec<&String> =
            ids.iter().filter(|id| explained(id, false, catalogue()).is_none()).collect();
        assert!(missing.is_empty(), "no page for {missing:?}");
    }

    #[test]
    fn a_line_of_ucx_is_explained_with_what_it_is_known_by() {
        let text = explained("ucx-unreachable", false, catalogue()).unwrap();
        assert!(text.contains("connect(fd= … failed") && text.contains("UCX_NET_DEVICES"), "{text}");
        assert!(list(catalogue()).contains("ucx-unreachable"));
    }
}
