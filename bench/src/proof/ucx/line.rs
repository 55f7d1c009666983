//! One line of a UCX log without its prefix.

/// A line taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// `host:pid:thread`, to keep the lines of threads apart. Empty where there is no prefix.
    pub(crate) origin: &'a str,
    /// `WARN`, `ERROR` and so on; `None` for table rows, which carry no level.
    pub(crate) level: Option<&'a str>,
    /// The rest.
    pub(crate) text: &'a str,
}

const LEVELS: [&str; 7] = ["FATAL", "ERROR", "WARN", "DIAG", "INFO", "DEBUG", "TRACE"];

impl<'a> Line<'a> {
    /// Takes a line of UCX apart: `[seconds] [host:pid  :thread]  file.c:line  UCX  LEVEL text`.
    pub(crate) fn parse(line: &'a str) -> Self {
        let line = line.trim_end();
        let Some((origin, rest)) = prefix(line) else {
            return Self { origin: "", level: None, text: line.trim_start() };
        };
        let marked = rest.split_once(" UCX ").and_then(|(_, after)| {
            let after = after.trim_start();
            let level = LEVELS.into_iter().find(|level| after.starts_with(level))?;
            Some((level, after.get(level.len()..)?.trim_start()))
        });
        match marked {
            Some((level, text)) => Self { origin, level: Some(level), text },
            None => Self { origin, level: None, text: rest.trim_start() },
        }
    }
}

fn prefix(line: &str) -> Option<(&str, &str)> {
    let (time, rest) = line.strip_prefix('[')?.split_once("] [")?;
    if !time.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return None;
    }
    rest.split_once(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_an_origin_a_level_and_a_text() {
        let line = Line::parse(
            "[1796031905.991780] [vm:707  :0]     ucp_context.c:1433 UCX  WARN  transport 'rc' is not available",
        );
        assert_eq!(line.origin, "vm:707  :0");
        assert_eq!(line.level, Some("WARN"));
        assert_eq!(line.text, "transport 'rc' is not available");
    }

    #[test]
    fn a_table_row_has_no_level_and_other_text_no_origin() {
        let row = Line::parse("[1.2] [vm:1:0]   | 0..inf | zero-copy | tcp/lo |");
        assert_eq!((row.level, row.text), (None, "| 0..inf | zero-copy | tcp/lo |"));
        assert_eq!(Line::parse("put ok").origin, "");
        assert_eq!(Line::parse("[not a time] [x] y").origin, "");
        assert_eq!(Line::parse("").text, "");
    }
}
