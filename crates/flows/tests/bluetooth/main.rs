//! What a host reads of a capture beside what is true of it: a generator makes up the capture of a
//! phone that talks to a watch, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod generator;
mod partial;
mod session;
mod world;
