//! Flow selectors of a rule.

use std::fmt;
use std::net::IpAddr;

use manyways_unit::Size;

use super::cgroup::Cgroup;
use super::domain::Domain;
use super::glob::Glob;
use super::range::{ByteRange, PortRange};
use manyways_unit::Prefix;

/// Transport protocol of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Protocol {
    Tcp,
    /// Datagrams between the same two sockets.
    Udp,
}

/// Known properties of a flow. An unknown property matches no pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow<'a> {
    /// File name of the program, without its folder. `None` if unknown.
    pub process: Option<&'a str>,
    /// User name of the process. `None` if unknown.
    pub user: Option<&'a str>,
    /// User ID of the process. `None` if unknown.
    pub uid: Option<u32>,
    /// Control group path of the process, from the root of the hierarchy. `None` if unknown.
    pub cgroup: Option<&'a str>,
    /// Requested name of the server. `None` if unknown.
    pub domain: Option<&'a str>,
    /// Address of the server. `None` if the application requested a name from a proxy.
    pub address: Option<IpAddr>,
    /// Port of the server.
    pub port: u16,
    pub protocol: Protocol,
    /// Bytes of both directions so far.
    pub bytes: Size,
}

/// A user by number or by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum User {
    Uid(u32),
    Name(Glob),
}

/// Properties of a flow, in order of evaluation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Key {
    Protocol,
    Port,
    Address,
    Domain,
    Process,
    User,
    Cgroup,
    Bytes,
}

/// Patterns by property, of which one must match. An empty list matches every flow.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Selector {
    pub(super) process: Vec<Glob>,
    pub(super) user: Vec<User>,
    pub(super) cgroup: Vec<Cgroup>,
    pub(super) domain: Vec<Domain>,
    pub(super) address: Vec<Prefix>,
    pub(super) port: Vec<PortRange>,
    pub(super) protocol: Vec<Protocol>,
    pub(super) bytes: Vec<ByteRange>,
}

impl<'a> Flow<'a> {
    /// Creates a flow before its first byte; all other properties are unknown.
    pub fn new(protocol: Protocol, port: u16) -> Self {
        Self {
            process: None,
            user: None,
            uid: None,
            cgroup: None,
            domain: None,
            address: None,
            port,
            protocol,
            bytes: Size::ZERO,
        }
    }

    /// Returns the value of a property as text, or `None` if unknown.
    pub(super) fn value(&self, key: Key) -> Option<String> {
        let quoted = |text: &str| format!("`{}`", manyways_unit::human::quoted(text));
        match key {
            Key::Protocol => Some(self.protocol.to_string()),
            Key::Port => Some(self.port.to_string()),
            Key::Address => self.address.map(|address| address.to_canonical().to_string()),
            Key::Domain => self.domain.map(quoted),
            Key::Process => self.process.map(quoted),
            Key::User => self.user.map(quoted).or_else(|| self.uid.map(|uid| uid.to_string())),
            Key::Cgroup => self.cgroup.map(quoted),
            Key::Bytes => Some(self.bytes.to_string()),
        }
    }
}

impl User {
    fn matches(&self, flow: &Flow<'_>) -> bool {
        match self {
            Self::Uid(uid) => flow.uid == Some(*uid),
            Self::Name(glob) => flow.user.is_some_and(|name| glob.matches(name)),
        }
    }
}

impl Key {
    pub(super) const ALL: [Self; 8] = [
        Self::Protocol,
        Self::Port,
        Self::Address,
        Self::Domain,
        Self::Process,
        Self::User,
        Self::Cgroup,
        Self::Bytes,
    ];

    pub(super) fn keyword(self) -> &'static str {
        match self {
            Self::Protocol => "protocol",
            Self::Port => "port",
            Self::Address => "address",
            Self::Domain => "domain",
            Self::Process => "process",
            Self::User => "user",
            Self::Cgroup => "cgroup",
            Self::Bytes => "bytes",
        }
    }
}

impl Selector {
    /// Returns the first property that does not match, or `None` if the flow matches.
    pub(super) fn mismatch(&self, flow: &Flow<'_>) -> Option<Key> {
        Key::ALL.into_iter().find(|key| self.matches(*key, flow) == Some(false))
    }

    /// Returns whether all properties except the size match.
    pub(super) fn matches_except_bytes(&self, flow: &Flow<'_>) -> bool {
        let mut keys = Key::ALL.into_iter().filter(|key| *key != Key::Bytes);
        keys.all(|key| self.matches(key, flow) != Some(false))
    }

    /// Returns whether a property matches. `None` if the selector has no pattern for it.
    pub(super) fn matches(&self, key: Key, flow: &Flow<'_>) -> Option<bool> {
        fn any<T>(patterns: &[T], fits: impl FnMut(&T) -> bool) -> Option<bool> {
            (!patterns.is_empty()).then(|| patterns.iter().any(fits))
        }
        match key {
            Key::Protocol => any(&self.protocol, |one| *one == flow.protocol),
            Key::Port => any(&self.port, |one| one.contains(flow.port)),
            Key::Address => {
                any(&self.address, |one| flow.address.is_some_and(|address| one.contains(address)))
            }
            Key::Domain => {
                any(&self.domain, |one| flow.domain.is_some_and(|name| one.matches(name)))
            }
            Key::Process => {
                any(&self.process, |one| flow.process.is_some_and(|name| one.matches(name)))
            }
            Key::User => any(&self.user, |one| one.matches(flow)),
            Key::Cgroup => {
                any(&self.cgroup, |one| flow.cgroup.is_some_and(|path| one.matches(path)))
            }
            Key::Bytes => any(&self.bytes, |one| one.contains(flow.bytes)),
        }
    }

    /// Returns the properties with patterns and their values in `flow`: `port is 443`.
    pub(super) fn matched_values(&self, flow: &Flow<'_>) -> String {
        let given = Key::ALL.into_iter().filter(|key| self.matches(*key, flow).is_some());
        let words = given.map(|key| match flow.value(key) {
            Some(value) => format!("{key} is {value}"),
            None => format!("{key} is not known"),
        });
        words.collect::<Vec<_>>().join(", ")
    }

    /// Returns the patterns of a property as text: `zoom or teams*`.
    pub(super) fn patterns(&self, key: Key) -> String {
        fn words<T: fmt::Display>(patterns: &[T]) -> String {
            let shown: Vec<String> = patterns.iter().take(4).map(T::to_string).collect();
            match patterns.len() - shown.len() {
                0 => shown.join(" or "),
                more => format!("{} or one of {more} more", shown.join(", ")),
            }
        }
        match key {
            Key::Protocol => words(&self.protocol),
            Key::Port => words(&self.port),
            Key::Address => words(&self.address),
            Key::Domain => words(&self.domain),
            Key::Process => words(&self.process),
            Key::User => words(&self.user),
            Key::Cgroup => words(&self.cgroup),
            Key::Bytes => words(&self.bytes),
        }
    }

    /// Returns whether all flows that match `other` match this selector. May be false although they
    /// do.
    pub(super) fn covers(&self, other: &Self) -> bool {
        fn key<T: PartialEq>(mine: &[T], theirs: &[T], covers: impl Fn(&T, &T) -> bool) -> bool {
            mine.is_empty()
                || !theirs.is_empty()
                    && theirs.iter().all(|b| mine.iter().any(|a| a == b || covers(a, b)))
        }
        let glob = |a: &Glob, b: &Glob| match b.is_plain() {
            true => a.matches(b.as_str()),
            false => a.as_str() == "*",
        };
        key(&self.process, &other.process, glob)
            && key(&self.user, &other.user, |_, _| false)
            && key(&self.cgroup, &other.cgroup, |_, _| false)
            && key(&self.domain, &other.domain, Domain::covers)
            && key(&self.address, &other.address, |a, b| a.covers(*b))
            && key(&self.port, &other.port, |a, b| a.covers(*b))
            && key(&self.protocol, &other.protocol, |_, _| false)
            && key(&self.bytes, &other.bytes, ByteRange::covers)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.keyword())
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uid(uid) => write!(f, "{uid}"),
            Self::Name(glob) => write!(f, "{glob}"),
        }
    }
}
