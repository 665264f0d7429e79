//! Collects the bytes of a header until the header is complete or can no longer become complete.

use std::borrow::Cow;

use manyways_unit::Time;

use super::fields;
use super::rest::Rest;
use manyways_unit::ThinVec;

/// Maximum length of a header. nginx accepts requests up to this length; the limits of Apache and
/// Node are lower.
pub const HEAD_LIMIT: usize = 32 * 1024;
/// Number of bytes within which the beginning of a header is recognized.
const BEGINNING: usize = 48;

/// The expected message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A request, at a position where a request must begin.
    Request,
    /// A request, at a position where other data is possible.
    LikelyRequest,
    Response,
}

/// A header that is incomplete. Each byte is read only a few times, however small the pieces are.
#[derive(Clone, Debug, Default)]
pub(super) struct Assembly {
    held: ThinVec<u8>,
    line: Line,
    /// Whether the beginning and the first line are those of a header.
    is_begun: bool,
    has_line: bool,
    /// Times of the first and the last bytes.
    pub(super) times: Option<(Time, Time)>,
    /// Whether the stream was not followed up to this point.
    pub(super) is_guess: bool,
    /// Whether another message was unfinished when this header began.
    pub(super) is_behind: bool,
}

/// Content of the current, unfinished line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Line {
    Nothing,
    OnlyReturn,
    /// The initial state: empty lines before a header are skipped.
    #[default]
    Something,
}

/// Result of adding a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Taken<'a> {
    /// The whole piece belongs to the header, which is still incomplete.
    More,
    /// The complete header.
    Whole(Cow<'a, [u8]>),
    /// The beginning of the header. The rest was not captured, or the header is too long.
    Cut(Cow<'a, [u8]>),
    /// Not a header. Held bytes are discarded; the bytes of the piece are not consumed.
    Not {
        /// Number of discarded bytes.
        held: usize,
        /// Whether the bytes begin like TLS or HTTP/2.
        is_other: bool,
    },
}

impl Assembly {
    /// Creates an assembly at a position where a header may begin.
    pub(super) fn guess() -> Self {
        Self { is_guess: true, ..Self::default() }
    }

    /// The collected bytes, when no more will arrive.
    pub(super) fn held(&self) -> &[u8] {
        &self.held
    }

    /// Continues with the rest of a piece.
    pub(super) fn take<'a>(&mut self, kind: Kind, rest: &mut Rest<'a>) -> Taken<'a> {
        // Empty lines before a request are ignored (RFC 9112, 2.2).
        if self.held.is_empty() && !self.is_guess {
            let is_line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
            let empty = rest.bytes.iter().take_while(|byte| is_line_end(byte)).count();
            rest.skip(empty as u64);
        }
        if rest.bytes.is_empty() {
            return if rest.unknown == 0 { Taken::More } else { self.end(&[], Taken::Cut) };
        }
        let room = HEAD_LIMIT - self.held.len();
        let new = &rest.bytes[..rest.bytes.len().min(room)];
        if !self.is_begun {
            match self.begins(kind, new) {
                Some(true) => self.is_begun = true,
                Some(false) => return self.reject(new),
                None => {}
            }
        }
        let (mut from, mut is_whole) = (0, false);
        while let Some(length) = new[from..].iter().position(|byte| *byte == b'\n') {
            let line = &new[from..from + length];
            let is_blank = match self.line {
                Line::Nothing => matches!(line, b"" | b"\r"),
                Line::OnlyReturn => line.is_empty(),
                Line::Something => false,
            };
            from += length + 1;
            if !self.has_line {
                self.has_line = true;
                if !fields::is_first_line(kind, &self.with(&new[..from])) {
                    return self.reject(new);
                }
            }
            self.line = Line::Nothing;
            if is_blank {
                is_whole = true;
                break;
            }
        }
        self.line = match (self.line, &new[from..]) {
            (line, b"") => line,
            (Line::Nothing, b"\r") => Line::OnlyReturn,
            _ => Line::Something,
        };
        let (first, last) = self.times.unwrap_or((rest.at, rest.at));
        self.times = Some((first.min(rest.at), last.max(rest.at)));
        let new = if is_whole { &new[..from] } else { new };
        rest.skip(new.len() as u64);
        if is_whole {
            return self.end(new, Taken::Whole);
        }
        if self.held.len() + new.len() >= HEAD_LIMIT || rest.bytes.is_empty() && rest.unknown > 0 {
            return self.end(new, Taken::Cut);
        }
        self.held.extend(new);
        Taken::More
    }

    /// Whether the held bytes and `new` begin a header; `None` if undecided.
    fn begins(&self, kind: Kind, new: &[u8]) -> Option<bool> {
        fields::begins(kind, &self.beginning(new))
    }

    fn beginning<'b>(&self, new: &'b [u8]) -> Cow<'b, [u8]> {
        let held = &self.held[..self.held.len().min(BEGINNING)];
        let new = &new[..new.len().min(BEGINNING - held.len())];
        if held.is_empty() { Cow::Borrowed(new) } else { Cow::Owned([held, new].concat()) }
    }

    fn with<'b>(&self, new: &'b [u8]) -> Cow<'b, [u8]> {
        if self.held.is_empty() {
            Cow::Borrowed(new)
        } else {
            Cow::Owned([&*self.held, new].concat())
        }
    }

    fn end<'a>(&mut self, new: &'a [u8], taken: fn(Cow<'a, [u8]>) -> Taken<'a>) -> Taken<'a> {
        let bytes = self.with(new);
        self.held = ThinVec::default();
        taken(bytes)
    }

    fn reject<'a>(&mut self, new: &[u8]) -> Taken<'a> {
        let is_other = fields::is_other(&self.beginning(new));
        let held = std::mem::take(&mut self.held).len();
        Taken::Not { held, is_other }
    }
}
