//! `manyways bond` with a policy: the networks of its traffic, and its reports.
//!
//! No test measures time. A test waits for an event, with a deadline that only a hang reaches.

mod following;
mod holding;
mod telling;
mod world;
