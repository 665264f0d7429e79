//! Dates of HAR files (ISO 8601).

use std::time::{Duration, UNIX_EPOCH};

use manyways_unit::Time;

/// Formats a time as a date in UTC, in milliseconds.
pub(super) fn format(time: Time) -> String {
    let moment = UNIX_EPOCH + Duration::from_nanos(time.as_nanos());
    humantime::format_rfc3339_millis(moment).to_string()
}

/// Reads a date like `2026-11-29T15:59:55.123+01:00`: the zone may lack its colon, or be missing,
/// which means UTC. `None` for another form and for years that [`Time`] cannot hold: before 1970,
/// after 2553.
pub(super) fn parse(text: &str) -> Option<Time> {
    let text = text.trim();
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let mut parts = date.split('-');
    let [year, month, day] =
        [number(parts.next()?)?, number(parts.next()?)?, number(parts.next()?)?];
    if parts.next().is_some() || !(1969..2554).contains(&year) {
        return None;
    }
    let end = rest.find(['Z', 'z', '+', '-']).unwrap_or(rest.len());
    let (clock, zone) = rest.split_at_checked(end)?;
    let mut parts = clock.splitn(3, ':');
    let (hour, minute) = (number(parts.next()?)?, number(parts.next()?)?);
    let (second, nanos) = seconds(parts.next().unwrap_or("0"))?;
    let days = days_since_1970(year, month, day)?;
    if hour > 24 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second - zone_seconds(zone)?;
    let nanos = u64::try_from(seconds).ok()?.checked_mul(1_000_000_000)?.checked_add(nanos)?;
    Some(Time::from_nanos(nanos))
}

/// Up to four digits.
fn number(digits: &str) -> Option<i64> {
    let is_number = (1..=4).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

/// Seconds and nanoseconds.
fn seconds(text: &str) -> Option<(i64, u64)> {
    let (whole, decimals) = text.split_once(['.', ',']).unwrap_or((text, ""));
    if !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanos: String = decimals.chars().chain("000000000".chars()).take(9).collect();
    Some((number(whole)?, nanos.parse().ok()?))
}

/// Seconds that a zone is ahead of UTC.
fn zone_seconds(zone: &str) -> Option<i64> {
    let Some(digits) = zone.strip_prefix(['+', '-']) else {
        return matches!(zone, "" | "Z" | "z").then_some(0);
    };
    let digits = digits.replace(':', "");
    let (hours, minutes) = digits.split_at_checked(2)?;
    let minutes = if minutes.is_empty() { 0 } else { number(minutes)? };
    let seconds = number(hours)? * 3_600 + minutes * 60;
    Some(if zone.starts_with('-') { -seconds } else { seconds })
}

/// Days of the Gregorian calendar. `None` if there is no such month or day.
fn days_since_1970(year: i64, month: i64, day: i64) -> Option<i64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let february = if is_leap { 29 } else { 28 };
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let (before, rest) = months.split_at_checked(usize::try_from(month - 1).ok()?)?;
    if !(1..=*rest.first()?).contains(&day) {
        return None;
    }
    let leap_days = |year: i64| year / 4 - year / 100 + year / 400;
    let years = (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969);
    Some(years + before.iter().sum::<i64>() + day - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dates_have_zones_and_decimals() {
        let expected = Some(Time::from_millis(1_540_275_484_140));
        for text in [
            "2018-10-23T06:18:04.140Z",
            "2018-10-23T06:18:04.140+00:00",
            "2018-10-23T08:18:04.14+0200",
            " 2018-10-23 02:18:04,140-04",
            "2018-10-23T06:18:04.140",
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
        assert_eq!(parse("1970-01-01T00:00Z"), Some(Time::ZERO));
        assert_eq!(parse("2000-02-29T00:00:00Z"), Some(Time::from_millis(951_782_400_000)));
    }

    #[test]
    fn other_texts_are_no_dates() {
        for text in [
            "",
            "2018",
            "2018-10-23",
            "2018-02-29T00:00Z",
            "2018-13-01T00:00Z",
            "2018-00-01T00:00Z",
            "2018-01-00T00:00Z",
            "1969-12-31T23:59:59.000Z",
            "2018-10-23T06",
            "2018-10-23T06:61:00Z",
            "2018-10-23T06:18:04.1x0Z",
            "2018-10-23T06:18:04Q",
            "9999-10-23T06:18:04Z",
            "2018-10-23T06:18:04+é:00",
            "2018-10-23T06:18:04+1",
            "+018-10-23T06:18:04Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn dates_read_back_in_milliseconds(millis in 0..18_400_000_000_000_u64) {
            let time = Time::from_millis(millis);
            prop_assert_eq!(parse(&format(time)), Some(time));
        }

        #[test]
        fn no_text_panics(text in "[-+:.,TZ0-9é ]{0,40}") {
            let _ = parse(&text);
        }
    }
}
