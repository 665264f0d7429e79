//! Power and energy with units: `916mW`, `1.1J`.

use std::fmt;
use std::str::FromStr;

use manyways_unit::human::InvalidValue;

/// Power in watts; parsed values are finite and not negative.
#[derive(Clone, Copy, PartialEq, PartialOrd, Default, Debug)]
pub struct Power(f64);

/// Energy in joules; parsed values are finite and not negative.
#[derive(Clone, Copy, PartialEq, PartialOrd, Default, Debug)]
pub struct Energy(f64);

impl Power {
    pub const fn watts(watts: f64) -> Self {
        Self(watts)
    }

    pub const fn as_watts(self) -> f64 {
        self.0
    }
}

impl Energy {
    pub const ZERO: Self = Self(0.0);

    pub const fn joules(joules: f64) -> Self {
        Self(joules)
    }

    pub const fn as_joules(self) -> f64 {
        self.0
    }
}

impl FromStr for Power {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        const UNITS: &[(&str, f64)] = &[("W", 1.0), ("mW", 1e-3), ("uW", 1e-6), ("µW", 1e-6)];
        let wrong = || InvalidValue::new(text, "a power", "916mW or 1.2W");
        parse_with_unit(text, UNITS).map(Self).ok_or_else(wrong)
    }
}

impl FromStr for Energy {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        const UNITS: &[(&str, f64)] = &[("J", 1.0), ("mJ", 1e-3), ("uJ", 1e-6), ("µJ", 1e-6)];
        let wrong = || InvalidValue::new(text, "an energy", "550mJ or 1.1J");
        parse_with_unit(text, UNITS).map(Self).ok_or_else(wrong)
    }
}

/// A number and its unit, which is optional only after zero.
fn parse_with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    let unit = unit.trim_start();
    let factor = match unit.is_empty() {
        true => (number == 0.0).then_some(1.0)?,
        false => units.iter().find(|(name, _)| *name == unit)?.1,
    };
    // A division gives the nearest value: 916 mW equals 0.916 W.
    let value = if factor < 1.0 { number / (1.0 / factor).round() } else { number };
    value.is_finite().then_some(value)
}

impl fmt::Display for Power {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        format_value(f, self.0, "W")
    }
}

impl fmt::Display for Energy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        format_value(f, self.0, "J")
    }
}

/// With the prefix milli below one; four digits at most.
fn format_value(f: &mut fmt::Formatter<'_>, value: f64, unit: &str) -> fmt::Result {
    let (value, prefix) = if value < 1.0 { (value * 1e3, "m") } else { (value, "") };
    let digits = match value {
        1_000.0.. => 0,
        100.0.. => 1,
        10.0.. => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    write!(f, "{text} {prefix}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_write_them_with_their_units() {
        assert_eq!("916mW".parse(), Ok(Power(0.916)));
        assert_eq!("1.2 W".parse(), Ok(Power(1.2)));
        assert_eq!("0".parse(), Ok(Power(0.0)));
        assert_eq!("438.39mJ".parse(), Ok(Energy(0.43839)));
        for wrong in ["", "1.2", "W", "-1W", "1.2mw", "1e3W", "NaNW", "1..2W", "infW", "1J"] {
            assert!(wrong.parse::<Power>().is_err(), "{wrong}");
        }
        let error = "1.2".parse::<Power>().unwrap_err().to_string();
        assert_eq!(error, "`1.2` is not a power; write 916mW or 1.2W");
        assert!("9".repeat(400).parse::<Power>().is_err());
        assert!(format!("{}W", "9".repeat(400)).parse::<Power>().is_err());
    }

    #[test]
    fn displayed_values_are_parsed() {
        for (value, shown) in [
            (0.0, "0 mW"),
            (0.0205, "20.5 mW"),
            (0.916, "916 mW"),
            (1.0, "1 W"),
            (1.325, "1.325 W"),
            (12.5, "12.5 W"),
            (1_234.5, "1234 W"),
        ] {
            assert_eq!(Power(value).to_string(), shown);
        }
        assert_eq!(Energy(1.1).to_string().parse(), Ok(Energy(1.1)));
    }
}
