//! What kvwire judges without moving a byte: findings, manifests, and what one node says about itself.
#![deny(unsafe_code)]

pub mod env;
mod finding;
pub mod node;
pub mod nvml;
mod route;

pub use finding::{Finding, SourceSpan, Status};
pub use node::{Fabric, Namespaces, NixlIdentity, Node};
pub use route::Route;
