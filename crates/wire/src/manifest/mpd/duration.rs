//! Durations of XML Schema, part 2 (3.2.6).

use manyways_unit::Span;
use manyways_unit::human::decimal;

/// Reads a duration such as `PT1H2M3.5S`. `None` if it is not one, is negative, does not fit, or has
/// years or months, which have no fixed length.
pub(super) fn parse(text: &str) -> Option<Span> {
    let (days, times) = match text.strip_prefix('P')?.split_once('T') {
        Some((_, "")) => return None,
        Some((days, times)) => (days, times),
        None => (text.strip_prefix('P')?, ""),
    };
    if days.is_empty() && times.is_empty() {
        return None;
    }
    let mut nanos = 0u64;
    let parts = [(days, &DATE_UNITS[..]), (times, &TIME_UNITS[..])];
    for (mut rest, units) in parts {
        for (unit, secs) in units {
            let Some((number, after)) = rest.split_once(*unit) else { continue };
            // Only seconds may have decimals.
            if *unit != 'S' && number.contains('.') {
                return None;
            }
            let part = decimal(number, secs * 1_000_000_000)?;
            if *secs == 0 && number.bytes().any(|digit| digit != b'0') {
                return None;
            }
            nanos = nanos.checked_add(part)?;
            rest = after;
        }
        if !rest.is_empty() {
            return None;
        }
    }
    Some(Span::from_nanos(nanos))
}

/// Units in their order, in seconds; those of 0 have no fixed length.
const DATE_UNITS: [(char, u64); 3] = [('Y', 0), ('M', 0), ('D', 86_400)];
const TIME_UNITS: [(char, u64); 3] = [('H', 3_600), ('M', 60), ('S', 1)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        for (text, millis) in [
            ("PT1H2M3.5S", Some(3_723_500)),
            ("PT0.001S", Some(1)),
            ("PT90M", Some(5_400_000)),
            ("P1D", Some(86_400_000)),
            ("P0Y0M1DT1S", Some(86_401_000)),
            ("PT0S", Some(0)),
            ("P1Y", None),
            ("P1M", None),
            ("PT1.5H", None),
            ("PT1S2M", None),
            ("-PT1S", None),
            ("PT-1S", None),
            ("P", None),
            ("PT", None),
            ("P1DT", None),
            ("PTS", None),
            ("1S", None),
            ("PT99999999999999999999S", None),
            ("PT18446744074S", None),
        ] {
            assert_eq!(parse(text), millis.map(Span::from_millis), "{text}");
        }
    }
}
