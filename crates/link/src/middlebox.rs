//! Boxes that sit on a link and do more, or less, than forward: a NAT and an option stripper.
//!
//! A [`Middlebox`] changes packets in place, ordinary ones and super-packets alike, and says what
//! becomes of them. It keeps checksums as right or wrong as they were: a finished one is mended by
//! what changed (RFC 1624), and one that is still to be computed holds the pseudo-header's sum, so
//! that only changed addresses count. Time is an argument; nothing here reads a clock.

mod fragment;
mod nat;
mod strip;
mod table;

#[cfg(test)]
mod tests;

use std::net::Ipv4Addr;

use manyways_unit::{Span, Time};

pub use self::nat::{Forgotten, Nat};
pub use self::strip::StripMptcp;
pub use self::table::{FIRST_PORT, MAX_MAPPINGS};

use crate::segment::Offload;

/// What sits on a link, for both of its directions.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Middlebox {
    /// Translates addresses over IPv4 and keeps strangers out over IPv6.
    Nat(Box<Nat>),
    /// Takes MPTCP's options out of TCP.
    StripMptcp(StripMptcp),
}

/// Which side of the middlebox a packet came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The device's: the inside.
    Device,
    /// The far hosts': the outside.
    Far,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It goes on, as it is now.
    Forward,
    /// It is gone.
    Drop,
    /// It is gone, and its first `length` bytes are now an answer that goes back where it came
    /// from, with nothing left to the device. Only with [`Forgotten::Reset`].
    Answer {
        /// Bytes of the answer.
        length: usize,
    },
}

/// What a middlebox has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Mappings that are known now; idle ones go when the next packet comes.
    pub mappings: u64,
    /// Mappings that were made.
    pub made: u64,
    /// Mappings that were forgotten because they were idle.
    pub expired: u64,
    /// Mappings that had to make room for another.
    pub evicted: u64,
    /// Packets (a super-packet counts once) that did not go on.
    pub dropped: u64,
    /// Options that were taken out.
    pub stripped: u64,
}

impl Middlebox {
    /// A NAT that shows `external` to the far side and forgets what was idle for `idle`.
    pub fn nat(external: Ipv4Addr, idle: Span) -> Self {
        Self::Nat(Box::new(Nat::new(external, idle)))
    }

    /// A box that takes MPTCP's options out of TCP.
    pub fn strip_mptcp() -> Self {
        Self::StripMptcp(StripMptcp::default())
    }

    /// Lets a packet through, changed where that is its work, or not.
    ///
    /// `now` never goes back; where it does, the latest time that was seen counts.
    pub fn pass(&mut self, now: Time, from: Side, packet: &mut [u8], offload: &Offload) -> Verdict {
        match self {
            Self::Nat(nat) => nat.pass(now, from, packet, offload),
            Self::StripMptcp(strip) => strip.pass(packet, offload),
        }
    }

    /// What has happened so far.
    pub fn counters(&self) -> Counters {
        match self {
            Self::Nat(nat) => nat.counters(),
            Self::StripMptcp(strip) => strip.counters(),
        }
    }
}
