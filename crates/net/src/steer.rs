//! The network for each transfer: the I/O for the decisions of [`manyways_model::select`]. [`source`] and
//! [`probing`] read the indicators of networks, [`state`] stores sizes and preferences, [`daemon`] chooses
//! networks while it runs, [`advice`] asks it for a download, [`train`] makes models of completion times, and [`simulate`] compares rules on
//! tables of transfers.

pub mod advice;
pub mod daemon;
pub mod document;
pub mod event;
pub mod input;
pub mod probing;
pub mod protocol;
pub mod simulate;
pub mod source;
pub mod state;
pub mod train;
