//! The rendezvous that kvwire brings along: the target listens, the initiator dials.
//!
//! Frames of [`frame`] carry the messages of [`message`]; [`handshake`] lets each side prove that
//! it knows the token; [`server`] serves a [`Hub`](crate::hub::Hub), [`client`] keeps a lease on it.

mod client;
#[cfg(test)]
mod damage;
mod dial;
mod frame;
mod handshake;
mod link;
mod message;
mod server;

pub use client::TcpStore;
pub use server::{BindError, ServerOptions, TcpServer};
