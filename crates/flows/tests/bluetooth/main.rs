//! Compares the Bluetooth analysis of a capture with the true values: a generator makes the capture
//! of a phone that communicates with a watch, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod generator;
mod harness;
mod partial;
mod session;
