//! Reads a ClientHello, complete or truncated.

use super::cursor::{Cursor, FieldError};
use super::{ClientHello, MAX_PROTOCOLS};
use crate::name::MAX_NAME_LENGTH;
use crate::{HostName, MAX_PEEK_LENGTH};

const CLIENT_HELLO: u8 = 1;
/// Type and length of a handshake message.
pub(super) const HEADER: usize = 4;
/// Length of the shortest body: version, random, empty session ID, one cipher suite, one
/// compression method.
const MIN_BODY_LENGTH: usize = 2 + 32 + 1 + 2 + 2 + 1 + 1;

pub(super) const SERVER_NAME: u16 = 0;
const SIGNATURE_ALGORITHMS: u16 = 13;
pub(super) const ALPN: u16 = 16;
pub(super) const SUPPORTED_VERSIONS: u16 = 43;
/// The only defined type of a server name (RFC 6066, 3).
const HOST_NAME_TYPE: u8 = 0;

/// Reason why a ClientHello could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HelloError {
    /// The message is incomplete and has at least `message_length` bytes.
    Incomplete { message_length: usize },
    /// The message is not a ClientHello, or is invalid or too long.
    Invalid,
}

/// Length of the handshake message including its header; `None` if the header is incomplete.
pub(crate) fn message_length(message: &[u8]) -> Option<usize> {
    let [_, length @ ..] = message.first_chunk::<HEADER>()?;
    let [high, middle, low] = length.map(usize::from);
    Some(HEADER + (high << 16 | middle << 8 | low))
}

/// How much of a ClientHello is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// Until name and protocols are known.
    Name,
    All,
}

/// The values read from a ClientHello. A value is `None` or empty if it is missing or not yet read.
#[derive(Default)]
pub(super) struct HelloValues {
    pub(super) version: u16,
    pub(super) session_id: Option<Vec<u8>>,
    pub(super) cipher_suites: Vec<u16>,
    /// Types in the order of the message.
    pub(super) extensions: Vec<u16>,
    pub(super) name: Option<Option<HostName>>,
    /// Start of a server name that is not a host name.
    pub(super) other_name: Option<Box<str>>,
    pub(super) protocols: Option<Vec<Vec<u8>>>,
    pub(super) versions: Option<Vec<u16>>,
    pub(super) signatures: Vec<u16>,
}

/// Reads a handshake message that may be truncated. Stops as soon as the name and the protocols are
/// known, because key shares are long and may be in another packet.
pub(crate) fn read(message: &[u8]) -> Result<ClientHello, HelloError> {
    let mut draft = HelloValues::default();
    parse(message, Depth::Name, &mut draft)?;
    let HelloValues { name, protocols, .. } = draft;
    Ok(ClientHello { server_name: name.flatten(), protocols: protocols.unwrap_or_default() })
}

/// Reads a handshake message that may be truncated; `draft` keeps the values read before the end.
pub(super) fn parse(
    message: &[u8],
    depth: Depth,
    draft: &mut HelloValues,
) -> Result<(), HelloError> {
    if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
        return Err(HelloError::Invalid);
    }
    let Some(whole) = message_length(message) else {
        return Err(HelloError::Incomplete { message_length: HEADER + MIN_BODY_LENGTH });
    };
    if !(HEADER + MIN_BODY_LENGTH..=MAX_PEEK_LENGTH).contains(&whole) {
        return Err(HelloError::Invalid);
    }
    let there = message.len().min(whole);
    let body = Cursor { captured: &message[HEADER..there], length: whole - HEADER };
    parse_body(body, depth, draft).map_err(|end| match end {
        FieldError::Truncated => HelloError::Incomplete { message_length: whole },
        FieldError::Overlong => HelloError::Invalid,
    })
}

fn parse_body(
    mut body: Cursor<'_>,
    depth: Depth,
    draft: &mut HelloValues,
) -> Result<(), FieldError> {
    let is_all = depth == Depth::All;
    let version = body.number(2)?;
    if version >> 8 != 3 {
        return Err(FieldError::Overlong);
    }
    draft.version = version as u16;
    body.take(32)?;
    let session = body.prefixed(1)?;
    if session.length > 32 {
        return Err(FieldError::Overlong);
    }
    if is_all {
        draft.session_id = Some(session.bytes()?.to_vec());
    }
    let suites = body.prefixed(2)?;
    if suites.length == 0 || suites.length % 2 != 0 {
        return Err(FieldError::Overlong);
    }
    if is_all {
        draft.cipher_suites = suites.numbers();
    }
    let methods = body.prefixed(1)?;
    if methods.length == 0 {
        return Err(FieldError::Overlong);
    }

    // Extensions are optional before TLS 1.3.
    let length = if body.length == 0 { 0 } else { body.number(2)? };
    let mut extensions = body.take(length)?;
    if body.length != 0 {
        return Err(FieldError::Overlong);
    }
    while extensions.length > 0 && (is_all || draft.name.is_none() || draft.protocols.is_none()) {
        let kind = extensions.number(2)? as u16;
        let value = extensions.prefixed(2)?;
        if is_all {
            draft.extensions.push(kind);
        }
        // Duplicate extensions are forbidden; the first one is used, because it may already have
        // been reported.
        match kind {
            SERVER_NAME if draft.name.is_none() => {
                let name = server_name(value)?;
                let host = name.and_then(HostName::parse);
                if is_all && host.is_none() {
                    draft.other_name = name.and_then(readable_start);
                }
                draft.name = Some(host);
            }
            ALPN if draft.protocols.is_none() => draft.protocols = Some(protocol_list(value)?),
            SUPPORTED_VERSIONS if is_all && draft.versions.is_none() => {
                draft.versions = Some(number_list(value, 1)?);
            }
            SIGNATURE_ALGORITHMS if is_all && draft.signatures.is_empty() => {
                draft.signatures = number_list(value, 2)?;
            }
            // Only the type matters, but the extension must be complete.
            _ if is_all => drop(value.bytes()?),
            _ => {}
        }
    }
    Ok(())
}

/// A list of 16-bit numbers after its length.
fn number_list(mut value: Cursor<'_>, width: usize) -> Result<Vec<u16>, FieldError> {
    let list = value.prefixed(width)?;
    let numbers = list.numbers();
    list.bytes()?;
    Ok(numbers)
}

fn server_name(mut value: Cursor<'_>) -> Result<Option<&[u8]>, FieldError> {
    let mut list = value.prefixed(2)?;
    while list.length > 0 {
        let kind = list.number(1)?;
        let name = list.prefixed(2)?.bytes()?;
        if kind == usize::from(HOST_NAME_TYPE) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// As much of a name as a host name may have; `None` if it is empty.
fn readable_start(name: &[u8]) -> Option<Box<str>> {
    let start = &name[..name.len().min(MAX_NAME_LENGTH)];
    (!start.is_empty()).then(|| String::from_utf8_lossy(start).into())
}

pub(super) fn protocol_list(mut value: Cursor<'_>) -> Result<Vec<Vec<u8>>, FieldError> {
    let mut list = value.prefixed(2)?;
    let mut protocols = Vec::new();
    while list.length > 0 && protocols.len() < MAX_PROTOCOLS {
        protocols.push(list.prefixed(1)?.bytes()?.to_vec());
    }
    Ok(protocols)
}
