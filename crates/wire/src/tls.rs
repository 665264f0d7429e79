//! TLS as visible to an observer: handshakes in clear text, and records afterwards (RFC 8446, RFC
//! 5246, RFC 6066, RFC 7301).
//!
//! [`client_hello`] reads the server name and the protocols from the first bytes of a client, as
//! soon as they are available. A [`Session`] follows both directions of a connection: the client's
//! [offer](ClientHelloDetails), the server's [choice](ServerHello), the end of the handshake, and
//! exchanges inferred from sizes, times and directions of encrypted records.

mod cursor;
pub(crate) mod hello;
mod hello_details;
mod ja4;
mod reader;
mod record;
mod server_hello;
mod session;
#[cfg(test)]
mod tests;

pub use hello_details::{ClientHelloDetails, MAX_VERSIONS, Version, is_grease};
pub use server_hello::ServerHello;
pub use session::{Alert, MAX_ALERTS, MAX_FAILED_RESYNCS, Session, Times};

use crate::{HostName, MAX_PEEK_LENGTH, Peek};
use hello::HelloError;

/// Maximum number of protocols read from a ClientHello.
pub const MAX_PROTOCOLS: usize = 16;

/// Transport of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
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
    /// `http/1.1`. Some may be GREASE values (RFC 8701). At most the first [`MAX_PROTOCOLS`].
    pub protocols: Vec<Vec<u8>>,
}

/// Reads the first bytes of a client's TCP stream. The ClientHello may be split into any number of
/// records; later bytes are ignored. Returns [`Peek::No`] after [`MAX_PEEK_LENGTH`] bytes at the
/// latest.
pub fn client_hello(bytes: &[u8]) -> Peek<ClientHello> {
    let bytes = &bytes[..bytes.len().min(MAX_PEEK_LENGTH)];
    let records = record::join(bytes);
    match hello::read(&records.message) {
        Ok(hello) => Peek::Complete(hello),
        Err(HelloError::Invalid) => Peek::No,
        Err(HelloError::Incomplete { .. }) if records.is_invalid => Peek::No,
        Err(HelloError::Incomplete { message_length: whole }) => {
            let missing = records.header_missing + (whole - records.message.len());
            Peek::more_within_limit(bytes.len() + missing)
        }
    }
}
