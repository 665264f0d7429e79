//! What manyways writes down: the event log.
//!
//! [`event`] has the envelope and the events. The crate opens no file: its parsers take bytes.
#![forbid(unsafe_code)]

pub mod event;
