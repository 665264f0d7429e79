//! Tokio shells that run the cores over real sockets.
//!
//! [`fetch`] downloads as `manyways-proto` decides, [`bond`] contains the client and the gateway of
//! the tunnel, [`radio`] runs policies on traces and on a live interface, and [`resolve`] queries
//! the name servers of one path. Each module except `resolve` is a cargo feature.
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
