//! HTTP/1 (RFC 9112): the destination of a request, and the exchanges on a connection.
//!
//! [`head`] reads the first bytes of a client, and [`proxy_head`] a request to a proxy, which it
//! rewrites for the server. [`Transactions`] follows both directions of a
//! captured connection and reports the request, the response and the times of each exchange. Bodies
//! are not kept; of a header, only the values in [`Request`] and [`Response`] are kept.

mod chunked;
mod cursor;
mod fields;
mod head_reader;
mod proxy;
mod range;
#[cfg(test)]
mod tests;
mod transaction;
mod transactions;

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

pub use self::fields::{MAX_CONTENT_CODING_LENGTH, MAX_CONTENT_TYPE_LENGTH, MAX_USER_AGENT_LENGTH};
pub use self::head_reader::MAX_HEAD_LENGTH;
pub use self::proxy::{ProxyHead, ProxyHeadError, ProxyRequest, RequestBody, proxy_head};
pub use self::range::{ContentRange, RequestedRange};
pub use self::transaction::{
    CapturedBody, Framing, Outcome, Request, Response, Summary, Transaction,
};
pub use self::transactions::{MAX_PENDING_REQUESTS, Transactions};
use crate::{HostName, MAX_PEEK_LENGTH, Peek};

/// Maximum number of fields in a header.
pub const MAX_FIELDS: usize = 128;
/// Maximum length of a method; registered methods have at most 17 letters.
const MAX_METHOD_LENGTH: usize = 32;
/// Connection preface of HTTP/2 (RFC 9113, 3.4).
pub(crate) const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The destination in the first bytes of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// A request: the authority of its absolute URL, or of its `Host` field. `None` if missing or
    /// contradictory.
    Request(Option<Authority>),
    /// `CONNECT`: a request for a tunnel.
    Connect {
        /// The port is always present.
        target: Authority,
        /// Length of the header in bytes. Later bytes belong to the tunnel.
        length: usize,
    },
    /// HTTP/2, whose authority is in compressed fields later.
    Http2,
}

impl Head {
    /// The host name of the destination; `None` if it is unknown or an address.
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

/// Host and port of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    pub host: Host,
    /// 1 to 65535; `None` if the URL has no port.
    pub port: Option<u16>,
}

/// A host name or an IP address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    Name(HostName),
    Address(IpAddr),
}

impl Authority {
    /// Reads `HOST`, `HOST:PORT` or `HOST:`, with an IPv6 address in brackets. `None` for anything
    /// else, including a user name before the host.
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
    /// Writes the name or the address, without brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(address) => address.fmt(f),
        }
    }
}

fn port(digits: &[u8]) -> Option<u16> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok().filter(|port| *port != 0)
}

/// Reads the first bytes of a client's stream until the end of the header, because a second `Host`
/// field may follow the first. Returns [`Peek::No`] after [`MAX_PEEK_LENGTH`] bytes at the latest.
pub fn head(bytes: &[u8]) -> Peek<Head> {
    if bytes.starts_with(HTTP2_PREFACE) {
        return Peek::Complete(Head::Http2);
    }
    if HTTP2_PREFACE.starts_with(bytes) {
        // A shorter header could begin like the preface; one more byte decides.
        return Peek::More(bytes.len() + 1);
    }
    let bytes = &bytes[..bytes.len().min(MAX_PEEK_LENGTH)];
    let line = bytes.trim_ascii_start();
    // The parser would wait for the end of a method without a limit.
    if line.len() > MAX_METHOD_LENGTH && !line[..=MAX_METHOD_LENGTH].contains(&b' ') {
        return Peek::No;
    }
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
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
    let authority = match absolute_authority(target) {
        Some(authority) => Authority::parse(authority),
        None => host(request.headers),
    };
    Peek::Complete(Head::Request(authority))
}

/// The authority of an absolute URL, without the user name.
fn absolute_authority(target: &str) -> Option<&[u8]> {
    let (scheme, rest) = target.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return None;
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let authority = &rest[..end];
    Some(authority.rsplit_once('@').map_or(authority, |(_, host)| host).as_bytes())
}

/// The value of the `Host` fields; `None` if they differ.
fn host(fields: &[httparse::Header<'_>]) -> Option<Authority> {
    let mut values = fields
        .iter()
        .filter(|field| field.name.eq_ignore_ascii_case("host"))
        .map(|field| field.value.trim_ascii());
    let first = values.next()?;
    // Servers reject a request with two different values.
    if values.any(|value| value != first) { None } else { Authority::parse(first) }
}
