//! Frames from bytes that arrive in any pieces (RFC 9113, 4.1 and 6).

use crate::http::HTTP2_PREFACE;
use crate::stream::Endpoint;

/// Maximum length of a frame without its header: 24 bits.
pub(super) const MAX_FRAME_LENGTH: usize = (1 << 24) - 1;
const HEADER_LENGTH: usize = 9;

/// Types of frames. All others have no effect on exchanges.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;

/// A frame without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Data {
        stream: u32,
        is_last: bool,
    },
    Headers {
        stream: u32,
        is_last: bool,
        is_complete: bool,
    },
    Reset {
        stream: u32,
    },
    Settings,
    SettingsAck,
    Promise {
        stream: u32,
        promised: u32,
        is_complete: bool,
    },
    Goaway {
        last_stream: u32,
    },
    Continuation {
        stream: u32,
        is_complete: bool,
    },
    /// Its content has no effect.
    Other,
}

/// A part of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// The other parts need more bytes.
    Pending,
    Begin(Frame),
    /// Bytes of its content, at least one.
    Content(&'a [u8]),
    End,
}

/// Cuts the bytes of one direction into frames. It holds no content.
#[derive(Debug)]
pub(super) struct Reader {
    state: State,
    /// Bytes of a header, or of fields before a content, that are not complete.
    incomplete: Vec<u8>,
    is_first: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// So many bytes of the client's preface are read (RFC 9113, 3.4).
    Preface(usize),
    Header,
    /// In fields before the content: the length of the padding, a priority, and others.
    Fields(Header),
    Content {
        left: usize,
        padding: usize,
    },
    Padding(usize),
}

#[derive(Clone, Copy, Debug)]
struct Header {
    length: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Reader {
    pub(super) fn new(of: Endpoint) -> Self {
        let state = match of {
            Endpoint::Client => State::Preface(0),
            Endpoint::Server => State::Header,
        };
        Self { state, incomplete: Vec::new(), is_first: true }
    }

    /// Takes the next part from the front of `rest`, which is empty if that is
    /// [`Part::Pending`]. Frames have at most `max_length` bytes.
    pub(super) fn read<'a>(
        &mut self,
        rest: &mut &'a [u8],
        max_length: usize,
    ) -> Result<Part<'a>, &'static str> {
        loop {
            match self.state {
                State::Preface(read) => {
                    let expected = HTTP2_PREFACE.get(read..).unwrap_or_default();
                    let bytes = split_up_to(rest, expected.len());
                    if !expected.starts_with(bytes) {
                        return Err("bytes that are not HTTP/2");
                    }
                    self.state = State::Preface(read + bytes.len());
                    if bytes.len() < expected.len() {
                        return Ok(Part::Pending);
                    }
                    self.state = State::Header;
                }
                State::Header => {
                    if !self.fill(rest, HEADER_LENGTH) {
                        return Ok(Part::Pending);
                    }
                    let header = Header::read(&self.incomplete);
                    // The first frame of each endpoint (RFC 9113, 3.4).
                    let is_expected = (header.kind, header.flags & ACK) == (SETTINGS, 0);
                    if std::mem::take(&mut self.is_first) && !is_expected {
                        return Err("bytes that are not HTTP/2");
                    }
                    header.check(max_length)?;
                    self.incomplete.clear();
                    self.state = State::Fields(header);
                }
                State::Fields(header) => {
                    let length = header.fields_length();
                    if !self.fill(rest, length) {
                        return Ok(Part::Pending);
                    }
                    let padding = match header.is_padded() {
                        true => usize::from(self.incomplete.first().copied().unwrap_or_default()),
                        false => 0,
                    };
                    let left = header.length.checked_sub(length + padding);
                    let left = left.ok_or("a frame that is shorter than its padding")?;
                    let frame = header.frame(&self.incomplete);
                    self.incomplete.clear();
                    self.state = State::Content { left, padding };
                    return Ok(Part::Begin(frame));
                }
                State::Content { left: 0, padding } => self.state = State::Padding(padding),
                State::Content { left, padding } => {
                    let content = split_up_to(rest, left);
                    if content.is_empty() {
                        return Ok(Part::Pending);
                    }
                    self.state = State::Content { left: left - content.len(), padding };
                    return Ok(Part::Content(content));
                }
                State::Padding(left) => {
                    let left = left - split_up_to(rest, left).len();
                    if left > 0 {
                        self.state = State::Padding(left);
                        return Ok(Part::Pending);
                    }
                    self.state = State::Header;
                    return Ok(Part::End);
                }
            }
        }
    }

    /// Fills [`Self::incomplete`] up to a length, and returns whether that succeeds.
    fn fill(&mut self, rest: &mut &[u8], length: usize) -> bool {
        let missing = length.saturating_sub(self.incomplete.len());
        self.incomplete.extend(split_up_to(rest, missing));
        self.incomplete.len() >= length
    }
}

impl Header {
    /// Reads a header of complete length.
    fn read(bytes: &[u8]) -> Self {
        let number = |bytes: Option<&[u8]>| number(bytes.unwrap_or_default());
        Self {
            length: number(bytes.get(..3)) as usize,
            kind: number(bytes.get(3..4)) as u8,
            flags: number(bytes.get(4..5)) as u8,
            stream: stream_id(bytes.get(5..)),
        }
    }

    fn check(&self, max_length: usize) -> Result<(), &'static str> {
        if self.length > max_length {
            return Err("a frame that is longer than permitted");
        }
        let needs_stream = match self.kind {
            DATA | HEADERS | RST_STREAM | PUSH_PROMISE | CONTINUATION => true,
            SETTINGS | GOAWAY => false,
            _ => return Ok(()),
        };
        if needs_stream != (self.stream != 0) {
            return Err("a frame on a wrong stream");
        }
        let is_valid = match self.kind {
            RST_STREAM => self.length == 4,
            SETTINGS if self.has(ACK) => self.length == 0,
            SETTINGS => self.length.is_multiple_of(6),
            _ => self.length >= self.fields_length(),
        };
        if is_valid { Ok(()) } else { Err("a frame of a wrong length") }
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn is_padded(&self) -> bool {
        matches!(self.kind, DATA | HEADERS | PUSH_PROMISE) && self.has(PADDED)
    }

    /// Length of the fields before the content.
    fn fields_length(&self) -> usize {
        let others = match self.kind {
            HEADERS if self.has(PRIORITY) => 5,
            PUSH_PROMISE => 4,
            GOAWAY => 8,
            _ => 0,
        };
        others + usize::from(self.is_padded())
    }

    /// Returns the frame with these fields before its content.
    fn frame(&self, fields: &[u8]) -> Frame {
        let stream = self.stream;
        let (is_last, is_complete) = (self.has(END_STREAM), self.has(END_HEADERS));
        match self.kind {
            DATA => Frame::Data { stream, is_last },
            HEADERS => Frame::Headers { stream, is_last, is_complete },
            RST_STREAM => Frame::Reset { stream },
            SETTINGS if self.has(ACK) => Frame::SettingsAck,
            SETTINGS => Frame::Settings,
            PUSH_PROMISE => {
                let promised = stream_id(fields.get(usize::from(self.is_padded())..));
                Frame::Promise { stream, promised, is_complete }
            }
            GOAWAY => Frame::Goaway { last_stream: stream_id(fields.get(..4)) },
            CONTINUATION => Frame::Continuation { stream, is_complete },
            _ => Frame::Other,
        }
    }
}

/// Reads a number in network byte order.
fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Reads the number of a stream behind a reserved bit.
fn stream_id(bytes: Option<&[u8]>) -> u32 {
    number(bytes.unwrap_or_default()) & 0x7fff_ffff
}

/// Takes up to `max` bytes from the front.
fn split_up_to<'a>(rest: &mut &'a [u8], max: usize) -> &'a [u8] {
    rest.split_off(..max.min(rest.len())).unwrap_or_default()
}
