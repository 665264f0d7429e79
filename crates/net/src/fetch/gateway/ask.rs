//! Requests of the player: what they ask for, and whether they are answered at all.

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, StatusCode, Uri, Version};
use manyways_proto::fetch::{Excerpt, parse_http_date};

use super::super::report::ResponseHead;
use super::Shared;
use super::mapping::{NoResource, Resource};
use super::transfers::Failure;

/// The bytes that a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    /// From a byte to another one, or to the end.
    From { start: u64, end: Option<u64> },
    /// This number of bytes at the end.
    Last(u64),
}

impl Wanted {
    /// The part of an object of this length; `None` if the object has none of these bytes.
    pub(super) fn of(self, total: u64) -> Option<Excerpt> {
        let (start, end) = match self {
            Self::From { start, end } => (start, end_within(end, total)),
            Self::Last(count) => (total.saturating_sub(count), total),
        };
        (start < end).then_some(Excerpt { start, end: Some(end) })
    }
}

/// The end of a part of an object of this length.
pub(super) fn end_within(end: Option<u64>, total: u64) -> u64 {
    end.map_or(total, |end| end.min(total))
}

/// A request for an object.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) resource: Resource,
    pub(super) is_head: bool,
    pub(super) wanted: Option<Wanted>,
    /// `127.0.0.1:8080`, as the player writes it.
    pub(super) authority: String,
    if_range: Option<HeaderValue>,
    if_none_match: Vec<HeaderValue>,
    if_modified_since: Option<HeaderValue>,
}

/// How a request is treated.
#[derive(Debug)]
pub(super) enum Treatment {
    Object(Box<Ask>),
    /// The answer to a browser that asks before a request to another origin.
    Preflight,
    Refused(Failure),
}

impl Shared {
    /// Decides about a request by its head.
    pub(super) fn treat<B>(&self, request: &Request<B>) -> Treatment {
        let refuse = |status, text: &str| Treatment::Refused(Failure::new(status, text));
        let authority = match authority_of(request) {
            Some(authority) if self.is_own(&authority) => authority,
            Some(_) => {
                let text = "this server answers only to its loopback address and to localhost";
                return refuse(StatusCode::MISDIRECTED_REQUEST, text);
            }
            None => return refuse(StatusCode::BAD_REQUEST, "the request has no usable Host"),
        };
        let target = target_of(request.uri());
        let resource = match self.mapping.resource(target) {
            Ok(resource) => resource,
            Err(NoResource::Token) => {
                return refuse(StatusCode::NOT_FOUND, "there is nothing here");
            }
            Err(NoResource::Location(error)) => {
                return refuse(StatusCode::BAD_REQUEST, &error.to_string());
            }
        };
        let is_head = match *request.method() {
            Method::GET => false,
            Method::HEAD => true,
            Method::OPTIONS => return Treatment::Preflight,
            _ => {
                let text = "this server answers only GET and HEAD";
                return refuse(StatusCode::METHOD_NOT_ALLOWED, text);
            }
        };
        if !self.guard.permits_requests(resource.location.origin()) {
            let origin = resource.location.origin().authority();
            let text = format!("{origin} is neither the origin nor in one of its manifests");
            return refuse(StatusCode::FORBIDDEN, &text);
        }
        let headers = request.headers();
        Treatment::Object(Box::new(Ask {
            resource,
            is_head,
            wanted: headers.get(header::RANGE).and_then(|range| wanted(range.as_bytes())),
            authority,
            if_range: headers.get(header::IF_RANGE).cloned(),
            if_none_match: headers.get_all(header::IF_NONE_MATCH).iter().cloned().collect(),
            if_modified_since: headers.get(header::IF_MODIFIED_SINCE).cloned(),
        }))
    }

    /// Whether a host and port are those of this server. Any other name may lead here as well, if a
    /// page wants to be of the same origin (DNS rebinding).
    fn is_own(&self, authority: &str) -> bool {
        let port = self.address.port();
        let (host, given) = match authority.rsplit_once(':') {
            Some((host, digits)) if !digits.contains(']') => (host, digits.parse().ok()),
            _ => (authority, Some(80)),
        };
        let is_host = host.eq_ignore_ascii_case("localhost")
            || host.trim_start_matches('[').trim_end_matches(']').parse() == Ok(self.address.ip());
        is_host && given == Some(port)
    }
}

/// The host and port of a request; `None` if it has none, or two.
fn authority_of<B>(request: &Request<B>) -> Option<String> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = hosts.next().map(|host| host.to_str().ok());
    if hosts.next().is_some() {
        return None;
    }
    // `:authority`, or the absolute form of HTTP/1.1, which takes precedence over `Host`.
    let in_uri = request.uri().authority().map(|authority| authority.as_str().to_owned());
    let host = host.flatten().map(str::to_owned);
    match (in_uri, host, request.version()) {
        (Some(authority), host, _) if host.as_ref().is_none_or(|host| *host == authority) => {
            Some(authority)
        }
        (None, host, Version::HTTP_11 | Version::HTTP_10) => host,
        _ => None,
    }
}

fn target_of(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", |target| target.as_str())
}

/// Reads a `Range` with one range. `None` for several ranges, other units and wrong values, which a
/// server may ignore (RFC 9110 §14.2).
fn wanted(value: &[u8]) -> Option<Wanted> {
    let text = std::str::from_utf8(value).ok()?.trim_ascii();
    let (unit, range) = text.split_once('=')?;
    let (first, last) = range.trim_ascii().split_once('-')?;
    let number = |digits: &str| -> Option<u64> {
        digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
    };
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    match (first, last) {
        ("", last) => Some(Wanted::Last(number(last)?)),
        (first, "") => Some(Wanted::From { start: number(first)?, end: None }),
        (first, last) => {
            let (start, last) = (number(first)?, number(last)?);
            let end = last.checked_add(1).filter(|end| *end > start)?;
            Some(Wanted::From { start, end: Some(end) })
        }
    }
}

/// The part of an object of length `total` that a `Range` asks for, to test this with any bytes.
#[doc(hidden)]
pub fn requested_part(range: &[u8], total: u64) -> Option<Excerpt> {
    wanted(range)?.of(total)
}

impl Ask {
    /// Whether `If-Range` names another version than the server has now: then the player wants the
    /// whole object.
    pub(super) fn has_other_version(&self, head: &ResponseHead) -> bool {
        let Some(wanted) = &self.if_range else { return false };
        let is_tag = wanted.as_bytes().starts_with(b"\"");
        let name = if is_tag { header::ETAG } else { header::LAST_MODIFIED };
        head.headers.get(name) != Some(wanted)
    }

    /// Whether the player has the version that the server has now (RFC 9110 §13.2.2).
    pub(super) fn is_unmodified(&self, head: &ResponseHead) -> bool {
        if !self.if_none_match.is_empty() {
            return self.has_tag(&head.headers);
        }
        let date = |value: Option<&HeaderValue>| parse_http_date(value?.to_str().ok()?);
        let since = date(self.if_modified_since.as_ref());
        let modified = date(head.headers.get(header::LAST_MODIFIED));
        since.zip(modified).is_some_and(|(since, modified)| modified <= since)
    }

    fn has_tag(&self, headers: &HeaderMap) -> bool {
        let opaque = |tag: &[u8]| tag.strip_prefix(b"W/").unwrap_or(tag).to_vec();
        let own = headers.get(header::ETAG).map(|tag| opaque(tag.as_bytes()));
        let given = self.if_none_match.iter().map(HeaderValue::as_bytes);
        // A comma in a tag only means that the player gets the object once more.
        let mut given = given.flat_map(|tags| tags.split(|byte| *byte == b','));
        given.any(|tag| tag.trim_ascii() == b"*" || Some(opaque(tag.trim_ascii())) == own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_of_bytes_is_read() {
        let from = |start, end| Some(Wanted::From { start, end });
        for (text, expected) in [
            ("bytes=0-0", from(0, Some(1))),
            ("bytes=5-9", from(5, Some(10))),
            ("Bytes= 5-9 ", from(5, Some(10))),
            ("bytes=5-", from(5, None)),
            ("bytes=-500", Some(Wanted::Last(500))),
            ("bytes=9-5", None),
            ("bytes=-", None),
            ("bytes=a-5", None),
            ("bytes=+1-5", None),
            ("bytes=0-1,4-5", None),
            ("bytes=0-18446744073709551615", None),
            ("lines=1-2", None),
            ("bytes", None),
        ] {
            assert_eq!(wanted(text.as_bytes()), expected, "{text}");
        }
        assert_eq!(wanted(b"bytes=\xff-"), None);
    }

    #[test]
    fn a_part_ends_with_its_object() {
        let part = |range: &str, total| {
            let part = requested_part(range.as_bytes(), total)?;
            Some(part.start..part.end?)
        };
        for (range, expected) in [
            ("bytes=0-0", Some(0..1)),
            ("bytes=5-", Some(5..10)),
            ("bytes=5-99", Some(5..10)),
            ("bytes=-3", Some(7..10)),
            ("bytes=-99", Some(0..10)),
            ("bytes=10-", None),
            ("bytes=-0", None),
            ("bytes=x-", None),
        ] {
            assert_eq!(part(range, 10), expected, "{range}");
        }
        assert_eq!(part("bytes=-5", 0), None);
    }
}
