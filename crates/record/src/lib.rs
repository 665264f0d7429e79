//! Formats of recorded data: JSON documents, the event log and tables.
//!
//! [`mod@document`] defines the envelope of JSON documents, [`event`] that of a log and its events,
//! [`table`] defines rows and columns with their documentation. The crate opens no files: its
//! parsers take bytes.
#![forbid(unsafe_code)]

pub mod document;
pub mod event;
pub mod table;
