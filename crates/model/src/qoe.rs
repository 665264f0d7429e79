//! What a network does to an application.
//!
//! [`page`] has the dependency graph of a page load, and replays it under changed conditions.

pub mod page;
