//! What TLS shows before anything is secret, and after (RFC 8446, RFC 5246, RFC 6066, RFC 7301).
//!
//! [`client_hello`] reads the server's name and the protocols from the first bytes of a client, as
//! soon as they are there. A [`Session`] follows a connection from its pieces: what is [offered](Offer)
//! and [chosen](Choice), when the handshake is over, and what can be inferred from sizes, times and
//! directions of what nobody can read then.

mod choice;
mod fields;
pub(crate) mod hello;
mod ja4;
mod offer;
mod reader;
mod record;
mod session;
#[cfg(test)]
mod tests;

pub use choice::Choice;
pub use offer::{Offer, VERSION_LIMIT, Version, is_grease};
pub use session::{ALERT_LIMIT, Alert, Session, TRIES, Times};

use crate::{HostName, LIMIT, Peek};
use hello::Stop;

/// The most protocols that are taken from one hello.
pub const PROTOCOL_LIMIT: usize = 16;

/// What a handshake is carried by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Records over TCP.
    Tcp,
    /// QUIC.
    Quic,
}

/// What a client's first message says. A client that encrypts its hello (ECH) shows the name of the
/// server that can decrypt it, which stands for many; that is what is read here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientHello {
    /// The server's name (SNI). None when the client gives none, as when it only knows an address,
    /// or when what it gives is no name.
    pub server_name: Option<HostName>,
    /// The protocols that the client would speak inside (ALPN), the one it likes best first, as
    /// they are on the wire: `h2`, `http/1.1`. Some may be made up (GREASE, RFC 8701); none after
    /// the first [`PROTOCOL_LIMIT`].
    pub protocols: Vec<Vec<u8>>,
}

/// Reads the first bytes of a client's TCP stream. The hello may be spread over any number of
/// records, and what follows it is not looked at. [`Peek::No`] after [`LIMIT`] bytes at the latest.
pub fn client_hello(bytes: &[u8]) -> Peek<ClientHello> {
    let bytes = &bytes[..bytes.len().min(LIMIT)];
    let records = record::join(bytes);
    match hello::read(&records.message) {
        Ok(hello) => Peek::Complete(hello),
        Err(Stop::Broken) => Peek::No,
        Err(Stop::Short { .. }) if records.broken => Peek::No,
        Err(Stop::Short { whole }) => {
            let missing = records.header_missing + (whole - records.message.len());
            Peek::more_within_limit(bytes.len() + missing)
        }
    }
}
