//! What kvwire judges without moving a byte: findings, and what one node says about itself.
#![forbid(unsafe_code)]

mod finding;
mod node;
mod route;

pub use finding::{Finding, Status};
pub use node::{Fabric, Namespaces, NixlIdentity, Node};
pub use route::Route;
