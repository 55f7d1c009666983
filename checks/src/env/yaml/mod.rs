//! YAML as a tree with positions, whatever its shape: anchors, merge keys and several documents resolved, all
//! within limits.

mod compose;
mod node;

pub(super) use compose::{Limits, Problem, ProblemKind, compose};
pub(super) use node::{Kind, Node, Scalar, Span, Value};
