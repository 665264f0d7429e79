//! A server that answers HTTP requests from a recording, and never from the network.
//!
//! [`Contents`] opens a recording, and [`Responder`] finds the recorded exchange for a request.

mod contents;
mod dates;
mod head;
mod hollow;
mod responder;
#[cfg(test)]
mod sample;

pub use self::contents::{Contents, End, MAX_CACHED, MAX_WHOLE, OpenError, Pieces};
pub use self::head::{CHANGED_FIELDS, Head, HeadField};
pub use self::responder::{
    Content, MISS_FIELD, Miss, Options, Outcome, Reply, Responder, Response, Think,
};

/// Bytes of a request's body that are compared; further ones are read and dropped. Both requests are cut
/// there.
pub const MAX_MATCHED_BODY: usize = 2 << 20;
