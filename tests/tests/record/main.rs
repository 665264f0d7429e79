//! `manyways record` as a user sees it: real clients and servers, and a lab between them for the
//! internet.

mod archives;
mod faults;
mod internet;
mod odd_origins;
mod recorded;
