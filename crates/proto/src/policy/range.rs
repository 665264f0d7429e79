//! Ranges of ports and byte counts.

use std::fmt;
use std::str::FromStr;

use manyways_unit::human::InvalidValue;
use manyways_unit::{Size, human};

/// A port or a port range: `443`, `3478-3497`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PortRange {
    first: u16,
    last: u16,
}

/// A range of byte counts: `>1MB`, `<=100KB`, `100KB-1MB` (both included).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ByteRange {
    text: String,
    min: u64,
    max: u64,
}

impl PortRange {
    pub(super) fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    pub(super) fn covers(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }
}

impl FromStr for PortRange {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let port = |text: &str| text.trim().parse().ok().filter(|port: &u16| *port > 0);
        let (from, to) = text.split_once('-').unwrap_or((text, text));
        match (port(from), port(to)) {
            (Some(from), Some(to)) if from <= to => Ok(Self { first: from, last: to }),
            _ => Err(InvalidValue::new(
                text,
                "a port",
                "a number from 1 to 65535, or a range like 3478-3497",
            )),
        }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

impl ByteRange {
    pub(super) fn contains(&self, size: Size) -> bool {
        (self.min..=self.max).contains(&size.as_bytes())
    }

    pub(super) fn covers(&self, other: &Self) -> bool {
        self.min <= other.min && other.max <= self.max
    }

    /// Returns the sizes at which the match changes.
    pub(super) fn thresholds(&self) -> impl Iterator<Item = Size> {
        [Some(self.min), self.max.checked_add(1)].into_iter().flatten().map(Size::from_bytes)
    }
}

impl FromStr for ByteRange {
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
        Ok(Self { text: text.to_owned(), min: from, max: to })
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports() {
        let ports = |text: &str| text.parse::<PortRange>();
        assert!(ports("443").unwrap().contains(443) && !ports("443").unwrap().contains(444));
        let range = ports("3478-3497").unwrap();
        assert!(
            range.contains(3478)
                && range.contains(3497)
                && !range.contains(3477)
                && !range.contains(3498)
        );
        assert!(range.covers(ports("3480").unwrap()) && !ports("3480").unwrap().covers(range));
        for text in ["", "0", "65536", "5-4", "a", "1-", "-1"] {
            assert!(ports(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bytes() {
        let bytes = |text: &str| text.parse::<ByteRange>().unwrap();
        let fits = |text: &str, size| bytes(text).contains(Size::from_bytes(size));
        assert!(!fits(">1MB", 1_000_000) && fits(">1MB", 1_000_001));
        assert!(fits(">= 1MB", 1_000_000) && fits("<=100KB", 100_000));
        assert!(fits("<100KB", 99_999) && !fits("<100KB", 100_000));
        assert!(fits("1KB-2KB", 1_000) && fits("1KB-2KB", 2_000) && !fits("1KB-2KB", 2_001));
        let edges = |text: &str| bytes(text).thresholds().map(Size::as_bytes).collect::<Vec<_>>();
        assert_eq!(edges(">1MB"), [1_000_001]);
        assert_eq!(edges("1KB-2KB"), [1_000, 2_001]);
        for text in ["", "1MB", "<0B", ">1 parsec", "2KB-1KB", ">18446744073709551615"] {
            assert!(text.parse::<ByteRange>().is_err(), "{text}");
        }
    }
}
