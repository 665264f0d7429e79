//! Names of addresses from files: the log of a resolver, or a hosts file.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

use manyways_unit::{Span, Time};

use super::AskedBy;
use crate::HostName;
use manyways_unit::human::unix_seconds;

/// Maximum number of lines with names.
pub const TOLD_LIMIT: usize = 4_000_000;
/// Time for which a name from a log is valid; applications keep addresses beyond the TTL.
const HELD: Span = Span::from_secs(24 * 60 * 60);
/// Logs have the time at which the response was sent, often in whole seconds.
const SLACK: Span = Span::from_secs(1);
/// Beginning of an optional first line with the names of the fields.
const HEAD: &str = "time,";

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
pub struct Told {
    own: History<(IpAddr, IpAddr)>,
    any: History<IpAddr>,
    hosts: HashMap<IpAddr, HostName>,
    names: HashMap<String, HostName>,
    lines: usize,
}

/// Names by key.
#[derive(Clone, Debug)]
struct History<K> {
    /// Times and names of lines with a time.
    dated: HashMap<K, Vec<(Time, HostName)>>,
    always: HashMap<K, HostName>,
}

/// An error in a file of names, with its line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct ToldError {
    /// Counted from 1.
    pub line: usize,
    pub fault: ToldFault,
}

/// An error in a line of a file of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToldFault {
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
    /// More than [`TOLD_LIMIT`] lines.
    #[error("more than {TOLD_LIMIT} lines with names")]
    Many,
}

impl Told {
    /// Adds the names of a file. Of two lines with the same time the later one is used; of two
    /// hosts-file lines for an address the earlier one, as resolvers do.
    pub fn read(&mut self, file: &[u8]) -> Result<(), ToldError> {
        for (line, bytes) in (1..).zip(file.split(|byte| *byte == b'\n')) {
            self.line(bytes, line == 1).map_err(|fault| ToldError { line, fault })?;
        }
        self.own.sort();
        self.any.sort();
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
    ) -> Option<(&HostName, AskedBy)> {
        let own = self.own.newest((client, address), then).map(|name| (name, AskedBy::Client));
        own.or_else(|| self.any.newest(address, then).map(|name| (name, AskedBy::Another)))
    }

    /// The name of an address from a hosts file.
    pub fn host(&self, address: IpAddr) -> Option<&HostName> {
        self.hosts.get(&address)
    }

    fn line(&mut self, bytes: &[u8], is_first: bool) -> Result<(), ToldFault> {
        let text = std::str::from_utf8(bytes).map_err(|_| ToldFault::Text)?;
        let text = text.split('#').next().unwrap_or_default().trim();
        if text.is_empty() || is_first && text.starts_with(HEAD) {
            return Ok(());
        }
        if self.lines >= TOLD_LIMIT {
            return Err(ToldFault::Many);
        }
        self.lines += 1;
        if text.contains(',') {
            return self.asked(text);
        }
        let mut words = text.split_whitespace();
        let (Some(address), Some(name)) = (words.next(), words.next()) else {
            return Err(ToldFault::Fields);
        };
        // A link-local address in a hosts file has the interface after `%`.
        let address = address.split_once('%').map_or(address, |(address, _)| address);
        let (address, name) = (self::address(address)?, self.name_of(name)?);
        self.hosts.entry(address).or_insert(name);
        Ok(())
    }

    fn asked(&mut self, text: &str) -> Result<(), ToldFault> {
        let mut fields = text.split(',').map(str::trim);
        let mut next = || fields.next().ok_or(ToldFault::Fields);
        let (time, client, name, addresses) = (next()?, next()?, next()?, next()?);
        if fields.next().is_some() {
            return Err(ToldFault::Fields);
        }
        let since = match time {
            "" => None,
            time => Some(unix_seconds(time.as_bytes()).ok_or(ToldFault::Time)?),
        };
        let client = match client {
            "" => None,
            client => Some(client.parse::<IpAddr>().map_err(|_| ToldFault::Client)?.to_canonical()),
        };
        let name = self.name_of(name)?;
        if addresses.is_empty() {
            return Err(ToldFault::Address);
        }
        for address in addresses.split_whitespace() {
            let address = self::address(address)?;
            if let Some(client) = client {
                self.own.add((client, address), since, &name);
            }
            match (client, since) {
                (None, None) => {
                    self.hosts.entry(address).or_insert_with(|| name.clone());
                }
                _ => self.any.add(address, since, &name),
            }
        }
        Ok(())
    }

    /// Shares the text of names that occur in several lines.
    fn name_of(&mut self, text: &str) -> Result<HostName, ToldFault> {
        if let Some(name) = self.names.get(text) {
            return Ok(name.clone());
        }
        let name = HostName::parse(text.as_bytes()).ok_or(ToldFault::Name)?;
        self.names.insert(text.to_owned(), name.clone());
        Ok(name)
    }
}

fn address(text: &str) -> Result<IpAddr, ToldFault> {
    Ok(text.parse::<IpAddr>().map_err(|_| ToldFault::Address)?.to_canonical())
}

impl<K> Default for History<K> {
    fn default() -> Self {
        Self { dated: HashMap::new(), always: HashMap::new() }
    }
}

impl<K: Eq + Hash> History<K> {
    fn add(&mut self, key: K, since: Option<Time>, name: &HostName) {
        match since {
            Some(since) => self.dated.entry(key).or_default().push((since, name.clone())),
            None => {
                self.always.insert(key, name.clone());
            }
        }
    }

    /// Stable: entries with the same time keep their order.
    fn sort(&mut self) {
        self.dated.values_mut().for_each(|names| names.sort_by_key(|(since, _)| *since));
    }

    fn newest(&self, key: K, then: Time) -> Option<&HostName> {
        let dated = self.dated.get(&key).and_then(|names| {
            let before = names.partition_point(|(since, _)| *since <= then + SLACK);
            let (since, name) = names.get(before.checked_sub(1)?)?;
            (then < *since + HELD).then_some(name)
        });
        dated.or_else(|| self.always.get(&key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "time,client,name,address\r\n\
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

    fn told(file: &str) -> Told {
        let mut told = Told::default();
        told.read(file.as_bytes()).unwrap();
        told
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn name(told: &Told, then: u64, client: &str, address: &str) -> Option<(String, AskedBy)> {
        let then = Time::from_millis(then * 1_000);
        let found = told.name(then, ip(client), ip(address));
        found.map(|(name, by)| (name.to_string(), by))
    }

    #[test]
    fn a_clients_own_name_has_precedence() {
        let told = told(LOG);
        assert_eq!(told.len(), 9);
        let own = |name: &str| Some((name.to_owned(), AskedBy::Client));
        let other = |name: &str| Some((name.to_owned(), AskedBy::Another));
        assert_eq!(name(&told, 250, "10.0.0.1", "192.0.2.1"), own("a.example"));
        assert_eq!(name(&told, 250, "10.0.0.1", "192.0.2.2"), own("a.example"));
        assert_eq!(name(&told, 250, "10.0.0.2", "192.0.2.1"), own("b.example"));
        assert_eq!(name(&told, 250, "10.0.0.9", "192.0.2.1"), other("b.example"));
        assert_eq!(name(&told, 150, "10.0.0.9", "192.0.2.1"), other("a.example"));
        assert_eq!(name(&told, 300, "10.0.0.9", "2001:db8::1"), other("c.example"));
        // A log may be late by at most one second.
        assert_eq!(name(&told, 99, "10.0.0.1", "192.0.2.1"), own("a.example"));
        assert_eq!(name(&told, 98, "10.0.0.1", "192.0.2.1"), None);
        // After one day the name is forgotten.
        assert_eq!(name(&told, 86_499, "10.0.0.1", "192.0.2.1"), own("a.example"));
        assert_eq!(name(&told, 86_601, "10.0.0.1", "192.0.2.1"), None);
        // A line without a time is always valid, except while one with a time applies.
        assert_eq!(name(&told, 5, "10.0.0.1", "192.0.2.3"), own("d.example"));
        assert_eq!(name(&told, 90_001, "10.0.0.1", "192.0.2.3"), own("e.example"));
        assert_eq!(name(&told, 900_000, "10.0.0.1", "192.0.2.3"), own("d.example"));
    }

    #[test]
    fn hosts_always_have_their_first_name() {
        let told = told(LOG);
        let host = |address| told.host(ip(address)).map(HostName::to_string);
        assert_eq!(host("192.0.2.4").as_deref(), Some("f.example"));
        assert_eq!(host("192.0.2.5").as_deref(), Some("g.example"));
        assert_eq!(host("fe80::1").as_deref(), Some("h.example"));
        assert_eq!(host("192.0.2.1"), None);
    }

    #[test]
    fn errors_name_their_line() {
        let fault = |file: &[u8]| {
            let error = Told::default().read(file).unwrap_err();
            (error.line, error.fault)
        };
        assert_eq!(fault(b"\n1,10.0.0.1,a.example"), (2, ToldFault::Fields));
        assert_eq!(fault(b"1,10.0.0.1,a.example,192.0.2.1,60"), (1, ToldFault::Fields));
        assert_eq!(fault(b"192.0.2.1"), (1, ToldFault::Fields));
        assert_eq!(fault(b"noon,10.0.0.1,a.example,192.0.2.1"), (1, ToldFault::Time));
        assert_eq!(fault(b"1,me,a.example,192.0.2.1"), (1, ToldFault::Client));
        assert_eq!(fault(b"1,10.0.0.1,192.0.2.1,a.example"), (1, ToldFault::Name));
        assert_eq!(fault(b"1,10.0.0.1,a.example,"), (1, ToldFault::Address));
        assert_eq!(fault(b"a.example 192.0.2.1"), (1, ToldFault::Address));
        assert_eq!(fault(b"#\n\xff"), (2, ToldFault::Text));
        let text = Told::default().read(b"1,me,a,b").unwrap_err().to_string();
        assert_eq!(text, "line 1: the client must be an address, or empty");
    }
}
