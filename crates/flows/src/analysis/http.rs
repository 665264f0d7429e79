//! Row of an HTTP/1 request and its response.

use std::net::SocketAddr;

use super::{FlowId, tcp};
use crate::columns::{SCHEMA, columns};
use manyways_record::table::{Column, Row};
use manyways_wire::HostName;
use manyways_wire::http::{
    ContentRange, Framing, Host, Outcome, Request, RequestedRange, Response, Transaction,
};

/// An HTTP/1 request and its response.
#[derive(Clone, Debug)]
pub struct HttpTransaction {
    pub id: FlowId,
    pub client: SocketAddr,
    pub server: SocketAddr,
    pub transaction: Transaction,
}

impl HttpTransaction {
    fn request(&self) -> Option<&Request> {
        self.transaction.request.as_ref()
    }

    fn response(&self) -> Option<&Response> {
        self.transaction.response.as_ref()
    }

    /// Returns the host of the request. `None` if the request did not pass or has no host.
    pub fn host(&self) -> Option<String> {
        let authority = self.request()?.host.as_ref()?;
        Some(authority.host.to_string())
    }

    /// Returns the host of the request if it is a host name.
    pub(super) fn host_name(&self) -> Option<&HostName> {
        match &self.request()?.host.as_ref()?.host {
            Host::Name(name) => Some(name),
            Host::Address(_) => None,
        }
    }

    fn range(&self) -> Option<&ContentRange> {
        self.response()?.content_range.as_deref()
    }

    fn requested_range(&self) -> (Option<u64>, Option<u64>) {
        match self.request().and_then(|request| request.range.as_deref()) {
            Some(RequestedRange::Range { first, last }) => (Some(*first), *last),
            _ => (None, None),
        }
    }

    /// Returns the top-level media type of the response, for example `video`.
    fn media_type(&self) -> Option<&str> {
        let whole = self.response()?.content_type.as_deref()?;
        Some(whole.split('/').next().unwrap_or(whole))
    }
}

fn framing(framing: Framing) -> &'static str {
    match framing {
        Framing::NoBody => "none",
        Framing::Length => "length",
        Framing::Chunked => "chunked",
        Framing::Close => "close",
    }
}

fn ending(ending: Outcome) -> &'static str {
    match ending {
        Outcome::Complete => "whole",
        Outcome::Inferred => "guessed",
        Outcome::Switched => "switched",
        Outcome::ClosedEarly => "early",
        Outcome::Reset => "reset",
        Outcome::Open => "open",
        Outcome::ServerNotCaptured => "uncaptured",
    }
}

impl Row for HttpTransaction {
    const TABLE: &'static str = "http";
    const SCHEMA: &'static str = SCHEMA;
    const ABOUT: &'static str = "An HTTP/1 request and its response.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "flow" Flow "The number of the flow that carried it." |row| row.id.0;
        "index" Count "Number within its flow, from 0." |row| row.transaction.index;
        "client" Address "Address of the client." |row| tcp::address(row.client);
        "server" Address "Address of the server." |row| tcp::address(row.server);
        "server_port" Count "Its port." |row| row.server.port();
        "asked" Time "Time of the first byte of the request."
            |row| row.request().map(|request| request.first);
        "asked_end" Time "Time of its last byte." |row| row.request().map(|request| request.last);
        "answered" Time "Time of the first byte of the final response."
            |row| row.response().map(|response| response.first);
        "answered_end" Time "Time of its last byte."
            |row| row.response().map(|response| response.last);
        "response_time" Span "From the request to the response's first byte, at the capture point."
            |row| row.transaction.response_time();
        "downloading" Span "From the request to the response's last byte."
            |row| row.transaction.download_time();
        "method" Text "The method." |row| row.request().map(|r| r.method.clone().into_owned());
        "host" Name "Host of the request: a name, or an address." |row| row.host();
        "resource" Name
            "A hash of host and target in hexadecimal digits, the same for all parts of a resource. \
             The target itself is never written."
            |row| row.request().and_then(|r| r.resource).map(|hash| format!("{hash:016x}"));
        "status" Count "The status." |row| row.response().and_then(|response| response.status);
        "content_type" Text "The content type without parameters."
            |row| row.response().and_then(|response| response.content_type.as_deref());
        "content" Text "Top-level media type: video, image, text."  |row| row.media_type();
        "coding" Text "The content coding."
            |row| row.response().and_then(|response| response.coding.as_deref());
        "declared" Count "Length in the response header, in bytes."
            |row| row.response().and_then(|response| response.content_length);
        "captured" Count "Bytes of content in the capture, if its framing is known."
            |row| row.response().and_then(|response| response.body.content());
        "response_bytes" Count "Bytes of the response, including its header."
            |row| row.response().map(|response| response.length);
        "request_bytes" Count "Bytes of the request, including its header."
            |row| row.request().map(|request| request.length);
        "framing" Text "Framing of the response: none, length, chunked or close."
            |row| row.response().and_then(|response| response.framing).map(framing);
        "range_first" Count "First byte of the requested range." |row| row.requested_range().0;
        "range_last" Count "Last byte of the requested range." |row| row.requested_range().1;
        "part_first" Count "First byte of the received part."
            |row| row.range().and_then(|range| range.range).map(|part| part.0);
        "part_last" Count "Last byte of the received part."
            |row| row.range().and_then(|range| range.range).map(|part| part.1);
        "size" Count "Length of the whole resource, in bytes."
            |row| row.range().and_then(|range| range.complete_length);
        "is_pipelined" Flag "The request was sent before the end of the previous response."
            |row| row.transaction.is_pipelined;
        "has_interim" Flag "An interim response preceded the final one."
            |row| row.transaction.has_interim;
        "is_truncated" Flag "A part of a header was not captured."
            |row| row.request().is_some_and(|r| r.is_truncated) || row.response().is_some_and(|r| r.is_truncated);
        "ending" Text
            "Kind of end: whole; guessed (unknown length); switched (another protocol follows); early \
             (the connection ended); reset; open (the capture ended); uncaptured (the response is not \
             in the capture)."
            |row| ending(row.transaction.outcome);
    };
}
