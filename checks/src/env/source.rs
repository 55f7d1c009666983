//! The files that are checked: found, read within limits, and shown line by line without their secrets.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::secret;
use super::yaml::Span;
use crate::{Finding, SourceSpan, Status};

/// Bytes of one file. A chart rendered for a large cluster has some hundred KB.
pub(super) const FILE_BYTES_MAX: u64 = 4 << 20;
/// Bytes of all files together.
pub(super) const TOTAL_BYTES_MAX: u64 = 256 << 20;
/// Values of all files together, aliases expanded: as many as the bytes may hold when they are written out.
pub(super) const VALUES_MAX: u64 = 20_000_000;
/// Files below the paths given.
pub(super) const FILES_MAX: usize = 20_000;
/// Folders inside each other.
pub(super) const FOLDER_DEPTH_MAX: usize = 32;
/// Folders and files that are looked at while searching.
const ENTRIES_MAX: usize = 500_000;

/// One text that was read.
#[derive(Debug)]
pub(super) struct Source {
    /// The path as given, `-` for standard input.
    pub name: String,
    /// Where it lies; none for standard input.
    pub path: Option<PathBuf>,
    /// Its text.
    pub text: Rc<str>,
    /// Where each line begins.
    lines: Vec<usize>,
    /// Lines that hold the data of a Secret.
    hidden: Vec<(u32, u32)>,
    /// It is the environment of a running process and no file.
    pub is_process: bool,
}

/// All texts that were read.
#[derive(Debug, Default)]
pub(super) struct Sources {
    files: Vec<Source>,
    by_path: HashMap<PathBuf, u32>,
    bytes: u64,
    /// Values in all files, aliases expanded.
    pub(super) values: u64,
}

impl Sources {
    /// Adds a text and returns its index.
    pub(super) fn add(&mut self, name: String, path: Option<PathBuf>, text: &str) -> u32 {
        let mut lines = vec![0];
        lines.extend(text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i + 1));
        let index = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        self.by_path.extend(path.clone().map(|path| (path, index)));
        self.files.push(Source {
            name,
            path,
            text: Rc::from(text),
            lines,
            hidden: Vec::new(),
            is_process: false,
        });
        index
    }

    /// Adds what a process was started with as if it were a text, so that findings can point into it.
    pub(super) fn add_process(&mut self, name: String, text: &str) -> u32 {
        let index = self.add(name, None, text);
        if let Some(source) = self.files.get_mut(index as usize) {
            source.is_process = true;
        }
        index
    }

    /// All files, by index.
    pub(super) fn files(&self) -> &[Source] {
        &self.files
    }

    /// One file.
    pub(super) fn file(&self, index: u32) -> Option<&Source> {
        self.files.get(index as usize)
    }

    /// Marks lines that are never shown.
    pub(super) fn hide(&mut self, span: Span) {
        if let Some(file) = self.files.get_mut(span.file as usize) {
            file.hidden.push((span.line, span.end_line));
        }
    }

    /// A span as findings state it.
    pub(super) fn span(&self, span: Span) -> Option<SourceSpan> {
        let file = self.file(span.file)?;
        // Lines within a block of text are counted from its first one: an odd line break may count too many.
        let last = file.line_count();
        let line = span.line.min(last);
        (line > 0).then(|| SourceSpan {
            file: file.name.clone(),
            line,
            column: span.column,
            end_line: span.end_line.clamp(line, last),
            end_column: span.end_column,
        })
    }

    /// Where `needle` stands within `span`, or the span itself.
    pub(super) fn locate(&self, span: Span, needle: &str) -> Span {
        let Some(file) = self.file(span.file) else { return span };
        for line in span.line..=span.end_line.min(span.line + 2_000) {
            let text = file.line(line);
            let skip = if line == span.line { column_offset(text, span.column) } else { 0 };
            if let Some(at) = text.get(skip..).and_then(|rest| rest.find(needle)) {
                let column = count(&text[..skip + at]) + 1;
                let end_column = column + count(needle);
                return Span { file: span.file, line, column, end_line: line, end_column };
            }
        }
        span
    }

    /// A line for people, without secrets.
    pub(super) fn shown_line(&self, file: u32, line: u32) -> Option<String> {
        let source = self.file(file)?;
        if line == 0 || line as usize > source.lines.len() {
            return None;
        }
        if source.hidden.iter().any(|(first, last)| (*first..=*last).contains(&line)) {
            return Some("(a line of a Secret, not shown)".to_owned());
        }
        Some(secret::line(source.line(line)))
    }

    /// Finds and reads the files below `paths`; `-` is standard input.
    pub(super) fn read(&mut self, paths: &[PathBuf], stdin: &mut dyn Read) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut search = Search::default();
        for path in paths {
            if path.as_os_str() == "-" {
                self.read_stdin(stdin, &mut findings);
            } else {
                search.path(path, 0, true, &mut findings);
            }
        }
        for path in search.files {
            if let Err(finding) = self.read_file(&path) {
                findings.push(*finding);
            }
        }
        findings
    }

    fn read_stdin(&mut self, stdin: &mut dyn Read, findings: &mut Vec<Finding>) {
        let mut bytes = Vec::new();
        let read = stdin.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
        let result = match read {
            Ok(_) => self.accept("-".to_owned(), None, bytes),
            Err(e) => Err(Box::new(unreadable("-", &e.to_string()))),
        };
        if let Err(finding) = result {
            findings.push(*finding);
        }
    }

    /// Reads one file, unless it has been read, and returns its index.
    ///
    /// # Errors
    /// The finding that says what is wrong with the file.
    pub(super) fn read_file(&mut self, path: &Path) -> Result<u32, Box<Finding>> {
        let name = path.display().to_string();
        if let Some(&index) = self.by_path.get(path) {
            return Ok(index);
        }
        let fail = |e: std::io::Error| Box::new(unreadable(&name, &e.to_string()));
        let about = fs::metadata(path).map_err(fail)?;
        if !about.is_file() {
            return Err(Box::new(unreadable(&name, "it is not a regular file")));
        }
        let mut bytes = Vec::new();
        let file = fs::File::open(path).map_err(fail)?;
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(fail)?;
        self.accept(name, Some(path.to_owned()), bytes)
    }

    /// Takes in what was read, when it is text within the limits, and returns its index.
    ///
    /// # Errors
    /// The finding that says what is wrong with it.
    pub(super) fn accept(
        &mut self,
        name: String,
        path: Option<PathBuf>,
        bytes: Vec<u8>,
    ) -> Result<u32, Box<Finding>> {
        let size = bytes.len() as u64;
        if size > FILE_BYTES_MAX {
            return Err(Box::new(too_large(
                &name,
                &format!("it has more than {} MiB", FILE_BYTES_MAX >> 20),
            )));
        }
        self.bytes += size;
        if self.bytes > TOTAL_BYTES_MAX {
            let why = format!("all files together have more than {} MiB", TOTAL_BYTES_MAX >> 20);
            return Err(Box::new(too_large(&name, &why)));
        }
        if bytes.contains(&0) {
            let title = format!("{name} is a binary file, not a manifest");
            return Err(Box::new(
                Finding::new("file-not-text", Status::Fail, title)
                    .next_step("give the manifest itself, as YAML"),
            ));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(self.add(name, path, text.strip_prefix('\u{feff}').unwrap_or(&text))),
            Err(e) => {
                let at = e.utf8_error().valid_up_to();
                let line = e.as_bytes()[..at].iter().filter(|b| **b == b'\n').count() + 1;
                let title = format!("{name} is not UTF-8: line {line} has a byte that no character has");
                Err(Box::new(
                    Finding::new("file-not-text", Status::Fail, title).next_step("save it as UTF-8"),
                ))
            }
        }
    }
}

impl Source {
    /// A line without its end; empty beyond the text.
    pub(super) fn line(&self, line: u32) -> &str {
        let Some(&start) = (line as usize).checked_sub(1).and_then(|i| self.lines.get(i)) else { return "" };
        let end = self.lines.get(line as usize).map_or(self.text.len(), |next| next - 1);
        self.text.get(start..end).unwrap_or("").trim_end_matches('\r')
    }

    /// Lines of the text.
    pub(super) fn line_count(&self) -> u32 {
        u32::try_from(self.lines.len()).unwrap_or(u32::MAX)
    }
}

fn column_offset(text: &str, column: u32) -> usize {
    let skip = column.saturating_sub(1) as usize;
    text.char_indices().nth(skip).map_or(text.len(), |(i, _)| i)
}

fn count(text: &str) -> u32 {
    u32::try_from(text.chars().count()).unwrap_or(u32::MAX)
}

fn unreadable(name: &str, why: &str) -> Finding {
    Finding::new("file-unreadable", Status::Fail, format!("{name} cannot be read: {why}"))
        .next_step("give a file or folder that exists and that you may read")
}

fn too_large(name: &str, why: &str) -> Finding {
    Finding::new("file-too-large", Status::Fail, format!("{name} was not read: {why}"))
        .next_step("give the manifests of one deployment")
}

/// The walk through folders.
#[derive(Default)]
struct Search {
    files: Vec<PathBuf>,
    seen: HashSet<PathBuf>,
    entries: usize,
    told: bool,
}

impl Search {
    fn path(&mut self, path: &Path, depth: usize, given: bool, findings: &mut Vec<Finding>) {
        let name = path.display().to_string();
        let about = match fs::metadata(path) {
            Ok(about) => about,
            Err(e) => {
                findings.push(unreadable(&name, &e.to_string()));
                return;
            }
        };
        // A link may lead back to a folder that was searched: the real path is what counts.
        let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if !self.seen.insert(real) {
            return;
        }
        self.entries += 1;
        if depth > FOLDER_DEPTH_MAX || self.files.len() >= FILES_MAX || self.entries > ENTRIES_MAX {
            if !std::mem::replace(&mut self.told, true) {
                let why = format!(
                    "more than {FILES_MAX} files, or folders more than {FOLDER_DEPTH_MAX} deep, below what was given"
                );
                findings.push(too_large(&name, &why));
            }
            return;
        }
        if about.is_file() {
            if given || is_manifest(path) {
                self.files.push(path.to_owned());
            }
            return;
        }
        if !about.is_dir() {
            if given {
                findings.push(unreadable(&name, "it is neither a file nor a folder"));
            }
            return;
        }
        match fs::read_dir(path) {
            Err(e) => findings.push(unreadable(&name, &e.to_string())),
            Ok(entries) => {
                let mut inside: Vec<PathBuf> =
                    entries.take(ENTRIES_MAX).filter_map(|e| Some(e.ok()?.path())).collect();
                inside.sort();
                for entry in inside {
                    let hidden = entry.file_name().is_some_and(|n| n.to_string_lossy().starts_with('.'));
                    let wanted = is_manifest(&entry) || (!hidden && entry.is_dir());
                    if wanted {
                        self.path(&entry, depth + 1, false, findings);
                    }
                }
            }
        }
    }
}

fn is_manifest(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let hidden = name.starts_with('.');
    let extension = path.extension().is_some_and(|e| e == "yaml" || e == "yml" || e == "json");
    // JSON below a folder is rarely a manifest; a file given by name is read whatever it is called.
    !hidden && extension && !name.ends_with(".json")
}
