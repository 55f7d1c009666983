//! Evidence as text, so that it can travel: out of a pod through `kubectl exec`, or in a file to somebody who helps.
//! Readable, so that whoever sends it sees what it says.
//!
//! ```text
//! kvwire.capture/1 shell
//! T /sys/class/infiniband/mlx5_0/ports/1/state
//!  4: ACTIVE
//! R /sys/class/infiniband/mlx5_0/device
//!  /sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0
//! N /dev/infiniband/uverbs0
//!  crw
//! M /dev/gdrdrv
//! E
//! ```
//!
//! A letter and a path, then the lines of the entry with one space in front. `T` text, `D` names in a directory, `L`
//! symbolic link, `R` real path, `N` device node (`c` character device, `r`, `w`; `-` for no), `X` bytes in hex, `M`
//! missing, `P` not permitted. `E` ends it: without it the capture was cut short.

use std::fmt::Write as _;

use super::evidence::{Access, ENTRIES_MAX, Entry, Evidence};

/// First word of a capture.
const MAGIC: &str = "kvwire.capture/";
/// Its major version.
const MAJOR: &str = "1";
/// Bytes that a capture may have.
pub const CAPTURE_MAX: usize = 64 << 20;

/// A text that is no capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaptureError {
    /// It does not begin as one.
    NotACapture,
    /// It is of a kvwire that this one does not know.
    OtherMajor(String),
    /// It has no end.
    CutShort,
    /// It is too large.
    TooLarge,
}

impl std::fmt::Display for CaptureError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotACapture => f.write_str("it is not a capture of `kvwire check node --capture`"),
            Self::OtherMajor(major) => {
                write!(
                    f,
                    "it is a capture of format {major}; this kvwire reads format {MAJOR}: use a newer kvwire"
                )
            }
            Self::CutShort => f.write_str("it was cut short: its last line is not `E`"),
            Self::TooLarge => write!(f, "it is larger than {CAPTURE_MAX} bytes or {ENTRIES_MAX} entries"),
        }
    }
}

impl std::error::Error for CaptureError {}

impl Evidence {
    /// As text.
    pub fn to_capture(&self) -> String {
        let mut out = format!("{MAGIC}{MAJOR} {}\n", one_line(&self.gathered_by));
        for (path, entry) in self.entries() {
            let letter = match entry {
                Entry::Text(_) => 'T',
                Entry::Names(_) => 'D',
                Entry::Link(_) => 'L',
                Entry::Real(_) => 'R',
                Entry::Node(_) => 'N',
                Entry::Bytes(_) => 'X',
                Entry::Missing => 'M',
                Entry::Denied => 'P',
            };
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{letter} {}", one_line(path));
            match entry {
                Entry::Text(text) => text.lines().for_each(|line| push(&mut out, line)),
                Entry::Names(names) => names.iter().for_each(|name| push(&mut out, &one_line(name))),
                Entry::Link(target) | Entry::Real(target) => push(&mut out, &one_line(target)),
                Entry::Node(access) => push(&mut out, &node(*access)),
                Entry::Bytes(bytes) => bytes.chunks(32).for_each(|row| push(&mut out, &hex(row))),
                Entry::Missing | Entry::Denied => {}
            }
        }
        out.push_str("E\n");
        out
    }

    /// Every capture of a text that holds several, one after the other.
    ///
    /// # Errors
    /// One of them is no capture, of another major version, too large, or cut short.
    pub fn all_from_captures(text: &str) -> Result<Vec<Self>, CaptureError> {
        let starts: Vec<usize> = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at + 1))
            .filter(|at| text[*at..].starts_with(MAGIC))
            .collect();
        let ends = starts.iter().skip(1).copied().chain([text.len()]);
        let all: Result<Vec<Self>, _> =
            starts.iter().zip(ends).map(|(start, end)| Self::from_capture(&text[*start..end])).collect();
        all.and_then(|all| if all.is_empty() { Err(CaptureError::NotACapture) } else { Ok(all) })
    }

    /// From text. What came before the first line of the capture (messages of a login shell) is passed over.
    ///
    /// # Errors
    /// It is no capture, of another major version, too large, or cut short.
    pub fn from_capture(text: &str) -> Result<Self, CaptureError> {
        if text.len() > CAPTURE_MAX {
            return Err(CaptureError::TooLarge);
        }
        let mut lines = text.lines().skip_while(|line| !line.starts_with(MAGIC));
        let first = lines.next().ok_or(CaptureError::NotACapture)?;
        let (major, by) = first[MAGIC.len()..].split_once(' ').unwrap_or((&first[MAGIC.len()..], ""));
        if major != MAJOR {
            return Err(CaptureError::OtherMajor(major.to_owned()));
        }
        let mut evidence = Self::new(by);
        let mut open: Option<(char, &str, Vec<&str>)> = None;
        let mut entries = 0_usize;
        for line in lines {
            if let Some(body) = line.strip_prefix(' ') {
                if let Some((_, _, lines)) = &mut open {
                    lines.push(body);
                }
                continue;
            }
            if let Some((letter, path, lines)) = open.take() {
                entries += 1;
                if let Some(entry) = entry(letter, &lines) {
                    evidence.add(path, entry);
                }
            }
            if entries > ENTRIES_MAX {
                return Err(CaptureError::TooLarge);
            }
            if line == "E" {
                return Ok(evidence);
            }
            if let Some((letter, path)) = line.split_once(' ')
                && let (Some(letter), true) = (letter.chars().next(), letter.len() == 1)
            {
                open = Some((letter, path, Vec::new()));
            }
        }
        Err(CaptureError::CutShort)
    }
}

/// `None` for a letter of a newer minor version.
fn entry(letter: char, lines: &[&str]) -> Option<Entry> {
    let first = || lines.first().copied().unwrap_or_default();
    Some(match letter {
        'T' => Entry::Text(lines.iter().fold(String::new(), |text, line| text + line + "\n")),
        'D' => {
            let mut names: Vec<String> = lines.iter().map(|name| (*name).to_owned()).collect();
            names.sort();
            Entry::Names(names)
        }
        'L' => Entry::Link(first().to_owned()),
        'R' => Entry::Real(first().to_owned()),
        'N' => {
            let has = |mark: char| first().contains(mark);
            Entry::Node(Access { character: has('c'), read: has('r'), write: has('w') })
        }
        'X' => Entry::Bytes(lines.iter().flat_map(|line| unhex(line)).collect()),
        'M' => Entry::Missing,
        'P' => Entry::Denied,
        _ => return None,
    })
}

fn push(out: &mut String, line: &str) {
    out.push(' ');
    out.push_str(line.trim_end_matches('\r'));
    out.push('\n');
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

fn node(access: Access) -> String {
    let mark = |yes: bool, mark: char| if yes { mark } else { '-' };
    [mark(access.character, 'c'), mark(access.read, 'r'), mark(access.write, 'w')].iter().collect()
}

fn hex(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        let gap = if at == 0 { "" } else { " " };
        let _ = write!(out, "{gap}{byte:02x}");
    }
    out
}

fn unhex(line: &str) -> Vec<u8> {
    line.split_whitespace().map_while(|pair| u8::from_str_radix(pair, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_of_each() -> Evidence {
        let mut evidence = Evidence::new("kvwire 0.1.0");
        evidence.add("/t", Entry::Text("a\n b\n\nE\n".into()));
        evidence.add("/empty", Entry::Text(String::new()));
        evidence.add("/d", Entry::Names(vec!["x".into(), "y z".into()]));
        evidence.add("/l", Entry::Link("net:[4026531840]".into()));
        evidence.add("/r", Entry::Real("/sys/devices".into()));
        evidence.add("/n", Entry::Node(Access { character: true, read: true, write: false }));
        evidence.add("/x", Entry::Bytes((0..=255).collect()));
        evidence.add("/m", Entry::Missing);
        evidence.add("/p", Entry::Denied);
        evidence
    }

    #[test]
    fn every_kind_of_entry_survives_the_way() {
        let evidence = one_of_each();
        assert_eq!(Evidence::from_capture(&evidence.to_capture()), Ok(evidence));
    }

    #[test]
    fn several_captures_in_one_text_are_told_apart() {
        let (one, mut other) = (one_of_each(), one_of_each());
        other.add("/t", Entry::Text("kvwire.capture/1 is no header here\n".into()));
        let text = one.to_capture() + &other.to_capture();
        assert_eq!(Evidence::all_from_captures(&text), Ok(vec![one, other]));
        assert_eq!(Evidence::all_from_captures("x"), Err(CaptureError::NotACapture));
        assert_eq!(Evidence::all_from_captures(&text[..text.len() - 2]), Err(CaptureError::CutShort));
    }

    #[test]
    fn words_of_a_login_shell_in_front_do_no_harm() {
        let text = format!("Welcome!\n{}", one_of_each().to_capture());
        assert_eq!(Evidence::from_capture(&text), Ok(one_of_each()));
    }

    #[test]
    fn what_is_no_whole_capture_says_so() {
        let text = one_of_each().to_capture();
        for end in (0..text.len() - 1).filter(|end| text.is_char_boundary(*end)) {
            assert!(Evidence::from_capture(&text[..end]).is_err(), "cut at {end}");
        }
        assert_eq!(Evidence::from_capture("{}"), Err(CaptureError::NotACapture));
        let other = text.replacen("capture/1", "capture/2", 1);
        assert_eq!(Evidence::from_capture(&other), Err(CaptureError::OtherMajor("2".into())));
    }
}
