//! Numbers in words.

use std::time::{Duration, SystemTime};

use manyways_unit::{Rate, Span, Time};

/// Three digits that count, in the unit that suits.
pub fn span(span: Span) -> String {
    let seconds = span.as_secs_f64();
    match seconds {
        0.0 => "0 s".to_owned(),
        _ if seconds < 0.999_5e-3 => format!("{} µs", digits(seconds * 1e6)),
        _ if seconds < 0.999_5 => format!("{} ms", digits(seconds * 1e3)),
        _ if seconds < 120.0 => format!("{} s", digits(seconds)),
        _ if seconds < 7_200.0 => format!("{} min", digits(seconds / 60.0)),
        _ => format!("{} h", digits(seconds / 3_600.0)),
    }
}

/// The same for the mark of a scale.
pub fn mark(seconds: f64) -> String {
    span(Span::from_secs_f64(seconds))
}

pub fn rate(rate: Rate) -> String {
    bits(rate.as_bps() as f64)
}

/// Bits a second.
pub fn bits(bits: f64) -> String {
    match bits {
        _ if bits < 999.5 => format!("{} bit/s", digits(bits)),
        _ if bits < 999.5e3 => format!("{} kbit/s", digits(bits / 1e3)),
        _ if bits < 999.5e6 => format!("{} Mbit/s", digits(bits / 1e6)),
        _ => format!("{} Gbit/s", digits(bits / 1e9)),
    }
}

/// A part of a time.
pub fn share(part: Span, whole: Span) -> String {
    if whole.is_zero() {
        return "0 %".to_owned();
    }
    format!("{:.0} %", part.as_secs_f64() * 100.0 / whole.as_secs_f64())
}

fn digits(value: f64) -> String {
    let text = match value {
        _ if value < 9.995 => format!("{value:.2}"),
        _ if value < 99.95 => format!("{value:.1}"),
        _ => return format!("{value:.0}"),
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A moment of UTC.
pub fn moment(time: Time) -> String {
    let text = rfc3339(time).replace('T', " ");
    format!("{} UTC", text.trim_end_matches('Z'))
}

/// The time of a day.
pub fn of_day(time: Time) -> String {
    let text = rfc3339(time);
    text.split_once('T').map_or("", |(_, time)| time).trim_end_matches('Z').to_owned()
}

fn rfc3339(time: Time) -> String {
    let moment = SystemTime::UNIX_EPOCH + Duration::from_nanos(time.as_nanos());
    humantime::format_rfc3339_seconds(moment).to_string()
}

/// A text of others of at most so many characters: what is longer loses its middle.
pub fn cut(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_owned();
    }
    let (head, tail) = (most / 2, most - most / 2 - 1);
    let head: String = text.chars().take(head).collect();
    let tail: String = text.chars().skip(length - tail).collect();
    format!("{head}…{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_unit_that_suits() {
        let nanos = |nanos| span(Span::from_nanos(nanos));
        assert_eq!([nanos(0), nanos(52_000), nanos(999_700)], ["0 s", "52 µs", "1 ms"]);
        assert_eq!([nanos(34_940_000), nanos(1_500_000_000)], ["34.9 ms", "1.5 s"]);
        assert_eq!(span(Span::from_secs(600)), "10 min");
        assert_eq!(span(Span::from_secs(36_000)), "10 h");
        assert_eq!([bits(0.0), bits(1_234.0), bits(2e7)], ["0 bit/s", "1.23 kbit/s", "20 Mbit/s"]);
        assert_eq!(share(Span::from_secs(1), Span::from_secs(3)), "33 %");
        assert_eq!(share(Span::ZERO, Span::ZERO), "0 %");
    }

    #[test]
    fn moments_are_those_of_utc() {
        let time = Time::from_millis(1_700_000_000_999);
        assert_eq!(moment(time), "2023-11-14 22:13:20 UTC");
        assert_eq!(of_day(time), "22:13:20");
        assert!(moment(Time::MAX).starts_with("2554-"));
    }

    #[test]
    fn long_names_lose_their_middle() {
        assert_eq!(cut("www.example.net", 15), "www.example.net");
        assert_eq!(cut("www.example.net", 9), "www.….net");
        assert_eq!(cut(&"ü".repeat(300), 34).chars().count(), 34);
    }
}
