//! A result in a log: one line of JSON behind a marker, so that it comes out of a container without a file.

use std::path::Path;

use super::model::ResultFile;
use super::read::{ReadError, parse};

/// What stands before the JSON. At the beginning of a line nothing else in kvwire's output looks like it.
const MARKER: &str = "kvwire-result: ";

/// The line that holds a result, ended.
///
/// # Errors
/// The result holds something that JSON cannot say.
pub(crate) fn line(result: &ResultFile) -> serde_json::Result<String> {
    // Compact JSON has no line breaks.
    serde_json::to_string(result).map(|json| format!("{MARKER}{json}\n"))
}

/// The JSON of a line that holds a result.
pub(crate) fn json_of(line: &str) -> Option<&str> {
    line.trim_end().strip_prefix(MARKER)
}

/// The result in a line's JSON. `name` says in an error where it stood.
///
/// # Errors
/// [`ReadError`]: it was cut off, or another version of kvwire wrote it.
pub(crate) fn read(json: &str, name: &str) -> Result<ResultFile, ReadError> {
    parse(Path::new(name), json.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::example;

    #[test]
    fn a_result_survives_its_line_of_a_log() {
        let result = example::passed();
        let line = line(&result).unwrap();
        assert_eq!(line.matches('\n').count(), 1);
        let again = read(json_of(&line).unwrap(), "log").unwrap();
        assert_eq!(serde_json::to_value(&again).unwrap(), serde_json::to_value(&result).unwrap());
        assert!(json_of("TRUSTED  all 30 cases").is_none());
        let cut = &line[..line.len() / 2];
        assert!(
            read(json_of(cut).unwrap(), "the log of kvwire-1").unwrap_err().to_string().contains("cut off")
        );
    }
}
