//! Tests of the static check.
