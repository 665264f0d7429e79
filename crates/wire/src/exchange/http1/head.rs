//! Heads of requests and responses, and the framing of their bodies.

use httparse::{EMPTY_HEADER, Header, ParserConfig, Status};

use crate::archive::{Field, Protocol};
use crate::exchange::{RequestHead, ResponseHead, number};

/// Maximum length of a head in bytes. Browsers accept responses of 256 KiB.
pub const MAX_HEAD_LENGTH: usize = 256 * 1024;
/// Maximum number of fields in a head.
pub const MAX_FIELDS: usize = 2_048;
/// Number of fields that are read without a second attempt.
const USUAL_FIELDS: usize = 64;

/// Where a body ends (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    None,
    Length(u64),
    Chunked,
    /// With the connection.
    UntilClose,
}

/// A head that is not complete.
#[derive(Debug, Default)]
pub(super) struct HeadBuffer {
    bytes: Vec<u8>,
}

impl HeadBuffer {
    /// Adds bytes. Returns how many belong to the head, and the head if it is complete.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(usize, Option<Vec<u8>>), &'static str> {
        let mut skipped = 0;
        if self.bytes.is_empty() {
            // Empty lines before a head are ignored (RFC 9112, 2.2).
            skipped = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        }
        let bytes = bytes.get(skipped..).unwrap_or_default();
        let before = self.bytes.len();
        let room = MAX_HEAD_LENGTH.saturating_sub(before);
        self.bytes.extend(bytes.iter().take(room));
        // An empty line may have begun with earlier bytes.
        let Some(end) = end_of(&self.bytes, before.saturating_sub(3)) else {
            return match bytes.len() >= room {
                true => Err("a head that is too long"),
                false => Ok((skipped + bytes.len(), None)),
            };
        };
        self.bytes.truncate(end);
        Ok((skipped + end.saturating_sub(before), Some(std::mem::take(&mut self.bytes))))
    }
}

/// Returns the length up to the end of the first empty line that ends behind `from`.
fn end_of(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        let next = bytes.get(at..)?.iter().position(|byte| *byte == b'\n')?;
        at += next + 1;
        match bytes.get(at..)? {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
}

/// Reads the head of a request.
pub(super) fn request(bytes: &[u8]) -> Result<(RequestHead, Framing), &'static str> {
    with_fields(|fields| {
        let mut read = httparse::Request::new(fields);
        match read.parse(bytes) {
            Ok(Status::Complete(_)) => {}
            Err(httparse::Error::TooManyHeaders) => return Ok(None),
            _ => return Err("a request that is not HTTP/1"),
        }
        let (Some(method), Some(target), Some(version)) = (read.method, read.path, read.version)
        else {
            return Err("a request that is not HTTP/1");
        };
        let body = BodyFields::of(read.headers)?;
        let framing = match (body.is_encoded, body.is_chunked, body.length) {
            (true, false, _) => return Err("a request without an end"),
            (true, true, _) => Framing::Chunked,
            (false, _, Some(length)) => Framing::Length(length),
            (false, _, None) => Framing::None,
        };
        let host = read.headers.iter().find(|field| field.name.eq_ignore_ascii_case("host"));
        let head = RequestHead {
            method: method.to_owned(),
            target: target.to_owned(),
            scheme: None,
            authority: host.map(|host| String::from_utf8_lossy(host.value).into_owned()),
            protocol: protocol(version),
            fields: fields_of(read.headers),
            length: body.length,
        };
        Ok(Some((head, framing)))
    })
}

/// Reads the head of a response, which answers HEAD or another method.
pub(super) fn response(
    bytes: &[u8],
    answers_head: bool,
) -> Result<(ResponseHead, Framing), &'static str> {
    with_fields(|fields| {
        let mut config = ParserConfig::default();
        // Browsers accept these, too.
        config
            .allow_spaces_after_header_name_in_responses(true)
            .allow_obsolete_multiline_headers_in_responses(true)
            .ignore_invalid_headers_in_responses(true);
        let mut read = httparse::Response::new(fields);
        match config.parse_response(&mut read, bytes) {
            Ok(Status::Complete(_)) => {}
            Err(httparse::Error::TooManyHeaders) => return Ok(None),
            _ => return Err("a response that is not HTTP/1"),
        }
        let (Some(status), Some(version)) = (read.code, read.version) else {
            return Err("a response that is not HTTP/1");
        };
        let body = BodyFields::of(read.headers)?;
        let is_empty = answers_head || status < 200 || matches!(status, 204 | 304);
        let framing = match (body.is_encoded, body.is_chunked, body.length) {
            _ if is_empty => Framing::None,
            (true, true, _) => Framing::Chunked,
            (true, false, _) | (false, _, None) => Framing::UntilClose,
            (false, _, Some(length)) => Framing::Length(length),
        };
        let head = ResponseHead {
            status,
            reason: read.reason.unwrap_or_default().to_owned(),
            protocol: protocol(version),
            fields: fields_of(read.headers),
            length: body.length.filter(|_| !is_empty),
        };
        Ok(Some((head, framing)))
    })
}

/// Reads the trailer section with its empty line.
pub(super) fn trailers(bytes: &[u8]) -> Result<Vec<Field>, &'static str> {
    with_fields(|fields| match httparse::parse_headers(bytes, fields) {
        Ok(Status::Complete((_, fields))) => Ok(Some(fields_of(fields))),
        Err(httparse::Error::TooManyHeaders) => Ok(None),
        _ => Err("trailers that are not HTTP/1"),
    })
}

/// Reads with room for the usual number of fields, and if that returns `None`, for the maximum.
fn with_fields<'b, T>(
    read: impl Fn(&mut [Header<'b>]) -> Result<Option<T>, &'static str>,
) -> Result<T, &'static str> {
    if let Some(done) = read(&mut [EMPTY_HEADER; USUAL_FIELDS])? {
        return Ok(done);
    }
    read(&mut vec![EMPTY_HEADER; MAX_FIELDS])?.ok_or("too many fields")
}

fn fields_of(fields: &[Header<'_>]) -> Vec<Field> {
    let field =
        |field: &Header<'_>| Field { name: field.name.to_owned(), value: field.value.to_owned() };
    fields.iter().map(field).collect()
}

fn protocol(minor_version: u8) -> Protocol {
    if minor_version == 0 { Protocol::Http10 } else { Protocol::Http11 }
}

/// Fields that describe the body.
#[derive(Clone, Copy, Debug, Default)]
struct BodyFields {
    /// Whether there is `Transfer-Encoding`.
    is_encoded: bool,
    /// Whether its last coding is `chunked`.
    is_chunked: bool,
    length: Option<u64>,
}

impl BodyFields {
    fn of(fields: &[Header<'_>]) -> Result<Self, &'static str> {
        let mut found = Self::default();
        for field in fields {
            if field.name.eq_ignore_ascii_case("transfer-encoding") {
                let last = field.value.rsplit(|byte| *byte == b',').next().unwrap_or_default();
                found.is_encoded = true;
                found.is_chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
            } else if field.name.eq_ignore_ascii_case("content-length") {
                for value in field.value.split(|byte| *byte == b',') {
                    let length = number(value.trim_ascii()).ok_or("an invalid Content-Length")?;
                    if found.length.is_some_and(|before| before != length) {
                        return Err("two values of Content-Length");
                    }
                    found.length = Some(length);
                }
            }
        }
        Ok(found)
    }
}
