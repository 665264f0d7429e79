//! The shells: they pump the pure cores over real sockets and devices, and decide nothing.
//!
//! [`fetch`] moves the bytes of `manyways get` as `manyways-proto` decides; [`lab`] relays packets
//! through `manyways-link`; [`resolve`] asks the name servers of one path. Start with
//! [`lab::Lab`] for the emulator and with [`fetch`] for downloads.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod base64;
pub mod bond;
pub mod fetch;
pub mod radio;
pub mod resolve;
