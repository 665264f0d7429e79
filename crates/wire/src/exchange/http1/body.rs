//! Bodies.

use super::head::{self, Framing, MAX_HEAD_LENGTH};
use crate::exchange::Trailers;

/// Maximum length of the line before a chunk, with extensions. Its size has at most 15 digits.
const MAX_LINE_LENGTH: usize = 16 * 1024;
const MAX_SIZE_DIGITS: u8 = 15;

/// Position in a body.
#[derive(Debug)]
pub(super) enum Body {
    /// This number of bytes remains: at least 1.
    Remaining(u64),
    Chunked(Chunk),
    UntilClose,
}

/// Position in a chunked body (RFC 9112, 7.1).
#[derive(Debug)]
pub(super) enum Chunk {
    /// In the line with the size of a chunk.
    Line { size: u64, digits: u8, is_extension: bool, length: usize },
    /// This number of bytes of the chunk remains: at least 1.
    Data(u64),
    /// In the end of the line after a chunk.
    DataEnd { has_cr: bool },
    /// In the trailer section.
    Trailers(Vec<u8>),
}

/// A part of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// Bytes of the framing.
    Framing,
    Content {
        bytes: &'a [u8],
        is_last: bool,
    },
    End(Trailers),
}

impl Default for Chunk {
    fn default() -> Self {
        Self::Line { size: 0, digits: 0, is_extension: false, length: 0 }
    }
}

impl Body {
    /// Returns `None` for an empty body.
    pub(super) fn new(framing: Framing) -> Option<Self> {
        match framing {
            Framing::None | Framing::Length(0) => None,
            Framing::Length(length) => Some(Self::Remaining(length)),
            Framing::Chunked => Some(Self::Chunked(Chunk::default())),
            Framing::UntilClose => Some(Self::UntilClose),
        }
    }

    /// Reads bytes, of which there is at least one. Returns how many, and their part.
    pub(super) fn read<'a>(&mut self, bytes: &'a [u8]) -> Result<(usize, Part<'a>), &'static str> {
        match self {
            Self::UntilClose => Ok((bytes.len(), Part::Content { bytes, is_last: false })),
            Self::Remaining(left) => {
                let content = up_to(bytes, *left);
                *left -= content.len() as u64;
                Ok((content.len(), Part::Content { bytes: content, is_last: *left == 0 }))
            }
            Self::Chunked(chunk) => chunk.read(bytes),
        }
    }
}

/// Returns the first `max` bytes.
fn up_to(bytes: &[u8], max: u64) -> &[u8] {
    let length = usize::try_from(max).unwrap_or(usize::MAX).min(bytes.len());
    bytes.get(..length).unwrap_or(bytes)
}

impl Chunk {
    fn read<'a>(&mut self, bytes: &'a [u8]) -> Result<(usize, Part<'a>), &'static str> {
        match self {
            Self::Data(left) => {
                let content = up_to(bytes, *left);
                *left -= content.len() as u64;
                if *left == 0 {
                    *self = Self::DataEnd { has_cr: false };
                }
                Ok((content.len(), Part::Content { bytes: content, is_last: false }))
            }
            Self::Trailers(section) => {
                let room = MAX_HEAD_LENGTH.saturating_sub(section.len());
                for (index, byte) in bytes.iter().take(room).enumerate() {
                    section.push(*byte);
                    if *byte == b'\n' && is_complete(section) {
                        return Ok((index + 1, Part::End(head::trailers(section)?)));
                    }
                }
                match bytes.len() >= room {
                    true => Err("trailers that are too long"),
                    false => Ok((bytes.len(), Part::Framing)),
                }
            }
            Self::Line { .. } | Self::DataEnd { .. } => {
                for (index, byte) in bytes.iter().enumerate() {
                    self.read_framing(*byte)?;
                    if matches!(self, Self::Data(_) | Self::Trailers(_)) {
                        return Ok((index + 1, Part::Framing));
                    }
                }
                Ok((bytes.len(), Part::Framing))
            }
        }
    }

    /// Reads a byte of the lines around a chunk.
    fn read_framing(&mut self, byte: u8) -> Result<(), &'static str> {
        const WRONG: &str = "a chunk without a valid size";
        match self {
            Self::Line { size, digits, is_extension, length } => {
                *length += 1;
                match byte {
                    _ if *length > MAX_LINE_LENGTH => return Err(WRONG),
                    b'\n' if *digits == 0 => return Err(WRONG),
                    b'\n' if *size == 0 => *self = Self::Trailers(Vec::new()),
                    b'\n' => *self = Self::Data(*size),
                    _ if *is_extension => {}
                    b'\r' | b';' | b' ' | b'\t' if *digits > 0 => *is_extension = true,
                    _ => {
                        let digit = char::from(byte).to_digit(16).ok_or(WRONG)?;
                        if *digits >= MAX_SIZE_DIGITS {
                            return Err(WRONG);
                        }
                        *size = *size << 4 | u64::from(digit);
                        *digits += 1;
                    }
                }
            }
            Self::DataEnd { has_cr } => match byte {
                b'\r' if !*has_cr => *has_cr = true,
                b'\n' => *self = Self::default(),
                _ => return Err("a chunk that is longer than its size"),
            },
            Self::Data(_) | Self::Trailers(_) => {}
        }
        Ok(())
    }
}

/// Whether a trailer section, which ends with a line feed, ends with an empty line.
fn is_complete(section: &[u8]) -> bool {
    matches!(section, b"\n" | b"\r\n" | [.., b'\n', b'\n'] | [.., b'\n', b'\r', b'\n'])
}
