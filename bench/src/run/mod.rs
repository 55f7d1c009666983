//! The supervisors: two roles that join a rendezvous, hold an engine each, and end with one verdict.

mod done;
mod finish;
mod hosts;
mod initiator;
mod join;
mod marks;
mod message;
mod nodes;
mod pair;
mod reader;
mod record;
mod rendezvous;
mod scope;
mod seats;
mod stop;
mod supervisor;
mod target;
mod witness;

pub(crate) use hosts::{by_index, initiator, target};
pub(crate) use pair::pair;
