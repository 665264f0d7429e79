//! The shells: they pump the pure cores over real sockets and devices, and decide nothing.
//!
//! [`fetch`] moves the bytes of `manyways get` as `manyways-proto` decides; [`lab`] relays packets
//! through `manyways-link`; [`resolve`] asks the name servers of one path. Start with
//! [`lab::Lab`] for the emulator and with [`fetch`] for downloads.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

#[cfg(feature = "fetch")]
mod base64;
#[cfg(feature = "bond")]
pub mod bond;
#[cfg(feature = "fetch")]
pub mod fetch;
#[cfg(feature = "radio")]
pub mod radio;
pub mod resolve;
