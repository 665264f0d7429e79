//! Which flows a rule is about.

use std::fmt;
use std::net::IpAddr;

use manyways_unit::Size;

use super::cgroup::Cgroup;
use super::domain::Domain;
use super::glob::Glob;
use super::range::{Bytes, Ports};
use manyways_unit::Prefix;

/// TCP or UDP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Protocol {
    /// A connection.
    Tcp,
    /// Datagrams between the same two ends.
    Udp,
}

/// What is known of a flow. What is not known fits no pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow<'a> {
    /// The file name of the program, without its folders.
    pub process: Option<&'a str>,
    /// The name of the user who runs it.
    pub user: Option<&'a str>,
    /// The number of that user.
    pub uid: Option<u32>,
    /// The path of its control group, from the root of the hierarchy.
    pub cgroup: Option<&'a str>,
    /// The name of the server, as it was asked for.
    pub domain: Option<&'a str>,
    /// The address of the server. Not known where a proxy was asked for a name.
    pub address: Option<IpAddr>,
    /// The port of the server.
    pub port: u16,
    /// What carries it.
    pub protocol: Protocol,
    /// What both sides sent so far.
    pub bytes: Size,
}

/// A user by number or by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum User {
    Uid(u32),
    Name(Glob),
}

/// What can be asked of a flow, in the order in which it is.
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

/// Patterns by key: any of those of a key. A key without any was not given.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Selector {
    pub(super) process: Vec<Glob>,
    pub(super) user: Vec<User>,
    pub(super) cgroup: Vec<Cgroup>,
    pub(super) domain: Vec<Domain>,
    pub(super) address: Vec<Prefix>,
    pub(super) port: Vec<Ports>,
    pub(super) protocol: Vec<Protocol>,
    pub(super) bytes: Vec<Bytes>,
}

impl<'a> Flow<'a> {
    /// A flow of which nothing else is known, before its first byte.
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

    /// What is known for `key`, in words.
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
    fn fits(&self, flow: &Flow<'_>) -> bool {
        match self {
            Self::Uid(uid) => flow.uid == Some(*uid),
            Self::Name(glob) => flow.user.is_some_and(|name| glob.fits(name)),
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

    pub(super) fn word(self) -> &'static str {
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
    /// The first key that `flow` does not fit: it fits where there is none.
    pub(super) fn miss(&self, flow: &Flow<'_>) -> Option<Key> {
        Key::ALL.into_iter().find(|key| self.fits(*key, flow) == Some(false))
    }

    /// Whether only how much flowed can keep `flow` from fitting.
    pub(super) fn fits_but_for_bytes(&self, flow: &Flow<'_>) -> bool {
        let mut keys = Key::ALL.into_iter().filter(|key| *key != Key::Bytes);
        keys.all(|key| self.fits(key, flow) != Some(false))
    }

    /// Whether `flow` fits a pattern of `key`, or `None` where that has none.
    pub(super) fn fits(&self, key: Key, flow: &Flow<'_>) -> Option<bool> {
        fn any<T>(patterns: &[T], fits: impl FnMut(&T) -> bool) -> Option<bool> {
            (!patterns.is_empty()).then(|| patterns.iter().any(fits))
        }
        match key {
            Key::Protocol => any(&self.protocol, |one| *one == flow.protocol),
            Key::Port => any(&self.port, |one| one.fits(flow.port)),
            Key::Address => {
                any(&self.address, |one| flow.address.is_some_and(|address| one.contains(address)))
            }
            Key::Domain => any(&self.domain, |one| flow.domain.is_some_and(|name| one.fits(name))),
            Key::Process => {
                any(&self.process, |one| flow.process.is_some_and(|name| one.fits(name)))
            }
            Key::User => any(&self.user, |one| one.fits(flow)),
            Key::Cgroup => any(&self.cgroup, |one| flow.cgroup.is_some_and(|path| one.fits(path))),
            Key::Bytes => any(&self.bytes, |one| one.fits(flow.bytes)),
        }
    }

    /// The keys that were given, with what is known of `flow`: `port is 443`.
    pub(super) fn found(&self, flow: &Flow<'_>) -> String {
        let given = Key::ALL.into_iter().filter(|key| self.fits(*key, flow).is_some());
        let words = given.map(|key| match flow.value(key) {
            Some(value) => format!("{key} is {value}"),
            None => format!("{key} is not known"),
        });
        words.collect::<Vec<_>>().join(", ")
    }

    /// The patterns of `key` in words: `zoom or teams*`.
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

    /// Whether whatever fits all keys of `other` fits all keys of this one. May say no where it
    /// does.
    pub(super) fn covers(&self, other: &Self) -> bool {
        fn key<T: PartialEq>(mine: &[T], theirs: &[T], covers: impl Fn(&T, &T) -> bool) -> bool {
            mine.is_empty()
                || !theirs.is_empty()
                    && theirs.iter().all(|b| mine.iter().any(|a| a == b || covers(a, b)))
        }
        let glob = |a: &Glob, b: &Glob| match b.is_plain() {
            true => a.fits(b.as_str()),
            false => a.as_str() == "*",
        };
        key(&self.process, &other.process, glob)
            && key(&self.user, &other.user, |_, _| false)
            && key(&self.cgroup, &other.cgroup, |_, _| false)
            && key(&self.domain, &other.domain, Domain::covers)
            && key(&self.address, &other.address, |a, b| a.covers(*b))
            && key(&self.port, &other.port, |a, b| a.covers(*b))
            && key(&self.protocol, &other.protocol, |_, _| false)
            && key(&self.bytes, &other.bytes, Bytes::covers)
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
        f.pad(self.word())
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
