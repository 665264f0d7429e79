//! What is not secret of QUIC (RFC 9000, RFC 9001; version 2: RFC 9369).
//!
//! [`Initials`] reads what a client says first: its TLS hello, in packets whose keys are made of what
//! is written on them. [`header`] reads what packets show without keys.

mod assembly;
mod frame;
pub mod header;
mod keys;
mod packet;
#[cfg(test)]
mod tests;

use crate::Peek;
use crate::tls::hello::{self, Stop};
use crate::tls::{Carrier, ClientHello, Offer};
use assembly::Assembly;
use keys::Keys;
use packet::Initial;

/// The most datagrams of a client that are looked at. Its hello takes one, or two with long keys;
/// some are sent again.
pub const DATAGRAM_LIMIT: usize = 8;
/// The most packets in a datagram that are looked at.
const PACKET_LIMIT: usize = 4;
/// A client's first packet has at least so many bytes of random numbers where its server will have
/// an address of its own (RFC 9000, 7.2).
const FIRST_ID: usize = 8;

/// The first datagrams of one QUIC client: one address and port to another.
#[derive(Default)]
pub struct Initials {
    datagrams: usize,
    keys: Option<Keys>,
    hello: Assembly,
}

impl Initials {
    /// No datagram was seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the next datagram of the client. A hint counts the bytes of the hello, not those of
    /// the datagrams around it. [`Peek::No`] when the first one is not QUIC of a version that is
    /// known, when one carries what no client says, and after [`DATAGRAM_LIMIT`] at the latest.
    /// What is lost, comes twice or, but for the first, cannot be opened changes nothing.
    pub fn datagram(&mut self, bytes: &[u8]) -> Peek<ClientHello> {
        if self.datagrams >= DATAGRAM_LIMIT {
            return Peek::No;
        }
        self.datagrams += 1;
        let mut rest = bytes;
        for _ in 0..PACKET_LIMIT {
            // What is no Initial comes behind those that are.
            let Some((initial, after)) = Initial::parse(rest) else { break };
            if let Some(frames) = self.open(&initial)
                && frame::read(&frames, &mut self.hello).is_none()
            {
                return self.give_up();
            }
            rest = after;
        }
        if self.keys.is_none() {
            return self.give_up();
        }
        match hello::read(self.hello.beginning()) {
            Ok(hello) => Peek::Complete(hello),
            Err(Stop::Short { whole }) if self.datagrams < DATAGRAM_LIMIT => Peek::More(whole),
            Err(Stop::Short { .. } | Stop::Broken) => self.give_up(),
        }
    }

    /// All that is there of the hello so far. It may be worth to go on after [`Peek::Complete`],
    /// until it is whole.
    pub fn offer(&self) -> Option<Offer> {
        Offer::read(self.hello.beginning(), Carrier::Quic)
    }

    fn give_up(&mut self) -> Peek<ClientHello> {
        self.datagrams = DATAGRAM_LIMIT;
        Peek::No
    }

    /// The frames of a packet; none when its keys are not known.
    fn open(&mut self, initial: &Initial<'_>) -> Option<Vec<u8>> {
        if let Some(frames) = self.keys.as_ref().and_then(|keys| initial.open(keys)) {
            return Some(frames);
        }
        // A later one with other keys: the server sent the client back with a Retry, and the hello
        // begins anew as it was.
        if self.keys.is_none() && initial.destination.len() < FIRST_ID {
            return None;
        }
        let keys = Keys::of_client(initial.version, initial.destination)?;
        let frames = initial.open(&keys)?;
        self.keys = Some(keys);
        Some(frames)
    }
}
