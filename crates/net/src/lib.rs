//! placeholder

pub mod resolve;
