//! Heads of responses, in the forms of both protocols.

use std::sync::OnceLock;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use manyways_wire::archive::{Field, Protocol};

/// Fields in which a response may differ from the recorded one, and why. All others are identical, in
/// their order and, in HTTP/1, their case. The `h2` crate writes fields of one name behind each other.
pub const CHANGED_FIELDS: [(&str, &str); 9] = [
    ("Alt-Svc", "removed: HTTP/3 is not served"),
    ("Date", "as old as in the recording"),
    ("Expires", "as old as in the recording"),
    ("Last-Modified", "as old as in the recording"),
    ("Set-Cookie", "its date of expiry is as old as in the recording"),
    (
        "Content-Length",
        "the length that is sent: of a hollow body, of a range, or added for a client with another \
         protocol than the recorded one",
    ),
    ("Content-Range", "added if a range is cut out of a recorded response"),
    ("Content-Encoding", "removed from a hollow body with a coding that cannot be imitated"),
    (
        "Transfer-Encoding",
        "added, or removed with other fields of the connection, if the protocol differs",
    ),
];

/// Fields that belong to a connection of HTTP/1 (RFC 9113, 8.2.2).
const OF_CONNECTION: [&str; 5] =
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

/// A field of a head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadField {
    /// As recorded.
    pub name: Bytes,
    pub value: Bytes,
    /// `None` if HTTP/2 does not allow the name.
    lower: Option<HeaderName>,
}

/// The head of a response.
#[derive(Debug, Default)]
pub struct Head {
    pub status: u16,
    pub reason: String,
    /// That of the recording.
    pub protocol: Option<Protocol>,
    pub fields: Vec<HeadField>,
    http1: OnceLock<Bytes>,
    http2: OnceLock<HeaderMap>,
}

impl HeadField {
    pub(super) fn new(name: &str, value: impl Into<Bytes>) -> Self {
        Self {
            name: Bytes::copy_from_slice(name.as_bytes()),
            value: value.into(),
            lower: HeaderName::from_bytes(name.as_bytes()).ok(),
        }
    }

    pub(super) fn recorded(field: &Field) -> Self {
        Self::new(&field.name, Bytes::copy_from_slice(&field.value))
    }

    /// Whether the field has this name, in lower case.
    pub(super) fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }

    /// Whether a line of HTTP/1 can have it: nothing of it ends the line.
    fn is_one_line(&self) -> bool {
        let ends = |bytes: &[u8]| bytes.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
        !ends(&self.name) && !ends(&self.value) && !self.name.contains(&b':')
    }
}

impl Head {
    pub(super) fn new(
        status: u16,
        reason: &str,
        protocol: Option<Protocol>,
        fields: Vec<HeadField>,
    ) -> Self {
        Self { status, reason: reason.to_owned(), protocol, fields, ..Self::default() }
    }

    /// Returns the first value of a field, whose name is in lower case.
    pub fn value(&self, name: &str) -> Option<&Bytes> {
        self.fields.iter().find(|field| field.is(name)).map(|field| &field.value)
    }

    /// Whether a list field contains a word, in lower case.
    pub(super) fn has_word(&self, name: &str, word: &str) -> bool {
        let values = self.fields.iter().filter(|field| field.is(name));
        values
            .flat_map(|field| words(&field.value))
            .any(|other| other.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Whether the recorded protocol is HTTP/1.
    pub(super) fn is_http1(&self) -> bool {
        matches!(self.protocol, Some(Protocol::Http10 | Protocol::Http11))
    }

    /// The head as bytes of HTTP/1, with its empty line.
    pub(super) fn http1(&self) -> Bytes {
        self.http1.get_or_init(|| self.to_http1(|_| true, "")).clone()
    }

    /// The head as bytes of HTTP/1, with some of its fields, and lines before the empty one.
    pub(super) fn to_http1(&self, keep: impl Fn(&HeadField) -> bool, added: &str) -> Bytes {
        let mut out = BytesMut::with_capacity(512);
        let version = if self.protocol == Some(Protocol::Http10) { "1.0" } else { "1.1" };
        let reason = match StatusCode::from_u16(self.status) {
            Ok(status) if !self.is_http1() => status.canonical_reason().unwrap_or_default(),
            _ => &self.reason,
        };
        out.put_slice(format!("HTTP/{version} {:03} ", self.status).as_bytes());
        out.extend(reason.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n' | 0)));
        out.put_slice(b"\r\n");
        put_fields(self.fields.iter().filter(|field| keep(field)), &mut out);
        out.put_slice(added.as_bytes());
        out.put_slice(b"\r\n");
        out.freeze()
    }

    /// The fields for HTTP/2: without those of a connection of HTTP/1.
    pub(super) fn http2(&self) -> HeaderMap {
        self.http2.get_or_init(|| self.to_http2()).clone()
    }

    fn to_http2(&self) -> HeaderMap {
        let named: Vec<&[u8]> = self
            .fields
            .iter()
            .filter(|field| field.is("connection"))
            .flat_map(|field| words(&field.value))
            .collect();
        let of_connection = |field: &HeadField| {
            OF_CONNECTION.iter().any(|name| field.is(name))
                || named.iter().any(|name| field.name.eq_ignore_ascii_case(name))
        };
        to_map(self.fields.iter().filter(|field| !of_connection(field)))
    }
}

/// Fields as HTTP/2 has them; those that it does not allow are omitted.
pub(super) fn to_map<'f>(fields: impl IntoIterator<Item = &'f HeadField>) -> HeaderMap {
    let mut map = HeaderMap::new();
    for field in fields {
        if let Some(name) = &field.lower
            && let Ok(value) = HeaderValue::from_maybe_shared(field.value.clone())
        {
            // A map has room for 32,768 names.
            let _ = map.try_append(name, value);
        }
    }
    map
}

/// Writes fields as lines of HTTP/1. Fields that would end their line are omitted.
pub(super) fn put_fields<'f>(fields: impl IntoIterator<Item = &'f HeadField>, out: &mut BytesMut) {
    for field in fields.into_iter().filter(|field| field.is_one_line()) {
        out.put_slice(&field.name);
        out.put_slice(b": ");
        out.put_slice(&field.value);
        out.put_slice(b"\r\n");
    }
}

/// The parts of a list (RFC 9110, 5.6.1).
pub(super) fn words(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(protocol: Protocol, fields: &[(&str, &str)]) -> Head {
        let fields =
            fields.iter().map(|(name, value)| HeadField::new(name, value.as_bytes().to_vec()));
        Head::new(404, "Gone Fishing", Some(protocol), fields.collect())
    }

    #[test]
    fn a_head_has_its_order_case_reason_and_version() {
        let fields = [("Set-Cookie", "a=1"), ("x-Y", "1  2"), ("set-cookie", "b=2"), ("Empty", "")];
        let text = "Set-Cookie: a=1\r\nx-Y: 1  2\r\nset-cookie: b=2\r\nEmpty: \r\n\r\n";
        for (protocol, line) in [
            (Protocol::Http10, "HTTP/1.0 404 Gone Fishing\r\n"),
            (Protocol::Http11, "HTTP/1.1 404 Gone Fishing\r\n"),
            (Protocol::Http2, "HTTP/1.1 404 Not Found\r\n"),
        ] {
            assert_eq!(head(protocol, &fields).http1(), format!("{line}{text}"));
        }
    }

    #[test]
    fn a_field_cannot_end_its_line() {
        let head = head(Protocol::Http11, &[("A\r\nB", "1"), ("C", "1\r\n\r\n2"), ("D: E", "1")]);
        assert_eq!(head.http1(), "HTTP/1.1 404 Gone Fishing\r\n\r\n");
    }

    #[test]
    fn http2_has_no_fields_of_a_connection() {
        let head = head(
            Protocol::Http11,
            &[
                ("Connection", "close, X-Hop"),
                ("Keep-Alive", "timeout=5"),
                ("X-Hop", "1"),
                ("Transfer-Encoding", "chunked"),
                ("X-Stay", "1"),
                ("Not A Token", "1"),
            ],
        );
        let map = head.http2();
        assert_eq!(map.len(), 1);
        assert_eq!(map["x-stay"], "1");
    }
}
