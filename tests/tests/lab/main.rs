//! `manyways lab` as a user meets it: real kernel stacks, real servers, and nothing left behind.
//!
//! Nothing here is timed. A test waits for something to happen, with a deadline that only a hang
//! reaches.

mod change;
mod device;
mod ends;
mod mptcp;
mod nat;
mod odd_links;
mod radio;
mod records;
mod refusals;
mod running;
mod scenarios;
mod terminal;
mod users;
