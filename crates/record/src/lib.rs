//! Formats of recorded data: the event log and tables.
//!
//! [`event`] defines the envelope of a log and its events, [`table`] defines rows and columns with
//! their documentation. The crate opens no files: its parsers take bytes.
#![forbid(unsafe_code)]

pub mod event;
pub mod table;
