//! Manifests broken at random, in the ways in which files break and in which people would break them. What holds for all
//! of them: the check ends, its report can be written, its places exist, and no credential is in it.
//!
//! `PROPTEST_CASES` says how many are tried.

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;

use super::super::{Options, Report, check};
use super::{both, fixture};

/// A credential that every manifest here holds.
const TOKEN: &str = "hf_abcdefghijklmnopqrstuvwx";
/// Bytes of a manifest, at most.
const SIZE_MAX: usize = 64 << 10;

/// Words with a meaning to YAML, Kubernetes, a shell or UCX.
const WORDS: &[&str] = &[
    "&a ",
    "*a",
    "<<: *a",
    "<<: [*a, *b]",
    "!!binary |",
    "!!str ",
    "? ",
    "- ",
    "---\n",
    "...\n",
    "|-\n",
    ">+\n",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "'",
    "#",
    ": ",
    "~",
    "null",
    "0x1F",
    "1e999",
    ".inf",
    "{{ .Values.x }}",
    "{{- if }}",
    "$(UCX_TLS)",
    "$(X)$(X)",
    "${X:-$(y)}",
    "`",
    "^",
    "^^all,",
    "all,",
    ",,",
    "\t",
    "\r\n",
    "\u{feff}",
    "\u{0}",
    "\u{85}",
    "\u{2028}",
    "é",
    "\u{1f980}",
    "$patch: delete\n",
    "valueFrom: {}\n",
    "kind: List\nitems: [",
    "kind: Secret\ndata: {a: ",
    "env: *e",
    "name: UCX_TLS\n",
    "value: true\n",
    "# kvwire: ignore=,,\n",
    "ulimit -l && ",
    "export A=$(B) && ",
    "<<EOF\n",
    "4294967296",
    "-1",
    "99999999999999999999",
];

/// One way to break a text.
#[derive(Debug, Clone)]
enum Break {
    /// Lines of another manifest, put in here.
    Splice { at: usize, from: usize, first: usize, lines: usize },
    /// The rest is gone.
    Truncate { at: usize },
    /// A bit of a byte is the other way round.
    Flip { at: usize, bit: u8 },
    /// Lines stand twice: keys too.
    Repeat { at: usize, lines: usize, times: usize },
    /// A line is deeper or less deep.
    Indent { at: usize, lines: usize, by: usize },
    /// A line is gone, or is moved.
    Move { at: usize, to: usize },
    /// A word that means something.
    Insert { at: usize, word: usize },
    /// The value of a key is another.
    Value { at: usize, word: usize },
    /// A collection inside itself, level upon level.
    Nest { at: usize, levels: usize, flow: bool },
    /// An anchor on one line, and aliases of it on others.
    Alias { at: usize, to: usize, times: usize },
}

fn breaks() -> impl Strategy<Value = Break> {
    let place = 0_usize..4_000;
    prop_oneof![
        (place.clone(), 0_usize..64, 0_usize..300, 1_usize..60)
            .prop_map(|(at, from, first, lines)| Break::Splice { at, from, first, lines }),
        place.clone().prop_map(|at| Break::Truncate { at }),
        (0_usize..SIZE_MAX, 0_u8..8).prop_map(|(at, bit)| Break::Flip { at, bit }),
        (place.clone(), 1_usize..30, 1_usize..40).prop_map(|(at, lines, times)| Break::Repeat {
            at,
            lines,
            times
        }),
        (place.clone(), 1_usize..20, 0_usize..12).prop_map(|(at, lines, by)| Break::Indent { at, lines, by }),
        (place.clone(), place.clone()).prop_map(|(at, to)| Break::Move { at, to }),
        (0_usize..SIZE_MAX, 0..WORDS.len()).prop_map(|(at, word)| Break::Insert { at, word }),
        (place.clone(), 0..WORDS.len()).prop_map(|(at, word)| Break::Value { at, word }),
        (place.clone(), 1_usize..200, any::<bool>()).prop_map(|(at, levels, flow)| Break::Nest {
            at,
            levels,
            flow
        }),
        (place.clone(), place, 1_usize..30).prop_map(|(at, to, times)| Break::Alias { at, to, times }),
    ]
}

/// Manifests to begin with: all files of the fixtures, and one whose both sides are clean.
fn manifests() -> Vec<String> {
    let files = fs::read_dir(fixture("manifests")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|e| e == "yaml")).collect();
    files.sort();
    let mut texts: Vec<String> = files.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    texts.push(both(&[("UCX_TLS", "rc,cuda_copy"), ("HF_TOKEN", TOKEN), ("UCX_NET_DEVICES", "mlx5_0:1")]));
    texts.iter_mut().for_each(|text| {
        text.push_str(&format!("---\nkind: Secret\nmetadata: {{name: s}}\nstringData: {{token: {TOKEN}}}\n"));
    });
    texts
}

fn broken(manifests: &[String], start: usize, breaks: &[Break]) -> Vec<u8> {
    let mut bytes = manifests[start % manifests.len()].clone().into_bytes();
    for one in breaks {
        apply(&mut bytes, one, manifests);
        bytes.truncate(SIZE_MAX);
    }
    bytes
}

fn apply(bytes: &mut Vec<u8>, one: &Break, manifests: &[String]) {
    if bytes.is_empty() {
        return;
    }
    let mut lines: Vec<Vec<u8>> = bytes.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
    let line = |at: usize| at % lines.len();
    match *one {
        Break::Truncate { at } => {
            let length = bytes.len();
            return bytes.truncate(at * 7 % length);
        }
        Break::Flip { at, bit } => {
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            return;
        }
        Break::Insert { at, word } => {
            let at = at % bytes.len();
            bytes.splice(at..at, WORDS[word].bytes());
            return;
        }
        Break::Splice { at, from, first, lines: count } => {
            let other: Vec<&str> = manifests[from % manifests.len()].split_inclusive('\n').collect();
            let first = first % other.len();
            let part = other[first..(first + count).min(other.len())].iter().map(|l| l.as_bytes().to_vec());
            let at = line(at);
            lines.splice(at..at, part);
        }
        Break::Repeat { at, lines: count, times } => {
            let at = line(at);
            let part = lines[at..(at + count).min(lines.len())].to_vec();
            lines.splice(at..at, part.iter().cycle().take(part.len() * times).cloned());
        }
        Break::Indent { at, lines: count, by } => {
            let at = line(at);
            let end = (at + count).min(lines.len());
            for text in &mut lines[at..end] {
                let blanks = text.iter().take_while(|b| **b == b' ').count();
                text.splice(..blanks.min(by), std::iter::repeat_n(b' ', if by % 2 == 0 { by } else { 0 }));
            }
        }
        Break::Move { at, to } => {
            let taken = lines.remove(line(at));
            let to = to % (lines.len() + 1);
            lines.insert(to, taken);
        }
        Break::Value { at, word } => {
            let at = line(at);
            if let Some(colon) = lines[at].iter().position(|b| *b == b':') {
                lines[at].truncate(colon + 1);
                lines[at].push(b' ');
                lines[at].extend(WORDS[word].bytes());
                lines[at].push(b'\n');
            }
        }
        Break::Nest { at, levels, flow } => {
            let nested = if flow {
                format!("x: {}{}\n", "[".repeat(levels), "]".repeat(levels))
            } else {
                (0..levels).map(|level| format!("{}x:\n", " ".repeat(level))).collect()
            };
            let at = line(at);
            lines.insert(at, nested.into_bytes());
        }
        Break::Alias { at, to, times } => {
            let (at, to) = (line(at), line(to));
            if let Some(colon) = lines[at].iter().position(|b| *b == b':') {
                lines[at].splice(colon + 1..colon + 1, b" &a".iter().copied());
            }
            let blanks = lines[to].iter().take_while(|b| **b == b' ').count();
            let aliases: String =
                (0..times).map(|i| format!("{}k{i}: [*a, *a, *a]\n", " ".repeat(blanks))).collect();
            lines.insert(to, aliases.into_bytes());
        }
    }
    *bytes = lines.concat();
}

/// What holds whatever the input was.
fn holds(report: &Report, bytes: &[u8]) -> Result<(), TestCaseError> {
    let json = serde_json::to_string(report).map_err(|e| TestCaseError::fail(e.to_string()))?;
    let shown: String = report.lines.values().map(String::as_str).collect();
    prop_assert!(!json.contains(TOKEN) && !shown.contains(TOKEN), "{json}\n{shown}");
    let lines = bytes.split(|b| *b == b'\n').count() as u32;
    for finding in &report.findings {
        if let Some(source) = &finding.source {
            prop_assert!(
                (1..=lines + 1).contains(&source.line) && source.end_line >= source.line,
                "{source:?} of {lines}"
            );
        }
    }
    Ok(())
}

fn cases() -> ProptestConfig {
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 400;
    }
    config
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn no_broken_manifest_breaks_the_check(start in 0_usize..64, breaks in prop::collection::vec(breaks(), 1..12)) {
        thread_local! {
            static MANIFESTS: Vec<String> = manifests();
        }
        let bytes = MANIFESTS.with(|manifests| broken(manifests, start, &breaks));
        let report = check(&[PathBuf::from("-")], &mut bytes.as_slice(), &Options::default());
        holds(&report, &bytes)?;
    }

    #[test]
    fn no_text_breaks_the_check(text in "[ -~\n\t]{0,400}") {
        let report = check(&[PathBuf::from("-")], &mut text.as_bytes(), &Options::default());
        holds(&report, text.as_bytes())?;
    }

    #[test]
    fn no_value_and_no_script_breaks_the_check(value in "\\PC{0,40}", script in "[a-z $(){}'\"`\\\\;&|=\n<-]{0,120}") {
        let text = both(&[("UCX_TLS", &value), ("UCX_NET_DEVICES", &value), ("UCX_RNDV_THRESH", &value)])
            .replace("command: [python3, -m, dynamo.vllm]", &format!("command: [bash, -c, {script:?}]"));
        let report = check(&[PathBuf::from("-")], &mut text.as_bytes(), &Options::default());
        holds(&report, text.as_bytes())?;
    }
}

#[test]
fn the_breaks_make_what_they_are_named_for() {
    let manifests = manifests();
    let text =
        |one: Break| String::from_utf8_lossy(&broken(&manifests, manifests.len() - 1, &[one])).into_owned();
    let whole = manifests.last().expect("a manifest");
    assert!(text(Break::Truncate { at: 100 }).len() < whole.len());
    assert_eq!(text(Break::Repeat { at: 1, lines: 1, times: 2 }).matches("metadata: {name: g}").count(), 3);
    assert!(text(Break::Nest { at: 3, levels: 90, flow: true }).contains(&"[".repeat(90)));
    assert!(text(Break::Alias { at: 3, to: 4, times: 2 }).contains("k1: [*a, *a, *a]"));
    assert!(text(Break::Splice { at: 3, from: 0, first: 0, lines: 5 }).len() > whole.len());
    let flipped = text(Break::Flip { at: 2, bit: 1 });
    assert_eq!(flipped.bytes().zip(whole.bytes()).filter(|(a, b)| a != b).count(), 1);
}
