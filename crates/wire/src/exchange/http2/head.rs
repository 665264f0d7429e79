//! Heads and trailers from the fields of a block (RFC 9113, 8.2 and 8.3).

use super::hpack::ENTRY_OVERHEAD;
use crate::archive::{Field, Protocol};
use crate::exchange::{RequestHead, ResponseHead, Trailers, number};

/// Maximum size of the fields of a head, decompressed: bytes of names and values, and 32 for each
/// field, as `SETTINGS_MAX_HEADER_LIST_SIZE` counts them. Browsers accept 256 KiB.
pub const MAX_HEAD_SIZE: usize = 1024 * 1024;
/// Maximum number of fields in a head, without pseudo fields.
pub const MAX_FIELDS: usize = 2_048;

/// The fields of a block.
#[derive(Debug, Default)]
pub(super) struct Head {
    pseudo: PseudoFields,
    fields: Vec<Field>,
    size: usize,
    /// Receivers treat the message as malformed (RFC 9113, 8.1.1).
    is_malformed: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct PseudoFields {
    method: Option<String>,
    scheme: Option<String>,
    authority: Option<String>,
    path: Option<String>,
    protocol: Option<String>,
    status: Option<String>,
}

impl PseudoFields {
    fn get_mut(&mut self, name: &[u8]) -> Option<&mut Option<String>> {
        match name {
            b":method" => Some(&mut self.method),
            b":scheme" => Some(&mut self.scheme),
            b":authority" => Some(&mut self.authority),
            b":path" => Some(&mut self.path),
            b":protocol" => Some(&mut self.protocol),
            b":status" => Some(&mut self.status),
            _ => None,
        }
    }
}

impl Head {
    /// Adds a field behind the others.
    pub(super) fn add(&mut self, name: &[u8], value: &[u8]) -> Result<(), &'static str> {
        self.size += name.len() + value.len() + ENTRY_OVERHEAD;
        if self.size > MAX_HEAD_SIZE {
            return Err("a head that is too long");
        }
        let added = match name.starts_with(b":") {
            true => self.add_pseudo(name, value),
            false if self.fields.len() >= MAX_FIELDS => return Err("too many fields"),
            false => self.add_regular(name, value),
        };
        self.is_malformed |= added.is_none();
        Ok(())
    }

    /// Returns `None` for an invalid field.
    fn add_pseudo(&mut self, name: &[u8], value: &[u8]) -> Option<()> {
        let known = self.pseudo.get_mut(name).filter(|known| known.is_none())?;
        // Pseudo fields precede the others, and neither white space nor a control character is in
        // one: they could be mistaken for parts of a line of HTTP/1.
        let is_valid = self.fields.is_empty()
            && value.iter().all(|byte| *byte > b' ' && *byte != 0x7f)
            && (!value.is_empty() || name == b":authority");
        *known = Some(String::from_utf8(value.to_owned()).ok().filter(|_| is_valid)?);
        Some(())
    }

    /// Returns `None` for an invalid field (RFC 9113, 8.2.1).
    fn add_regular(&mut self, name: &[u8], value: &[u8]) -> Option<()> {
        let is_permitted =
            |byte: &u8| byte.is_ascii_graphic() && !byte.is_ascii_uppercase() && *byte != b':';
        let is_valid = !name.is_empty()
            && name.iter().all(is_permitted)
            && !value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n'));
        let name = std::str::from_utf8(name).ok().filter(|_| is_valid)?;
        self.fields.push(Field { name: name.to_owned(), value: value.to_owned() });
        Some(())
    }

    /// Returns `None` for a malformed request.
    pub(super) fn into_request(self) -> Option<RequestHead> {
        if self.is_malformed {
            return None;
        }
        let length = self.length();
        let PseudoFields { method, scheme, authority, path, protocol, status: None } = self.pseudo
        else {
            return None;
        };
        let (method, authority) = (method?, authority.filter(|authority| !authority.is_empty()));
        let target = match (method == "CONNECT", protocol, &scheme) {
            // RFC 9113, 8.5: only an authority.
            (true, None, None) if path.is_none() => authority.clone()?,
            // RFC 8441, 4: as other requests, but an authority is needed.
            (true, Some(_), Some(_)) if authority.is_some() => path?,
            (false, None, Some(_)) => path?,
            _ => return None,
        };
        let host = || self.fields.iter().find(|field| field.name == "host");
        let authority =
            authority.or_else(|| Some(String::from_utf8_lossy(&host()?.value).into_owned()));
        Some(RequestHead {
            method,
            target,
            scheme,
            authority,
            protocol: Protocol::Http2,
            fields: self.fields,
            length,
        })
    }

    /// Returns `None` for a malformed response. If it answers HEAD, it has no body.
    pub(super) fn into_response(self, answers_head: bool) -> Option<ResponseHead> {
        if self.is_malformed {
            return None;
        }
        let length = self.length();
        let PseudoFields {
            method: None,
            scheme: None,
            authority: None,
            path: None,
            protocol: None,
            status: Some(status),
        } = self.pseudo
        else {
            return None;
        };
        let code = number(status.as_bytes()).filter(|_| status.len() == 3)?;
        let status = u16::try_from(code).ok().filter(|code| *code >= 100)?;
        let is_empty = answers_head || matches!(status, 100..200 | 204 | 304);
        Some(ResponseHead {
            status,
            reason: String::new(),
            protocol: Protocol::Http2,
            fields: self.fields,
            length: length.filter(|_| !is_empty),
        })
    }

    /// Returns `None` for malformed trailers.
    pub(super) fn into_trailers(self) -> Option<Trailers> {
        let is_valid = !self.is_malformed && self.pseudo == PseudoFields::default();
        is_valid.then_some(self.fields)
    }

    /// `Content-Length`. An invalid one is not used: the length of a body does not depend on it.
    fn length(&self) -> Option<u64> {
        let fields = self.fields.iter().filter(|field| field.name == "content-length");
        let values = fields.flat_map(|field| field.value.split(|byte| *byte == b','));
        let mut lengths = values.map(|value| number(value.trim_ascii()));
        let first = lengths.next()??;
        lengths.all(|length| length == Some(first)).then_some(first)
    }
}
