//! Effects of a network on an application.
//!
//! [`page`] has the dependency graph of a page load, and replays it under changed conditions.
//! [`player`] plays a [`film`] in segments of several bitrates, as decided by a rule of [`abr`];
//! [`simulate`] runs it over a trace in virtual time.

pub mod abr;
pub mod film;
pub mod page;
pub mod player;
pub mod simulate;
