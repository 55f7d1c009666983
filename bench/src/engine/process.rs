//! The engine process from its first line to its last.

use super::desk::Desk;
use super::library::{inspect, load, warn_of_gpu_memory};
use super::protocol::{Command, EngineError, ErrorKind, Event};
use super::seating;
use super::session;
use super::trial::try_out;

/// Runs the engine until its supervisor lets it go. Never returns to the caller's destructors.
pub(crate) fn main() -> ! {
    // A supervisor that is killed takes its engine with it, even while the engine is stuck in a library call.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    match Desk::open() {
        Ok(mut desk) => serve(&mut desk),
        // The hidden command was typed by hand: there is nobody to tell but the terminal.
        Err(_) => leave(2),
    }
    leave(0)
}

fn serve(desk: &mut Desk) {
    while let Some(command) = desk.first() {
        let result = match command {
            Command::Inspect { nixl_lib } => {
                inspect(nixl_lib.as_deref()).map(|found| desk.answer(&Event::Inspected(Box::new(found))))
            }
            Command::TryOut { nixl_lib } => {
                try_out(nixl_lib.as_deref()).map(|trial| desk.answer(&Event::Tried(Box::new(trial))))
            }
            Command::LookForGpus => seating::gpus().map(|gpus| desk.answer(&Event::Gpus(gpus))),
            Command::Open { agent, nixl_lib, polls, rank, plan, seat } => {
                // Before NIXL is loaded: the threads that it starts inherit the cores.
                let cpus = seating::pin(&seat);
                load(nixl_lib.as_deref()).and_then(|loaded| {
                    if seat.gpu.is_some() {
                        warn_of_gpu_memory(&loaded);
                    }
                    session::serve(
                        desk,
                        &loaded,
                        session::Opening { name: agent, polls, rank, plan, seat, cpus },
                    )
                })
            }
            _ => Err(EngineError {
                kind: ErrorKind::Protocol,
                message: "the first command must open the engine".to_owned(),
            }),
        };
        if let Err(error) = result {
            desk.answer(&Event::Failed(error));
        }
    }
}

/// Ends the process at once: no destructor of NIXL or UCX runs, since some installations crash in theirs and
/// would turn a good run into a failure. Everything said has been written by then.
pub(crate) fn leave(code: i32) -> ! {
    nixl::exit_without_destructors(code)
}
