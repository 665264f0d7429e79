//! Where the body of a response ends, for a client of HTTP/1 (RFC 9112, 6.3).

use bytes::Bytes;
use manyways_wire::archive::Protocol;

use super::super::responder::{Content, Response};

/// Bytes of a head, and the framing of the body behind it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) head: Bytes,
    pub(super) framing: Framing,
    /// Whether the connection ends with the response.
    pub(super) closes: bool,
}

/// Framing of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// No bytes, or those that the head announces.
    Plain,
    Chunked,
    /// The end of the connection.
    Close,
}

/// Frames a response for a client of HTTP/1.0 or 1.1. The recorded framing stays if the client
/// understands it. Responses of HTTP/2, and those of browsers' archives that lack the fields, get
/// chunks, because a recorded length would be in the head.
pub(super) fn frame(response: &Response, is_http10: bool) -> Frame {
    let head = &response.head;
    let closes = is_http10
        || head.is_http1() && head.has_word("connection", "close")
        || head.protocol == Some(Protocol::Http10) && !head.has_word("connection", "keep-alive");
    let as_recorded = |framing| {
        let closes = closes || framing == Framing::Close;
        Frame { head: head.http1(), framing, closes }
    };
    if matches!(response.content, Content::None) {
        return as_recorded(Framing::Plain);
    }
    let is_chunked = head.is_http1() && head.has_word("transfer-encoding", "chunked");
    if is_chunked {
        if !is_http10 {
            return as_recorded(Framing::Chunked);
        }
        let head = head.to_http1(|field| !field.is("transfer-encoding"), "");
        return Frame { head, framing: Framing::Close, closes: true };
    }
    let keeps_trailers = !response.trailers.is_empty() && !head.is_http1() && !is_http10;
    if head.value("content-length").is_some() && !keeps_trailers {
        return as_recorded(Framing::Plain);
    }
    if is_http10 || head.is_http1() && !response.is_continued {
        return as_recorded(Framing::Close);
    }
    if response.length == 0 && !keeps_trailers && response.is_whole {
        let head = head.to_http1(|_| true, "Content-Length: 0\r\n");
        return Frame { head, framing: Framing::Plain, closes };
    }
    let added = "Transfer-Encoding: chunked\r\n";
    let head = head.to_http1(|field| !field.is("content-length"), added);
    Frame { head, framing: Framing::Chunked, closes }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::super::head::{Head, HeadField};
    use super::*;

    fn response(protocol: Protocol, fields: &[(&str, &str)], length: u64) -> Response {
        let fields = fields.iter().map(|(name, value)| HeadField::new(name, (*value).to_owned()));
        Response {
            head: Arc::new(Head::new(200, "Fine", Some(protocol), fields.collect())),
            content: Content::Recorded { exchange: 0, range: 0..length },
            length,
            trailers: Arc::default(),
            is_continued: false,
            is_whole: true,
        }
    }

    fn text(response: &Response, is_http10: bool) -> (String, Framing, bool) {
        let Frame { head, framing, closes } = frame(response, is_http10);
        let text = String::from_utf8(head.to_vec()).unwrap();
        (text.trim_end().replace("\r\n", "|"), framing, closes)
    }

    #[test]
    fn the_recorded_framing_stays() {
        use Framing::{Chunked, Close, Plain};
        for (fields, framing, closes) in [
            (&[("Content-Length", "5")][..], Plain, false),
            (&[("TRANSFER-encoding", "Chunked")], Chunked, false),
            (&[("Content-Length", "5"), ("Connection", "Close")], Plain, true),
            (&[], Close, true),
        ] {
            let lines: String =
                fields.iter().map(|(name, value)| format!("|{name}: {value}")).collect();
            let expected = (format!("HTTP/1.1 200 Fine{lines}"), framing, closes);
            assert_eq!(text(&response(Protocol::Http11, fields, 5), false), expected);
        }
        let old = response(Protocol::Http10, &[("Content-Length", "5")], 5);
        assert_eq!(text(&old, false), ("HTTP/1.0 200 Fine|Content-Length: 5".into(), Plain, true));
        let fields = [("Content-Length", "5"), ("Connection", "keep-alive")];
        assert!(!text(&response(Protocol::Http10, &fields, 5), false).2);
    }

    #[test]
    fn another_protocol_gets_another_framing() {
        use Framing::{Chunked, Close, Plain};
        let added = "HTTP/1.1 200 OK|Transfer-Encoding: chunked";
        let http2 = response(Protocol::Http2, &[], 5);
        assert_eq!(text(&http2, false), (added.into(), Chunked, false));
        assert_eq!(text(&http2, true), ("HTTP/1.1 200 OK".into(), Close, true));
        let empty = response(Protocol::Http2, &[], 0);
        assert_eq!(text(&empty, false), ("HTTP/1.1 200 OK|Content-Length: 0".into(), Plain, false));
        let endless = Response { is_whole: false, ..response(Protocol::Http2, &[], 0) };
        assert_eq!(text(&endless, false), (added.into(), Chunked, false));
        let chunked = response(Protocol::Http11, &[("Transfer-Encoding", "chunked")], 5);
        assert_eq!(text(&chunked, true), ("HTTP/1.1 200 Fine".into(), Close, true));
        // Archives of browsers may lack both fields, although the connection went on.
        let continued = Response { is_continued: true, ..response(Protocol::Http11, &[], 5) };
        let expected = "HTTP/1.1 200 Fine|Transfer-Encoding: chunked";
        assert_eq!(text(&continued, false), (expected.into(), Chunked, false));
    }

    #[test]
    fn trailers_of_http2_need_chunks() {
        let trailers: Arc<[HeadField]> = [HeadField::new("Digest", "x")].into();
        let with = |protocol| Response {
            trailers: trailers.clone(),
            ..response(protocol, &[("content-length", "5")], 5)
        };
        let expected = "HTTP/1.1 200 OK|Transfer-Encoding: chunked";
        assert_eq!(text(&with(Protocol::Http2), false), (expected.into(), Framing::Chunked, false));
        assert_eq!(text(&with(Protocol::Http11), false).1, Framing::Plain);
    }
}
