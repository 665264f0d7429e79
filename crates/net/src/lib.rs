//! Tokio shells that run the cores over real sockets.
//!
//! [`fetch`] downloads as `manyways-proto` decides, [`bond`] contains the client and the gateway of
//! the tunnel, [`radio`] runs policies on traces and on a live interface, [`probe`] measures
//! networks, and [`steer`] has what selects the network for a transfer. [`replay`] answers HTTP
//! requests from a recording. [`browser`] drives a Chromium. Each of these modules is a cargo feature. [`path`] connects over one
//! network, [`resolve`] queries the name servers of one network, and [`control`] has the control
//! sockets of running processes.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

#[cfg(feature = "record")]
pub mod authority;
#[cfg(any(feature = "fetch", feature = "bond", feature = "record"))]
mod base64;
#[cfg(feature = "bond")]
pub mod bond;
#[cfg(feature = "browser")]
pub mod browser;
#[cfg(any(feature = "bond", feature = "steer"))]
pub mod control;
#[cfg(feature = "fetch")]
pub mod fetch;
#[cfg(any(feature = "bond", feature = "steer"))]
mod host_watch;
#[cfg(any(
    feature = "fetch",
    feature = "bond",
    feature = "browser",
    feature = "probe",
    feature = "record"
))]
pub mod path;
#[cfg(feature = "probe")]
pub mod probe;
#[cfg(feature = "radio")]
pub mod radio;
#[cfg(feature = "record")]
pub mod record;
#[cfg(feature = "replay")]
pub mod replay;
pub mod resolve;
#[cfg(any(feature = "bond", feature = "record"))]
pub mod state;
#[cfg(feature = "steer")]
pub mod steer;
