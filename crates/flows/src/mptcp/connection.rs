//! Result of an MPTCP connection.

use std::net::IpAddr;

use manyways_unit::{Span, Time};

use crate::flow::Handshake;
use manyways_wire::stream::Endpoint;

/// An MPTCP connection that has ended, or was evicted.
///
/// Arrays are indexed by [`Endpoint`]. The client is the endpoint that initiated the connection,
/// even if the server initiated a subflow.
#[derive(Clone, Debug, PartialEq)]
pub struct Connection {
    /// From 0, in the order of first segments.
    pub id: u64,
    /// Protocol version. `None` without the handshake of the primary subflow.
    pub version: Option<u8>,
    /// Token of each endpoint, which is the same in other captures of this connection. `None`
    /// without its key and without a join to it.
    pub tokens: [Option<u32>; 2],
    /// In the order of their first segments.
    pub subflows: Vec<Subflow>,
    /// Reason of a fallback to plain TCP. `None` without fallback.
    pub fallback: Option<Fallback>,
    /// Data bytes of each endpoint, each counted once for any number of copies and subflows. `None`
    /// without a mapping. Bytes without a captured mapping are not counted.
    pub data: [Option<u64>; 2],
    /// Data bytes of each endpoint that it reinjected: mapped in a subflow, after they were mapped
    /// in another one. `None` without a mapping. Bytes of which it is not known are not counted.
    pub reinjected: [Option<u64>; 2],
    /// Addresses that the endpoints advertised.
    pub addresses: Vec<Advertised>,
    /// Whether all subflows were followed to their end; false after eviction or idle timeout.
    pub is_complete: bool,
}

/// A subflow: one TCP flow of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Subflow {
    /// The caller's number of the flow.
    pub flow: u64,
    pub role: Role,
    /// Whether the server of the connection initiated the subflow: the roles in the flow are then
    /// reversed.
    pub is_reversed: bool,
    /// Address IDs of the endpoints in the join.
    pub addresses: [Option<u8>; 2],
    /// Time of the first segment, or of the first segment with an MPTCP option.
    pub started: Time,
    /// `None` until the subflow ends.
    pub handshake: Option<Handshake>,
    /// Whether the SYN/ACK has the MPTCP option. `None` without a SYN/ACK, or if its options were
    /// not captured completely.
    pub is_accepted: Option<bool>,
    /// Whether the HMAC in the SYN/ACK of a join is correct. `None` without the keys or without the
    /// handshake of the join.
    pub is_verified: Option<bool>,
    /// Latest backup flag of the subflow.
    pub is_backup: bool,
    /// Bytes of each endpoint in the subflow; set at its end.
    pub bytes: [Option<u64>; 2],
    /// Data bytes that each endpoint mapped in the subflow, each counted once.
    pub mapped: [Option<u64>; 2],
    /// Reason code of MP_TCPRST (RFC 8684, 3.6).
    pub reset: Option<u8>,
}

/// Role of a subflow in its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The first subflow of the connection.
    Primary,
    /// Joined with MP_JOIN.
    Joined,
    /// The handshake is not in the capture; the subflow forms its own connection here, though it
    /// may belong to another.
    Unknown,
}

/// Reason of a fallback to plain TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// The SYN/ACK has no MPTCP option: the server does not support it, or a middlebox removed the
    /// option from one of the two.
    Refused,
    /// The SYN/ACK has the option, but later segments of the client do not: a middlebox after the
    /// capture point removed it, or the client does not support the server's version.
    Unconfirmed,
    /// An endpoint sent an infinite mapping.
    InfiniteMapping,
    /// An endpoint found a wrong checksum and there was no other subflow.
    Fail,
}

/// An address in ADD_ADDR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertised {
    /// The endpoint with this address.
    pub end: Endpoint,
    /// Address ID.
    pub id: u8,
    pub address: IpAddr,
    /// `None` if no port was advertised.
    pub port: Option<u16>,
    /// Whether the endpoint removed the address (REMOVE_ADDR).
    pub is_withdrawn: bool,
}

impl Connection {
    /// `None` if the handshake of the primary subflow is not in the capture.
    pub fn primary(&self) -> Option<&Subflow> {
        self.subflows.iter().find(|subflow| subflow.role == Role::Primary)
    }

    /// Returns the joined subflows that the peer accepted.
    pub fn joined(&self) -> impl Iterator<Item = &Subflow> {
        let joined = self.subflows.iter().filter(|subflow| subflow.role == Role::Joined);
        joined.filter(|subflow| subflow.is_accepted == Some(true))
    }

    /// Bytes of this endpoint in all subflows. `None` if unknown for a subflow.
    pub fn bytes(&self, end: Endpoint) -> Option<u64> {
        self.subflows.iter().map(|subflow| subflow.bytes[end as usize]).sum()
    }

    /// Share of the primary subflow in this endpoint's bytes, 0 to 1. `None` without bytes.
    pub fn share_of_primary(&self, end: Endpoint) -> Option<f64> {
        share(self.primary()?.bytes[end as usize]?, self.bytes(end)?)
    }

    /// Share of the primary subflow in the bytes of both endpoints (Figure 5.1 of the study).
    pub fn share_of_primary_both(&self) -> Option<f64> {
        let [client, server] = self.primary()?.bytes;
        share(
            client?.saturating_add(server?),
            self.bytes(Endpoint::Client)?.saturating_add(self.bytes(Endpoint::Server)?),
        )
    }

    /// Time from the SYN of the primary subflow to the SYN of `subflow`.
    pub fn join_delay(&self, subflow: &Subflow) -> Option<Span> {
        let first = self.primary()?.handshake?.syn?;
        Some(subflow.handshake?.syn?.since(first))
    }
}

impl Subflow {
    /// Time from the SYN to the end of the handshake (Figure 5.3 of the study). In a joined
    /// subflow, the client may send data one round trip later, when the third ACK is acknowledged.
    pub fn handshake_delay(&self) -> Option<Span> {
        let handshake = self.handshake?;
        Some(handshake.completed?.since(handshake.syn?))
    }
}

fn share(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| part as f64 / all as f64)
}
