//! placeholder
#![forbid(unsafe_code)]

pub mod fetch;
pub mod resolve;
