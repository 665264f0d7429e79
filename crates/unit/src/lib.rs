//! The vocabulary of all crates: units, randomness, and text that people write and read.
//!
//! [`Time`], [`Span`], [`Rate`] and [`Size`] carry their unit in the type, [`human`] parses and
//! prints them, [`toml`] reads hand-written TOML with the place of every value, and [`Random`] is
//! the one generator that every seeded run uses. The crate opens no file, asks no clock and knows
//! no link, packet or table.
#![forbid(unsafe_code)]

pub mod human;
pub mod log_buckets;
mod lru_map;
pub mod nearest;
mod prefix;
pub mod quantile;
mod random;
mod samples;
mod thin_vec;
pub mod toml;
mod unit;

pub use lru_map::LruMap;
pub use prefix::{Prefix, PrefixError, PrefixMap};
pub use random::Random;
pub use samples::Samples;
pub use thin_vec::ThinVec;
pub use unit::{Rate, Size, Span, Time};
