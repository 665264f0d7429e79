//! Conditions and ranges of requests, evaluated against a whole recorded response.

use std::ops::Range;

use super::super::dates;
use super::super::head::{Head, words};

/// The part of a body that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All of it: there is no valid range, there are several, or the object has changed.
    Whole,
    Range(Range<u64>),
    /// No byte of the range exists.
    Unsatisfiable,
}

/// Whether a client has the response already (RFC 9110, 13.2.2): `If-None-Match` decides if it is there,
/// else `If-Modified-Since`.
pub(super) fn is_not_modified(head: &Head, fields: &[(&str, &[u8])]) -> bool {
    let mut tags = values(fields, "if-none-match").peekable();
    if tags.peek().is_some() {
        let Some(etag) = head.value("etag") else {
            return tags.any(|value| value.trim_ascii() == b"*");
        };
        let weak = |tag: &[u8]| tag.strip_prefix(b"W/").unwrap_or(tag).to_vec();
        let etag = weak(etag.trim_ascii());
        // A tag may contain a comma, and is then split; the parts equal no tag.
        return tags.any(|value| {
            words(value).any(|tag| tag == b"*" || weak(tag) == etag)
                || weak(value.trim_ascii()) == etag
        });
    }
    let since = values(fields, "if-modified-since").next().and_then(dates::seconds);
    let modified = head.value("last-modified").and_then(|value| dates::seconds(value));
    matches!((since, modified), (Some(since), Some(modified)) if modified <= since)
}

/// Evaluates `Range` (RFC 9110, 14.2) and `If-Range` (13.1.5) for a body of this length.
pub(super) fn range(head: &Head, fields: &[(&str, &[u8])], length: u64) -> Part {
    let mut ranges = values(fields, "range");
    let (Some(range), None) = (ranges.next(), ranges.next()) else { return Part::Whole };
    if let Some(condition) = values(fields, "if-range").next() {
        let condition = condition.trim_ascii();
        let is_same = match condition.starts_with(b"\"") {
            true => head.value("etag").is_some_and(|etag| etag.trim_ascii() == condition),
            false => {
                head.value("last-modified").is_some_and(|value| value.trim_ascii() == condition)
            }
        };
        if !is_same {
            return Part::Whole;
        }
    }
    let Some(part) = std::str::from_utf8(range).ok().and_then(bytes_of) else { return Part::Whole };
    let range = match part {
        (None, None) => return Part::Whole,
        (None, Some(last)) => length.saturating_sub(last)..length,
        (Some(first), None) => first..length,
        (Some(first), Some(last)) if last < first => return Part::Whole,
        (Some(first), Some(last)) => first..last.saturating_add(1).min(length),
    };
    if range.start < range.end { Part::Range(range) } else { Part::Unsatisfiable }
}

/// Reads `bytes=FIRST-LAST`; either number may be missing.
fn bytes_of(text: &str) -> Option<(Option<u64>, Option<u64>)> {
    let (unit, set) = text.trim().split_once('=')?;
    let (first, last) = set.trim().split_once('-')?;
    let number = |digits: &str| match digits {
        "" => Some(None),
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(Some(digits.parse().unwrap_or(u64::MAX)))
        }
        _ => None,
    };
    let range = (number(first)?, number(last)?);
    unit.eq_ignore_ascii_case("bytes").then_some(range)
}

fn values<'f>(
    fields: &'f [(&'f str, &'f [u8])],
    name: &'static str,
) -> impl Iterator<Item = &'f [u8]> {
    let named = fields.iter().filter(move |(other, _)| other.eq_ignore_ascii_case(name));
    named.map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::super::super::head::HeadField;
    use super::*;

    fn head() -> Head {
        let fields = [("ETag", "\"a\""), ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT")];
        let fields = fields.map(|(name, value)| HeadField::new(name, value.to_owned()));
        Head::new(200, "OK", None, fields.into())
    }

    #[test]
    fn conditions_compare_tags_before_dates() {
        let modified = |fields: &[(&str, &str)]| {
            let fields: Vec<(&str, &[u8])> =
                fields.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
            !is_not_modified(&head(), &fields)
        };
        let (later, earlier) = ("Sun, 06 Nov 1994 08:49:38 GMT", "Sun, 06 Nov 1994 08:49:36 GMT");
        assert!(!modified(&[("If-None-Match", "\"a\"")]));
        assert!(!modified(&[("if-none-match", "\"b\", W/\"a\"")]));
        assert!(!modified(&[("If-None-Match", "*")]));
        assert!(modified(&[("If-None-Match", "\"b\"")]));
        assert!(modified(&[("If-None-Match", "\"b\""), ("If-Modified-Since", later)]));
        assert!(!modified(&[("If-Modified-Since", later)]));
        assert!(modified(&[("If-Modified-Since", earlier)]));
        assert!(modified(&[("If-Modified-Since", "yesterday")]));
        assert!(modified(&[]));
        let empty = Head::new(200, "OK", None, Vec::new());
        assert!(!is_not_modified(&empty, &[("If-Modified-Since", later.as_bytes())]));
    }

    #[test]
    fn ranges_are_those_of_one_part() {
        let of = |text: &str| range(&head(), &[("Range", text.as_bytes())], 10);
        assert_eq!(of("bytes=0-3"), Part::Range(0..4));
        assert_eq!(of("Bytes=3-"), Part::Range(3..10));
        assert_eq!(of("bytes=-4"), Part::Range(6..10));
        assert_eq!(of("bytes=-40"), Part::Range(0..10));
        assert_eq!(of("bytes=8-99999999999999999999"), Part::Range(8..10));
        assert_eq!(of("bytes=10-"), Part::Unsatisfiable);
        assert_eq!(of("bytes=-0"), Part::Unsatisfiable);
        for text in ["bytes=0-1,4-5", "bytes=5-3", "bytes=-", "pages=1-2", "bytes=a-b", "bytes"] {
            assert_eq!(of(text), Part::Whole, "{text}");
        }
    }

    #[test]
    fn a_range_of_another_version_is_the_whole() {
        for (condition, expected) in [
            ("\"a\"", Part::Range(0..4)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Part::Range(0..4)),
            ("\"b\"", Part::Whole),
            ("W/\"a\"", Part::Whole),
        ] {
            let fields = [("Range", &b"bytes=0-3"[..]), ("If-Range", condition.as_bytes())];
            assert_eq!(range(&head(), &fields, 10), expected, "{condition}");
        }
    }
}
