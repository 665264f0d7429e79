//! Effects of a network on an application.
//!
//! [`player`] plays a [`film`] in segments of several bitrates, as decided by a rule of [`abr`];
//! [`simulate`] runs it over a trace in virtual time.

pub mod abr;
pub mod film;
pub mod player;
pub mod simulate;
