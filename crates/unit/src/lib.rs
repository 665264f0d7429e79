//! Units, seeded randomness, and the parsing and printing of values, for all crates.
//!
//! [`Time`], [`Span`], [`Rate`] and [`Size`] carry their unit in the type. [`human`] parses and
//! prints them. [`toml`] reads hand-written TOML and keeps the position of every value. [`reference`](mod@reference)
//! resolves relative URLs. [`Random`] is the generator of every seeded run. The crate opens no files,
//! reads no clock and contains nothing about links, packets or tables.
#![forbid(unsafe_code)]

pub mod human;
pub mod log_buckets;
mod lru_map;
pub mod nearest;
mod prefix;
pub mod quantile;
mod random;
pub mod reference;
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
