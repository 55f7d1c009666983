//! One model of a result, and its renderings. Nothing here measures or judges.

pub(crate) mod json;
pub(crate) mod model;
pub(crate) mod read;
pub(crate) mod table;
