//! Names of addresses from files: the log of a resolver, or a hosts file.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

use manyways_unit::{Span, Time};

use super::QueriedBy;
use crate::HostName;
use manyways_unit::human::{unix_seconds, without_bom};

/// Maximum number of lines with names.
pub const MAX_HOSTS_LINES: usize = 4_000_000;
/// Time for which a name from a log is valid; applications keep addresses beyond the TTL.
const LOG_NAME_VALIDITY: Span = Span::from_secs(24 * 60 * 60);
/// Logs have the time at which the response was sent, often in whole seconds.
const CLOCK_TOLERANCE: Span = Span::from_secs(1);
/// Beginning of an optional first line with the names of the fields.
const HEADER_PREFIX: &str = "time,";

/// Names of addresses from files.
///
/// A line is either a line of a hosts file, `address name alias…`, or has four fields with commas:
/// `time,client,name,address`. Time and client may be empty, and the address field may have several
/// addresses separated by spaces. The time is in seconds since 1970. A line with a time is valid
/// for one day, or until the next line for the same client and address; a line without a time is
/// always valid. `#` begins a comment, and the first line may name the fields.
///
/// Memory: at most 200 bytes for each line, and the text of each distinct name once.
#[derive(Clone, Debug, Default)]
pub struct HostsTable {
    by_client: History<(IpAddr, IpAddr)>,
    by_address: History<IpAddr>,
    hosts: HashMap<IpAddr, HostName>,
    interned_names: HashMap<String, HostName>,
    lines: usize,
}

/// Names by key.
#[derive(Clone, Debug)]
struct History<K> {
    /// Times and names of lines with a time.
    timed: HashMap<K, Vec<(Time, HostName)>>,
    untimed: HashMap<K, HostName>,
}

/// An error in a file of names, with its line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {kind}")]
pub struct HostsError {
    /// Counted from 1.
    pub line: usize,
    pub kind: HostsErrorKind,
}

/// An error in a line of a file of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostsErrorKind {
    /// The line is not UTF-8.
    #[error("not UTF-8: save the file as UTF-8 text")]
    Text,
    /// The line has neither of the two formats.
    #[error("a line is `time,client,name,address`, or `address name` as in a hosts file")]
    Fields,
    /// Invalid time.
    #[error("the time must be seconds since 1970, with up to 9 decimals, or empty")]
    Time,
    /// Invalid address of the client.
    #[error("the client must be an address, or empty")]
    Client,
    /// Invalid name.
    #[error("the name must be a host name")]
    Name,
    /// Invalid address.
    #[error("the address must be an IPv4 or IPv6 address")]
    Address,
    /// More than [`MAX_HOSTS_LINES`] lines.
    #[error("more than {MAX_HOSTS_LINES} lines with names")]
    TooManyLines,
}

impl HostsTable {
    /// Adds the names of a file. Of two lines with the same time the later one is used; of two
    /// hosts-file lines for an address the earlier one, as resolvers do.
    pub fn read(&mut self, file: &[u8]) -> Result<(), HostsError> {
        let lines = without_bom(file).split(|byte| *byte == b'\n');
        for (line, bytes) in (1..).zip(lines) {
            self.read_line(bytes, line == 1).map_err(|fault| HostsError { line, kind: fault })?;
        }
        self.by_client.sort();
        self.by_address.sort();
        Ok(())
    }

    /// Number of lines with names.
    pub fn len(&self) -> usize {
        self.lines
    }

    pub fn is_empty(&self) -> bool {
        self.lines == 0
    }

    /// The most recent name of an address that was valid at `then`: of this client, or otherwise of
    /// any client.
    pub fn name(
        &self,
        then: Time,
        client: IpAddr,
        address: IpAddr,
    ) -> Option<(&HostName, QueriedBy)> {
        let own =
            self.by_client.newest((client, address), then).map(|name| (name, QueriedBy::Client));
        own.or_else(|| {
            self.by_address.newest(address, then).map(|name| (name, QueriedBy::OtherClient))
        })
    }

    /// The name of an address from a hosts file.
    pub fn host(&self, address: IpAddr) -> Option<&HostName> {
        self.hosts.get(&address)
    }

    fn read_line(&mut self, bytes: &[u8], is_first: bool) -> Result<(), HostsErrorKind> {
        let text = std::str::from_utf8(bytes).map_err(|_| HostsErrorKind::Text)?;
        let text = text.split('#').next().unwrap_or_default().trim();
        if text.is_empty() || is_first && text.starts_with(HEADER_PREFIX) {
            return Ok(());
        }
        if self.lines >= MAX_HOSTS_LINES {
            return Err(HostsErrorKind::TooManyLines);
        }
        self.lines += 1;
        if text.contains(',') {
            return self.read_log_line(text);
        }
        let mut words = text.split_whitespace();
        let (Some(address), Some(name)) = (words.next(), words.next()) else {
            return Err(HostsErrorKind::Fields);
        };
        // A link-local address in a hosts file has the interface after `%`.
        let address = address.split_once('%').map_or(address, |(address, _)| address);
        let (address, name) = (self::address(address)?, self.intern_name(name)?);
        self.hosts.entry(address).or_insert(name);
        Ok(())
    }

    fn read_log_line(&mut self, text: &str) -> Result<(), HostsErrorKind> {
        let mut fields = text.split(',').map(str::trim);
        let mut next = || fields.next().ok_or(HostsErrorKind::Fields);
        let (time, client, name, addresses) = (next()?, next()?, next()?, next()?);
        if fields.next().is_some() {
            return Err(HostsErrorKind::Fields);
        }
        let since = match time {
            "" => None,
            time => Some(unix_seconds(time.as_bytes()).ok_or(HostsErrorKind::Time)?),
        };
        let client = match client {
            "" => None,
            client => {
                Some(client.parse::<IpAddr>().map_err(|_| HostsErrorKind::Client)?.to_canonical())
            }
        };
        let name = self.intern_name(name)?;
        if addresses.is_empty() {
            return Err(HostsErrorKind::Address);
        }
        for address in addresses.split_whitespace() {
            let address = self::address(address)?;
            if let Some(client) = client {
                self.by_client.add((client, address), since, &name);
            }
            match (client, since) {
                (None, None) => {
                    self.hosts.entry(address).or_insert_with(|| name.clone());
                }
                _ => self.by_address.add(address, since, &name),
            }
        }
        Ok(())
    }

    /// Shares the text of names that occur in several lines.
    fn intern_name(&mut self, text: &str) -> Result<HostName, HostsErrorKind> {
        if let Some(name) = self.interned_names.get(text) {
            return Ok(name.clone());
        }
        let name = HostName::parse(text.as_bytes()).ok_or(HostsErrorKind::Name)?;
        self.interned_names.insert(text.to_owned(), name.clone());
        Ok(name)
    }
}

fn address(text: &str) -> Result<IpAddr, HostsErrorKind> {
    Ok(text.parse::<IpAddr>().map_err(|_| HostsErrorKind::Address)?.to_canonical())
}

impl<K> Default for History<K> {
    fn default() -> Self {
        Self { timed: HashMap::new(), untimed: HashMap::new() }
    }
}

impl<K: Eq + Hash> History<K> {
    fn add(&mut self, key: K, since: Option<Time>, name: &HostName) {
        match since {
            Some(since) => self.timed.entry(key).or_default().push((since, name.clone())),
            None => {
                self.untimed.insert(key, name.clone());
            }
        }
    }

    /// Stable: entries with the same time keep their order.
    fn sort(&mut self) {
        self.timed.values_mut().for_each(|names| names.sort_by_key(|(since, _)| *since));
    }

    fn newest(&self, key: K, then: Time) -> Option<&HostName> {
        let dated = self.timed.get(&key).and_then(|names| {
            let before = names.partition_point(|(since, _)| *since <= then + CLOCK_TOLERANCE);
            let (since, name) = names.get(before.checked_sub(1)?)?;
            (then < *since + LOG_NAME_VALIDITY).then_some(name)
        });
        dated.or_else(|| self.untimed.get(&key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\u{feff}time,client,name,address\r\n\
        100,10.0.0.1,a.example.,192.0.2.1 192.0.2.2\r\n\
        200.5,10.0.0.2,B.example,192.0.2.1\n\
        \n# by hand\n\
        300,,c.example,2001:db8::1 # of any client\n\
        ,10.0.0.1,d.example,192.0.2.3\n\
        90000,10.0.0.1,e.example,192.0.2.3\n\
        ,,f.example,192.0.2.4\n\
        192.0.2.5 g.example g\n\
        fe80::1%lo0 h.example\n\
        192.0.2.5 again.example";

    fn hosts_table(file: &str) -> HostsTable {
        let mut table = HostsTable::default();
        table.read(file.as_bytes()).unwrap();
        table
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn name(
        table: &HostsTable,
        then: u64,
        client: &str,
        address: &str,
    ) -> Option<(String, QueriedBy)> {
        let then = Time::from_millis(then * 1_000);
        let found = table.name(then, ip(client), ip(address));
        found.map(|(name, by)| (name.to_string(), by))
    }

    #[test]
    fn a_clients_own_name_has_precedence() {
        let table = hosts_table(LOG);
        assert_eq!(table.len(), 9);
        let own = |name: &str| Some((name.to_owned(), QueriedBy::Client));
        let other = |name: &str| Some((name.to_owned(), QueriedBy::OtherClient));
        assert_eq!(name(&table, 250, "10.0.0.1", "192.0.2.1"), own("a.example"));
        assert_eq!(name(&table, 250, "10.0.0.1", "192.0.2.2"), own("a.example"));
        assert_eq!(name(&table, 250, "10.0.0.2", "192.0.2.1"), own("b.example"));
        assert_eq!(name(&table, 250, "10.0.0.9", "192.0.2.1"), other("b.example"));
        assert_eq!(name(&table, 150, "10.0.0.9", "192.0.2.1"), other("a.example"));
        assert_eq!(name(&table, 300, "10.0.0.9", "2001:db8::1"), other("c.example"));
        // A log may be late by at most one second.
        assert_eq!(name(&table, 99, "10.0.0.1", "192.0.2.1"), own("a.example"));
        assert_eq!(name(&table, 98, "10.0.0.1", "192.0.2.1"), None);
        // After one day the name is forgotten.
        assert_eq!(name(&table, 86_499, "10.0.0.1", "192.0.2.1"), own("a.example"));
        assert_eq!(name(&table, 86_601, "10.0.0.1", "192.0.2.1"), None);
        // A line without a time is always valid, except while one with a time applies.
        assert_eq!(name(&table, 5, "10.0.0.1", "192.0.2.3"), own("d.example"));
        assert_eq!(name(&table, 90_001, "10.0.0.1", "192.0.2.3"), own("e.example"));
        assert_eq!(name(&table, 900_000, "10.0.0.1", "192.0.2.3"), own("d.example"));
    }

    #[test]
    fn hosts_always_have_their_first_name() {
        let table = hosts_table(LOG);
        let host = |address| table.host(ip(address)).map(HostName::to_string);
        assert_eq!(host("192.0.2.4").as_deref(), Some("f.example"));
        assert_eq!(host("192.0.2.5").as_deref(), Some("g.example"));
        assert_eq!(host("fe80::1").as_deref(), Some("h.example"));
        assert_eq!(host("192.0.2.1"), None);
    }

    #[test]
    fn errors_name_their_line() {
        let fault = |file: &[u8]| {
            let error = HostsTable::default().read(file).unwrap_err();
            (error.line, error.kind)
        };
        assert_eq!(fault(b"\n1,10.0.0.1,a.example"), (2, HostsErrorKind::Fields));
        assert_eq!(fault(b"1,10.0.0.1,a.example,192.0.2.1,60"), (1, HostsErrorKind::Fields));
        assert_eq!(fault(b"192.0.2.1"), (1, HostsErrorKind::Fields));
        assert_eq!(fault(b"noon,10.0.0.1,a.example,192.0.2.1"), (1, HostsErrorKind::Time));
        assert_eq!(fault(b"1,me,a.example,192.0.2.1"), (1, HostsErrorKind::Client));
        assert_eq!(fault(b"1,10.0.0.1,192.0.2.1,a.example"), (1, HostsErrorKind::Name));
        assert_eq!(fault(b"1,10.0.0.1,a.example,"), (1, HostsErrorKind::Address));
        assert_eq!(fault(b"a.example 192.0.2.1"), (1, HostsErrorKind::Address));
        assert_eq!(fault(b"#\n\xff"), (2, HostsErrorKind::Text));
        let text = HostsTable::default().read(b"1,me,a,b").unwrap_err().to_string();
        assert_eq!(text, "line 1: the client must be an address, or empty");
    }
}
