//! `manyways bond` under a policy: what goes over which network, and what is told of it.
//!
//! Nothing here is timed. A test waits for something to happen, with a deadline that only a hang
//! reaches.

mod following;
mod holding;
mod telling;
mod world;
