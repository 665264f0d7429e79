//! Rows as lines of CSV (RFC 4180).
//!
//! Lines end with LF, as Unix tools expect. An absent value is an empty field, an empty text two
//! quotes. Times are ISO 8601 in UTC with nine decimals, spans are seconds, flags are `true` and
//! `false`; numbers have no exponent.

use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use manyways_unit::Time;

use manyways_record::table::Value;

/// Appends a line with the names of columns.
pub fn header<'a>(names: impl IntoIterator<Item = &'a str>, out: &mut String) {
    line(&names.into_iter().map(Value::from).collect::<Vec<_>>(), out);
}

/// Appends a line with the values of a row.
pub fn line(row: &[Value<'_>], out: &mut String) {
    for (index, value) in row.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        // Writing to a string cannot fail.
        let _ = match value {
            Value::Absent => Ok(()),
            Value::Time(time) => timestamp(*time, out),
            Value::Span(span) => write!(out, "{}", span.as_secs_f64()),
            Value::Count(count) => write!(out, "{count}"),
            Value::Number(number) => write!(out, "{number}"),
            Value::Flag(flag) => write!(out, "{flag}"),
            Value::Text(text) => {
                quoted(text, out);
                Ok(())
            }
        };
    }
    out.push('\n');
}

fn quoted(text: &str, out: &mut String) {
    // Spaces at the ends belong to a field, but some readers drop them.
    let is_plain = !text.is_empty()
        && !text.contains([',', '"', '\n', '\r'])
        && !text.starts_with(' ')
        && !text.ends_with(' ');
    if is_plain {
        out.push_str(text);
        return;
    }
    out.push('"');
    for (index, part) in text.split('"').enumerate() {
        if index > 0 {
            out.push_str("\"\"");
        }
        out.push_str(part);
    }
    out.push('"');
}

fn timestamp(time: Time, out: &mut String) -> std::fmt::Result {
    let moment = UNIX_EPOCH + Duration::from_nanos(time.as_nanos());
    write!(out, "{}", humantime::format_rfc3339_nanos(moment))
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use manyways_unit::Span;
    use proptest::prelude::*;

    use super::*;

    fn of(row: &[Value<'_>]) -> String {
        let mut out = String::new();
        line(row, &mut out);
        out
    }

    #[test]
    fn what_is_absent_is_told_from_what_is_empty() {
        let row = [Value::Absent, "".into(), "a".into(), Value::Absent];
        assert_eq!(of(&row), ",\"\",a,\n");
        let row = [Value::Flag(true), Value::Number(1e-7), Value::Number(1.5e12)];
        assert_eq!(of(&row), "true,0.0000001,1500000000000\n");
        assert_eq!(
            of(&[Value::Span(Span::from_millis(250)), Value::Count(u64::MAX)]),
            "0.25,18446744073709551615\n"
        );
    }

    #[test]
    fn times_are_of_iso_8601() {
        for (nanos, text) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (1_700_000_000_123_456_789, "2023-11-14T22:13:20.123456789Z"),
            (951_782_400_000_000_000, "2000-02-29T00:00:00.000000000Z"),
            (4_107_542_399_999_999_999, "2100-02-28T23:59:59.999999999Z"),
            (4_107_542_400_000_000_000, "2100-03-01T00:00:00.000000000Z"),
        ] {
            assert_eq!(of(&[Value::Time(Time::from_nanos(nanos))]), format!("{text}\n"));
        }
    }

    /// Parses a line (RFC 4180).
    fn fields(line: &str) -> Vec<Option<String>> {
        let (mut fields, mut rest) = (Vec::new(), line.strip_suffix('\n').unwrap());
        loop {
            let mut field = String::new();
            let mut is_quoted = false;
            while let Some(quoted) = rest.strip_prefix('"') {
                // A doubled quote is a quote inside the field.
                if is_quoted {
                    field.push('"');
                }
                is_quoted = true;
                let (part, behind) = quoted.split_once('"').unwrap();
                field += part;
                rest = behind;
            }
            if !is_quoted {
                let end = rest.find(',').unwrap_or(rest.len());
                field += &rest[..end];
                assert!(!field.contains(['"', '\n', '\r']), "{field:?} ends where nobody expects");
                rest = &rest[end..];
            }
            fields.push((is_quoted || !field.is_empty()).then_some(field));
            match rest.strip_prefix(',') {
                Some(behind) => rest = behind,
                None => return fields,
            }
        }
    }

    proptest! {
        #[test]
        fn texts_come_back(texts in prop::collection::vec(prop::option::of("[a,\" \n\r]{0,6}"), 1..5)) {
            let value = |text: &Option<String>| match text {
                Some(text) => Value::Text(Cow::Owned(text.clone())),
                None => Value::Absent,
            };
            let row: Vec<Value<'_>> = texts.iter().map(value).collect();
            prop_assert_eq!(fields(&of(&row)), texts);
        }
    }
}
