//! HTTP/1 (RFC 9112): whom the head of a request is for, and what passes on a connection.
//!
//! [`head`] reads the first bytes of a client. [`Transactions`] follows both directions of a
//! connection as a capture has them, and says of each request what was asked, what was answered and
//! when. It keeps nothing of a body, and of a head only what [`Request`] and [`Response`] say.

mod assembly;
mod chunked;
mod fields;
mod range;
mod rest;
#[cfg(test)]
mod tests;
mod transaction;
mod transactions;

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

pub use self::assembly::HEAD_LIMIT;
pub use self::fields::{AGENT_LIMIT, CODING_LIMIT, CONTENT_TYPE_LIMIT};
pub use self::range::{Asked, ContentRange};
pub use self::transaction::{Ending, Framing, Request, Response, Seen, Summary, Transaction};
pub use self::transactions::{OUTSTANDING, Transactions};
use crate::{HostName, LIMIT, Peek};

/// The most header fields that a head may have.
pub const FIELD_LIMIT: usize = 128;
/// The longest method: those that are registered have at most 17 letters.
const METHOD_LIMIT: usize = 32;
/// What a client that speaks HTTP/2 without TLS sends first (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What a client's first bytes ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// A request: whom it is for, by its absolute URL or else by its `Host` field. None when it
    /// does not say, or says different things.
    Request(Option<Authority>),
    /// `CONNECT`: a tunnel to there is asked for.
    Connect {
        /// Where to; the port is always there.
        target: Authority,
        /// How many bytes the head has. What comes after it is for the tunnel.
        length: usize,
    },
    /// HTTP/2, which says whom it is for only in compressed fields later.
    Http2,
}

impl Head {
    /// The name of whom it is for, where it says one.
    pub fn name(&self) -> Option<&HostName> {
        let authority = match self {
            Self::Request(authority) => authority.as_ref()?,
            Self::Connect { target, .. } => target,
            Self::Http2 => return None,
        };
        match &authority.host {
            Host::Name(name) => Some(name),
            Host::Address(_) => None,
        }
    }
}

/// A host and a port, as they are written in a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// The host.
    pub host: Host,
    /// The port, 1 to 65535, where one is written.
    pub port: Option<u16>,
}

/// A host, by its name or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// By its name.
    Name(HostName),
    /// By its address.
    Address(IpAddr),
}

impl Authority {
    /// Reads `HOST`, `HOST:PORT` or `HOST:`, where an IPv6 address is in brackets. None when it is
    /// anything else, also with a user in front.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (host, rest) = match bytes.strip_prefix(b"[") {
            Some(inside) => {
                let end = inside.iter().position(|byte| *byte == b']')?;
                let address: Ipv6Addr = std::str::from_utf8(&inside[..end]).ok()?.parse().ok()?;
                (Host::Address(address.into()), &inside[end + 1..])
            }
            None => {
                let end = bytes.iter().position(|byte| *byte == b':').unwrap_or(bytes.len());
                (Host::parse(&bytes[..end])?, &bytes[end..])
            }
        };
        let port = match rest.strip_prefix(b":") {
            Some(b"") => None,
            Some(digits) => Some(port(digits)?),
            None if rest.is_empty() => None,
            None => return None,
        };
        Some(Self { host, port })
    }
}

impl Host {
    /// Reads a name or an IPv4 address.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let address = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
        match address {
            Some(address) => Some(Self::Address(IpAddr::V4(address))),
            None => HostName::parse(bytes).map(Self::Name),
        }
    }
}

impl fmt::Display for Host {
    /// The name or the address, which has no brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// A port in digits only: Rust's own parser takes a sign as well.
fn port(digits: &[u8]) -> Option<u16> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok().filter(|port| *port != 0)
}

/// Reads the first bytes of a client's stream, up to the end of the request's head: only then is it
/// sure that no second `Host` follows. [`Peek::No`] after [`LIMIT`] bytes at the latest.
pub fn head(bytes: &[u8]) -> Peek<Head> {
    if bytes.starts_with(PREFACE) {
        return Peek::Complete(Head::Http2);
    }
    if PREFACE.starts_with(bytes) {
        // A shorter head could begin like this, but one byte more tells.
        return Peek::More(bytes.len() + 1);
    }
    let bytes = &bytes[..bytes.len().min(LIMIT)];
    let line = bytes.trim_ascii_start();
    // The parser would wait for the end of a method for ever.
    if line.len() > METHOD_LIMIT && !line[..=METHOD_LIMIT].contains(&b' ') {
        return Peek::No;
    }
    let mut fields = [httparse::EMPTY_HEADER; FIELD_LIMIT];
    let mut request = httparse::Request::new(&mut fields);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Peek::more_within_limit(bytes.len() + 1),
        Err(_) => return Peek::No,
    };
    let target = request.path.unwrap_or_default();
    if request.method == Some("CONNECT") {
        return match Authority::parse(target.as_bytes()) {
            Some(target) if target.port.is_some() => {
                Peek::Complete(Head::Connect { target, length })
            }
            _ => Peek::No,
        };
    }
    let authority = match absolute(target) {
        Some(authority) => Authority::parse(authority),
        None => host(request.headers),
    };
    Peek::Complete(Head::Request(authority))
}

/// The authority in `http://AUTHORITY/…`, without a user.
fn absolute(target: &str) -> Option<&[u8]> {
    let (scheme, rest) = target.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return None;
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let authority = &rest[..end];
    Some(authority.rsplit_once('@').map_or(authority, |(_, host)| host).as_bytes())
}

/// What the `Host` fields say, when they agree.
fn host(fields: &[httparse::Header<'_>]) -> Option<Authority> {
    let mut values = fields
        .iter()
        .filter(|field| field.name.eq_ignore_ascii_case("host"))
        .map(|field| field.value.trim_ascii());
    let first = values.next()?;
    // A server refuses a request with two; what it would make of them is not guessed here.
    if values.any(|value| value != first) { None } else { Authority::parse(first) }
}
