//! The network for each transfer: what [`manyways_model::select`] decides with. [`source`] reads the
//! indicators of networks, [`state`] stores sizes and preferences, and [`train`] makes models of completion times.

pub mod source;
pub mod state;
pub mod train;
