//! Reads headers, complete or truncated.

use std::borrow::Cow;

use httparse::{Header, ParserConfig};
use manyways_unit::Time;
use sha2::{Digest, Sha256};

use super::head_reader::Expected;
use super::range::number;
use super::{
    Authority, CapturedBody, ContentRange, Framing, MAX_FIELDS, MAX_METHOD_LENGTH, Request,
    RequestedRange, Response, absolute_authority, host,
};

/// Maximum number of characters kept of a `User-Agent`.
pub const MAX_USER_AGENT_LENGTH: usize = 256;
/// Maximum length of a content type that is kept. RFC 6838 (4.2) recommends names of at most 64
/// characters.
pub const MAX_CONTENT_TYPE_LENGTH: usize = 128;
/// Maximum length of a list of content codings that is kept.
pub const MAX_CONTENT_CODING_LENGTH: usize = 64;

/// Registered methods in use. Only these are accepted if the rest of the line is missing, or at a
/// position where other data is possible.
const METHODS: [&str; 26] = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "CONNECT",
    "OPTIONS",
    "TRACE",
    "PATCH",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "REPORT",
    "SEARCH",
    "M-SEARCH",
    "SUBSCRIBE",
    "UNSUBSCRIBE",
    "NOTIFY",
    "MERGE",
    "PURGE",
    "MKCALENDAR",
    "ACL",
];
/// Beginning of a status line; `d` is any digit.
const STATUS_LINE: &[u8] = b"HTTP/1.d ddd";
const TLS_HANDSHAKE: u8 = 0x16;

/// Message body length (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyLength {
    /// Without a length field.
    Undeclared,
    Known(u64),
    Chunked,
    /// With a transfer coding that does not delimit the body.
    UntilClose,
    /// With contradictory fields.
    Invalid,
}

/// Whether `bytes` begin a header; `None` if undecided.
pub(super) fn is_head_start(kind: Expected, bytes: &[u8]) -> Option<bool> {
    match kind {
        Expected::Request => {
            let end = bytes.iter().position(|byte| !is_method(*byte));
            let length = end.unwrap_or(bytes.len());
            if length > MAX_METHOD_LENGTH {
                return Some(false);
            }
            bytes.get(end?).map(|byte| *byte == b' ' && length > 0)
        }
        Expected::LikelyRequest => {
            let mut is_open = false;
            for method in METHODS {
                match bytes.strip_prefix(method.as_bytes()) {
                    Some([b' ', target, ..]) => {
                        return Some(method == "CONNECT" || b"/*hH".contains(target));
                    }
                    Some([] | [b' ']) => is_open = true,
                    Some(_) => {}
                    None => is_open |= method.as_bytes().starts_with(bytes),
                }
            }
            if is_open { None } else { Some(false) }
        }
        Expected::Response => {
            let fits = |(byte, pattern): (&u8, &u8)| match *pattern {
                b'd' => byte.is_ascii_digit(),
                letter => *byte == letter,
            };
            if !bytes.iter().zip(STATUS_LINE).all(fits) {
                return Some(false);
            }
            (bytes.len() >= STATUS_LINE.len()).then_some(true)
        }
    }
}

/// Whether `line`, including its line end, is a valid first line.
pub(super) fn is_first_line(kind: Expected, line: &[u8]) -> bool {
    let line = line.trim_ascii_end();
    match kind {
        Expected::Request | Expected::LikelyRequest => {
            line.ends_with(b" HTTP/1.1") || line.ends_with(b" HTTP/1.0")
        }
        Expected::Response => is_head_start(kind, line) == Some(true),
    }
}

/// Whether the bytes of a client begin like TLS or HTTP/2.
pub(super) fn is_other_protocol(bytes: &[u8]) -> bool {
    bytes.first() == Some(&TLS_HANDSHAKE) || bytes.starts_with(b"PRI * ")
}

/// Reads the header of a request, complete or truncated. The caller sets times and lengths.
pub(super) fn request(bytes: &[u8], is_whole: bool) -> Option<(Request, BodyLength)> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    if let Some(read) = read_request(&terminate_head(bytes, is_whole)?, &mut fields) {
        return Some((Request { is_truncated: !is_whole, ..read.0 }, read.1));
    }
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let (request, _) = read_request(&terminate_head(first_line(bytes), false)?, &mut fields)
        .or_else(|| parse_method(bytes))?;
    Some((Request { is_truncated: true, ..request }, BodyLength::Invalid))
}

/// Reads the header of a response like [`request`].
pub(super) fn response(bytes: &[u8], is_whole: bool) -> Option<(Response, BodyLength)> {
    if is_head_start(Expected::Response, bytes) != Some(true) {
        return None;
    }
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    if let Some(read) = read_response(&terminate_head(bytes, is_whole)?, &mut fields) {
        return Some((Response { is_truncated: !is_whole, ..read.0 }, read.1));
    }
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let status = [bytes.get(..STATUS_LINE.len())?, b"\r\n\r\n"].concat();
    let (response, _) = read_response(&status, &mut fields)?;
    Some((Response { is_truncated: true, ..response }, BodyLength::Invalid))
}

/// Terminates a truncated header after its last complete line.
fn terminate_head(bytes: &[u8], is_whole: bool) -> Option<Cow<'_, [u8]>> {
    if is_whole {
        return Some(bytes.into());
    }
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    Some([bytes.get(..end)?, b"\r\n"].concat().into())
}

fn first_line(bytes: &[u8]) -> &[u8] {
    bytes.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default()
}

fn parse_method(bytes: &[u8]) -> Option<(Request, BodyLength)> {
    if is_head_start(Expected::LikelyRequest, bytes) != Some(true) {
        return None;
    }
    let end = bytes.iter().position(|byte| *byte == b' ')?;
    let name = std::str::from_utf8(bytes.get(..end)?).ok()?;
    Some((Request { method: method(name), ..empty_request() }, BodyLength::Invalid))
}

fn read_request<'b>(
    bytes: &'b [u8],
    fields: &mut [Header<'b>; MAX_FIELDS],
) -> Option<(Request, BodyLength)> {
    let mut head = httparse::Request::new(fields);
    let mut config = ParserConfig::default();
    config.ignore_invalid_headers_in_requests(true);
    config.parse_request(&mut head, bytes).ok().filter(httparse::Status::is_complete)?;
    let target = head.path.unwrap_or_default();
    let name = method(head.method?);
    let authority = match absolute_authority(target) {
        _ if name == "CONNECT" => Authority::parse(target.as_bytes()),
        Some(authority) => Authority::parse(authority),
        None => host(head.headers),
    };
    let request = Request {
        resource: authority.as_ref().and_then(|authority| resource(authority, target)),
        method: name,
        host: authority,
        user_agent: field_value(head.headers, "user-agent")
            .and_then(|value| text(value, MAX_USER_AGENT_LENGTH)),
        range: field_value(head.headers, "range").and_then(RequestedRange::read).map(Box::new),
        ..empty_request()
    };
    Some((request, body(head.headers)))
}

fn read_response<'b>(
    bytes: &'b [u8],
    fields: &mut [Header<'b>; MAX_FIELDS],
) -> Option<(Response, BodyLength)> {
    let mut head = httparse::Response::new(fields);
    let mut config = ParserConfig::default();
    config
        .ignore_invalid_headers_in_responses(true)
        .allow_spaces_after_header_name_in_responses(true)
        .allow_multiple_spaces_in_response_status_delimiters(true);
    config.parse_response(&mut head, bytes).ok().filter(httparse::Status::is_complete)?;
    let response = Response {
        status: Some(head.code?),
        content_type: field_value(head.headers, "content-type").and_then(content_type),
        coding: field_value(head.headers, "content-encoding").and_then(coding),
        content_length: declared_length(head.headers).ok().flatten(),
        content_range: field_value(head.headers, "content-range")
            .and_then(ContentRange::read)
            .map(Box::new),
        ..empty_response()
    };
    Some((response, body(head.headers)))
}

fn empty_request() -> Request {
    Request {
        method: Cow::Borrowed(""),
        host: None,
        resource: None,
        user_agent: None,
        range: None,
        first: Time::ZERO,
        last: Time::ZERO,
        length: 0,
        is_truncated: false,
        is_complete: false,
    }
}

/// A response without known properties.
pub(super) fn empty_response() -> Response {
    Response {
        status: None,
        content_type: None,
        coding: None,
        content_length: None,
        framing: None,
        body: CapturedBody::Content(0),
        content_range: None,
        first: Time::ZERO,
        last: Time::ZERO,
        length: 0,
        is_truncated: true,
    }
}

fn method(name: &str) -> Cow<'static, str> {
    match METHODS.into_iter().find(|known| *known == name) {
        Some(known) => known.into(),
        None => name.to_owned().into(),
    }
}

fn is_method(byte: u8) -> bool {
    byte.is_ascii_uppercase() || matches!(byte, b'-' | b'_')
}

/// Computes [`Request::resource`].
fn resource(authority: &Authority, target: &str) -> Option<u64> {
    let path = match target.split_once("://") {
        Some((_, rest)) if absolute_authority(target).is_some() => {
            rest.find(['/', '?']).map_or("", |at| &rest[at..])
        }
        _ => target,
    };
    let path = path.split('#').next().unwrap_or_default();
    let slash = if path.starts_with('/') { "" } else { "/" };
    let sum = Sha256::digest(format!("{}{slash}{path}", authority.host).as_bytes());
    sum.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

fn field_values<'f>(fields: &'f [Header<'_>], name: &str) -> impl Iterator<Item = &'f [u8]> {
    fields
        .iter()
        .filter(move |field| field.name.eq_ignore_ascii_case(name))
        .map(|field| field.value.trim_ascii())
}

fn field_value<'f>(fields: &'f [Header<'_>], name: &str) -> Option<&'f [u8]> {
    field_values(fields, name).next()
}

fn body(fields: &[Header<'_>]) -> BodyLength {
    // A transfer coding overrides `Content-Length` (RFC 9112, 6.3).
    if let Some(codings) = field_values(fields, "transfer-encoding").last() {
        let last = codings.rsplit(|byte| *byte == b',').next().unwrap_or_default();
        let is_chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
        return if is_chunked { BodyLength::Chunked } else { BodyLength::UntilClose };
    }
    match declared_length(fields) {
        Ok(None) => BodyLength::Undeclared,
        Ok(Some(length)) => BodyLength::Known(length),
        Err(InvalidLength) => BodyLength::Invalid,
    }
}

/// An invalid length, or two different lengths.
struct InvalidLength;

fn declared_length(fields: &[Header<'_>]) -> Result<Option<u64>, InvalidLength> {
    let mut lengths = field_values(fields, "content-length")
        .flat_map(|value| value.split(|byte| *byte == b','))
        .map(|value| number(value.trim_ascii()).ok_or(InvalidLength));
    let Some(length) = lengths.next().transpose()? else { return Ok(None) };
    for other in lengths {
        if other? != length {
            return Err(InvalidLength);
        }
    }
    Ok(Some(length))
}

/// At most `max` characters; unprintable bytes become `?`.
fn text(value: &[u8], max: usize) -> Option<Box<str>> {
    let printed = |byte: &u8| match byte {
        b' '..=b'~' => char::from(*byte),
        _ => '?',
    };
    let text: String = value.iter().take(max).map(printed).collect();
    (!text.is_empty()).then(|| text.into())
}

/// The media type without parameters.
fn content_type(value: &[u8]) -> Option<Box<str>> {
    let name = value.split(|byte| *byte == b';').next()?.trim_ascii();
    let at = name.iter().position(|byte| *byte == b'/')?;
    let (kind, subtype) = (name.get(..at)?, name.get(at + 1..)?);
    if name.len() > MAX_CONTENT_TYPE_LENGTH || !is_token(kind) || !is_token(subtype) {
        return None;
    }
    lower(name)
}

fn coding(value: &[u8]) -> Option<Box<str>> {
    let is_list = value.len() <= MAX_CONTENT_CODING_LENGTH
        && value.split(|byte| *byte == b',').all(|name| is_token(name.trim_ascii()));
    if is_list { lower(value) } else { None }
}

fn lower(value: &[u8]) -> Option<Box<str>> {
    std::str::from_utf8(value).ok().map(|text| text.to_ascii_lowercase().into())
}

/// Whether `bytes` are a token (RFC 9110, 5.6.2).
fn is_token(bytes: &[u8]) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !bytes.is_empty() && bytes.iter().all(is_letter)
}

/// How the body of a response is delimited (RFC 9112, 6.3); `None` if unknown.
pub(super) fn framing(
    method: Option<&str>,
    status: Option<u16>,
    body: BodyLength,
) -> Option<Framing> {
    if method == Some("HEAD") || matches!(status, Some(100..=199 | 204 | 304)) {
        return Some(Framing::NoBody);
    }
    match body {
        BodyLength::Undeclared | BodyLength::UntilClose => Some(Framing::Close),
        BodyLength::Known(_) => Some(Framing::Length),
        BodyLength::Chunked => Some(Framing::Chunked),
        BodyLength::Invalid => None,
    }
}
