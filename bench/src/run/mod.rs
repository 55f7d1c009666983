//! The supervisors: two roles that join a rendezvous, hold an engine each, and end with one verdict.

mod initiator;
mod message;
mod pair;
mod record;
mod stop;
mod supervisor;
mod target;

pub(crate) use pair::pair;
