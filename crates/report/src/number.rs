//! Formats numbers for people: three significant digits, a unit that fits, a comma between
//! thousands.

use std::time::{Duration, SystemTime};

use manyways_unit::{Rate, Size, Span, Time};

/// Formats a span in the unit that fits, from microseconds to days: `34.9 ms`, `10 min`.
pub fn span(span: Span) -> String {
    seconds(span.as_secs_f64())
}

/// Formats seconds in the unit that fits; `never` if they are not finite.
pub fn seconds(seconds: f64) -> String {
    if !seconds.is_finite() {
        return "never".to_owned();
    }
    match seconds.abs() {
        ..5e-7 => "0 s".to_owned(),
        ..999.5e-6 => format!("{:.0} µs", seconds * 1e6),
        ..999.5e-3 => format!("{} ms", digits(seconds * 1e3)),
        ..120.0 => format!("{} s", digits(seconds)),
        ..7_200.0 => format!("{} min", digits(seconds / 60.0)),
        ..864_000.0 => format!("{} h", digits(seconds / 3_600.0)),
        _ => format!("{} d", digits(seconds / 86_400.0)),
    }
}

/// Formats a rate in the unit that fits: `20 Mbit/s`.
pub fn rate(rate: Rate) -> String {
    bits_per_second(rate.as_bps() as f64)
}

/// Formats a number of bit/s in the unit that fits.
pub fn bits_per_second(bits: f64) -> String {
    match bits {
        ..999.5 => format!("{} bit/s", digits(bits)),
        ..999.5e3 => format!("{} kbit/s", digits(bits / 1e3)),
        ..999.5e6 => format!("{} Mbit/s", digits(bits / 1e6)),
        _ => format!("{} Gbit/s", digits(bits / 1e9)),
    }
}

/// Formats a size in decimal units: `1.23 MB`.
pub fn size(size: Size) -> String {
    bytes(size.as_bytes())
}

/// Formats a number of bytes in decimal units.
pub fn bytes(bytes: u64) -> String {
    match bytes as f64 {
        ..999.5 => format!("{bytes} B"),
        value @ ..999.5e3 => format!("{} kB", digits(value / 1e3)),
        value @ ..999.5e6 => format!("{} MB", digits(value / 1e6)),
        value @ ..999.5e9 => format!("{} GB", digits(value / 1e9)),
        value => format!("{} TB", digits(value / 1e12)),
    }
}

/// Formats joules in the unit that fits.
pub fn joules(joules: f64) -> String {
    match joules.abs() {
        ..5e-7 => "0 J".to_owned(),
        ..1.0 => format!("{} mJ", digits(joules * 1e3)),
        ..1e4 => format!("{} J", digits(joules)),
        _ => format!("{} kJ", digits(joules / 1e3)),
    }
}

/// Formats watts in the unit that fits.
pub fn watts(watts: f64) -> String {
    match watts.abs() {
        ..5e-7 => "0 W".to_owned(),
        ..1.0 => format!("{} mW", digits(watts * 1e3)),
        _ => format!("{} W", digits(watts)),
    }
}

/// Formats a fraction as per cent with one decimal; a dash if it is not finite.
pub fn percent(fraction: f64) -> String {
    if fraction.is_finite() { format!("{:.1} %", fraction * 100.0) } else { "–".to_owned() }
}

/// Formats a part of a time as whole per cent; `0 %` if `whole` is zero.
pub fn share(part: Span, whole: Span) -> String {
    if whole.is_zero() {
        return "0 %".to_owned();
    }
    format!("{:.0} %", part.as_secs_f64() * 100.0 / whole.as_secs_f64())
}

/// Formats three significant digits without trailing zeros; from 1000, all digits before the point.
pub fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Formats a whole number with a comma between thousands.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count and its noun with a regular plural: `1 session`, `2,000 sessions`.
pub fn plural(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Formats a UTC time: `2023-11-14 22:13:20 UTC`.
pub fn utc_time(time: Time) -> String {
    let text = rfc3339(time).replace('T', " ");
    format!("{} UTC", text.trim_end_matches('Z'))
}

/// Formats the UTC time of the day: `22:13:20`.
pub fn time_of_day(time: Time) -> String {
    let text = rfc3339(time);
    text.split_once('T').map_or("", |(_, time)| time).trim_end_matches('Z').to_owned()
}

fn rfc3339(time: Time) -> String {
    let moment = SystemTime::UNIX_EPOCH + Duration::from_nanos(time.as_nanos());
    humantime::format_rfc3339_seconds(moment).to_string()
}

/// Shortens a text to at most `max` characters by removing its middle.
pub fn shorten(text: &str, max: usize) -> String {
    let length = text.chars().count();
    if length <= max {
        return text.to_owned();
    }
    let (head, tail) = (max / 2, max - max / 2 - 1);
    let head: String = text.chars().take(head).collect();
    let tail: String = text.chars().skip(length - tail).collect();
    format!("{head}…{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_unit_that_fits() {
        let all = [0.0, 0.0005, 0.26, 4.5, 90.0, 3_600.0, 90_000.0, 900_000.0, f64::INFINITY];
        let words =
            ["0 s", "500 µs", "260 ms", "4.5 s", "90 s", "60 min", "25 h", "10.4 d", "never"];
        assert_eq!(all.map(seconds), words);
        let nanos = |nanos| span(Span::from_nanos(nanos));
        assert_eq!([nanos(0), nanos(52_000), nanos(999_700)], ["0 s", "52 µs", "1 ms"]);
        assert_eq!([nanos(34_940_000), nanos(1_500_000_000)], ["34.9 ms", "1.5 s"]);
        assert_eq!([0.0, 0.55, 1.1, 12_345.0].map(joules), ["0 J", "550 mJ", "1.1 J", "12.3 kJ"]);
        let all = [0.0, 1e-9, 0.0205, 1.375, -10.3].map(watts);
        assert_eq!(all, ["0 W", "0 W", "20.5 mW", "1.38 W", "-10.3 W"]);
        assert_eq!(percent(0.904), "90.4 %");
        assert_eq!([5, 1_234, 1_234_567].map(count), ["5", "1,234", "1,234,567"]);
        assert_eq!(
            [0.0, 1_234.0, 2e7].map(bits_per_second),
            ["0 bit/s", "1.23 kbit/s", "20 Mbit/s"]
        );
        assert_eq!(
            [999, 1_000, 999_600, 12_345_678].map(bytes),
            ["999 B", "1 kB", "1 MB", "12.3 MB"]
        );
        assert_eq!(share(Span::from_secs(1), Span::from_secs(3)), "33 %");
        assert_eq!(share(Span::ZERO, Span::ZERO), "0 %");
        assert_eq!([plural(1, "flow"), plural(2_000, "flow")], ["1 flow", "2,000 flows"]);
    }

    #[test]
    fn moments_are_those_of_utc() {
        let time = Time::from_millis(1_700_000_000_999);
        assert_eq!(utc_time(time), "2023-11-14 22:13:20 UTC");
        assert_eq!(time_of_day(time), "22:13:20");
        assert!(utc_time(Time::MAX).starts_with("2554-"));
    }

    #[test]
    fn long_names_lose_their_middle() {
        assert_eq!(shorten("www.example.net", 15), "www.example.net");
        assert_eq!(shorten("www.example.net", 9), "www.….net");
        assert_eq!(shorten(&"ü".repeat(300), 34).chars().count(), 34);
    }
}
