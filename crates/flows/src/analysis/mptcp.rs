//! Rows of MPTCP connections and subflows.

use manyways_unit::Time;

use crate::columns::{SCHEMA, columns};
use crate::mptcp::{Connection, Fallback, Role, Subflow};
use manyways_record::table::{Column, Row};

fn fallback(fallback: Fallback) -> &'static str {
    match fallback {
        Fallback::Refused => "refused",
        Fallback::Unconfirmed => "unconfirmed",
        Fallback::InfiniteMapping => "infinite mapping",
        Fallback::Fail => "fail",
    }
}

/// Returns the start of the first subflow.
pub(super) fn started(connection: &Connection) -> Time {
    connection.subflows.iter().map(|subflow| subflow.started).min().unwrap_or_default()
}

impl Row for Connection {
    const TABLE: &'static str = "mptcp";
    const SCHEMA: &'static str = SCHEMA;
    const ABOUT: &'static str = "An MPTCP connection.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "connection" Count "Number from 0." |row| row.id;
        "version" Count "MPTCP version: 0 or 1." |row| row.version;
        "started" Time "Start of its first subflow." |row| started(row);
        "subflows" Count "Number of its subflows." |row| row.subflows.len() as u64;
        "primary_flow" Flow "The flow number of the primary subflow."
            |row| row.primary().map(|subflow| subflow.flow);
        both "bytes" Count "Bytes of all subflows, each counted once per subflow"
            |row, end| row.bytes(end);
        both "data" Count "Bytes of the connection" |row, end| row.data[end as usize];
        both "reinjected" Count "Bytes reinjected on another subflow" |row, end| row.reinjected[end as usize];
        both "share_of_primary" Number "The primary subflow's share of all bytes"
            |row, end| row.share_of_primary(end);
        "share_of_primary" Number "The primary subflow's share of the bytes of both directions."
            |row| row.share_of_primary_both();
        "fallback" Text
            "Reason of a fallback to plain TCP: refused, unconfirmed, infinite mapping or fail."
            |row| row.fallback.map(fallback);
        "is_complete" Flag "All its subflows were followed to their end." |row| row.is_complete;
    };
}

/// A subflow and its connection.
#[derive(Clone, Debug)]
pub(super) struct SubflowRow {
    pub(super) connection: u64,
    pub(super) subflow: Subflow,
    pub(super) join_delay: Option<manyways_unit::Span>,
}

impl Row for SubflowRow {
    const TABLE: &'static str = "subflows";
    const SCHEMA: &'static str = SCHEMA;
    const ABOUT: &'static str = "A subflow: a TCP flow of an MPTCP connection.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "connection" Count "The number of the connection." |row| row.connection;
        "flow" Flow "The number of the flow." |row| row.subflow.flow;
        "role" Text "primary, joined, or unknown if its handshake is not in the capture."
            |row| match row.subflow.role {
                Role::Primary => "primary",
                Role::Joined => "joined",
                Role::Unknown => "unknown",
            };
        "started" Time "Start of the subflow." |row| row.subflow.started;
        "join_delay" Span "From the SYN of the primary subflow to the SYN of this one." |row| row.join_delay;
        "handshake_delay" Span "From its SYN to the end of its handshake."
            |row| row.subflow.handshake_delay();
        both "bytes" Count "Bytes, each counted once"
            |row, end| row.subflow.bytes[if row.subflow.is_reversed { end.other() } else { end } as usize];
        "is_accepted" Flag "The SYN/ACK has the MPTCP option." |row| row.subflow.is_accepted;
        "is_verified" Flag "The HMAC in the SYN/ACK is correct."
            |row| row.subflow.is_verified;
        "is_backup" Flag "The subflow is a backup." |row| row.subflow.is_backup;
        "reset_reason" Count "Reason code of its reset (RFC 8684, 3.6)."
            |row| row.subflow.reset;
    };
}
