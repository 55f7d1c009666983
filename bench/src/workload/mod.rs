//! Transfers as inference engines make them: how large the KV cache of a model is, how each engine lays it out, and
//! which blocks one transfer moves.
//!
//! A [`Geometry`] says what a model keeps for a token. A [`RankPair`] puts it on the ranks of both sides in the layout of
//! an engine. A [`KvShape`] is what one case moves: blocks of a prompt, scattered over a pool on either side.

mod config;
mod element;
mod geometry;
mod layout;
mod placement;
mod presets;
mod rank;
mod shape;
mod spec;
#[cfg(test)]
mod tests;
mod tokens;

pub(crate) use config::read as read_config;
pub(crate) use element::Element;
pub(crate) use geometry::{Attention, Geometry};
pub(crate) use layout::Layout;
pub(crate) use placement::{Placement, place};
pub(crate) use presets::{find as find_preset, names as preset_names, nearest as nearest_preset};
pub(crate) use rank::{Deployment, RankPair};
pub(crate) use shape::{Claimed, KvPlace, KvShape, Where};
pub(crate) use spec::{KvRequest, Sizing, Workload, memory_of, resolve_model};
pub(crate) use tokens::TokenCount;
