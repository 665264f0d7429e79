//! Link traces and scenarios as plain data, and the parsers of the texts they are written in.
//!
//! Parsers take bytes and open nothing. Start with [`LinkTrace`]; a whole experiment is a
//! [`scenario::Scenario`], in which links, schedulers and workloads are named by strings that their
//! owners resolve.
#![forbid(unsafe_code)]

pub mod link_text;
pub mod link_trace;
pub mod scenario;
pub mod trace_file;

pub use link_trace::{InvalidTrace, LinkTrace, Steps};
