//! Data for `manyways steer`: how long transfers take over each choice of networks, beside the
//! indicators that were known before.

mod data;

pub use self::data::{DataArgs, write_data};
