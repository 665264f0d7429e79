//! A server that answers HTTP requests from a recording, and never from the network.
//!
//! [`Contents`] opens a recording. A [`Responder`] finds the recorded exchange for a request, and adapts
//! its response to the request and to the time; it has no sockets. A [`Server`] reads requests of HTTP/1
//! and HTTP/2, with TLS and without, sends the responses after their think times, and logs them as
//! [`Served`].
//!
//! - **Identical**: status, reason, version, fields with their order and case, interim responses, encoded
//!   body, trailers, framing, and the end of the connection of HTTP/1. [`CHANGED_FIELDS`] lists the
//!   fields that differ. If the client speaks another protocol than the recorded one, the framing is
//!   that of its protocol.
//! - **Early ends**: where the recorded server broke off, the server does after the same bytes. A response
//!   without an announced length that the client or the recorder ended goes on without further bytes until
//!   the client ends it.
//! - **Not reproduced**: boundaries of chunks and frames, times at which parts of a body arrived, settings
//!   of HTTP/2, and the order of fields of one name among others in HTTP/2.

mod alarm;
mod contents;
mod dates;
pub mod driver;
mod head;
mod hollow;
mod http1;
mod http2;
mod layout;
mod listen;
mod log;
mod responder;
#[cfg(test)]
mod sample;
mod server;
mod service;
mod tls;

pub use self::contents::{Contents, End, MAX_CACHED, MAX_WHOLE, OpenError, Pieces};
pub use self::head::{CHANGED_FIELDS, Head, HeadField};
pub use self::http1::{MAX_FIELDS, MAX_HEAD, MAX_IDLE};
pub use self::http2::MAX_STREAMS;
pub use self::layout::{Layout, LayoutHost};
pub use self::listen::listen;
pub use self::log::{MAX_SERVED, Served};
pub use self::responder::{
    Content, MISS_FIELD, Miss, Options, Outcome, Reply, Responder, Response, Think,
};
pub use self::server::{MAX_CONNECTIONS, Server};
pub use self::tls::{Certificates, MAX_HANDSHAKE, MAX_OTHER_NAMES};

/// Bytes of a request's body that are compared; further ones are read and dropped. Both requests are cut
/// there.
pub const MAX_MATCHED_BODY: usize = 2 << 20;
