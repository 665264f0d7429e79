//! What manyways writes down: the event log and tables.
//!
//! [`event`] has the envelope of a log and its events, [`table`] rows and columns that document
//! themselves. The crate opens no file: its parsers take bytes.
#![forbid(unsafe_code)]

pub mod event;
pub mod table;
