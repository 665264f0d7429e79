//! Compares the analysis at a capture point with true values: real TCP in virtual time, over two
//! links with the capture point between them.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod limits;
#[path = "../../../link/tests/tcp/link.rs"]
mod link;
mod simulation;
mod stream;
