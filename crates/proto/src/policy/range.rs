//! Ranges of ports and byte counts.

use std::fmt;
use std::str::FromStr;

use manyways_unit::human::InvalidValue;
use manyways_unit::{Size, human};

/// A port or a port range: `443`, `3478-3497`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ports {
    from: u16,
    to: u16,
}

/// A range of byte counts: `>1MB`, `<=100KB`, `100KB-1MB` (both included).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Bytes {
    text: String,
    from: u64,
    to: u64,
}

impl Ports {
    pub(super) fn fits(self, port: u16) -> bool {
        (self.from..=self.to).contains(&port)
    }

    pub(super) fn covers(self, other: Self) -> bool {
        self.from <= other.from && other.to <= self.to
    }
}

impl FromStr for Ports {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let port = |text: &str| text.trim().parse().ok().filter(|port: &u16| *port > 0);
        let (from, to) = text.split_once('-').unwrap_or((text, text));
        match (port(from), port(to)) {
            (Some(from), Some(to)) if from <= to => Ok(Self { from, to }),
            _ => Err(InvalidValue::new(
                text,
                "a port",
                "a number from 1 to 65535, or a range like 3478-3497",
            )),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.from == self.to {
            true => write!(f, "{}", self.from),
            false => write!(f, "{}-{}", self.from, self.to),
        }
    }
}

impl Bytes {
    pub(super) fn fits(&self, size: Size) -> bool {
        (self.from..=self.to).contains(&size.as_bytes())
    }

    pub(super) fn covers(&self, other: &Self) -> bool {
        self.from <= other.from && other.to <= self.to
    }

    /// Returns the sizes at which the match changes.
    pub(super) fn edges(&self) -> impl Iterator<Item = Size> {
        [Some(self.from), self.to.checked_add(1)].into_iter().flatten().map(Size::from_bytes)
    }
}

impl FromStr for Bytes {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let invalid =
            || InvalidValue::new(text, "how many bytes", "it like >1MB, <=100KB or 100KB-1MB");
        let size = |text: &str| human::bytes(text).map(Size::as_bytes).map_err(|_| invalid());
        let trimmed = text.trim();
        let range = if let Some(rest) = trimmed.strip_prefix(">=") {
            Some((size(rest)?, u64::MAX))
        } else if let Some(rest) = trimmed.strip_prefix("<=") {
            Some((0, size(rest)?))
        } else if let Some(rest) = trimmed.strip_prefix('>') {
            size(rest)?.checked_add(1).map(|from| (from, u64::MAX))
        } else if let Some(rest) = trimmed.strip_prefix('<') {
            size(rest)?.checked_sub(1).map(|to| (0, to))
        } else if let Some((from, to)) = trimmed.split_once('-') {
            Some((size(from)?, size(to)?))
        } else {
            None
        };
        let (from, to) = range.filter(|(from, to)| from <= to).ok_or_else(invalid)?;
        Ok(Self { text: text.to_owned(), from, to })
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports() {
        let ports = |text: &str| text.parse::<Ports>();
        assert!(ports("443").unwrap().fits(443) && !ports("443").unwrap().fits(444));
        let range = ports("3478-3497").unwrap();
        assert!(range.fits(3478) && range.fits(3497) && !range.fits(3477) && !range.fits(3498));
        assert!(range.covers(ports("3480").unwrap()) && !ports("3480").unwrap().covers(range));
        for text in ["", "0", "65536", "5-4", "a", "1-", "-1"] {
            assert!(ports(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bytes() {
        let bytes = |text: &str| text.parse::<Bytes>().unwrap();
        let fits = |text: &str, size| bytes(text).fits(Size::from_bytes(size));
        assert!(!fits(">1MB", 1_000_000) && fits(">1MB", 1_000_001));
        assert!(fits(">= 1MB", 1_000_000) && fits("<=100KB", 100_000));
        assert!(fits("<100KB", 99_999) && !fits("<100KB", 100_000));
        assert!(fits("1KB-2KB", 1_000) && fits("1KB-2KB", 2_000) && !fits("1KB-2KB", 2_001));
        let edges = |text: &str| bytes(text).edges().map(Size::as_bytes).collect::<Vec<_>>();
        assert_eq!(edges(">1MB"), [1_000_001]);
        assert_eq!(edges("1KB-2KB"), [1_000, 2_001]);
        for text in ["", "1MB", "<0B", ">1 parsec", "2KB-1KB", ">18446744073709551615"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }
}
