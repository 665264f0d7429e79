//! The bytes of a head, until all of them are there or it is clear that they never will be.

use std::borrow::Cow;

use manyways_unit::Time;

use super::fields;
use super::rest::Rest;
use manyways_unit::ThinVec;

/// The longest head. nginx takes requests up to this, Apache and Node shorter ones.
pub const HEAD_LIMIT: usize = 32 * 1024;
/// Whether a head begins here shows within so many bytes.
const BEGINNING: usize = 48;

/// What a head is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A request, where one is due.
    Request,
    /// A request, where it may as well be something else.
    LikelyRequest,
    /// A response.
    Response,
}

/// A head as far as it is there. No byte is looked at more than a few times, however small the
/// pieces are.
#[derive(Clone, Debug, Default)]
pub(super) struct Assembly {
    held: ThinVec<u8>,
    line: Line,
    /// Its beginning and its first line are those of a head.
    is_begun: bool,
    has_line: bool,
    /// When its first and its last bytes passed.
    pub(super) times: Option<(Time, Time)>,
    /// What it is in was not followed up to here.
    pub(super) is_guess: bool,
    /// Something else was unfinished as it began.
    pub(super) is_behind: bool,
}

/// What the line that is not finished yet has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Line {
    Nothing,
    OnlyReturn,
    /// So begins a head: empty lines before it are skipped.
    #[default]
    Something,
}

/// What a piece adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Taken<'a> {
    /// All of it belongs to the head, of which more is missing.
    More,
    /// Here is the whole head.
    Whole(Cow<'a, [u8]>),
    /// Here is the head's beginning. The rest was not captured, or it is too long.
    Cut(Cow<'a, [u8]>),
    /// It is no head. What was held is gone, and the piece's bytes are still there.
    Not {
        /// How many bytes were held.
        held: usize,
        /// It begins as TLS does, or HTTP/2.
        is_other: bool,
    },
}

impl Assembly {
    /// At a place where a head may begin.
    pub(super) fn guess() -> Self {
        Self { is_guess: true, ..Self::default() }
    }

    /// What is held of it, when nothing more will come.
    pub(super) fn held(&self) -> &[u8] {
        &self.held
    }

    /// Goes on with what is left of a piece.
    pub(super) fn take<'a>(&mut self, kind: Kind, rest: &mut Rest<'a>) -> Taken<'a> {
        // RFC 9112, 2.2: an empty line before a request is to be ignored.
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

    /// Whether what is held begins a head together with what is new.
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
