//! Description of the object in a response, and whether its bytes may be combined with other
//! responses.

use std::fmt;

use manyways_unit::Span;

use super::redirect::may_have_expired;
use super::retry::is_temporary;
use super::{ContentRange, Range};

/// Proof that two responses carry bytes of the same object (RFC 9110 §8.8).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Validator {
    /// A strong entity tag, with its quotes.
    Etag(String),
    /// A `Last-Modified` date, in the server's spelling.
    LastModified(String),
}

impl Validator {
    /// Selects the validator from the headers of a response.
    ///
    /// A weak tag (`W/"…"`) proves nothing about bytes. A `Last-Modified` that equals `Date` is not
    /// used either, because the object may still change within the same second (RFC 9110 §8.8.2.2).
    pub fn choose(
        etag: Option<&str>,
        last_modified: Option<&str>,
        date: Option<&str>,
    ) -> Option<Self> {
        if let Some(tag) = etag
            && tag.len() >= 2
            && tag.starts_with('"')
            && tag.ends_with('"')
        {
            return Some(Self::Etag(tag.to_owned()));
        }
        let modified = last_modified?;
        (!modified.is_empty() && date != Some(modified))
            .then(|| Self::LastModified(modified.to_owned()))
    }

    /// The value for `If-Range`.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Etag(text) | Self::LastModified(text) => text,
        }
    }
}

impl fmt::Display for Validator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Etag(tag) => write!(f, "ETag {tag}"),
            Self::LastModified(date) => write!(f, "Last-Modified {date}"),
        }
    }
}

/// How soon a change of the object shows in its validator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValidatorKind {
    /// A strong entity tag, which its server changes with the object.
    Tag,
    /// A time in seconds: two versions of the same second and length are not distinguished.
    Second,
}

impl ValidatorKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Tag => "tag",
            Self::Second => "second",
        }
    }
}

/// The fields of a response head that a fetch uses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Head {
    pub status: u16,
    /// `Content-Length`.
    pub length: Option<u64>,
    /// `Content-Range`; `Some(None)` if it cannot be parsed.
    pub content_range: Option<Option<ContentRange>>,
    pub validator: Option<Validator>,
    /// Whether the server sent `Accept-Ranges: none`.
    pub refuses_ranges: bool,
    /// Whether the body has a content coding although the request asked for none.
    pub is_encoded: bool,
    /// `Retry-After`: the wait that the server asks for.
    pub retry_after: Option<Span>,
    /// Whether the target of a redirect answered, and not the given URL.
    pub is_redirected: bool,
    /// Host from which the response comes, if a redirect led to another one than the URL's.
    pub other_host: Option<String>,
    /// Whether the body is a page (`text/html`) that must not be stored (`no-store`).
    pub is_uncacheable_page: bool,
}

impl Head {
    /// Length of the whole object; `None` if the head does not contain it.
    pub fn total_length(&self) -> Option<u64> {
        if self.is_whole() { self.length } else { self.content_range.flatten()?.length }
    }

    /// The status, with 200 in place of a code of its class that is not registered (RFC 9110 §15).
    pub(super) fn known_status(&self) -> u16 {
        match self.status {
            209..=225 | 227..=299 => 200,
            status => status,
        }
    }

    /// Whether the body is the whole object. A proxy has changed it if the status is 203.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self.known_status(), 200 | 203)
    }

    /// Whether the server of an object that exists may serve the same request later. A redirect may
    /// lead to another target then.
    pub(super) fn is_temporary_refusal(&self) -> bool {
        is_temporary(self.status)
            || self.status >= 500
            || self.is_redirected && may_have_expired(self.status)
    }
}

/// Known properties of the object, with which all responses must agree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// `None` if the server sent no length.
    pub length: Option<u64>,
    /// `None` if no validator identifies this version.
    pub validator: Option<Validator>,
}

impl Object {
    /// `None` without a validator.
    pub fn validator_kind(&self) -> Option<ValidatorKind> {
        Some(match self.validator.as_ref()? {
            Validator::Etag(tag) if !is_time_and_length(tag, self.length) => ValidatorKind::Tag,
            _ => ValidatorKind::Second,
        })
    }
}

/// Number of digits of base 36 of the seconds since 1970, from 1972 to 2038.
const CADDY_TIME_LENGTH: usize = 6;

/// Whether an entity tag is the time of the last change, in seconds, and the length of the object:
/// `"5f3e-7a1200"`, hexadecimal, as nginx and h2o make it, or `"s44we84rgu8"`, of base 36, as Caddy
/// makes it. Any hexadecimal number counts as a time, because files may have any.
fn is_time_and_length(tag: &str, length: Option<u64>) -> bool {
    let number = |digits: &str, base| {
        let is_number = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
        u64::from_str_radix(digits, base).ok().filter(|_| is_number)
    };
    let tag = tag.trim_matches('"');
    if let Some((time, size)) = tag.split_once('-') {
        let size = number(size, 16);
        return number(time, 16).is_some() && size.is_some() && size == length;
    }
    let Some((time, size)) = tag.split_at_checked(CADDY_TIME_LENGTH) else { return false };
    let size = number(size, 36);
    number(time, 36).is_some() && size.is_some() && size == length
}

/// Why a response to a range request cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum UnusableResponse {
    /// The whole object instead of the range, with the same validator: the server ignores ranges.
    NoRanges,
    /// Another version of the object, or another object.
    Changed,
    /// A 206 whose `Content-Range` is missing.
    NoContentRange,
    /// A 206 whose `Content-Range` cannot be parsed or is not within the requested range.
    WrongContentRange,
    /// Another status.
    Status(u16),
}

impl fmt::Display for UnusableResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRanges => {
                f.write_str("the server answered a range request with the whole object")
            }
            Self::Changed => f.write_str("the server has another version of the object there"),
            Self::NoContentRange => {
                f.write_str("the server sent a part of the object without Content-Range")
            }
            Self::WrongContentRange => {
                f.write_str("the server sent another part of the object than was asked for")
            }
            Self::Status(status) => write!(f, "the server answered with status {status}"),
        }
    }
}

/// Checks the response to a request for `requested`. Returns the range that the body will contain.
///
/// A server may send less than the requested range, but no byte outside it.
pub(super) fn check_range_response(
    head: &Head,
    requested: Range,
    object: &Object,
) -> Result<Range, UnusableResponse> {
    let same = match (&head.validator, &object.validator) {
        (Some(theirs), Some(ours)) => Some(theirs == ours),
        _ => None,
    };
    match head.known_status() {
        206 => {}
        200 => {
            let same = same == Some(true) && head.length == object.length;
            return Err(if same { UnusableResponse::NoRanges } else { UnusableResponse::Changed });
        }
        412 | 416 => return Err(UnusableResponse::Changed),
        status => return Err(UnusableResponse::Status(status)),
    }
    let content_range = head.content_range.ok_or(UnusableResponse::NoContentRange)?;
    let content_range = content_range.ok_or(UnusableResponse::WrongContentRange)?;
    let range = content_range.range.ok_or(UnusableResponse::WrongContentRange)?;
    let other_length = matches!(
        (content_range.length, object.length),
        (Some(theirs), Some(ours)) if theirs != ours
    );
    if other_length || same == Some(false) {
        return Err(UnusableResponse::Changed);
    }
    let fits = range.start == requested.start && range.end <= requested.end;
    let agrees = head.length.is_none_or(|length| length == range.len());
    if !fits || !agrees || head.is_encoded {
        return Err(UnusableResponse::WrongContentRange);
    }
    Ok(range)
}

/// Checks the response to a plain GET when another response has already described the object.
pub(super) fn check_whole_response(head: &Head, object: &Object) -> Result<(), UnusableResponse> {
    match head.known_status() {
        200 => {}
        206 | 412 | 416 => return Err(UnusableResponse::Changed),
        status => return Err(UnusableResponse::Status(status)),
    }
    // A server need not tell the length. That the body ends too early is seen when it ends.
    let same = head.validator.is_some()
        && head.validator == object.validator
        && head.length.is_none_or(|length| Some(length) == object.length)
        && !head.is_encoded;
    if same { Ok(()) } else { Err(UnusableResponse::Changed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_strong_validators_count() {
        let choose = Validator::choose;
        assert_eq!(choose(Some("\"a\""), Some("x"), None), Some(Validator::Etag("\"a\"".into())));
        assert_eq!(choose(Some("W/\"a\""), None, None), None);
        assert_eq!(choose(Some("\""), None, None), None);
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(
            choose(Some("W/\"a\""), Some(date), Some("Sun, 06 Nov 1994 08:49:38 GMT")),
            Some(Validator::LastModified(date.into()))
        );
        assert_eq!(choose(None, Some(date), Some(date)), None);
    }

    #[test]
    fn a_whole_response_of_the_same_version_need_not_tell_the_length() {
        let validator = Some(Validator::Etag("\"a\"".into()));
        let object = Object { length: Some(10), validator: validator.clone() };
        let head = |length, validator| Head { status: 200, length, validator, ..Head::default() };
        let check = |head| check_whole_response(&head, &object).is_ok();
        assert!(check(head(Some(10), validator.clone())) && check(head(None, validator.clone())));
        assert!(!check(head(Some(11), validator)) && !check(head(None, None)));
    }

    #[test]
    fn a_tag_of_time_and_length_is_as_weak_as_a_time() {
        let kind = |validator, length| Object { length, validator }.validator_kind();
        let tag = |tag: &str| kind(Some(Validator::Etag(tag.into())), Some(0x7a_1200));
        for second in ["\"66d3b1f0-7a1200\"", "\"1-7A1200\"", "\"s44we84rgu8\""] {
            assert_eq!(tag(second), Some(ValidatorKind::Second), "{second}");
        }
        for strong in [
            "\"7a1200-66d3b1f0\"",
            "\"66d3b1f0-7a1201\"",
            "\"d41d8cd98f00b204e9800998ecf8427e-7a1200\"",
            "\"+1-7a1200\"",
            "\"-7a1200\"",
            "\"a-1-7a1200\"",
            "\"s44we84rgu9\"",
            "\"s44we8\"",
            "\"s44w-84rgu8\"",
            "\"44we84rgu8\"",
            "\"x\"",
            "\"\"",
            "\"\u{e4}\u{e4}\u{e4}x\"",
        ] {
            assert_eq!(tag(strong), Some(ValidatorKind::Tag), "{strong}");
        }
        assert_eq!(kind(Some(Validator::Etag("\"1-2\"".into())), None), Some(ValidatorKind::Tag));
        let date = Validator::LastModified("Sun, 06 Nov 1994 08:49:37 GMT".into());
        assert_eq!(kind(Some(date), Some(1)), Some(ValidatorKind::Second));
        assert_eq!(kind(None, Some(1)), None);
    }

    #[test]
    fn judges_answers_to_a_range() {
        let object = Object { length: Some(100), validator: Some(Validator::Etag("\"a\"".into())) };
        let requested = Range::new(10, 20);
        let good = Head {
            status: 206,
            length: Some(10),
            content_range: Some(ContentRange::parse(b"bytes 10-19/100")),
            validator: object.validator.clone(),
            ..Head::default()
        };
        let judged = |change: &dyn Fn(&mut Head)| {
            let mut head = good.clone();
            change(&mut head);
            check_range_response(&head, requested, &object)
        };
        let says = |text: &str| Some(ContentRange::parse(text.as_bytes()));
        assert_eq!(judged(&|_| {}), Ok(requested));
        assert_eq!(judged(&|h| h.validator = None), Ok(requested));
        assert_eq!(
            judged(&|h| (h.content_range, h.length) = (says("bytes 10-14/100"), Some(5))),
            Ok(Range::new(10, 15))
        );
        assert_eq!(judged(&|h| h.content_range = None), Err(UnusableResponse::NoContentRange));
        for wrong in ["bytes 11-20/100", "bytes 9-18/100", "bytes 10-20/100", "bytes */100", "x"] {
            assert_eq!(
                judged(&|h| h.content_range = says(wrong)),
                Err(UnusableResponse::WrongContentRange),
                "{wrong}"
            );
        }
        assert_eq!(judged(&|h| h.length = Some(9)), Err(UnusableResponse::WrongContentRange));
        assert_eq!(judged(&|h| h.is_encoded = true), Err(UnusableResponse::WrongContentRange));
        assert_eq!(
            judged(&|h| h.content_range = says("bytes 10-19/101")),
            Err(UnusableResponse::Changed)
        );
        let other = Some(Validator::Etag("\"b\"".into()));
        assert_eq!(judged(&|h| h.validator = other.clone()), Err(UnusableResponse::Changed));
        assert_eq!(judged(&|h| h.status = 416), Err(UnusableResponse::Changed));
        for status in [203, 403] {
            assert_eq!(judged(&|h| h.status = status), Err(UnusableResponse::Status(status)));
        }
        let whole = |h: &mut Head| (h.status, h.length, h.content_range) = (200, Some(100), None);
        assert_eq!(judged(&whole), Err(UnusableResponse::NoRanges));
        let unknown = |h: &mut Head| {
            whole(h);
            h.status = 299;
        };
        assert_eq!(judged(&unknown), Err(UnusableResponse::NoRanges));
        assert_eq!(
            judged(&|h| {
                whole(h);
                h.validator = other.clone();
            }),
            Err(UnusableResponse::Changed)
        );
        for (status, expected) in [
            (200, Ok(())),
            (299, Ok(())),
            // A proxy may have changed it without a new validator.
            (203, Err(UnusableResponse::Status(203))),
            (204, Err(UnusableResponse::Status(204))),
            (206, Err(UnusableResponse::Changed)),
        ] {
            let mut head = good.clone();
            whole(&mut head);
            head.status = status;
            assert_eq!(check_whole_response(&head, &object), expected, "{status}");
        }
    }
}
