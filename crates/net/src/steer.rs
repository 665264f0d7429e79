//! The network for each transfer: what [`manyways_model::select`] decides with. [`train`] makes its
//! models.

pub mod train;
