//! The fields of a client's hello, of which the end may be missing.

use super::{ClientHello, PROTOCOL_LIMIT};
use crate::{HostName, LIMIT};

const CLIENT_HELLO: u8 = 1;
/// The type and the length of a handshake message.
const HEADER: usize = 4;
/// The shortest hello: version, random, no session, one cipher suite, one compression method.
const SHORTEST: usize = 2 + 32 + 1 + 2 + 2 + 1 + 1;

const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
/// The only kind of server name that there is.
const HOST_NAME: u8 = 0;

/// Why a hello could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The rest is missing; the message has at least so many bytes.
    Short { whole: usize },
    /// It is no client's hello, or none that is worth to wait for.
    Broken,
}

/// How many bytes the handshake message has that begins so, its header included; none when that is
/// not known yet.
pub(crate) fn whole(message: &[u8]) -> Option<usize> {
    let [_, length @ ..] = message.first_chunk::<HEADER>()?;
    let [high, middle, low] = length.map(usize::from);
    Some(HEADER + (high << 16 | middle << 8 | low))
}

/// Reads a handshake message that may end early. As soon as the name and the protocols are known,
/// the rest is not looked at: keys are long, and may be in another packet.
pub(crate) fn read(message: &[u8]) -> Result<ClientHello, Stop> {
    if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
        return Err(Stop::Broken);
    }
    let Some(whole) = whole(message) else {
        return Err(Stop::Short { whole: HEADER + SHORTEST });
    };
    if !(HEADER + SHORTEST..=LIMIT).contains(&whole) {
        return Err(Stop::Broken);
    }
    let there = message.len().min(whole);
    let body = Fields { there: &message[HEADER..there], length: whole - HEADER };
    hello(body).map_err(|end| match end {
        End::Missing => Stop::Short { whole },
        End::Broken => Stop::Broken,
    })
}

fn hello(mut body: Fields<'_>) -> Result<ClientHello, End> {
    if body.number(2)? >> 8 != 3 {
        return Err(End::Broken);
    }
    body.part(32)?;
    let session = body.number(1)?;
    if session > 32 {
        return Err(End::Broken);
    }
    body.part(session)?;
    let suites = body.number(2)?;
    if suites == 0 || suites % 2 != 0 {
        return Err(End::Broken);
    }
    body.part(suites)?;
    let methods = body.number(1)?;
    if methods == 0 {
        return Err(End::Broken);
    }
    body.part(methods)?;

    let (mut name, mut protocols) = (None, None);
    // Before TLS 1.2 nothing had to follow.
    let length = if body.length == 0 { 0 } else { body.number(2)? };
    let mut extensions = body.part(length)?;
    if body.length != 0 {
        return Err(End::Broken);
    }
    while extensions.length > 0 && (name.is_none() || protocols.is_none()) {
        let kind = extensions.number(2)?;
        let length = extensions.number(2)?;
        let value = extensions.part(length)?;
        // None may come twice; if one does, the first counts, as it may have been reported.
        match kind as u16 {
            SERVER_NAME if name.is_none() => name = Some(server_name(value)?),
            ALPN if protocols.is_none() => protocols = Some(protocol_list(value)?),
            _ => {}
        }
    }
    Ok(ClientHello { server_name: name.flatten(), protocols: protocols.unwrap_or_default() })
}

fn server_name(mut value: Fields<'_>) -> Result<Option<HostName>, End> {
    let length = value.number(2)?;
    let mut list = value.part(length)?;
    while list.length > 0 {
        let kind = list.number(1)?;
        let length = list.number(2)?;
        let name = list.part(length)?.bytes()?;
        if kind == usize::from(HOST_NAME) {
            return Ok(HostName::parse(name));
        }
    }
    Ok(None)
}

fn protocol_list(mut value: Fields<'_>) -> Result<Vec<Vec<u8>>, End> {
    let length = value.number(2)?;
    let mut list = value.part(length)?;
    let mut protocols = Vec::new();
    while list.length > 0 && protocols.len() < PROTOCOL_LIMIT {
        let length = list.number(1)?;
        protocols.push(list.part(length)?.bytes()?.to_vec());
    }
    Ok(protocols)
}

/// Why a field could not be read.
enum End {
    /// It is not there yet.
    Missing,
    /// It does not fit into what it is a part of.
    Broken,
}

/// Bytes of which only the first may be there.
struct Fields<'a> {
    there: &'a [u8],
    /// How many there are when all are there: at least `there.len()`.
    length: usize,
}

impl<'a> Fields<'a> {
    /// The next `length` bytes, as many of them as are there.
    fn part(&mut self, length: usize) -> Result<Fields<'a>, End> {
        if length > self.length {
            return Err(End::Broken);
        }
        let (there, rest) = self.there.split_at(length.min(self.there.len()));
        self.there = rest;
        self.length -= length;
        Ok(Fields { there, length })
    }

    /// All of it.
    fn bytes(self) -> Result<&'a [u8], End> {
        if self.there.len() < self.length { Err(End::Missing) } else { Ok(self.there) }
    }

    /// The next `length` bytes (1 or 2) as a number.
    fn number(&mut self, length: usize) -> Result<usize, End> {
        let bytes = self.part(length)?.bytes()?;
        Ok(bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }
}
