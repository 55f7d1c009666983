//! What kvwire judges without moving a byte: findings, manifests, and what one node says about itself.
#![forbid(unsafe_code)]

pub mod env;
mod finding;
mod node;
mod route;

pub use finding::{Finding, SourceSpan, Status};
pub use node::{Fabric, Namespaces, NixlIdentity, Node};
pub use route::Route;
