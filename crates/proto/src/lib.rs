//! Every multipath decision, as pure cores under virtual time.
//!
//! A core takes the time as an argument and never reads a clock, opens a socket, spawns a task or
//! sleeps: `handle(now, input)`, `poll(now) -> Option<Output>`, `next_wakeup() -> Option<Time>`.
//! It names no library's types; a shell in `manyways-net` moves the bytes.
//!
//! Start with [`fetch::Fetch`], which spreads the download of one object over several paths, and
//! [`estimate::Throughput`], which estimates the rate of a path. [`policy::Engine`] decides the
//! treatment of each application's flows.
#![forbid(unsafe_code)]

pub mod bond;
pub mod estimate;
pub mod fetch;
pub mod happy_eyeballs;
pub mod mux;
pub mod policy;
pub mod ranges;
pub mod relay;
pub mod resolve;
pub mod sched;
