//! The `Content-Range` header of RFC 9110 §14.4.

use super::Range;

/// A parsed `Content-Range` of unit `bytes`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContentRange {
    /// `None` for `bytes */LENGTH`, which a 416 carries.
    pub range: Option<Range>,
    /// Length of the whole object; `None` for `*`.
    pub length: Option<u64>,
}

impl ContentRange {
    /// Parses the header's value. `None` if it is malformed, contradicts itself, or has a unit
    /// other than `bytes`.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?.trim();
        let (unit, rest) = text.split_once(' ')?;
        if !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (range, length) = rest.trim().split_once('/')?;
        let length = match length {
            "*" => None,
            digits => Some(number(digits)?),
        };
        if range == "*" {
            length?;
            return Some(Self { range: None, length });
        }
        let (first, last) = range.split_once('-')?;
        let (first, last) = (number(first)?, number(last)?);
        if last < first || length.is_some_and(|length| last >= length) {
            return None;
        }
        Some(Self { range: Some(Range::new(first, last.checked_add(1)?)), length })
    }
}

/// Accepts only digits: `u64::from_str` would accept a leading `+`.
fn number(digits: &str) -> Option<u64> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_rfc_shows() {
        let read = |text: &str| ContentRange::parse(text.as_bytes());
        let full = ContentRange { range: Some(Range::new(42, 1234)), length: Some(1234) };
        assert_eq!(read("bytes 42-1233/1234"), Some(full));
        assert_eq!(read(" Bytes 42-1233/1234 "), Some(full));
        assert_eq!(read("bytes 42-1233/*"), Some(ContentRange { length: None, ..full }));
        assert_eq!(read("bytes */1234"), Some(ContentRange { range: None, length: Some(1234) }));
    }

    #[test]
    fn refuses_what_contradicts_itself() {
        for text in [
            "",
            "bytes",
            "bytes=0-1/2",
            "lines 0-1/2",
            "bytes 0-1",
            "bytes 1-0/2",
            "bytes 0-2/2",
            "bytes +0-1/2",
            "bytes 0-1/+2",
            "bytes -1/2",
            "bytes 0-/2",
            "bytes */*",
            "bytes 0-18446744073709551615/*",
            "bytes 0-18446744073709551616/*",
            "bytes 0 - 1/2",
        ] {
            assert_eq!(ContentRange::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(ContentRange::parse(b"bytes 0-1/\xff"), None);
    }
}
