//! Requests to an HTTP proxy (RFC 9110, 7; RFC 9112, 3.2), and their form for the server.
//!
//! The reader is strict where servers differ: a request that two programs could delimit differently
//! is refused, so that no bytes of it become another request (request smuggling).

use manyways_unit::Time;

use super::chunked::{Chunked, Step};
use super::cursor::Cursor;
use super::{Authority, MAX_FIELDS, MAX_HEAD_LENGTH};

/// Fields that concern only the connection to the proxy, in addition to `Proxy-*` and to those that
/// `Connection` names. `Transfer-Encoding` is not one of them, because the body is forwarded as it is.
const HOP_BY_HOP: [&[u8]; 5] = [b"connection", b"keep-alive", b"te", b"trailer", b"upgrade"];
/// Fields that `Connection` cannot remove: without them the server would delimit the body
/// differently.
const FRAMING: [&[u8]; 2] = [CONTENT_LENGTH, TRANSFER_ENCODING];
const CONTENT_LENGTH: &[u8] = b"content-length";
const TRANSFER_ENCODING: &[u8] = b"transfer-encoding";

/// The header of a request to a proxy.
#[derive(Clone, Debug)]
pub struct ProxyHead {
    pub request: ProxyRequest,
    /// The value of the only `Proxy-Authorization` field; `None` if missing or ambiguous.
    pub authorization: Option<Vec<u8>>,
    /// Length of the header in bytes.
    pub length: usize,
}

/// A request to a proxy.
#[derive(Clone, Debug)]
pub enum ProxyRequest {
    /// `CONNECT`: the bytes after the header belong to the tunnel.
    Connect {
        /// The port is always present.
        target: Authority,
    },
    /// A request for an `http://` URI.
    Forward {
        target: Authority,
        /// The header for the server: in origin-form, without fields for the proxy, and with
        /// `Connection: close`.
        head: Vec<u8>,
        /// Delimits the body, which follows the header.
        body: RequestBody,
    },
}

/// The reason why a proxy refuses a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyHeadError {
    #[error("the header of the request is too long")]
    TooLong,
    #[error("the request is not HTTP/1.1")]
    NotHttp,
    #[error(
        "this is a proxy, not a web server: enter its address as the HTTP proxy of the application"
    )]
    OriginForm,
    #[error("this proxy forwards http:// URIs, and all other traffic by CONNECT")]
    Scheme,
    #[error("the URI of the request is malformed, or contains a user name")]
    Uri,
    #[error("the target of CONNECT is not HOST:PORT")]
    ConnectTarget,
    #[error("a field of the header is malformed")]
    Field,
    #[error("the header has control characters, or a line end that is not CRLF")]
    ControlCharacter,
    #[error("the length of the request's body is ambiguous")]
    BodyLength,
}

/// The position in the body of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestBody(Rest);

#[derive(Clone, Copy, Debug)]
enum Rest {
    /// Remaining bytes.
    Length(u64),
    Chunked(Chunked),
}

impl RequestBody {
    /// Returns how many of the next bytes of the application belong to the body; these are the
    /// first ones. A malformed chunk ends the body.
    pub fn take(&mut self, bytes: &[u8]) -> usize {
        match &mut self.0 {
            Rest::Length(remaining) => {
                let taken = usize::try_from(*remaining).unwrap_or(usize::MAX).min(bytes.len());
                *remaining -= taken as u64;
                taken
            }
            Rest::Chunked(chunked) => {
                let mut rest = Cursor { at: Time::ZERO, bytes, uncaptured: 0 };
                let (step, consumed) = chunked.read(&mut rest);
                if step != Step::More {
                    self.0 = Rest::Length(0);
                }
                consumed.length as usize
            }
        }
    }

    /// Whether no further byte belongs to the body.
    pub fn is_complete(&self) -> bool {
        matches!(self.0, Rest::Length(0))
    }
}

/// Reads the header of a request at the start of `bytes`, or returns `None` if more bytes are
/// needed. With more bytes, another result does not change.
///
/// # Errors
/// If a proxy must refuse the request.
pub fn proxy_head(bytes: &[u8]) -> Result<Option<ProxyHead>, ProxyHeadError> {
    let bytes = &bytes[..bytes.len().min(MAX_HEAD_LENGTH)];
    let missing = match bytes.len() {
        MAX_HEAD_LENGTH => Err(ProxyHeadError::TooLong),
        _ => Ok(None),
    };
    let Some((line, mut at)) = next_line(bytes, 0)? else { return missing };
    let request = RequestLine::parse(line)?;
    let mut fields = Vec::new();
    loop {
        let Some((line, end)) = next_line(bytes, at)? else { return missing };
        at = end;
        if line.is_empty() {
            break;
        }
        if fields.len() == MAX_FIELDS {
            return Err(ProxyHeadError::TooLong);
        }
        fields.push(Field::parse(line)?);
    }
    let mut authorizations = fields.iter().filter(|field| field.is(b"proxy-authorization"));
    let authorization = match (authorizations.next(), authorizations.next()) {
        (Some(only), None) => Some(only.value.to_vec()),
        _ => None,
    };
    let request = match request.target {
        Target::Connect(target) => ProxyRequest::Connect { target },
        Target::Http { ref authority, host, .. } => ProxyRequest::Forward {
            target: authority.clone(),
            body: body(&fields, request.is_version_1_0)?,
            head: forwarded_head(&request, host, &fields),
        },
    };
    Ok(Some(ProxyHead { request, authorization, length: at }))
}

/// Returns the line that begins at `from`, without its end, and the offset of the next line. `None`
/// if the line is incomplete.
fn next_line(bytes: &[u8], from: usize) -> Result<Option<(&[u8], usize)>, ProxyHeadError> {
    let rest = &bytes[from..];
    for (at, byte) in rest.iter().enumerate() {
        match byte {
            b'\r' => match rest.get(at + 1) {
                Some(b'\n') => return Ok(Some((&rest[..at], from + at + 2))),
                Some(_) => return Err(ProxyHeadError::ControlCharacter),
                None => return Ok(None),
            },
            b'\t' | b' '..=b'~' | 0x80.. => {}
            _ => return Err(ProxyHeadError::ControlCharacter),
        }
    }
    Ok(None)
}

struct RequestLine<'a> {
    method: &'a [u8],
    target: Target<'a>,
    is_version_1_0: bool,
}

enum Target<'a> {
    Connect(Authority),
    Http {
        authority: Authority,
        /// The authority as written in the URI.
        host: &'a [u8],
        /// Path and query; may lack the path.
        path: &'a [u8],
    },
}

impl<'a> RequestLine<'a> {
    fn parse(line: &'a [u8]) -> Result<Self, ProxyHeadError> {
        let mut parts = line.split(|byte| *byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(ProxyHeadError::NotHttp);
        };
        let is_version_1_0 = match version {
            b"HTTP/1.1" => false,
            b"HTTP/1.0" => true,
            _ => return Err(ProxyHeadError::NotHttp),
        };
        if !is_token(method) || target.is_empty() {
            return Err(ProxyHeadError::NotHttp);
        }
        if !target.iter().all(u8::is_ascii_graphic) {
            return Err(ProxyHeadError::Uri);
        }
        let target = match method {
            b"CONNECT" => match Authority::parse(target) {
                Some(target) if target.port.is_some() => Target::Connect(target),
                _ => return Err(ProxyHeadError::ConnectTarget),
            },
            _ => Target::parse_uri(target)?,
        };
        Ok(Self { method, target, is_version_1_0 })
    }
}

impl<'a> Target<'a> {
    fn parse_uri(uri: &'a [u8]) -> Result<Self, ProxyHeadError> {
        if uri.starts_with(b"/") || uri == b"*" {
            return Err(ProxyHeadError::OriginForm);
        }
        let (scheme, rest) =
            uri.split_at_checked(b"http://".len()).ok_or(ProxyHeadError::Scheme)?;
        if !scheme.eq_ignore_ascii_case(b"http://") {
            return Err(ProxyHeadError::Scheme);
        }
        let end = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
        let (host, path) = rest.split_at(end);
        match Authority::parse(host) {
            Some(authority) if !path.contains(&b'#') => Ok(Self::Http { authority, host, path }),
            _ => Err(ProxyHeadError::Uri),
        }
    }
}

struct Field<'a> {
    name: &'a [u8],
    value: &'a [u8],
}

impl<'a> Field<'a> {
    fn parse(line: &'a [u8]) -> Result<Self, ProxyHeadError> {
        // A folded line begins with a space, and so does not begin with a name.
        let colon = line.iter().position(|byte| *byte == b':').ok_or(ProxyHeadError::Field)?;
        let (name, value) = (&line[..colon], trim(&line[colon + 1..]));
        if is_token(name) { Ok(Self { name, value }) } else { Err(ProxyHeadError::Field) }
    }

    /// Whether this is the name of the field, which is given in lower case.
    fn is(&self, name: &[u8]) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    /// The elements of a list, also empty ones.
    fn elements(&self) -> impl Iterator<Item = &'a [u8]> {
        self.value.split(|byte| *byte == b',').map(trim)
    }
}

/// Removes spaces and tabs at both ends.
fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Whether the bytes are a name (RFC 9110, 5.6.2).
fn is_token(bytes: &[u8]) -> bool {
    let is_valid = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !bytes.is_empty() && bytes.iter().all(is_valid)
}

/// Returns how the body is delimited.
fn body(fields: &[Field<'_>], is_version_1_0: bool) -> Result<RequestBody, ProxyHeadError> {
    let ambiguous = ProxyHeadError::BodyLength;
    let mut lengths = fields.iter().filter(|field| field.is(CONTENT_LENGTH));
    let mut codings = fields.iter().filter(|field| field.is(TRANSFER_ENCODING)).peekable();
    let Some(first) = lengths.next() else {
        if codings.peek().is_none() {
            return Ok(RequestBody(Rest::Length(0)));
        }
        // A server of HTTP/1.0 does not know the field.
        let codings: Vec<&[u8]> = codings.flat_map(Field::elements).collect();
        let chunked: Vec<usize> = codings
            .iter()
            .enumerate()
            .filter_map(|(at, coding)| coding.eq_ignore_ascii_case(b"chunked").then_some(at))
            .collect();
        let is_final = chunked == [codings.len() - 1];
        return match !is_version_1_0 && is_final && codings.iter().all(|coding| is_token(coding)) {
            true => Ok(RequestBody(Rest::Chunked(Chunked::default()))),
            false => Err(ambiguous),
        };
    };
    if codings.next().is_some()
        || lengths.any(|other| other.value != first.value)
        || !first.value.iter().all(u8::is_ascii_digit)
    {
        return Err(ambiguous);
    }
    let length = std::str::from_utf8(first.value).ok().and_then(|digits| digits.parse().ok());
    length.map(|length| RequestBody(Rest::Length(length))).ok_or(ambiguous)
}

/// Returns the header for the server.
fn forwarded_head(request: &RequestLine<'_>, host: &[u8], fields: &[Field<'_>]) -> Vec<u8> {
    let named: Vec<&[u8]> =
        fields.iter().filter(|field| field.is(b"connection")).flat_map(Field::elements).collect();
    let is_forwarded = |field: &&Field<'_>| {
        let is_one_of = |names: &[&[u8]]| names.iter().any(|name| field.is(name));
        let is_for_proxy = field
            .name
            .split_at_checked(b"proxy-".len())
            .is_some_and(|(start, _)| start.eq_ignore_ascii_case(b"proxy-"));
        !is_for_proxy
            && !is_one_of(&HOP_BY_HOP)
            && !field.is(b"host")
            && (is_one_of(&FRAMING) || !is_one_of(&named))
    };
    let path: &[u8] = match &request.target {
        Target::Http { path, .. } => path,
        Target::Connect(_) => b"",
    };
    let root: &[u8] = match path {
        // RFC 9112, 3.2.4.
        [] if request.method == b"OPTIONS" => b"*",
        [b'/', ..] => b"",
        _ => b"/",
    };
    let version: &[u8] = if request.is_version_1_0 { b"HTTP/1.0" } else { b"HTTP/1.1" };
    let line = [request.method, b" ", root, path, b" ", version, b"\r\n"];
    let mut head = [&line.concat()[..], b"Host: ", host, b"\r\n"].concat();
    let mut has_length = false;
    for field in fields.iter().filter(is_forwarded) {
        if field.is(CONTENT_LENGTH) && std::mem::replace(&mut has_length, true) {
            continue;
        }
        head.extend([field.name, b": ", field.value, b"\r\n"].concat());
    }
    head.extend(b"Connection: close\r\n\r\n");
    head
}

#[cfg(test)]
mod tests;
