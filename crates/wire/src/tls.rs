//! TLS as visible to an observer: handshakes in clear text, and records afterwards (RFC 8446, RFC
//! 5246, RFC 6066, RFC 7301).
//!
//! [`client_hello`] reads the server name and the protocols from the first bytes of a client, as
//! soon as they are available. A [`Session`] follows both directions of a connection: the client's
//! [offer](Offer), the server's [choice](Choice), the end of the handshake, and exchanges inferred
//! from sizes, times and directions of encrypted records.

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

/// Maximum number of protocols read from a ClientHello.
pub const PROTOCOL_LIMIT: usize = 16;

/// Transport of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// TLS records over TCP.
    Tcp,
    /// CRYPTO frames of QUIC.
    Quic,
}

/// The values of a ClientHello that matter for routing. With Encrypted ClientHello, these are the
/// values of the outer ClientHello, whose name stands for many servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientHello {
    /// Server name (SNI). `None` if missing, for example if the client only has an address, or
    /// invalid.
    pub server_name: Option<HostName>,
    /// Protocols that the client offers (ALPN) in order of preference, as on the wire: `h2`,
    /// `http/1.1`. Some may be GREASE values (RFC 8701). At most the first [`PROTOCOL_LIMIT`].
    pub protocols: Vec<Vec<u8>>,
}

/// Reads the first bytes of a client's TCP stream. The ClientHello may be split into any number of
/// records; later bytes are ignored. Returns [`Peek::No`] after [`LIMIT`] bytes at the latest.
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
