//! The network for each transfer: what [`manyways_model::select`] decides with. [`source`] reads the
//! indicators of networks, and [`train`] makes models of completion times.

pub mod source;
pub mod train;
