//! The tokio shells: they pump the pure cores over real sockets.
//!
//! [`fetch`] moves the bytes of `manyways get` as `manyways-proto` decides, [`bond`] has the two ends
//! of the tunnel, [`radio`] runs policies on traces and on a live interface, and [`resolve`] asks the
//! name servers of one path. Each is a cargo feature, but for `resolve`.
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
