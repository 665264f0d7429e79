//! The unencrypted parts of QUIC (RFC 9000, RFC 9001; version 2: RFC 9369).
//!
//! [`Initials`] reads the ClientHello of a client, from packets whose keys are derived from their
//! own headers. [`header`] reads packet headers, which need no keys, and [`version`] names versions,
//! also those whose keys are not known.

mod frame;
pub mod header;
mod keys;
mod packet;
mod reassembly;
#[cfg(test)]
mod tests;
pub mod version;

use crate::Peek;
use crate::tls::hello::{self, HelloError};
use crate::tls::{ClientHello, ClientHelloDetails, Transport};
use keys::Keys;
use packet::Initial;
use reassembly::Reassembly;

/// Maximum number of datagrams of a client that are read. A ClientHello has one or, with long key
/// shares, two datagrams; retransmissions add some.
pub const MAX_DATAGRAMS: usize = 8;
/// Maximum number of packets read from a datagram.
const MAX_PACKETS: usize = 4;
/// Minimum length of the random destination connection ID in a client's first packet (RFC 9000,
/// 7.2).
const MIN_FIRST_CID_LENGTH: usize = 8;

/// The first datagrams of one QUIC client, from one address and port to another.
#[derive(Default)]
pub struct Initials {
    datagrams: usize,
    keys: Option<Keys>,
    crypto: Reassembly,
}

impl Initials {
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the next datagram of the client. [`Peek::More`] counts bytes of the ClientHello, not
    /// of the datagrams. Returns [`Peek::No`] if the first datagram is not QUIC of a known version,
    /// if a datagram contains frames that no client sends, and after [`MAX_DATAGRAMS`] datagrams
    /// at the latest. Lost and duplicate datagrams, and later ones that cannot be decrypted, have
    /// no effect.
    pub fn datagram(&mut self, bytes: &[u8]) -> Peek<ClientHello> {
        if self.datagrams >= MAX_DATAGRAMS {
            return Peek::No;
        }
        self.datagrams += 1;
        let mut rest = bytes;
        for _ in 0..MAX_PACKETS {
            // Packets of other types follow the Initial packets.
            let Some((initial, after)) = Initial::parse(rest) else { break };
            if let Some(frames) = self.open(&initial)
                && frame::read(&frames, &mut self.crypto).is_none()
            {
                return self.reject();
            }
            rest = after;
        }
        if self.keys.is_none() {
            return self.reject();
        }
        match hello::read(self.crypto.contiguous()) {
            Ok(hello) => Peek::Complete(hello),
            Err(HelloError::Incomplete { message_length: whole })
                if self.datagrams < MAX_DATAGRAMS =>
            {
                Peek::More(whole)
            }
            Err(HelloError::Incomplete { .. } | HelloError::Invalid) => self.reject(),
        }
    }

    /// The values of the ClientHello so far. More datagrams may complete it after
    /// [`Peek::Complete`].
    pub fn hello_details(&self) -> Option<ClientHelloDetails> {
        ClientHelloDetails::read(self.crypto.contiguous(), Transport::Quic)
    }

    fn reject(&mut self) -> Peek<ClientHello> {
        self.datagrams = MAX_DATAGRAMS;
        Peek::No
    }

    /// The decrypted frames of a packet; `None` if its keys are unknown.
    fn open(&mut self, initial: &Initial<'_>) -> Option<Vec<u8>> {
        if let Some(frames) = self.keys.as_ref().and_then(|keys| initial.open(keys)) {
            return Some(frames);
        }
        // A later packet with other keys follows a Retry of the server; the ClientHello starts
        // again, unchanged.
        if self.keys.is_none() && initial.destination_cid.len() < MIN_FIRST_CID_LENGTH {
            return None;
        }
        let keys = Keys::of_client(initial.version, initial.destination_cid)?;
        let frames = initial.open(&keys)?;
        self.keys = Some(keys);
        Some(frames)
    }
}
