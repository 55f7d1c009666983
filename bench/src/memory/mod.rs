//! What is moved: pools of host or GPU memory, and the pattern that proves what arrived.

mod gpu_pool;
pub(crate) mod pattern;
mod pool;
mod seat;
mod wish;

pub(crate) use gpu_pool::GpuPool;
pub(crate) use pool::{Pool, PoolError};
pub(crate) use seat::{GpuSeat, Seat, UCX_NET_DEVICES, chosen, first_of_target};
pub(crate) use wish::{AllocKind, MemoryKind, MemoryWish, Nics, Numa};
