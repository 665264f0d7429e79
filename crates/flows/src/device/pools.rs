//! Reader of a file with address pools.

use std::str::FromStr;

use super::{Pool, System};
use manyways_unit::Prefix;
use manyways_unit::PrefixError;
use manyways_unit::human::without_bom;

/// Maximum number of pools in a file.
pub const MAX_POOLS: usize = 1 << 16;
/// Start of an optional first line with the names of the fields.
const HEADER_START: &str = "prefix,";

/// Error in a file of pools, with its line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {kind}")]
pub struct PoolsError {
    /// Line number, from 1.
    pub line: usize,
    pub kind: PoolsErrorKind,
}

/// Reason to reject a line of a file of pools.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolsErrorKind {
    /// The line is not UTF-8.
    #[error("this is not UTF-8: save the file as UTF-8 text")]
    NotUtf8,
    /// Another number of fields than 3.
    #[error("a line has 3 fields: prefix,handheld,system")]
    FieldCount,
    /// The prefix is invalid.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// The second field is neither `yes` nor `zero` nor empty.
    #[error("the second field must be yes, no or empty: whether the devices are handheld")]
    Handheld,
    /// Unknown system.
    #[error("the third field must be a system ({}) or empty", names())]
    System,
    /// Both `handheld` and `system` are empty.
    #[error("the line has neither handheld nor system: add one of them")]
    Empty,
    /// More than [`MAX_POOLS`] pools.
    #[error("there are more than {MAX_POOLS} pools")]
    TooMany,
}

fn names() -> String {
    System::ALL.map(System::name).join(", ")
}

/// Reads a file of lines `prefix,handheld,system`, for example `10.20.0.0/16,yes,` or
/// `192.0.2.0/24,no,windows`.
///
/// The prefix is IPv4 or IPv6; `handheld` is `yes` or `zero`, and `system` has the name of
/// [`System::name`]. One of the two may be empty. Empty lines, lines that begin with `#`, and a
/// first line with the names of the fields are ignored. The longest prefix that contains an address
/// applies.
pub fn pools(file: &[u8]) -> Result<Vec<Pool>, PoolsError> {
    let mut pools = Vec::new();
    for (line, bytes) in (1..).zip(without_bom(file).split(|byte| *byte == b'\n')) {
        let read = read(bytes, line == 1).map_err(|fault| PoolsError { line, kind: fault })?;
        if pools.len() >= MAX_POOLS && read.is_some() {
            return Err(PoolsError { line, kind: PoolsErrorKind::TooMany });
        }
        pools.extend(read);
    }
    Ok(pools)
}

fn read(line: &[u8], is_first: bool) -> Result<Option<Pool>, PoolsErrorKind> {
    let text = std::str::from_utf8(line).map_err(|_| PoolsErrorKind::NotUtf8)?.trim();
    if text.is_empty() || text.starts_with('#') || is_first && text.starts_with(HEADER_START) {
        return Ok(None);
    }
    let mut fields = text.split(',').map(str::trim);
    let mut next = || fields.next().ok_or(PoolsErrorKind::FieldCount);
    let (prefix, handheld, system) = (next()?, next()?, next()?);
    if fields.next().is_some() {
        return Err(PoolsErrorKind::FieldCount);
    }
    let prefix = Prefix::from_str(prefix)?;
    let handheld = match handheld {
        "" => None,
        "yes" => Some(true),
        "no" => Some(false),
        _ => return Err(PoolsErrorKind::Handheld),
    };
    let system = match system {
        "" => None,
        name => {
            let known = System::ALL.into_iter().find(|system| system.name() == name);
            Some(known.ok_or(PoolsErrorKind::System)?)
        }
    };
    if handheld.is_none() && system.is_none() {
        return Err(PoolsErrorKind::Empty);
    }
    Ok(Some(Pool { prefix, handheld, system }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_a_line() {
        let file = b"\xef\xbb\xbfprefix,handheld,system\r\n# ours\n\n10.20.0.0/16, yes ,\n\
            2001:db8::/32,,ios\n192.0.2.7,no,windows";
        let found = pools(file).unwrap();
        let expected = [
            ("10.20.0.0/16", Some(true), None),
            ("2001:db8::/32", None, Some(System::Ios)),
            ("192.0.2.7", Some(false), Some(System::Windows)),
        ];
        let expected = expected.map(|(prefix, handheld, system)| Pool {
            prefix: prefix.parse().unwrap(),
            handheld,
            system,
        });
        assert_eq!(found, expected);
        assert!(pools(b"").unwrap().is_empty());
    }

    #[test]
    fn what_is_wrong_is_said_by_line() {
        let fault = |file: &[u8]| {
            let error = pools(file).unwrap_err();
            (error.line, error.kind)
        };
        assert_eq!(fault(b"\n10.0.0.0/8,yes"), (2, PoolsErrorKind::FieldCount));
        assert_eq!(fault(b"10.0.0.0/8,yes,ios,"), (1, PoolsErrorKind::FieldCount));
        assert_eq!(
            fault(b"10.0.0.1/8,yes,"),
            (1, "10.0.0.1/8".parse::<Prefix>().unwrap_err().into())
        );
        assert_eq!(fault(b"10.0.0.0/8,1,"), (1, PoolsErrorKind::Handheld));
        assert_eq!(fault(b"10.0.0.0/8,,beos"), (1, PoolsErrorKind::System));
        assert_eq!(fault(b"10.0.0.0/8,,"), (1, PoolsErrorKind::Empty));
        assert_eq!(fault(b"10.0.0.0/8,yes,\n\xff"), (2, PoolsErrorKind::NotUtf8));
        // Only the first line may contain the names of the fields.
        assert_eq!(
            fault(b"#\nprefix,handheld,system"),
            (2, "prefix".parse::<Prefix>().unwrap_err().into())
        );
        let many = "10.0.0.0/8,yes,\n".repeat(MAX_POOLS + 1);
        assert_eq!(fault(many.as_bytes()), (MAX_POOLS + 1, PoolsErrorKind::TooMany));
        let text = PoolsErrorKind::System.to_string();
        assert!(text.contains("ios, macos") && text.contains("nintendo"), "{text}");
    }

    #[test]
    fn every_system_has_a_name_of_its_own() {
        let names: std::collections::HashSet<_> = System::ALL.map(System::name).into();
        assert_eq!(names.len(), System::ALL.len());
    }
}
