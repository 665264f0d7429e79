//! Link traces and scenarios as plain data, and the parsers of their text formats.
//!
//! Parsers take bytes and open no files. Start with [`LinkTrace`]; a whole experiment is a
//! [`scenario::Scenario`]. Links, schedulers and workloads are strings there, which their owners
//! resolve.
#![forbid(unsafe_code)]

pub mod link_text;
pub mod link_trace;
pub mod scenario;
pub mod signal;
pub mod trace_file;

pub use link_trace::{InvalidTrace, LinkTrace, Steps};
