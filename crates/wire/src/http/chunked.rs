//! A chunked body (RFC 9112, 7.1), of which only lengths are kept.

use super::assembly::HEAD_LIMIT;
use super::rest::Rest;

/// Maximum length of the line before a chunk, including extensions. The size has at most 15 digits.
const LINE_LIMIT: u32 = 4096;
const DIGIT_LIMIT: u8 = 15;

/// Position in a chunked body.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chunked {
    part: Part,
    /// Chunk size as read so far, then the remaining bytes of the chunk.
    size: u64,
    /// Number of bytes of the current line, or of the trailer section.
    line: u32,
}

#[derive(Clone, Copy, Debug)]
enum Part {
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

impl Default for Part {
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
pub(super) struct Took {
    /// All bytes of the body.
    pub(super) length: u64,
    /// Bytes without chunk framing.
    pub(super) content: u64,
}

impl Chunked {
    /// Continues with the rest of a piece. After [`Step::Lost`], the invalid bytes are not
    /// consumed.
    pub(super) fn take(&mut self, rest: &mut Rest<'_>) -> (Step, Took) {
        let mut took = Took::default();
        while !rest.is_empty() {
            if let Part::Data = self.part {
                let length = rest.skip(self.size);
                self.size -= length;
                took.length += length;
                took.content += length;
                if self.size == 0 {
                    self.part = Part::DataEnd;
                    self.line = 0;
                }
                continue;
            }
            let Some(byte) = rest.bytes.first() else { return (Step::Lost, took) };
            let step = self.framing(*byte);
            if step == Step::Lost {
                return (Step::Lost, took);
            }
            took.length += rest.skip(1);
            if step == Step::Done {
                return (Step::Done, took);
            }
        }
        (Step::More, took)
    }

    fn framing(&mut self, byte: u8) -> Step {
        self.line += 1;
        let limit = match self.part {
            Part::Trailer { .. } => HEAD_LIMIT as u32,
            _ => LINE_LIMIT,
        };
        if self.line > limit {
            return Step::Lost;
        }
        match (self.part, byte) {
            (Part::Size(0), b'\r' | b'\n' | b' ' | b'\t' | b';') => return Step::Lost,
            (Part::Size(_) | Part::Extension, b'\n') => {
                let is_last = self.size == 0;
                self.part = if is_last { Part::Trailer { is_empty: true } } else { Part::Data };
                self.line = 0;
            }
            (Part::Size(_), b'\r' | b' ' | b'\t' | b';') => self.part = Part::Extension,
            (Part::Size(digits), byte) => {
                let Some(digit) = char::from(byte).to_digit(16).filter(|_| digits < DIGIT_LIMIT)
                else {
                    return Step::Lost;
                };
                self.size = self.size << 4 | u64::from(digit);
                self.part = Part::Size(digits + 1);
            }
            (Part::DataEnd, b'\r') if self.line == 1 => {}
            (Part::DataEnd, b'\n') => *self = Self::default(),
            (Part::DataEnd, _) => return Step::Lost,
            (Part::Trailer { is_empty: true }, b'\n') => return Step::Done,
            (Part::Trailer { .. }, b'\n') => self.part = Part::Trailer { is_empty: true },
            (Part::Trailer { .. }, b'\r') | (Part::Extension | Part::Data, _) => {}
            (Part::Trailer { .. }, _) => self.part = Part::Trailer { is_empty: false },
        }
        Step::More
    }
}

#[cfg(test)]
mod tests {
    use manyways_unit::Time;

    use super::*;

    /// Reads the bytes in pieces of `most`. Returns the last step, the number of bytes not
    /// consumed, and the length of the content.
    fn follow(bytes: &[u8], most: usize) -> (Step, usize, u64) {
        let (mut chunked, mut taken, mut content) = (Chunked::default(), 0, 0);
        for part in bytes.chunks(most) {
            let mut rest = Rest { at: Time::ZERO, bytes: part, unknown: 0 };
            let (step, took) = chunked.take(&mut rest);
            taken += took.length as usize;
            content += took.content;
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
            for most in 1..=body.len().min(30) {
                assert_eq!(follow(body.as_bytes(), most), expected, "{body:.30} by {most}");
            }
        }
    }

    #[test]
    fn bytes_may_be_unknown_inside_a_chunk_and_nowhere_else() {
        let mut chunked = Chunked::default();
        let mut rest = Rest { at: Time::ZERO, bytes: b"100\r\nab", unknown: 200 };
        assert_eq!(chunked.take(&mut rest).0, Step::More);
        let mut rest = Rest { at: Time::ZERO, bytes: b"", unknown: 60 };
        let (step, took) = chunked.take(&mut rest);
        assert_eq!((step, took.content, rest.unknown), (Step::Lost, 54, 6));
    }
}
