//! Decision cores and estimators over measurements.
//!
//! [`probe`] predicts the cost of measurements of a network and evaluates them. [`radio`] computes
//! the energy of a device's radio for a packet trace, and the energy that a policy could save.
//! [`select`] chooses the network for a transfer. [`matching`] finds the recorded exchange that answers
//! a request. [`drive`] issues the exchanges of a recording again. [`qoe`] plays films and replays page loads.
//!
//! The crate is pure: events and their times are arguments, decisions and estimates are return
//! values. The crate does not open files, read clocks or access modems.
#![forbid(unsafe_code)]

pub mod drive;
pub mod matching;
mod normal;
pub mod probe;
pub mod qoe;
pub mod radio;
pub mod select;
mod slow_start;
