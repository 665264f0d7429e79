//! Requests of HTTP/1 (RFC 9112).

use bytes::{Buf, Bytes, BytesMut};
use httparse::{EMPTY_HEADER, Status};
use manyways_model::matching::Request;

use super::super::MAX_MATCHED_BODY;
use super::super::head::words;

/// Maximum length of a head or of trailers, in bytes.
pub const MAX_HEAD: usize = 256 << 10;
/// Maximum number of fields in a head.
pub const MAX_FIELDS: usize = 256;
/// Maximum length of the line before a chunk, with its extensions.
const MAX_CHUNK_LINE: usize = 4 << 10;
/// Digits of a chunk's length.
const MAX_CHUNK_DIGITS: usize = 15;

/// Why a request is refused, as a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is not HTTP/1.
    Malformed,
    /// The head is too long, or has too many fields.
    TooLong,
    /// Its transfer coding is unknown.
    Coding,
}

/// A head with its fields, as parts of the bytes.
#[derive(Debug)]
pub(super) struct Head<'b> {
    pub(super) method: &'b str,
    target: &'b str,
    pub(super) is_http10: bool,
    pub(super) fields: Vec<(&'b str, &'b [u8])>,
    pub(super) framing: Framing,
    /// Whether the client asks for the end of the connection.
    pub(super) closes: bool,
    /// Whether the client waits for an interim response before it sends the body.
    pub(super) expects: bool,
}

/// The rest of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length(u64),
    /// In the line before a chunk.
    ChunkLine,
    Chunk(u64),
    /// In the line end behind a chunk.
    ChunkEnd,
    /// In the trailers, of which this number of bytes came.
    Trailers(usize),
}

/// A body that is being read, up to [`MAX_MATCHED_BODY`] bytes of it.
#[derive(Debug)]
pub(super) struct Body {
    framing: Framing,
    pub(super) kept: Vec<u8>,
}

/// Returns the head at the beginning of the bytes, and removes it. `None` if it is not complete.
/// `searched` is the number of bytes that an earlier call has seen.
pub(super) fn take_head(
    input: &mut BytesMut,
    searched: &mut usize,
) -> Result<Option<Bytes>, Fault> {
    if *searched == 0 {
        // Empty lines before a head are ignored (2.2).
        let empty = input.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        input.advance(empty);
    }
    // An empty line may have begun with earlier bytes.
    let mut at = searched.saturating_sub(3);
    while let Some(next) =
        input.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == b'\n'))
    {
        at += next + 1;
        let end = match input.get(at..).unwrap_or_default() {
            [b'\n', ..] => at + 1,
            [b'\r', b'\n', ..] => at + 2,
            _ => continue,
        };
        *searched = 0;
        if end > MAX_HEAD {
            return Err(Fault::TooLong);
        }
        return Ok(Some(input.split_to(end).freeze()));
    }
    *searched = input.len();
    if input.len() > MAX_HEAD { Err(Fault::TooLong) } else { Ok(None) }
}

impl<'b> Head<'b> {
    /// Reads a complete head.
    pub(super) fn parse(bytes: &'b [u8]) -> Result<Self, Fault> {
        let mut fields = [EMPTY_HEADER; MAX_FIELDS];
        let mut read = httparse::Request::new(&mut fields);
        match read.parse(bytes) {
            Ok(Status::Complete(_)) => {}
            Err(httparse::Error::TooManyHeaders) => return Err(Fault::TooLong),
            _ => return Err(Fault::Malformed),
        }
        let (Some(method), Some(target), Some(version)) = (read.method, read.path, read.version)
        else {
            return Err(Fault::Malformed);
        };
        let mut length = None;
        let mut coding: Option<&[u8]> = None;
        let (mut closes, mut expects) = (version == 0, false);
        let mut all = Vec::with_capacity(read.headers.len());
        for field in read.headers.iter() {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            match field.name.len() {
                6 if is("expect") => {
                    expects = version > 0 && field.value.eq_ignore_ascii_case(b"100-continue");
                }
                10 if is("connection") => {
                    closes |= words(field.value).any(|word| word.eq_ignore_ascii_case(b"close"));
                }
                14 if is("content-length") => {
                    let value = number(field.value).ok_or(Fault::Malformed)?;
                    if length.is_some_and(|before| before != value) {
                        return Err(Fault::Malformed);
                    }
                    length = Some(value);
                }
                17 if is("transfer-encoding") => {
                    if coding.is_some() {
                        return Err(Fault::Coding);
                    }
                    coding = Some(field.value);
                }
                _ => {}
            }
            all.push((field.name, field.value));
        }
        let framing = match (coding, length) {
            // A request with both could be read in two ways (6.1).
            (Some(_), Some(_)) => return Err(Fault::Malformed),
            (Some(coding), None) if coding.trim_ascii().eq_ignore_ascii_case(b"chunked") => {
                Framing::ChunkLine
            }
            (Some(_), None) => return Err(Fault::Coding),
            (None, length) => Framing::Length(length.unwrap_or(0)),
        };
        Ok(Self { method, target, is_http10: version == 0, fields: all, framing, closes, expects })
    }

    /// The request for the matcher. The target is a path or an absolute URL, which then decides.
    pub(super) fn request<'r>(
        &'r self,
        scheme: &'r str,
        body: &'r [u8],
        connection: u64,
    ) -> Request<'r> {
        let (fields, connection) = (&self.fields[..], Some(connection));
        if !self.target.starts_with('/')
            && let Some(request) = Request::from_url(self.method, self.target)
        {
            return Request { fields, body, connection, ..request };
        }
        let host = fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
        let authority = host.and_then(|(_, host)| std::str::from_utf8(host).ok());
        let target = self.target.split('#').next().unwrap_or_default();
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.as_bytes())),
            None => (target, None),
        };
        Request {
            method: self.method,
            scheme,
            authority: authority.unwrap_or_default().trim(),
            path: path.as_bytes(),
            query,
            fields,
            body,
            connection,
        }
    }
}

impl Body {
    pub(super) fn new(framing: Framing) -> Self {
        Self { framing, kept: Vec::new() }
    }

    /// Takes bytes of the body from the input. Returns whether it is complete.
    pub(super) fn take(&mut self, input: &mut BytesMut) -> Result<bool, Fault> {
        loop {
            match self.framing {
                Framing::Length(0) => return Ok(true),
                Framing::Length(left) => {
                    let taken = self.take_content(left, input);
                    self.framing = Framing::Length(left - taken);
                    if taken == 0 {
                        return Ok(false);
                    }
                }
                Framing::Chunk(0) => self.framing = Framing::ChunkEnd,
                Framing::Chunk(left) => {
                    let taken = self.take_content(left, input);
                    self.framing = Framing::Chunk(left - taken);
                    if taken == 0 {
                        return Ok(false);
                    }
                }
                Framing::ChunkEnd => {
                    let Some(line) = take_line(input, 2)? else { return Ok(false) };
                    if !line.is_empty() {
                        return Err(Fault::Malformed);
                    }
                    self.framing = Framing::ChunkLine;
                }
                Framing::ChunkLine => {
                    let Some(line) = take_line(input, MAX_CHUNK_LINE)? else { return Ok(false) };
                    self.framing = match chunk_length(&line)? {
                        0 => Framing::Trailers(0),
                        length => Framing::Chunk(length),
                    };
                }
                Framing::Trailers(before) => {
                    let Some(line) = take_line(input, MAX_HEAD - before)? else {
                        return Ok(false);
                    };
                    self.framing = match line.len() {
                        0 => Framing::Length(0),
                        length => Framing::Trailers((before + length + 2).min(MAX_HEAD)),
                    };
                }
            }
        }
    }

    fn take_content(&mut self, left: u64, input: &mut BytesMut) -> u64 {
        let taken = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
        let room = MAX_MATCHED_BODY - self.kept.len();
        self.kept.extend_from_slice(input.get(..taken.min(room)).unwrap_or_default());
        input.advance(taken);
        taken as u64
    }
}

/// Takes a line from the input. `None` if it is not complete.
fn take_line(input: &mut BytesMut, max: usize) -> Result<Option<Bytes>, Fault> {
    let Some(end) = input.iter().take(max).position(|byte| *byte == b'\n') else {
        return if input.len() >= max { Err(Fault::Malformed) } else { Ok(None) };
    };
    let mut line = input.split_to(end + 1);
    line.truncate(if line.ends_with(b"\r\n") { end - 1 } else { end });
    Ok(Some(line.freeze()))
}

/// Reads the line before a chunk.
fn chunk_length(line: &[u8]) -> Result<u64, Fault> {
    let end = line.iter().position(|byte| matches!(byte, b';' | b' ' | b'\t'));
    let digits = line.get(..end.unwrap_or(line.len())).unwrap_or_default();
    let is_valid =
        (1..=MAX_CHUNK_DIGITS).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_valid).ok_or(Fault::Malformed)?;
    u64::from_str_radix(digits, 16).map_err(|_| Fault::Malformed)
}

fn number(digits: &[u8]) -> Option<u64> {
    let digits = digits.trim_ascii();
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
}

#[cfg(test)]
mod tests;
