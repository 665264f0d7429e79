//! The recorded exchange that answers a request of a replayed client.

pub mod mutations;
mod request;

pub use self::request::{Recorded, Request};
