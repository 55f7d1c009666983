//! How near each path came to what it can carry.

use super::text::push_wrapped;
use crate::proof::paths;
use crate::report::model::CaseResult;

/// A line for each path of which a limit is known; nothing without one.
pub(super) fn push_limits(out: &mut String, cases: &[CaseResult], width: usize) {
    let paths = paths(cases);
    if !paths.is_empty() {
        out.push('\n');
    }
    for path in &paths {
        push_wrapped(out, &path.to_string(), 0, width);
    }
}
