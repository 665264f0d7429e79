//! Dates in fields of responses, moved so that they are as old as they were in the recording.

use manyways_proto::fetch::parse_http_date;
use manyways_unit::Time;

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// Length of a date like `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(super) const LENGTH: usize = 29;
/// The first second of the year 10000, which has no form of this length.
const END: i64 = 253_402_300_800;

/// A date in the value of a field: `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, 5.6.7), or with `-`
/// between day, month and year, as in many cookies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DateAt {
    /// Position of its first byte.
    at: usize,
    /// Since 1970.
    seconds: i64,
    separator: u8,
}

impl DateAt {
    /// Reads the value of `Date`, `Expires` or `Last-Modified`. `None` for other forms, such as the
    /// `0` of `Expires`.
    pub(super) fn whole(value: &[u8]) -> Option<Self> {
        let date = Self::parse(value, 0)?;
        (value.len() == LENGTH).then_some(date)
    }

    /// Finds the date of the attribute `Expires` of a cookie (RFC 6265, 4.1.1).
    pub(super) fn of_cookie(value: &[u8]) -> Option<Self> {
        let mut at = 0;
        for part in value.split(|byte| *byte == b';') {
            let name = part.trim_ascii_start();
            // The first part is the cookie itself.
            if at > 0
                && let Some((name, rest)) = name.split_at_checked("expires=".len())
                && name.eq_ignore_ascii_case(b"expires=")
            {
                let date = rest.trim_ascii();
                let start = at + part.len() - rest.trim_ascii_start().len();
                return (date.len() == LENGTH).then(|| Self::parse(value, start)).flatten();
            }
            at += part.len() + 1;
        }
        None
    }

    fn parse(value: &[u8], at: usize) -> Option<Self> {
        let text = value.get(at..at.checked_add(LENGTH)?)?;
        let separator = *text.get(7)?;
        let is_uniform = text.get(11) == Some(&separator) && matches!(separator, b' ' | b'-');
        let mut plain: [u8; LENGTH] = text.try_into().ok()?;
        for place in [7, 11] {
            *plain.get_mut(place)? = b' ';
        }
        let time = parse_http_date(std::str::from_utf8(&plain).ok()?)?;
        let seconds = i64::try_from(time.as_nanos() / 1_000_000_000).ok()?;
        is_uniform.then_some(Self { at, seconds, separator })
    }

    /// Moves the date by seconds. It stays if the result is not a date from 1970 to 9999.
    pub(super) fn write_moved(self, by: i64, value: &mut [u8]) {
        let Some(seconds) = self.moved(by) else { return };
        let Some(place) = value.get_mut(self.at..self.at.saturating_add(LENGTH)) else { return };
        place.copy_from_slice(format(seconds, self.separator).as_slice());
    }

    /// Seconds since 1970 after a move.
    fn moved(self, by: i64) -> Option<u64> {
        let seconds = self.seconds.checked_add(by).filter(|seconds| (0..END).contains(seconds))?;
        u64::try_from(seconds).ok()
    }
}

/// Reads a date, in seconds since 1970. `None` if it has another form than those of HTTP.
pub(super) fn seconds(value: &[u8]) -> Option<u64> {
    let time: Time = parse_http_date(std::str::from_utf8(value).ok()?)?;
    Some(time.as_nanos() / 1_000_000_000)
}

fn format(seconds: u64, separator: u8) -> [u8; LENGTH] {
    let days = seconds / 86_400;
    let (year, month, day) = civil(days);
    let [hour, minute, second] = [seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60];
    let mut text = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    let week_day = DAYS.get((days % 7) as usize).copied().unwrap_or_default();
    let month = MONTHS.get(month as usize).copied().unwrap_or_default();
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(place) = text.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    let two = |number: u64| [b'0' + (number / 10 % 10) as u8, b'0' + (number % 10) as u8];
    put(0, week_day.as_bytes());
    put(5, &two(day));
    put(7, &[separator]);
    put(8, month.as_bytes());
    put(11, &[separator]);
    put(12, &two(year / 100));
    put(14, &two(year % 100));
    put(17, &two(hour));
    put(20, &two(minute));
    put(23, &two(second));
    text
}

/// Returns year, month from 0, and day from 1, of a number of days since 1970 in the Gregorian
/// calendar.
fn civil(days: u64) -> (u64, u64, u64) {
    // Years that begin in March end with the leap day; 400 of them have 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 2, 0) } else { (month - 10, 1) };
    (era * 400 + year + carry, month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn moved(value: &str, date: Option<DateAt>, by: i64) -> String {
        let mut value = value.as_bytes().to_vec();
        date.unwrap().write_moved(by, &mut value);
        String::from_utf8(value).unwrap()
    }

    #[test]
    fn a_date_moves_by_seconds() {
        let text = "Sun, 06 Nov 1994 08:49:37 GMT";
        let date = DateAt::whole(text.as_bytes());
        assert_eq!(moved(text, date, 0), text);
        assert_eq!(moved(text, date, 86_400 + 23), "Mon, 07 Nov 1994 08:50:00 GMT");
        assert_eq!(moved(text, date, -784_111_777), "Thu, 01 Jan 1970 00:00:00 GMT");
        // Neither before 1970 nor after 9999.
        assert_eq!(moved(text, date, -784_111_778), text);
        assert_eq!(moved(text, date, END - 784_111_777 - 1), "Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(moved(text, date, END - 784_111_777), text);
        assert_eq!(moved(text, date, i64::MAX), text);
    }

    #[test]
    fn other_values_are_not_dates_to_move() {
        for text in [
            "",
            "0",
            "-1",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun, 06 Nov 1994 08:49:37 GMT ",
            "Sun, 06 Nov-1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 CET",
        ] {
            assert_eq!(DateAt::whole(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_cookie_expires_later() {
        for (text, expected) in [
            (
                "a=b; path=/; expires=Sun, 06-Nov-1994 08:49:37 GMT; secure",
                "a=b; path=/; expires=Mon, 07-Nov-1994 08:49:37 GMT; secure",
            ),
            (
                "a=b;Expires= Sun, 06 Nov 1994 08:49:37 GMT",
                "a=b;Expires= Mon, 07 Nov 1994 08:49:37 GMT",
            ),
        ] {
            assert_eq!(moved(text, DateAt::of_cookie(text.as_bytes()), 86_400), expected);
        }
        for text in [
            "expires=Sun, 06 Nov 1994 08:49:37 GMT",
            "a=b; expires=0",
            "a=b; Max-Age=10",
            "a=b; expires=Sun, 06 Nov 1994 08:49:37 GMT x",
        ] {
            assert_eq!(DateAt::of_cookie(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn each_second_reads_back(seconds in 0..18_000_000_000_u64) {
            let text = format(seconds, b' ');
            prop_assert_eq!(super::seconds(&text), Some(seconds));
            prop_assert!(DateAt::whole(&format(seconds, b'-')).is_some());
        }

        #[test]
        fn no_value_panics(value in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = (DateAt::whole(&value), DateAt::of_cookie(&value), seconds(&value));
        }
    }
}
