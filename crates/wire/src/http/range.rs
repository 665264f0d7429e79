//! Range requests and their parts (RFC 9110, 14).

/// The value of a `Range` field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedRange {
    /// From `first` to `last`, or to the end.
    Range {
        /// Offset of the first byte.
        first: u64,
        /// Offset of the last byte; `None` for the end.
        last: Option<u64>,
    },
    /// A suffix range: this number of bytes at the end.
    Suffix(u64),
    Multiple,
}

/// The value of a `Content-Range` field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// Offsets of the first and the last byte; `None` if the range was not satisfiable.
    pub range: Option<(u64, u64)>,
    /// Complete length; `None` if unknown.
    pub complete_length: Option<u64>,
}

impl RequestedRange {
    /// Reads the value of a `Range` field; `None` if the unit is not bytes.
    pub(super) fn read(value: &[u8]) -> Option<Self> {
        let ranges = strip_unit(value, b'=')?;
        if ranges.contains(&b',') {
            return Some(Self::Multiple);
        }
        match split(ranges, b'-')? {
            (b"", last) => number(last).map(Self::Suffix),
            (first, b"") => number(first).map(|first| Self::Range { first, last: None }),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::Range { first, last: Some(last) })
            }
        }
    }
}

impl ContentRange {
    /// Reads the value of a `Content-Range` field; `None` if the unit is not bytes.
    pub(super) fn read(value: &[u8]) -> Option<Self> {
        let (part, whole) = split(strip_unit(value, b' ')?, b'/')?;
        let whole = match whole {
            b"*" => None,
            digits => Some(number(digits)?),
        };
        let part = match part {
            b"*" => None,
            part => {
                let (first, last) = split(part, b'-')?;
                let (first, last) = (number(first)?, number(last)?);
                if first > last {
                    return None;
                }
                Some((first, last))
            }
        };
        let is_sound = match part {
            Some((_, last)) => whole.is_none_or(|whole| last < whole),
            None => whole.is_some(),
        };
        is_sound.then_some(Self { range: part, complete_length: whole })
    }
}

/// Reads a number that consists of digits only.
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Skips the unit, which must be `bytes`.
fn strip_unit(value: &[u8], between: u8) -> Option<&[u8]> {
    let (unit, rest) = split(value, between)?;
    unit.eq_ignore_ascii_case(b"bytes").then_some(rest)
}

/// The trimmed parts before and after the first `between`.
fn split(value: &[u8], between: u8) -> Option<(&[u8], &[u8])> {
    let at = value.iter().position(|byte| *byte == between)?;
    let (before, behind) = (value.get(..at)?, value.get(at + 1..)?);
    Some((before.trim_ascii(), behind.trim_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_field_has_one_range_or_several() {
        let from = |first, last| Some(RequestedRange::Range { first, last });
        for (value, expected) in [
            ("bytes=0-499", from(0, Some(499))),
            ("Bytes = 500 - 500", from(500, Some(500))),
            ("bytes=500-", from(500, None)),
            ("bytes=-200", Some(RequestedRange::Suffix(200))),
            ("bytes=0-1,5-", Some(RequestedRange::Multiple)),
            ("bytes=5-4", None),
            ("bytes=-", None),
            ("bytes=+1-2", None),
            ("bytes=1-18446744073709551616", None),
            ("items=0-4", None),
            ("bytes", None),
            ("", None),
        ] {
            assert_eq!(RequestedRange::read(value.as_bytes()), expected, "{value}");
        }
    }

    #[test]
    fn a_content_range_gives_the_part_and_the_complete_length() {
        let range = |part, whole| Some(ContentRange { range: part, complete_length: whole });
        for (value, expected) in [
            ("bytes 0-499/1234", range(Some((0, 499)), Some(1234))),
            ("bytes 42-1233/*", range(Some((42, 1233)), None)),
            ("bytes */1234", range(None, Some(1234))),
            ("bytes */*", None),
            ("bytes 5-4/10", None),
            ("bytes 0-10/10", None),
            ("bytes 0-9/10", range(Some((0, 9)), Some(10))),
            ("bytes 0-9", None),
            ("bytes=0-9/10", None),
            ("items 0-9/10", None),
        ] {
            assert_eq!(ContentRange::read(value.as_bytes()), expected, "{value}");
        }
    }
}
