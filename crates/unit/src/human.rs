//! Parses and prints values as people write them: `10mbit`, `1.5s`, `64KiB`, `0.1%`.
//!
//! Units are not case-sensitive and may be separated from the number by a space, so that the output
//! of [`Rate`], [`Span`] and [`Size`] can be parsed. A unit may be omitted only after zero: a bare
//! `10` is ambiguous. [`bytes`] is for places where a bare number can only mean bytes. `mbps` is
//! rejected because many readers take it for megabytes.

use std::borrow::Cow;
use std::str::FromStr;

use crate::{Rate, Size, Span, Time};

/// A value that cannot be parsed; its `Display` is one sentence that names the accepted forms.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}; write {forms}")]
pub struct InvalidValue {
    text: String,
    expected: &'static str,
    forms: &'static str,
}

impl InvalidValue {
    /// Creates the error "`text` is not `what`; write `forms`", for example with "a rate" and
    /// "10mbit or 2.5gbit".
    pub fn new(text: &str, what: &'static str, forms: &'static str) -> Self {
        Self { text: quoted(text), expected: what, forms }
    }
}

/// Returns a text file without its byte order mark (U+FEFF in UTF-8), with which some editors begin
/// every file.
pub fn without_bom(file: &[u8]) -> &[u8] {
    file.strip_prefix(b"\xef\xbb\xbf").unwrap_or(file)
}

/// Returns at most 60 characters of foreign text, made [`printable`], for an error message.
pub fn quoted(text: &str) -> String {
    let (end, _) = text.char_indices().nth(60).unwrap_or((text.len(), ' '));
    let mut short = printable(&text[..end]).into_owned();
    if end < text.len() {
        short.push('…');
    }
    short
}

/// Escapes a foreign name (host, application, file) so that it fits on one line and a terminal
/// interprets none of its characters. Each control character, line separator and bidirectional mark
/// becomes `\u` with four hexadecimal digits, as in JSON.
pub fn printable(name: &str) -> Cow<'_, str> {
    escaped(name, is_terminal_control)
}

/// Escapes text like [`printable`] but keeps line ends and tabs. A JSON document keeps its meaning,
/// because JSON permits the escaped characters only within strings.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |one| is_terminal_control(one) && !matches!(one, '\n' | '\t'))
}

fn escaped(text: &str, which: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&which) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for one in text.chars() {
        if which(one) {
            // All escaped characters are at most U+FFFF.
            out.push_str(&format!("\\u{:04x}", u32::from(one)));
        } else {
            out.push(one);
        }
    }
    Cow::Owned(out)
}

/// C0 and C1 control characters, line and paragraph separators, and the marks of the Unicode
/// bidirectional algorithm, which can make a name look like another one.
fn is_terminal_control(one: char) -> bool {
    one.is_control()
        || matches!(
            one,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// Returns a count with its noun and a regular plural: `no sessions`, `1 session`, `2 sessions`.
pub fn count_with_noun(count: usize, what: &str) -> String {
    match count {
        0 => format!("no {}", plural(what)),
        1 => format!("1 {what}"),
        _ => format!("{count} {}", plural(what)),
    }
}

fn plural(noun: &str) -> String {
    let before_y = noun.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'i', 'o', 'u']));
    match before_y {
        Some(stem) => format!("{stem}ies"),
        None if ["s", "x", "ch", "sh"].iter().any(|end| noun.ends_with(end)) => format!("{noun}es"),
        None => format!("{noun}s"),
    }
}

const SPAN_UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

const RATE_UNITS: &[(&str, u64)] = &[
    ("bit", 1),
    ("kbit", 1_000),
    ("mbit", 1_000_000),
    ("gbit", 1_000_000_000),
    ("tbit", 1_000_000_000_000),
];

const SIZE_UNITS: &[(&str, u64)] = &[
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
];

impl FromStr for Span {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        parse_with_unit(text, SPAN_UNITS, "").map(Self::from_nanos).ok_or_else(|| {
            InvalidValue::new(text, "a time", "it like 14ms, 1.5s, 100us, 2min or 0s")
        })
    }
}

impl FromStr for Rate {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        parse_with_unit(text, RATE_UNITS, "/s").map(Self::from_bps).ok_or_else(|| {
            InvalidValue::new(
                text,
                "a rate",
                "it in bits a second, like 10mbit, 2.5gbit or 500kbit",
            )
        })
    }
}

impl FromStr for Size {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        parse_with_unit(text, SIZE_UNITS, "").map(Self::from_bytes).ok_or_else(|| {
            InvalidValue::new(
                text,
                "a size",
                "it like 64KB (64000 bytes), 64KiB (65536), 1MiB or 500B",
            )
        })
    }
}

/// Parses a size for which a bare whole number can only mean bytes, such as the length of a file.
pub fn bytes(text: &str) -> Result<Size, InvalidValue> {
    let invalid = || {
        InvalidValue::new(text, "a size", "it in bytes, or like 500KB (500000 bytes), 10MB or 1MiB")
    };
    match text.trim() {
        digits if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().map(Size::from_bytes).map_err(|_| invalid())
        }
        other => parse_with_unit(other, SIZE_UNITS, "").map(Size::from_bytes).ok_or_else(invalid),
    }
}

/// Parses a probability: `0.1%`, or a fraction like `0.001`.
///
/// A bare `1` is rejected: it may mean 1 % or 100 %.
pub fn probability(text: &str) -> Result<f64, InvalidValue> {
    let invalid = || {
        InvalidValue::new(text, "a probability", "a percentage like 0.1% or a fraction like 0.001")
    };
    let text = text.trim();
    let value = match text.strip_suffix('%') {
        Some(percent) => plain_number(percent.trim_end()).ok_or_else(invalid)? / 100.0,
        None if text == "1" => return Err(invalid()),
        None => plain_number(text).ok_or_else(invalid)?,
    };
    if value <= 1.0 { Ok(value) } else { Err(invalid()) }
}

/// Parses `yes` or `no`, or `true` or `false` as in TOML.
pub fn yes_or_no(text: &str) -> Result<bool, InvalidValue> {
    match text.trim() {
        "yes" | "true" => Ok(true),
        "no" | "false" => Ok(false),
        _ => Err(InvalidValue::new(text, "an answer", "yes or no")),
    }
}

/// Parses digits with at most one point; no sign, no exponent, no `nan`.
fn plain_number(text: &str) -> Option<f64> {
    decimal(text, 1)?;
    text.parse().ok()
}

fn parse_with_unit(text: &str, units: &[(&str, u64)], suffix: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim_start().to_lowercase();
    if unit.is_empty() {
        return (decimal(number, 1)? == 0 && plain_number(number)? == 0.0).then_some(0);
    }
    let unit = unit.strip_suffix(suffix).unwrap_or(&unit);
    let scale = units.iter().find(|(name, _)| *name == unit)?.1;
    decimal(number, scale)
}

/// Returns `text` × `scale`, computed exactly and rounded to the nearest whole number. `None` if
/// `text` is not a plain decimal number or the product does not fit.
pub fn decimal(text: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    if !whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Digits after the 18th decimal do not change the result, even for the largest scale.
    let fraction = &fraction[..fraction.len().min(18)];
    let numerator: u64 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let denominator = 10_u128.pow(fraction.len() as u32);
    let part = (u128::from(numerator) * u128::from(scale) + denominator / 2) / denominator;
    let all = u128::from(whole) * u128::from(scale) + part;
    u64::try_from(all).ok()
}

/// Parses a Unix time in seconds with up to nine decimals, as capture tools print it. `None` if
/// `field` has another form or the time does not fit.
pub fn unix_seconds(field: &[u8]) -> Option<Time> {
    let point = field.iter().position(|byte| *byte == b'.');
    let (secs, decimals) = match point {
        Some(at) => (field.get(..at)?, field.get(at + 1..)?),
        None => (field, &b"0"[..]),
    };
    let scale = 10u64.pow(u32::try_from(9usize.checked_sub(decimals.len())?).ok()?);
    let nanos = parse_digits(secs)?.checked_mul(1_000_000_000)?;
    Some(Time::from_nanos(nanos.checked_add(parse_digits(decimals)?.checked_mul(scale)?)?))
}

/// Parses digits only: Rust's own parser also accepts a sign.
fn parse_digits(field: &[u8]) -> Option<u64> {
    if !field.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(field).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_cannot_colour_move_or_reverse_other_text() {
        assert_eq!(
            printable("a\x1b[31mred\r\n\tb\u{9b}2J"),
            "a\\u001b[31mred\\u000d\\u000a\\u0009b\\u009b2J"
        );
        assert_eq!(printable("exe.\u{202e}gpj\u{2028}\x7f"), "exe.\\u202egpj\\u2028\\u007f");
        for kept in ["müller's \"phone\" \\ 5 µs …", "日本語", "نام\u{200c}ها", "👩\u{200d}🚀"]
        {
            assert!(matches!(printable(kept), Cow::Borrowed(same) if same == kept), "{kept}");
        }
    }

    #[test]
    fn lines_of_text_stay_lines_and_json_stays_the_same_json() {
        assert_eq!(printable_lines("a\tb\n\x1b[1m\n"), "a\tb\n\\u001b[1m\n");
    }

    #[test]
    fn a_quoted_text_is_cut_before_it_is_made_printable() {
        assert_eq!(quoted("it's"), "it's");
        assert_eq!(quoted(&"\n".repeat(61)), "\\u000a".repeat(60) + "…");
        assert_eq!(quoted(&"µ".repeat(60)), "µ".repeat(60));
    }

    #[test]
    fn one_is_not_many() {
        assert_eq!(
            [0, 1, 2].map(|count| count_with_noun(count, "key")),
            ["no keys", "1 key", "2 keys"]
        );
        let plurals = ["body", "miss", "approximate hit", "match", "index"];
        let expected = ["2 bodies", "2 misses", "2 approximate hits", "2 matches", "2 indexes"];
        assert_eq!(plurals.map(|noun| count_with_noun(2, noun)), expected);
    }

    #[test]
    fn values_read_exactly() {
        let span = |text: &str| text.parse::<Span>().unwrap();
        assert_eq!(span("14ms"), Span::from_millis(14));
        assert_eq!(span("32.5ms"), Span::from_micros(32_500));
        assert_eq!(span("1.5s"), Span::from_millis(1_500));
        assert_eq!(span(".5 S"), Span::from_millis(500));
        assert_eq!(span("100us"), Span::from_micros(100));
        assert_eq!(span("2min"), Span::from_secs(120));
        assert_eq!(span("0"), Span::ZERO);
        let rate = |text: &str| text.parse::<Rate>().unwrap();
        assert_eq!(rate("10mbit"), Rate::from_mbps(10));
        assert_eq!(rate("2.5gbit"), Rate::from_mbps(2_500));
        assert_eq!(rate("500 kbit/s"), Rate::from_kbps(500));
        let size = |text: &str| text.parse::<Size>().unwrap();
        assert_eq!(size("64KB"), Size::from_bytes(64_000));
        assert_eq!(size("64KiB"), Size::from_kib(64));
        assert_eq!(size("1MiB"), Size::from_mib(1));
        assert_eq!(size("1500B"), Size::from_bytes(1_500));
    }

    #[test]
    fn a_byte_order_mark_counts_only_at_the_start() {
        assert_eq!(without_bom("\u{feff}a\u{feff}".as_bytes()), "a\u{feff}".as_bytes());
        assert_eq!(without_bom(b""), b"");
    }

    #[test]
    fn ambiguous_values_are_refused() {
        for text in ["", "10", "ms", "-1ms", "1e3ms", "1.2.3s", "nan", ".", "0.4", "1 parsec"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        for text in ["10mbps", "10m", "10MB/s", "10", "99999999999tbit", "1mbit/s/s"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        for text in ["10", "10k", "10p", "1e9B"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
        assert_eq!(
            "10mbps".parse::<Rate>().unwrap_err().to_string(),
            "`10mbps` is not a rate; write it in bits a second, like 10mbit, 2.5gbit or 500kbit"
        );
    }

    #[test]
    fn a_bare_number_is_bytes_only_where_that_is_meant() {
        assert_eq!(bytes("1000000"), Ok(Size::from_bytes(1_000_000)));
        assert_eq!(bytes(" 0 "), Ok(Size::ZERO));
        assert_eq!(bytes("1.5MB"), Ok(Size::from_bytes(1_500_000)));
        for text in ["", "1.5", "-1", "10k", "99999999999999999999"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn probabilities() {
        assert_eq!(probability("0.1%"), Ok(0.001));
        assert_eq!(probability("0.25"), Ok(0.25));
        assert_eq!(probability("100 %"), Ok(1.0));
        assert_eq!(probability("0"), Ok(0.0));
        for text in ["1", "101%", "-1%", "1e-3", "%", "", "inf%"] {
            assert!(probability(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn printed_whole_values_parse_back(n in 0_u64..10_000_000) {
            prop_assert_eq!(format!("{n}us").parse(), Ok(Span::from_micros(n)));
            prop_assert_eq!(format!("{n}kbit").parse(), Ok(Rate::from_kbps(n)));
            prop_assert_eq!(format!("{n}kib").parse(), Ok(Size::from_kib(n)));
        }

        #[test]
        fn printed_values_parse_back_within_their_two_decimals(n in any::<u64>()) {
            let near = |a: u64, b: u64| a.abs_diff(b) as f64 <= 0.005_1 * b as f64 + 1.0;
            let span = Span::from_nanos(n >> 8);
            prop_assert!(near(span.to_string().parse::<Span>().unwrap().as_nanos(), n >> 8));
            let rate = Rate::from_bps(n >> 8);
            prop_assert!(near(rate.to_string().parse::<Rate>().unwrap().as_bps(), n >> 8));
            let size = Size::from_bytes(n >> 8);
            prop_assert!(near(size.to_string().parse::<Size>().unwrap().as_bytes(), n >> 8));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = (text.parse::<Span>(), text.parse::<Rate>(), text.parse::<Size>());
            let _ = (bytes(&text), probability(&text));
        }
    }
}
