//! What kvwire judges without moving a byte: findings, and what one node says about itself.
#![deny(unsafe_code)]

mod finding;
pub mod node;
mod route;

pub use finding::{Finding, Status};
pub use node::{Fabric, Namespaces, NixlIdentity, Node};
pub use route::Route;
