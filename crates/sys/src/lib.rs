//! placeholder

pub mod interface;
