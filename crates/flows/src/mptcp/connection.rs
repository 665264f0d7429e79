//! What became of a connection of MPTCP.

use std::net::IpAddr;

use manyways_unit::{Span, Time};

use crate::flow::Handshake;
use manyways_wire::stream::End;

/// A connection of which all subflows are over, or of which no more is told.
///
/// Pairs are by [`End`]: that of the client comes first, and it is who began the connection, even
/// where the server began a subflow.
#[derive(Clone, Debug, PartialEq)]
pub struct Connection {
    /// Its number, in the order of first segments.
    pub id: u64,
    /// The protocol's version, where the handshake of the primary subflow showed it.
    pub version: Option<u8>,
    /// What each end calls the connection, where its key or a join to it passed. Another capture of
    /// the same connection has the same.
    pub tokens: [Option<u32>; 2],
    /// In the order of their first segments.
    pub subflows: Vec<Subflow>,
    /// It went on as plain TCP, and this is why.
    pub fallback: Option<Fallback>,
    /// How many bytes each end sent, each counted once however often and over however many subflows
    /// it was sent; none where no mapping of it passed. Mappings that the capture missed are not
    /// counted.
    pub data: [Option<u64>; 2],
    /// The addresses that the ends told each other of.
    pub addresses: Vec<Advertised>,
    /// All of its subflows are over: else it had to go before, or was silent for too long.
    pub is_complete: bool,
}

/// One TCP flow of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Subflow {
    /// The caller's number of the flow.
    pub flow: u64,
    /// What it is for its connection.
    pub role: Role,
    /// The connection's server began it: its bytes and those of the flow are in opposite order.
    pub is_reversed: bool,
    /// The numbers of the ends' addresses, as they said them in a join.
    pub addresses: [Option<u8>; 2],
    /// When its first segment passed, or the first one with an option of MPTCP.
    pub started: Time,
    /// How it began; none until it is over.
    pub handshake: Option<Handshake>,
    /// The answer to its SYN took MPTCP, too; none where no answer passed, or not all of its options
    /// were captured.
    pub is_accepted: Option<bool>,
    /// The answer to a join has the hash that only the connection's server can make. None where
    /// keys or the join's handshake did not pass.
    pub is_verified: Option<bool>,
    /// By its latest word an end wants it for when others fail.
    pub is_backup: bool,
    /// How many bytes each end sent in it, as the caller told when it was over.
    pub bytes: [Option<u64>; 2],
    /// How many bytes each end mapped in it, what was sent again inside the subflow not counted.
    pub mapped: [Option<u64>; 2],
    /// Why it was reset, where an end said so: a number of the registry of RFC 8684, 3.6.
    pub reset: Option<u8>,
}

/// What a subflow is for its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The connection began with it.
    Primary,
    /// It joined.
    Joined,
    /// Its handshake did not pass: it is alone here, though it may belong to another one.
    Unknown,
}

/// Why a connection went on as plain TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// The answer to the SYN does not have the option: the server knows none of it, or something on
    /// the way took it out of one of both.
    Refused,
    /// The answer has it, but no segment of the client's does any more: something behind the capture
    /// point took it out, or the client does not speak the server's version.
    Unconfirmed,
    /// An end mapped all that comes to the subflow that it comes in.
    InfiniteMapping,
    /// An end found a wrong checksum, and there was no other subflow to go on with.
    Fail,
}

/// An address that an end told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertised {
    /// Who has it.
    pub end: End,
    /// Its number.
    pub id: u8,
    /// What it is.
    pub address: IpAddr,
    /// The port, where it was told.
    pub port: Option<u16>,
    /// The end took it back later.
    pub is_withdrawn: bool,
}

impl Connection {
    /// The subflow that it began with, where that is known.
    pub fn primary(&self) -> Option<&Subflow> {
        self.subflows.iter().find(|subflow| subflow.role == Role::Primary)
    }

    /// The subflows that asked to join and were answered so.
    pub fn joined(&self) -> impl Iterator<Item = &Subflow> {
        let joined = self.subflows.iter().filter(|subflow| subflow.role == Role::Joined);
        joined.filter(|subflow| subflow.is_accepted == Some(true))
    }

    /// How many bytes this end sent in all subflows; none where it is not known of one.
    pub fn bytes(&self, end: End) -> Option<u64> {
        self.subflows.iter().map(|subflow| subflow.bytes[end as usize]).sum()
    }

    /// The part of this end's bytes that went over the primary subflow, where there were any.
    pub fn share_of_primary(&self, end: End) -> Option<f64> {
        share(self.primary()?.bytes[end as usize]?, self.bytes(end)?)
    }

    /// The same of both ends' bytes (Figure 5.1 of the study).
    pub fn share_of_primary_both(&self) -> Option<f64> {
        let [client, server] = self.primary()?.bytes;
        share(
            client?.saturating_add(server?),
            self.bytes(End::Client)?.saturating_add(self.bytes(End::Server)?),
        )
    }

    /// How many bytes of this end were mapped again, in another subflow or as new bytes of the same
    /// one: each time but the first counts. What TCP sent again does not.
    pub fn reinjected(&self, end: End) -> Option<u64> {
        let mapped: u64 = self.subflows.iter().filter_map(|s| s.mapped[end as usize]).sum();
        Some(mapped.saturating_sub(self.data[end as usize]?))
    }

    /// How long after the primary's SYN that of this subflow passed.
    pub fn join_delay(&self, subflow: &Subflow) -> Option<Span> {
        let first = self.primary()?.handshake?.syn?;
        Some(subflow.handshake?.syn?.since(first))
    }
}

impl Subflow {
    /// From its SYN to the end of its handshake (Figure 5.3 of the study). A client may send in a
    /// joined subflow one round trip later, when the last part of its handshake is acknowledged.
    pub fn handshake_delay(&self) -> Option<Span> {
        let handshake = self.handshake?;
        Some(handshake.done?.since(handshake.syn?))
    }
}

fn share(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| part as f64 / all as f64)
}
