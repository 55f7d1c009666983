//! Commands that kvwire and its pages suggest are commands that it takes.

use std::fs;
use std::path::{Path, PathBuf};

use checks::env::{Options, RULES, check};
use checks::node::PAGES;
use clap::Parser;
use clap::error::ErrorKind;

use super::Cli;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The commands of kvwire in a text: in backticks, on an indented line, or in a fenced block.
fn commands(text: &str) -> Vec<String> {
    // A line that ends with a backslash goes on in the next one.
    let text = text.replace("\\\n", " ");
    let mut fenced = false;
    let mut out = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if fenced || line.starts_with("    ") {
            out.extend(of_kvwire(line));
        } else {
            out.extend(line.split('`').skip(1).step_by(2).flat_map(of_kvwire));
        }
    }
    out
}

/// The parts of a shell line that start kvwire, after a prompt or the key of a CI job.
fn of_kvwire(line: &str) -> Vec<String> {
    let line = line.split(" # ").next().unwrap_or(line);
    let parts = line.split(['|', ';']).flat_map(|part| part.split("&&"));
    let mut out = Vec::new();
    for part in parts {
        let Some(at) = part.find("kvwire ") else { continue };
        let before = part[..at].trim();
        if before.is_empty() || ["$", "-", ":", "KVWIRE_TOKEN"].iter().any(|end| before.ends_with(end)) {
            let command = part[at..].split(" > ").next().unwrap_or("").split(" >> ").next().unwrap_or("");
            out.push(command.trim().to_owned());
        }
    }
    out
}

/// Why kvwire refuses the command; none when it takes it.
fn refusal(command: &str) -> Option<(ErrorKind, String)> {
    let words: Vec<&str> = command.split_whitespace().map(|word| word.trim_matches(['"', '\''])).collect();
    let error = Cli::try_parse_from(&words).err()?;
    let fine = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    (!fine).then(|| (error.kind(), error.to_string()))
}

/// True when what is refused stands for what the reader has: arguments that are left out, a value in capitals.
fn is_open(kind: ErrorKind, message: &str) -> bool {
    let value = message.split('\'').nth(1).unwrap_or("");
    let capitals = value.len() > 2 && value.bytes().all(|b| b.is_ascii_uppercase());
    kind == ErrorKind::MissingRequiredArgument || (kind == ErrorKind::InvalidValue && capitals)
}

fn manifests() -> Vec<PathBuf> {
    let folder = Path::new(ROOT).join("tests/fixtures/manifests");
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn every_command_that_a_finding_in_a_manifest_suggests_is_complete() {
    let mut texts: Vec<String> = RULES.iter().map(|rule| rule.remedy.to_owned()).collect();
    for path in manifests() {
        let report = check(&[path], &mut std::io::empty(), &Options::default());
        texts.extend(
            report.findings.iter().flat_map(|f| [f.next_step.clone(), f.detail.clone(), f.fix.clone()]),
        );
    }
    let mut seen: Vec<String> = texts.iter().flat_map(|text| commands(text)).collect();
    seen.sort();
    seen.dedup();
    for op in ["read", "write"] {
        let wanted = format!("kvwire initiator --rendezvous ADDRESS --op {op} --expect rdma");
        assert!(seen.contains(&wanted), "{wanted} in {seen:#?}");
    }
    for command in &seen {
        assert_eq!(refusal(command), None, "{command}");
    }
}

#[test]
fn every_command_of_the_pages_exists_with_its_flags() {
    let mut pages = vec![Path::new(ROOT).join("README.md")];
    pages.extend(fs::read_dir(Path::new(ROOT).join("docs")).unwrap().map(|entry| entry.unwrap().path()));
    let mut count = 0;
    let mut check = |text: &str, place: &str| {
        // `kvwire … here` stands for a version.
        for command in commands(text).into_iter().filter(|command| !command.starts_with("kvwire …")) {
            count += 1;
            let refused = refusal(&command).filter(|(kind, message)| !is_open(*kind, message));
            assert_eq!(refused, None, "{place}: {command}");
        }
    };
    for page in pages.iter().filter(|page| page.extension().is_some_and(|e| e == "md")) {
        check(&fs::read_to_string(page).unwrap(), &page.display().to_string());
    }
    for page in PAGES {
        check(&format!("{} {} {}", page.cause, page.confirm, page.fix), page.id);
    }
    assert!(count > 40, "{count}");
}

#[test]
fn a_command_that_does_not_exist_is_refused() {
    for wrong in [
        "kvwire initiator --op read --expect rdma",
        "kvwire initiator --rendezvous A --op READ",
        "kvwire chekc",
    ] {
        assert!(refusal(wrong).is_some(), "{wrong}");
    }
    assert_eq!(
        commands("see `kvwire info` and\n    a | kvwire check env -\n"),
        ["kvwire info", "kvwire check env -"]
    );
}
