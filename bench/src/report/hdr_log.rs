//! All latencies as an HdrHistogram interval log, which HdrHistogram's own tools read: one line for each case and
//! part of its time, in ns.

use std::time::Duration;

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use super::read::Stored;

/// The log of all results.
///
/// # Errors
/// A histogram of a result cannot be read; in words.
pub(super) fn render(results: &[Stored]) -> Result<String, String> {
    let mut bytes = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder.add_comment(
        "kvwire: values in ns; a tag is run/case/part; an interval is the timed loop of its case",
    );
    if let Some(start) =
        results.first().and_then(|one| humantime::parse_rfc3339(&one.result.run.started_at).ok())
    {
        builder.with_start_time(start);
    }
    let mut log = builder.begin_log_with(&mut bytes, &mut serializer).map_err(|e| e.to_string())?;
    for result in results.iter().map(|stored| &stored.result) {
        let mut begin = Duration::ZERO;
        for case in &result.cases {
            let took = Duration::from_nanos(case.wall_ns);
            let parts =
                [("total", &case.total), ("prep", &case.prep), ("post", &case.post), ("wire", &case.wire)];
            for (part, distribution) in parts {
                let Some(distribution) = distribution else { continue };
                let histogram = distribution.decode().map_err(|e| format!("{}: {e}", case.name))?;
                let tag = tag(&format!("{}/{}/{part}", result.run.id, case.name));
                let tag = Tag::new(&tag).ok_or("a tag of an HdrHistogram log cannot be made")?;
                log.write_histogram(&histogram, begin, took, Some(tag)).map_err(|e| format!("{e:?}"))?;
            }
            begin += took;
        }
    }
    String::from_utf8(bytes).map_err(|e| e.to_string())
}

/// Readers split at commas and blanks.
fn tag(text: &str) -> String {
    text.chars().map(|c| if c.is_whitespace() || c == ',' { '_' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::super::model::example;
    use super::*;

    #[test]
    fn the_log_holds_every_part_of_every_case() {
        let path = std::path::PathBuf::from("r.json");
        let text = render(&[Stored { path, result: example::passed() }]).unwrap();
        let entries: Vec<_> = IntervalLogIterator::new(text.as_bytes()).map(Result::unwrap).collect();
        let tags: Vec<&str> = entries
            .iter()
            .filter_map(|entry| match entry {
                LogEntry::Interval(interval) => interval.tag().map(|tag| tag.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(tags.len(), 4 * 3, "{text}");
        assert_eq!(tags[0], "quiet-otter-41/WRITE_4_KiB_x1/total");
    }
}
