//! The plain data that all of manyways shares: units, link traces, scenarios and the event log.
//!
//! This crate knows no socket, no file and no clock: its parsers take bytes and its times are
//! numbers. Start with [`Time`] and [`LinkTrace`]; a whole experiment is a [`scenario::Scenario`].
#![forbid(unsafe_code)]

pub mod event;
pub mod human;
pub mod link_text;
pub mod link_trace;
pub mod nearest;
mod random;
pub mod scenario;
pub mod table;
pub mod trace_file;
pub mod unit;

pub use link_trace::{InvalidTrace, LinkTrace, Steps};
pub use random::Random;
pub use unit::{Rate, Size, Span, Time};
