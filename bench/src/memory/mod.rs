//! Memory that transfers move: its content, and how it is checked.

pub(crate) mod pattern;
