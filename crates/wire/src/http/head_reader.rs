//! Collects the bytes of a header until the header is complete or can no longer become complete.

use std::borrow::Cow;

use manyways_unit::Time;

use super::cursor::Cursor;
use super::fields;
use manyways_unit::ThinVec;

/// Maximum length of a header. nginx accepts requests up to this length; the limits of Apache and
/// Node are lower.
pub const MAX_HEAD_LENGTH: usize = 32 * 1024;
/// Number of bytes within which the beginning of a header is recognized.
const MAX_PREFIX_LENGTH: usize = 48;

/// The expected message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// A request, at a position where a request must begin.
    Request,
    /// A request, at a position where other data is possible.
    LikelyRequest,
    Response,
}

/// A header that is incomplete. Each byte is read only a few times, however small the pieces are.
#[derive(Clone, Debug, Default)]
pub(super) struct HeadReader {
    buffered: ThinVec<u8>,
    line: LineState,
    /// Whether the beginning and the first line are those of a header.
    is_recognized: bool,
    has_first_line: bool,
    /// Times of the first and the last bytes.
    pub(super) times: Option<(Time, Time)>,
    /// Whether the stream was not followed up to this point.
    pub(super) is_resync: bool,
    /// Whether another message was unfinished when this header began.
    pub(super) is_pipelined: bool,
}

/// Content of the current, unfinished line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LineState {
    Empty,
    OnlyCr,
    /// The initial state: empty lines before a header are skipped.
    #[default]
    NotEmpty,
}

/// Result of adding a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReadResult<'a> {
    /// The whole piece belongs to the header, which is still incomplete.
    More,
    /// The complete header.
    Complete(Cow<'a, [u8]>),
    /// The beginning of the header. The rest was not captured, or the header is too long.
    Truncated(Cow<'a, [u8]>),
    /// Not a header. Held bytes are discarded; the bytes of the piece are not consumed.
    NotHead {
        /// Number of discarded bytes.
        buffered: usize,
        /// Whether the bytes begin like TLS or HTTP/2.
        is_other_protocol: bool,
    },
}

impl HeadReader {
    /// Creates an assembly at a position where a header may begin.
    pub(super) fn resync() -> Self {
        Self { is_resync: true, ..Self::default() }
    }

    /// The collected bytes, when no more will arrive.
    pub(super) fn buffered(&self) -> &[u8] {
        &self.buffered
    }

    /// Continues with the rest of a piece.
    pub(super) fn read<'a>(&mut self, kind: Expected, rest: &mut Cursor<'a>) -> ReadResult<'a> {
        // Empty lines before a request are ignored (RFC 9112, 2.2).
        if self.buffered.is_empty() && !self.is_resync {
            let is_line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
            let empty = rest.bytes.iter().take_while(|byte| is_line_end(byte)).count();
            rest.skip(empty as u64);
        }
        if rest.bytes.is_empty() {
            return if rest.uncaptured == 0 {
                ReadResult::More
            } else {
                self.finish(&[], ReadResult::Truncated)
            };
        }
        let room = MAX_HEAD_LENGTH - self.buffered.len();
        let new = &rest.bytes[..rest.bytes.len().min(room)];
        if !self.is_recognized {
            match self.recognize(kind, new) {
                Some(true) => self.is_recognized = true,
                Some(false) => return self.reject(new),
                None => {}
            }
        }
        let (mut from, mut is_whole) = (0, false);
        while let Some(length) = new[from..].iter().position(|byte| *byte == b'\n') {
            let line = &new[from..from + length];
            let is_blank = match self.line {
                LineState::Empty => matches!(line, b"" | b"\r"),
                LineState::OnlyCr => line.is_empty(),
                LineState::NotEmpty => false,
            };
            from += length + 1;
            if !self.has_first_line {
                self.has_first_line = true;
                if !fields::is_first_line(kind, &self.joined(&new[..from])) {
                    return self.reject(new);
                }
            }
            self.line = LineState::Empty;
            if is_blank {
                is_whole = true;
                break;
            }
        }
        self.line = match (self.line, &new[from..]) {
            (line, b"") => line,
            (LineState::Empty, b"\r") => LineState::OnlyCr,
            _ => LineState::NotEmpty,
        };
        let (first, last) = self.times.unwrap_or((rest.at, rest.at));
        self.times = Some((first.min(rest.at), last.max(rest.at)));
        let new = if is_whole { &new[..from] } else { new };
        rest.skip(new.len() as u64);
        if is_whole {
            return self.finish(new, ReadResult::Complete);
        }
        if self.buffered.len() + new.len() >= MAX_HEAD_LENGTH
            || rest.bytes.is_empty() && rest.uncaptured > 0
        {
            return self.finish(new, ReadResult::Truncated);
        }
        self.buffered.extend(new);
        ReadResult::More
    }

    /// Whether the held bytes and `new` begin a header; `None` if undecided.
    fn recognize(&self, kind: Expected, new: &[u8]) -> Option<bool> {
        fields::is_head_start(kind, &self.prefix(new))
    }

    fn prefix<'b>(&self, new: &'b [u8]) -> Cow<'b, [u8]> {
        let held = &self.buffered[..self.buffered.len().min(MAX_PREFIX_LENGTH)];
        let new = &new[..new.len().min(MAX_PREFIX_LENGTH - held.len())];
        if held.is_empty() { Cow::Borrowed(new) } else { Cow::Owned([held, new].concat()) }
    }

    fn joined<'b>(&self, new: &'b [u8]) -> Cow<'b, [u8]> {
        if self.buffered.is_empty() {
            Cow::Borrowed(new)
        } else {
            Cow::Owned([&*self.buffered, new].concat())
        }
    }

    fn finish<'a>(
        &mut self,
        new: &'a [u8],
        taken: fn(Cow<'a, [u8]>) -> ReadResult<'a>,
    ) -> ReadResult<'a> {
        let bytes = self.joined(new);
        self.buffered = ThinVec::default();
        taken(bytes)
    }

    fn reject<'a>(&mut self, new: &[u8]) -> ReadResult<'a> {
        let is_other = fields::is_other_protocol(&self.prefix(new));
        let held = std::mem::take(&mut self.buffered).len();
        ReadResult::NotHead { buffered: held, is_other_protocol: is_other }
    }
}
