//! Effects of a network on an application.
//!
//! [`page`] has the dependency graph of a page load, and replays it under changed conditions.

pub mod page;
