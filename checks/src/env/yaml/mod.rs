//! YAML as a tree with positions, whatever its shape: anchors, merge keys and several documents resolved, all
//! within limits.

mod compose;
mod node;

pub use compose::{Limits, Problem, ProblemKind, compose};
pub use node::{Kind, Node, Scalar, Span, Value};
