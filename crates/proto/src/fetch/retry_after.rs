//! The time in `Retry-After` (RFC 9110 §10.2.3), and dates in HTTP (§5.6.7).

use manyways_unit::{Span, Time};

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAY: Span = Span::from_secs(86_400);

/// Parses `Retry-After`: seconds, or a date. Returns the wait, zero for a date in the past.
///
/// `now` is the time since 1970 of the same clock, so the `Date` of the response if it has one.
pub fn parse_retry_after(value: &str, now: Time) -> Option<Span> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        // A number that is too large is a very long wait.
        return Some(value.parse().map_or(Span::MAX, Span::from_secs));
    }
    Some(parse_http_date(value)?.since(now))
}

/// Parses a date in one of the three formats of HTTP. Returns the time since 1970; zero for an
/// earlier date.
///
/// A year of two digits is from 1970 to 2069, instead of relative to the current year as in the
/// RFC.
pub fn parse_http_date(text: &str) -> Option<Time> {
    let text = text.trim();
    let date = match text.split_once(", ") {
        Some((_, rest)) if rest.contains('-') => rfc850(rest),
        Some((_, rest)) => imf_fixdate(rest),
        None => asctime(text),
    };
    let (year, month, day, time) = date?;
    let month = MONTHS.iter().position(|name| *name == month)? as u64;
    let day: u64 = day.parse().ok().filter(|day| (1..=31).contains(day))?;
    let days = days_before(year, month) + day - 1;
    Some(Time::ZERO + DAY * days + time_of_day(time)?)
}

/// Year, month, day and time of day.
type Fields<'a> = (u64, &'a str, &'a str, &'a str);

/// `06 Nov 1994 08:49:37 GMT`, after the day of the week.
fn imf_fixdate(text: &str) -> Option<Fields<'_>> {
    let mut fields = text.split(' ');
    let (day, month, year) = (fields.next()?, fields.next()?, fields.next()?);
    let time = fields.next()?;
    (fields.next() == Some("GMT")).then_some((full_year(year)?, month, day, time))
}

/// `06-Nov-94 08:49:37 GMT`, after the day of the week.
fn rfc850(text: &str) -> Option<Fields<'_>> {
    let (date, time) = text.strip_suffix(" GMT")?.split_once(' ')?;
    let mut fields = date.split('-');
    let (day, month, year) = (fields.next()?, fields.next()?, fields.next()?);
    let year: u64 = year.parse().ok().filter(|_| year.len() == 2)?;
    Some((if year < 70 { 2000 + year } else { 1900 + year }, month, day, time))
}

/// `Sun Nov  6 08:49:37 1994`.
fn asctime(text: &str) -> Option<Fields<'_>> {
    let mut fields = text.split_ascii_whitespace().skip(1);
    let (month, day, time) = (fields.next()?, fields.next()?, fields.next()?);
    Some((full_year(fields.next()?)?, month, day, time))
}

fn full_year(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.len() == 4)
}

/// `08:49:37`; the last second may be a leap second.
fn time_of_day(text: &str) -> Option<Span> {
    let mut fields = text.split(':').map(|field| field.parse::<u64>().ok());
    let (hour, minute, second) = (fields.next()??, fields.next()??, fields.next()??);
    let is_valid = hour < 24 && minute < 60 && second <= 60 && fields.next().is_none();
    is_valid.then(|| Span::from_secs(hour * 3_600 + minute * 60 + second))
}

/// Days from 1970 to the first day of a month, which is counted from 0; zero before 1970.
fn days_before(year: u64, month: u64) -> u64 {
    // Years that begin in March end with the leap day.
    let (year, month) =
        if month < 2 { (year.saturating_sub(1), month + 10) } else { (year, month - 2) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5;
    // Days until 1 March of the year 1970, less those of its January and February.
    days.saturating_sub(719_527 - 59)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_three_formats_are_read() {
        for (text, seconds) in [
            // The examples of RFC 9110, section 5.6.7.
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777),
            ("Sun Nov  6 08:49:37 1994", 784_111_777),
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Thu, 29 Feb 2024 23:59:59 GMT", 1_709_251_199),
            ("Fri, 01 Mar 2024 00:00:00 GMT", 1_709_251_200),
            ("Thursday, 31-Dec-26 00:00:00 GMT", 1_798_675_200),
        ] {
            assert_eq!(
                parse_http_date(text),
                Some(Time::ZERO + Span::from_secs(seconds)),
                "{text}"
            );
        }
        for wrong in [
            "",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun, 06 Now 1994 08:49:37 GMT",
            "Sun, 32 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994 08:49 GMT",
        ] {
            assert_eq!(parse_http_date(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_wait_is_a_number_of_seconds_or_ends_at_a_date() {
        let now = parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let wait = |value| parse_retry_after(value, now);
        assert_eq!(wait("120"), Some(Span::from_secs(120)));
        assert_eq!(wait(" 0 "), Some(Span::ZERO));
        assert_eq!(wait("99999999999999999999999"), Some(Span::MAX));
        assert_eq!(wait("Sun, 06 Nov 1994 08:50:37 GMT"), Some(Span::from_secs(60)));
        assert_eq!(wait("Sun, 06 Nov 1994 08:48:37 GMT"), Some(Span::ZERO));
        for wrong in ["", "-1", "1.5", "soon"] {
            assert_eq!(wait(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_causes_a_panic(text in "[A-Za-z0-9:, -]{0,40}|.{0,40}") {
            parse_retry_after(&text, Time::ZERO);
        }
    }
}
