//! Rows of MPTCP connections and subflows.

use manyways_unit::Time;

use crate::columns::columns;
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
    const ABOUT: &'static str = "A connection of Multipath TCP.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "connection" Count "Its number, counted from zero." |row| row.id;
        "version" Count "MPTCP's version: 0 or 1." |row| row.version;
        "started" Time "When its first subflow began." |row| started(row);
        "subflows" Count "How many subflows it has." |row| row.subflows.len() as u64;
        "primary_flow" Flow "The number of the flow that it began with."
            |row| row.primary().map(|subflow| subflow.flow);
        both "bytes" Count "Bytes of all subflows, each counted once a subflow"
            |row, end| row.bytes(end);
        both "data" Count "Bytes of the connection" |row, end| row.data[end as usize];
        both "reinjected" Count "Bytes sent on another subflow again" |row, end| row.reinjected(end);
        both "share_of_primary" Number "The primary subflow's share of all bytes"
            |row, end| row.share_of_primary(end);
        "share_of_primary" Number "Its share of the bytes of both directions."
            |row| row.share_of_primary_both();
        "fallback" Text
            "Why it went on as plain TCP: refused, unconfirmed, infinite mapping or fail."
            |row| row.fallback.map(fallback);
        "is_complete" Flag "All its subflows were followed to their ends." |row| row.is_complete;
    };
}

/// A subflow and its connection.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) connection: u64,
    pub(super) subflow: Subflow,
    pub(super) join_delay: Option<manyways_unit::Span>,
}

impl Row for Part {
    const TABLE: &'static str = "subflows";
    const ABOUT: &'static str = "A TCP flow that belongs to a connection of Multipath TCP.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "connection" Count "The number of the connection." |row| row.connection;
        "flow" Flow "The number of the flow." |row| row.subflow.flow;
        "role" Text "primary, joined, or unknown where its handshake did not pass."
            |row| match row.subflow.role {
                Role::Primary => "primary",
                Role::Joined => "joined",
                Role::Unknown => "unknown",
            };
        "started" Time "When it began." |row| row.subflow.started;
        "join_delay" Span "From the primary's beginning to this one's." |row| row.join_delay;
        "handshake_delay" Span "From its SYN to the end of its handshake."
            |row| row.subflow.handshake_delay();
        both "bytes" Count "Bytes, each counted once"
            |row, end| row.subflow.bytes[if row.subflow.is_reversed { end.other() } else { end } as usize];
        "is_accepted" Flag "The answer to its SYN took MPTCP too." |row| row.subflow.is_accepted;
        "is_verified" Flag "The answer proves that it is the connection's server."
            |row| row.subflow.is_verified;
        "is_backup" Flag "It is wanted for when others fail." |row| row.subflow.is_backup;
        "reset_reason" Count "Why it was reset, by the number that its end gave."
            |row| row.subflow.reset;
    };
}
