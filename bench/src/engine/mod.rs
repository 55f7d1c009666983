//! The engine: a child process that alone loads NIXL, owns memory and runs the timed loops.
//!
//! `handle` is the supervisor's side of it; everything else runs in the child.

mod case;
mod copy_speed;
mod desk;
mod handle;
mod library;
mod log;
pub(crate) mod lookout;
mod process;
pub(crate) mod protocol;
mod rounds;
mod seating;
mod seen;
mod session;
mod timed;
mod trial;

pub(crate) use handle::{Engine, EngineFailure, Phase};
pub(crate) use library::places;
pub(crate) use process::main;
pub(crate) use session::ends;
pub(crate) use timed::ns as timed_ns;
