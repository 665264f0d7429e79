//! Row of an HTTP/1 request and its response.

use std::net::SocketAddr;

use super::{FlowId, tcp};
use crate::columns::columns;
use manyways_record::table::{Column, Row};
use manyways_wire::http::{Asked, ContentRange, Ending, Framing, Request, Response, Transaction};

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

    fn range(&self) -> Option<&ContentRange> {
        self.response()?.content_range.as_deref()
    }

    fn asked(&self) -> (Option<u64>, Option<u64>) {
        match self.request().and_then(|request| request.range.as_deref()) {
            Some(Asked::From { first, last }) => (Some(*first), *last),
            _ => (None, None),
        }
    }

    /// Returns the top-level media type of the response, for example `video`.
    fn kind(&self) -> Option<&str> {
        let whole = self.response()?.content_type.as_deref()?;
        Some(whole.split('/').next().unwrap_or(whole))
    }
}

fn framing(framing: Framing) -> &'static str {
    match framing {
        Framing::Bodiless => "none",
        Framing::Length => "length",
        Framing::Chunked => "chunked",
        Framing::Close => "close",
    }
}

fn ending(ending: Ending) -> &'static str {
    match ending {
        Ending::Whole => "whole",
        Ending::Guessed => "guessed",
        Ending::Switched => "switched",
        Ending::Early => "early",
        Ending::Reset => "reset",
        Ending::Open => "open",
        Ending::Unseen => "unseen",
    }
}

impl Row for HttpTransaction {
    const TABLE: &'static str = "http";
    const ABOUT: &'static str = "A request of HTTP/1 and its response.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "flow" Flow "The number of the flow that carried it." |row| row.id.0;
        "index" Count "Which one of its flow, counted from zero." |row| row.transaction.index;
        "client" Address "Address of who asked." |row| tcp::address(row.client);
        "server" Address "Address of who was asked." |row| tcp::address(row.server);
        "server_port" Count "Its port." |row| row.server.port();
        "asked" Time "When the first byte of the request passed."
            |row| row.request().map(|request| request.first);
        "asked_end" Time "When its last byte passed." |row| row.request().map(|request| request.last);
        "answered" Time "When the first byte of the final response passed."
            |row| row.response().map(|response| response.first);
        "answered_end" Time "When its last byte passed."
            |row| row.response().map(|response| response.last);
        "response_time" Span "From the request to the response's first byte, at the capture point."
            |row| row.transaction.response_time();
        "downloading" Span "From the request to the response's last byte."
            |row| row.transaction.downloading();
        "method" Text "The method." |row| row.request().map(|r| r.method.clone().into_owned());
        "host" Name "The host that was asked for: a name, or an address." |row| row.host();
        "resource" Name
            "A hash of host and target, in hexadecimal digits, by which requests for parts of one \
             thing find each other. The target itself is never written."
            |row| row.request().and_then(|r| r.resource).map(|hash| format!("{hash:016x}"));
        "status" Count "The status." |row| row.response().and_then(|response| response.status);
        "content_type" Text "The content type without parameters."
            |row| row.response().and_then(|response| response.content_type.as_deref());
        "content" Text "Its first half: video, image, text."  |row| row.kind();
        "coding" Text "The content coding."
            |row| row.response().and_then(|response| response.coding.as_deref());
        "declared" Count "The length that the response declares, in bytes."
            |row| row.response().and_then(|response| response.declared);
        "seen" Count "How many bytes of content passed, where its framing could be followed."
            |row| row.response().and_then(|response| response.seen.content());
        "response_bytes" Count "Bytes of the response, its head included."
            |row| row.response().map(|response| response.length);
        "request_bytes" Count "Bytes of the request, its head included."
            |row| row.request().map(|request| request.length);
        "framing" Text "What says where the response ends: none, length, chunked or close."
            |row| row.response().and_then(|response| response.framing).map(framing);
        "range_first" Count "The first byte that was asked for." |row| row.asked().0;
        "range_last" Count "The last byte that was asked for." |row| row.asked().1;
        "part_first" Count "The first byte that was given."
            |row| row.range().and_then(|range| range.part).map(|part| part.0);
        "part_last" Count "The last byte that was given."
            |row| row.range().and_then(|range| range.part).map(|part| part.1);
        "whole" Count "The length of the whole of which that is a part."
            |row| row.range().and_then(|range| range.whole);
        "is_pipelined" Flag "It was asked before the response to the one before had ended."
            |row| row.transaction.is_pipelined;
        "has_interim" Flag "An interim response came before the final one."
            |row| row.transaction.has_interim;
        "is_cut" Flag "A part of a head was not captured."
            |row| row.request().is_some_and(|r| r.is_cut) || row.response().is_some_and(|r| r.is_cut);
        "ending" Text
            "How it ended: whole; guessed (its length is not known); switched (what follows is no \
             HTTP); early (the connection ended); reset; open (the capture ended); unseen (its \
             response did not pass)."
            |row| ending(row.transaction.ending);
    };
}
