//! `manyways record` and `manyways replay` as a user sees them: real clients and servers, and a lab between them for the
//! internet.

mod archives;
mod faults;
mod internet;
mod odd_origins;
mod recorded;
mod replayed;
