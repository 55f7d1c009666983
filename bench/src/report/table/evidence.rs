//! What the class of each case rests on, for `--verbose`.

use std::fmt::Write as _;

use super::super::model::ResultFile;
use super::text::{plain, push_wrapped};

/// Every piece of evidence, case by case, and what was expected. Empty when there is none.
pub(crate) fn evidence(result: &ResultFile, width: usize) -> String {
    let mut out = String::new();
    if let Some(expected) = &result.expectation {
        let class = expected.class.map_or("any wire", crate::proof::Class::name);
        push_wrapped(&mut out, &format!("\nexpected: {class} ({})", expected.why), 0, width);
    }
    for case in &result.cases {
        let Some(transport) = &case.transport else { continue };
        let _ = write!(out, "\n{}: {}", plain(&case.name), crate::proof::wire(transport));
        if let Some(doubt) = &transport.doubt {
            let _ = write!(out, " (doubt: {})", plain(doubt));
        }
        out.push('\n');
        for device in &transport.devices {
            let share = device.share_percent.map_or("not counted".to_owned(), |share| format!("{share} %"));
            let by = device.transport.as_deref().unwrap_or("?");
            let _ = writeln!(out, "  {} {} by {}: {share}", device.side, plain(&device.device), plain(by));
        }
        for evidence in &transport.evidence {
            let _ = writeln!(out, "  {}, {}: {}", evidence.side, evidence.source, plain(&evidence.text));
        }
    }
    out
}
