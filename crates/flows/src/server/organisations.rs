//! Organisations by address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::str::FromStr;

use super::cdn_of;
use manyways_unit::Prefix;
use manyways_unit::human::without_bom;
use manyways_unit::{PrefixError, PrefixMap};
use manyways_wire::HostName;

/// Maximum number of prefixes in a table: three times the routes of the Internet.
pub const MAX_PREFIXES: usize = 4_000_000;
/// Start of an optional first line with the names of the fields.
const HEADER_START: &[u8] = b"prefix,";
/// Maximum length of a name in a table, in bytes.
pub const MAX_FIELD_LEN: usize = 128;

/// Organisations by address, from a table of prefixes.
///
/// The table is text of lines `prefix,asn,organisation,cdn`, for example
/// `104.16.0.0/13,13335,"Cloudflare, Inc.",Cloudflare`: an IPv4 or IPv6 prefix, the number of the
/// autonomous system with or without `AS` before it, the organisation, and the content delivery
/// network at this prefix. All fields except the prefix may be empty. A field with a comma is
/// quoted; quotes inside are doubled. A line that begins with `#` is a comment, and the first line
/// may contain the names of the fields. The longest prefix of an address applies; of two lines with
/// the same prefix, the later.
///
/// A prefix takes at most 16 bytes (IPv4) or 40 bytes (IPv6) of memory, and each distinct pair of
/// names its text once. Reading a table takes twice that, plus up to 32 bytes per prefix.
#[derive(Clone, Debug)]
pub struct Organisations {
    ranges: PrefixMap,
    entries: Vec<Entry>,
    names: Vec<Box<str>>,
    prefixes: usize,
}

/// The owner of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Organisation<'a> {
    /// Number of the autonomous system. `None` if the table has none.
    pub asn: Option<u32>,
    pub name: Option<&'a str>,
    /// Content delivery network at the address.
    pub cdn: Option<&'a str>,
}

/// Error in a table, with its line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {kind}")]
pub struct TableError {
    /// Line number, from 1.
    pub line: usize,
    pub kind: TableErrorKind,
}

/// Reason to reject a line of a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableErrorKind {
    /// The line is not UTF-8.
    #[error("this is not UTF-8: save the table as UTF-8 text")]
    NotUtf8,
    /// Another number of fields than 4.
    #[error("a line has 4 fields: prefix,asn,organisation,cdn")]
    FieldCount,
    /// A quote is not closed, or text follows it.
    #[error("a quote is not closed, or text follows it: double the quotes inside")]
    Quote,
    /// The prefix is invalid.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// The number of the autonomous system is invalid.
    #[error(
        "the second field is not the number of an autonomous system: write it as 15169 or AS15169"
    )]
    Asn,
    /// A name exceeds [`MAX_FIELD_LEN`].
    #[error("a name is longer than {MAX_FIELD_LEN} bytes: shorten it")]
    TooLong,
    /// More than [`MAX_PREFIXES`] prefixes.
    #[error(
        "there are more than {MAX_PREFIXES} prefixes: drop those that say the same as a shorter one"
    )]
    TooMany,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Entry {
    asn: Option<u32>,
    /// Index in [`Organisations::names`]; the first name is empty.
    name: u32,
    cdn: u32,
}

impl Organisations {
    /// Returns the built-in table of large organisations.
    pub fn built_in() -> Self {
        let table = include_bytes!("organisations.csv");
        // A test reads the table, so this cannot fail.
        Self::read(table).unwrap_or_else(|_| Self::empty())
    }

    /// Creates a table without prefixes.
    pub fn empty() -> Self {
        let ranges = PrefixMap::default();
        Self { ranges, entries: Vec::new(), names: Vec::new(), prefixes: 0 }
    }

    pub fn read(table: &[u8]) -> Result<Self, TableError> {
        let mut reading = TableReader::default();
        reading.intern("");
        let lines = without_bom(table).split(|byte| *byte == b'\n');
        for (line, bytes) in (1..).zip(lines) {
            if line == 1 && bytes.starts_with(HEADER_START) {
                continue;
            }
            reading.line(bytes).map_err(|fault| TableError { line, kind: fault })?;
        }
        let mut names = vec![Box::default(); reading.names.len()];
        for (name, at) in reading.names {
            names[at as usize] = name;
        }
        let prefixes = reading.prefixes.len();
        let entries = reading.entry_list;
        Ok(Self { ranges: PrefixMap::of(reading.prefixes), entries, names, prefixes })
    }

    /// Number of lines with a prefix.
    pub fn len(&self) -> usize {
        self.prefixes
    }

    pub fn is_empty(&self) -> bool {
        self.prefixes == 0
    }

    /// Returns the owner of an address. `None` if no prefix contains it.
    pub fn of(&self, address: IpAddr) -> Option<Organisation<'_>> {
        let entry = self.entries.get(self.ranges.find(address)? as usize)?;
        let named = |at: u32| {
            self.names.get(at as usize).map(|name| &**name).filter(|name| !name.is_empty())
        };
        Some(Organisation { asn: entry.asn, name: named(entry.name), cdn: named(entry.cdn) })
    }

    /// Returns the content delivery network of a server: from the table, or else from its name
    /// ([`cdn_of`]).
    pub fn cdn(&self, address: IpAddr, name: Option<&HostName>) -> Option<&str> {
        self.of(address).and_then(|organisation| organisation.cdn).or_else(|| cdn_of(name?))
    }
}

#[derive(Default)]
struct TableReader {
    prefixes: Vec<(Prefix, u32)>,
    entries: HashMap<Entry, u32>,
    entry_list: Vec<Entry>,
    names: HashMap<Box<str>, u32>,
}

impl TableReader {
    fn line(&mut self, bytes: &[u8]) -> Result<(), TableErrorKind> {
        let text = std::str::from_utf8(bytes).map_err(|_| TableErrorKind::NotUtf8)?.trim();
        if text.is_empty() || text.starts_with('#') {
            return Ok(());
        }
        let mut rest = Some(text);
        let mut field = || {
            let (field, behind) = first_field(rest.ok_or(TableErrorKind::FieldCount)?)?;
            rest = behind;
            Ok::<_, TableErrorKind>(field)
        };
        let (prefix, asn, name, cdn) = (field()?, field()?, field()?, field()?);
        if rest.is_some() {
            return Err(TableErrorKind::FieldCount);
        }
        if name.len() > MAX_FIELD_LEN || cdn.len() > MAX_FIELD_LEN {
            return Err(TableErrorKind::TooLong);
        }
        let prefix = Prefix::from_str(&prefix)?;
        let entry = Entry { asn: number(&asn)?, name: self.intern(&name), cdn: self.intern(&cdn) };
        if self.prefixes.len() >= MAX_PREFIXES {
            return Err(TableErrorKind::TooMany);
        }
        let at = *self.entries.entry(entry).or_insert_with(|| {
            self.entry_list.push(entry);
            self.entry_list.len() as u32 - 1
        });
        self.prefixes.push((prefix, at));
        Ok(())
    }

    /// There are at most two names per prefix, so their number fits.
    fn intern(&mut self, name: &str) -> u32 {
        if let Some(at) = self.names.get(name) {
            return *at;
        }
        let at = self.names.len() as u32;
        self.names.insert(name.into(), at);
        at
    }
}

/// Splits off the first field (RFC 4180, without line breaks in quotes). `None` if no comma follows
/// it.
fn first_field(text: &str) -> Result<(String, Option<&str>), TableErrorKind> {
    let Some(mut quoted) = text.strip_prefix('"') else {
        let (field, rest) = text.split_once(',').map_or((text, None), |(f, r)| (f, Some(r)));
        return Ok((field.trim().to_owned(), rest));
    };
    let mut field = String::new();
    loop {
        let (part, behind) = quoted.split_once('"').ok_or(TableErrorKind::Quote)?;
        field += part;
        match behind.strip_prefix('"') {
            Some(more) => {
                field.push('"');
                quoted = more;
            }
            None if behind.is_empty() => return Ok((field, None)),
            None => {
                let rest = behind.strip_prefix(',').ok_or(TableErrorKind::Quote)?;
                return Ok((field, Some(rest)));
            }
        }
    }
}

fn number(text: &str) -> Result<Option<u32>, TableErrorKind> {
    if text.is_empty() {
        return Ok(None);
    }
    let digits = text.strip_prefix("AS").unwrap_or(text);
    // The parser of the standard library would accept a sign.
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number).map(Some).ok_or(TableErrorKind::Asn)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\u{feff}# who is who\n\
        192.0.2.0/24,64496,\"Example, \"\"Inc\"\"\",\r\n\
        \n\
        192.0.2.128/25,AS64497,Delivery,Fast\n\
        2001:db8::/32,,Example 6,\n\
        198.51.100.0/24,64500,,";

    fn error_of(table: &str) -> (usize, TableErrorKind) {
        let error = Organisations::read(table.as_bytes()).unwrap_err();
        (error.line, error.kind)
    }

    #[test]
    fn an_address_is_that_of_its_longest_prefix() {
        let table = Organisations::read(TABLE.as_bytes()).unwrap();
        assert_eq!(table.len(), 4);
        let of = |text: &str| table.of(text.parse().unwrap());
        let example = Organisation { asn: Some(64496), name: Some("Example, \"Inc\""), cdn: None };
        assert_eq!(of("192.0.2.127"), Some(example));
        let delivery = Organisation { asn: Some(64497), name: Some("Delivery"), cdn: Some("Fast") };
        assert_eq!(of("192.0.2.128"), Some(delivery));
        assert_eq!(of("192.0.3.0"), None);
        let six = Organisation { asn: None, name: Some("Example 6"), cdn: None };
        assert_eq!(of("2001:db8:ffff::1"), Some(six));
        assert_eq!(of("198.51.100.1").unwrap().name, None);
    }

    #[test]
    fn a_name_tells_what_the_table_does_not() {
        let table = Organisations::read(TABLE.as_bytes()).unwrap();
        let akamai = HostName::parse(b"a1.g.akamai.net");
        let cdn = |address: &str, name: Option<&HostName>| {
            table.cdn(address.parse().unwrap(), name).map(str::to_owned)
        };
        // A server in the network of another organisation.
        assert_eq!(cdn("192.0.2.1", akamai.as_ref()).as_deref(), Some("Akamai"));
        assert_eq!(cdn("192.0.2.129", akamai.as_ref()).as_deref(), Some("Fast"));
        assert_eq!(cdn("203.0.113.1", None), None);
    }

    #[test]
    fn what_is_wrong_is_said_by_line() {
        assert_eq!(error_of("\n# x\n192.0.2.0/24,1,a"), (3, TableErrorKind::FieldCount));
        assert_eq!(error_of("192.0.2.0/24,1,a,b,c"), (1, TableErrorKind::FieldCount));
        assert_eq!(error_of("192.0.2.0/24,1,\"a,b"), (1, TableErrorKind::Quote));
        assert_eq!(error_of("192.0.2.0/24,1,\"a\"x,b"), (1, TableErrorKind::Quote));
        assert_eq!(
            error_of("192.0.2.1/24,1,a,b"),
            (1, "192.0.2.1/24".parse::<Prefix>().unwrap_err().into())
        );
        assert_eq!(error_of("192.0.2.0/24,AS,a,b"), (1, TableErrorKind::Asn));
        assert_eq!(error_of("192.0.2.0/24,+1,a,b"), (1, TableErrorKind::Asn));
        assert_eq!(error_of("192.0.2.0/24,4294967296,a,b"), (1, TableErrorKind::Asn));
        let long = format!("192.0.2.0/24,1,{},b", "a".repeat(MAX_FIELD_LEN + 1));
        assert_eq!(error_of(&long), (1, TableErrorKind::TooLong));
        let no_text = Organisations::read(b"# \xff").unwrap_err();
        assert_eq!(no_text.to_string(), "line 1: this is not UTF-8: save the table as UTF-8 text");
    }

    #[test]
    fn the_first_line_may_name_the_fields() {
        let table = b"prefix,asn,organisation,cdn\n192.0.2.0/24,64496,Example,\n";
        assert_eq!(Organisations::read(table).unwrap().len(), 1);
        let later = "#\nprefix,asn,organisation,cdn";
        assert_eq!(error_of(later), (2, "prefix".parse::<Prefix>().unwrap_err().into()));
    }

    #[test]
    fn a_table_may_be_empty() {
        assert!(Organisations::read(b"").unwrap().is_empty());
        assert!(Organisations::empty().of([192, 0, 2, 1].into()).is_none());
    }

    #[test]
    fn the_seed_knows_the_largest() {
        let table = include_bytes!("organisations.csv");
        let seed = Organisations::read(table).unwrap();
        assert!(seed.len() > 80);
        assert_eq!(Organisations::built_in().len(), seed.len());
        for (address, name, cdn) in [
            ("8.8.8.8", "Google", None),
            ("142.250.180.14", "Google", Some("Google")),
            ("2a00:1450:4001:80b::200e", "Google", Some("Google")),
            ("104.17.1.1", "Cloudflare", Some("Cloudflare")),
            ("23.45.67.89", "Akamai", Some("Akamai")),
            ("13.33.1.1", "Amazon", Some("Amazon")),
            ("151.101.1.69", "Fastly", Some("Fastly")),
            ("17.253.1.1", "Apple", Some("Apple")),
            ("157.240.1.35", "Meta", Some("Meta")),
            ("45.57.1.1", "Netflix", Some("Netflix")),
            ("20.190.1.1", "Microsoft", None),
        ] {
            let organisation = seed.of(address.parse().unwrap()).unwrap();
            assert_eq!((organisation.name, organisation.cdn), (Some(name), cdn), "{address}");
        }
        assert!(seed.of([192, 168, 1, 1].into()).is_none());
    }
}
