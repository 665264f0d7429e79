//! Middleboxes on a link: a NAT and a box that strips TCP options.
//!
//! A [`Middlebox`] changes packets in place, ordinary ones and super-packets alike, and returns a
//! verdict for each. Correct checksums stay correct and wrong ones stay wrong: a finished checksum
//! is updated incrementally (RFC 1624). A checksum that is left to the device contains the sum of
//! the pseudo-header, so that only changed addresses affect it. Time is an argument; the module
//! reads no clock.

mod fragment;
mod nat;
mod strip;
mod table;

#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;

use manyways_unit::{Span, Time};

pub use self::nat::{Nat, UnmappedTcp};
pub use self::strip::StripMptcp;
pub use self::table::{FIRST_PORT, MAX_MAPPINGS};

use crate::segment::Offload;

/// A middlebox on a link, for both directions.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Middlebox {
    /// Translates addresses over IPv4 and blocks unsolicited packets over IPv6.
    Nat(Box<Nat>),
    /// Removes MPTCP options from TCP.
    StripMptcp(StripMptcp),
}

/// The side from which a packet enters the middlebox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The side of the device: inside.
    Inside,
    /// The side of the remote hosts: outside.
    Outside,
}

/// The decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The packet, which may have been changed, is forwarded.
    Forward,
    /// The packet is dropped.
    Drop,
    /// The packet is dropped, and its buffer now starts with an answer of `length` bytes, which is
    /// sent back to the side that the packet came from. The answer is complete, without offloads.
    /// Only with [`UnmappedTcp::Reset`].
    Answer {
        /// Bytes of the answer.
        length: usize,
    },
}

/// Counters of a middlebox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Current mappings; expired ones are removed when the next packet arrives.
    pub mappings: u64,
    /// Mappings created.
    pub created: u64,
    /// Mappings removed after their idle timeout.
    pub expired: u64,
    /// Mappings removed because the table was full.
    pub evicted: u64,
    /// Packets that were not forwarded; a super-packet counts once.
    pub dropped: u64,
    /// Options removed.
    pub stripped: u64,
}

impl Middlebox {
    /// Creates a NAT with the address `external` outside and the idle timeout `idle`.
    pub fn nat(external: Ipv4Addr, idle: Span) -> Self {
        Self::Nat(Box::new(Nat::new(external, idle)))
    }

    /// Creates a box that removes MPTCP options from TCP.
    pub fn strip_mptcp() -> Self {
        Self::StripMptcp(StripMptcp::default())
    }

    /// Processes a packet, which may be changed, and returns the verdict.
    ///
    /// `now` must not go back; a `now` before the latest one is replaced by the latest one.
    pub fn pass(&mut self, now: Time, from: Side, packet: &mut [u8], offload: &Offload) -> Verdict {
        match self {
            Self::Nat(nat) => nat.pass(now, from, packet, offload),
            Self::StripMptcp(strip) => strip.pass(packet, offload),
        }
    }

    pub fn counters(&self) -> Counters {
        match self {
            Self::Nat(nat) => nat.counters(),
            Self::StripMptcp(strip) => strip.counters(),
        }
    }
}
