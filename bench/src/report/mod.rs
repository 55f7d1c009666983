//! One model of a result, and its renderings. Nothing here measures or judges.

pub(crate) mod json;
pub(crate) mod model;
#[cfg_attr(not(test), expect(dead_code, reason = "for commands that compare stored results"))]
pub(crate) mod read;
pub(crate) mod table;
