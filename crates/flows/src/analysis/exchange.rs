//! Row of a request and its response in a flow whose content is not readable.

use std::net::SocketAddr;

use super::{FlowId, tcp};
use crate::columns::{SCHEMA, columns};
use manyways_record::table::{Column, Row};
use manyways_wire::stream::Exchange;

/// A request and its response, inferred from changes of direction.
#[derive(Clone, Copy, Debug)]
pub struct FlowExchange {
    pub id: FlowId,
    pub client: SocketAddr,
    pub server: SocketAddr,
    /// Protocol of the flow: `tls`, `quic` or `other`.
    pub protocol: &'static str,
    pub exchange: Exchange,
}

impl Row for FlowExchange {
    const TABLE: &'static str = "exchanges";
    const SCHEMA: &'static str = SCHEMA;
    const ABOUT: &'static str = "A request and its response, inferred from changes of direction.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "flow" Flow "The number of the flow that carried it." |row| row.id.0;
        "client" Address "Address of the client." |row| tcp::address(row.client);
        "server" Address "Address of the server." |row| tcp::address(row.server);
        "protocol" Text "Protocol of the flow: tls, quic or other." |row| row.protocol;
        "asked" Time "Time of the first byte of the request." |row| row.exchange.request_start;
        "asked_end" Time "Time of its last byte." |row| row.exchange.request_end;
        "answered" Time "Time of the first byte of the response." |row| row.exchange.response_start;
        "answered_end" Time "Time of its last byte." |row| row.exchange.response_end;
        "response_time" Span "From the end of the request to the beginning of the response."
            |row| row.exchange.response_time();
        "request_bytes" Count "Bytes from the client." |row| row.exchange.request;
        "response_bytes" Count "Bytes from the server." |row| row.exchange.response;
    };
}
