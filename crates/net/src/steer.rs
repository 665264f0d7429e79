//! The network for each transfer: the I/O for the decisions of [`manyways_model::select`]. [`source`] and
//! [`probing`] read the indicators of networks, [`state`] stores sizes and preferences, and [`train`]
//! makes models of completion times.

pub mod probing;
pub mod source;
pub mod state;
pub mod train;
