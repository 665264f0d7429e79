//! A chunked body (RFC 9112, 7.1), of which only lengths are kept.

use super::cursor::Cursor;
use super::head_reader::MAX_HEAD_LENGTH;

/// Maximum length of the line before a chunk, including extensions. The size has at most 15 digits.
const MAX_LINE_LENGTH: u32 = 4096;
const MAX_SIZE_DIGITS: u8 = 15;

/// Position in a chunked body.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chunked {
    state: State,
    /// Chunk size as read so far, then the remaining bytes of the chunk.
    size: u64,
    /// Number of bytes of the current line, or of the trailer section.
    line_length: u32,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The size of a chunk, with the number of digits read.
    Size(u8),
    /// The rest of the line after the size.
    Extension,
    Data,
    /// The end of line after a chunk.
    DataEnd,
    /// Trailer fields, up to an empty line.
    Trailer {
        is_empty: bool,
    },
}

impl Default for State {
    fn default() -> Self {
        Self::Size(0)
    }
}

/// State of the body after a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    More,
    /// The body is complete.
    Done,
    /// The position of the next chunk is unknown: the bytes of its size are missing or invalid.
    Lost,
}

/// Bytes of a piece that belong to the body.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Consumed {
    /// All bytes of the body.
    pub(super) length: u64,
    /// Bytes without chunk framing.
    pub(super) content: u64,
}

impl Chunked {
    /// Continues with the rest of a piece. After [`Step::Lost`], the invalid bytes are not
    /// consumed.
    pub(super) fn read(&mut self, rest: &mut Cursor<'_>) -> (Step, Consumed) {
        let mut consumed = Consumed::default();
        while !rest.is_empty() {
            if let State::Data = self.state {
                let length = rest.skip(self.size);
                self.size -= length;
                consumed.length += length;
                consumed.content += length;
                if self.size == 0 {
                    self.state = State::DataEnd;
                    self.line_length = 0;
                }
                continue;
            }
            let Some(byte) = rest.bytes.first() else { return (Step::Lost, consumed) };
            let step = self.read_framing(*byte);
            if step == Step::Lost {
                return (Step::Lost, consumed);
            }
            consumed.length += rest.skip(1);
            if step == Step::Done {
                return (Step::Done, consumed);
            }
        }
        (Step::More, consumed)
    }

    fn read_framing(&mut self, byte: u8) -> Step {
        self.line_length += 1;
        let limit = match self.state {
            State::Trailer { .. } => MAX_HEAD_LENGTH as u32,
            _ => MAX_LINE_LENGTH,
        };
        if self.line_length > limit {
            return Step::Lost;
        }
        match (self.state, byte) {
            (State::Size(0), b'\r' | b'\n' | b' ' | b'\t' | b';') => return Step::Lost,
            (State::Size(_) | State::Extension, b'\n') => {
                let is_last = self.size == 0;
                self.state = if is_last { State::Trailer { is_empty: true } } else { State::Data };
                self.line_length = 0;
            }
            (State::Size(_), b'\r' | b' ' | b'\t' | b';') => self.state = State::Extension,
            (State::Size(digits), byte) => {
                let Some(digit) =
                    char::from(byte).to_digit(16).filter(|_| digits < MAX_SIZE_DIGITS)
                else {
                    return Step::Lost;
                };
                self.size = self.size << 4 | u64::from(digit);
                self.state = State::Size(digits + 1);
            }
            (State::DataEnd, b'\r') if self.line_length == 1 => {}
            (State::DataEnd, b'\n') => *self = Self::default(),
            (State::DataEnd, _) => return Step::Lost,
            (State::Trailer { is_empty: true }, b'\n') => return Step::Done,
            (State::Trailer { .. }, b'\n') => self.state = State::Trailer { is_empty: true },
            (State::Trailer { .. }, b'\r') | (State::Extension | State::Data, _) => {}
            (State::Trailer { .. }, _) => self.state = State::Trailer { is_empty: false },
        }
        Step::More
    }
}

#[cfg(test)]
mod tests {
    use manyways_unit::Time;

    use super::*;

    /// Reads the bytes in pieces of `max`. Returns the last step, the number of bytes not
    /// consumed, and the length of the content.
    fn follow(bytes: &[u8], max: usize) -> (Step, usize, u64) {
        let (mut chunked, mut taken, mut content) = (Chunked::default(), 0, 0);
        for part in bytes.chunks(max) {
            let mut rest = Cursor { at: Time::ZERO, bytes: part, uncaptured: 0 };
            let (step, consumed) = chunked.read(&mut rest);
            taken += consumed.length as usize;
            content += consumed.content;
            if step != Step::More {
                return (step, bytes.len() - taken, content);
            }
        }
        (Step::More, bytes.len() - taken, content)
    }

    #[test]
    fn an_empty_chunk_ends_the_body_in_pieces_of_any_size() {
        let digits = "00000000000000a\r\n0123456789\r\n0\r\n\r\n";
        let extended = format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(4092));
        for (body, expected) in [
            ("0\r\n\r\n", (Step::Done, 0, 0)),
            ("3\r\nabc\r\nA;x=\"y\" \r\n0\r\n\r\n45678\r\n0\r\n\r\nnext", (Step::Done, 4, 13)),
            ("3\nabc\n0\n\n", (Step::Done, 0, 3)),
            ("1\r\na\r\n0\r\nA: b\r\nC: d\r\n\r\n", (Step::Done, 0, 1)),
            ("3\r\nab", (Step::More, 0, 2)),
            ("3\r\nabcd", (Step::Lost, 1, 3)),
            ("3\r\nabc\r\r\n", (Step::Lost, 2, 3)),
            ("x", (Step::Lost, 1, 0)),
            ("\r\n", (Step::Lost, 2, 0)),
            ("-1\r\n", (Step::Lost, 4, 0)),
            (digits, (Step::Done, 0, 10)),
            ("0000000000000001\r\n", (Step::Lost, 3, 0)),
            (&extended, (Step::Done, 0, 1)),
            (&extended.replace("xx\r", "xxx\r"), (Step::Lost, 9, 0)),
        ] {
            for max in 1..=body.len().min(30) {
                assert_eq!(follow(body.as_bytes(), max), expected, "{body:.30} by {max}");
            }
        }
    }

    #[test]
    fn bytes_may_be_unknown_inside_a_chunk_and_nowhere_else() {
        let mut chunked = Chunked::default();
        let mut rest = Cursor { at: Time::ZERO, bytes: b"100\r\nab", uncaptured: 200 };
        assert_eq!(chunked.read(&mut rest).0, Step::More);
        let mut rest = Cursor { at: Time::ZERO, bytes: b"", uncaptured: 60 };
        let (step, consumed) = chunked.read(&mut rest);
        assert_eq!((step, consumed.content, rest.uncaptured), (Step::Lost, 54, 6));
    }
}
