//! Writes fragmented MP4 with one H.264 track, whose segments have exact given lengths and cost a
//! player next to nothing to decode.
//!
//! Boxes are those of ISO/IEC 14496-12 (`moov`, `moof`, `sidx`) and 14496-15 (`avcC`). A segment is
//! `styp`, `free`, `moof`, `mdat`, and begins with an IDR picture. The `free` box pads it to its
//! length; it comes before the samples, so that a player that reads while it receives cannot show
//! them before the segment has arrived.

mod boxes;
mod h264;
#[cfg(test)]
mod tests;

use manyways_unit::{Size, Span};

use self::boxes::{boxed, full_box};
use self::h264::Picture;

/// Units of time per second in all boxes.
pub const TIMESCALE: u32 = 1_000;
/// Interval of the pictures of a [`Track`]: 25 a second. The last one of a segment may be shorter. A
/// browser stalls two pictures before its buffer is empty, so that few of them distort stalls.
pub const FRAME_INTERVAL: Span = Span::from_millis(40);
/// Maximum length of a segment: `sidx` has 31 bits for it.
pub const MAX_SEGMENT: Size = Size::from_bytes((1 << 31) - 1);

/// Flags of a sample (ISO/IEC 14496-12, 8.8.3.1): depends on no other sample, or on others and is
/// not a place to begin.
const SYNC_SAMPLE: u32 = 0x0200_0000;
const OTHER_SAMPLE: u32 = 0x0101_0000;

/// A track of black pictures.
#[derive(Clone, Debug)]
pub struct Track {
    picture: Picture,
    /// Samples with a black picture, for segments with an even and an odd number.
    intra: [Vec<u8>; 2],
    duration: Span,
}

/// A segment: `head`, then as many zeros as `padding`, then `tail`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub head: Vec<u8>,
    pub padding: Size,
    pub tail: Vec<u8>,
}

/// A segment that cannot have the requested length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LengthError {
    #[error("the pictures of the segment need {0}")]
    TooShort(Size),
    #[error("a segment has at most {MAX_SEGMENT}")]
    TooLong,
}

impl Track {
    /// A track of `duration` with pictures of `width` × `height`; an odd number is rounded down,
    /// because the colours have half the resolution.
    pub fn new(width: u16, height: u16, duration: Span) -> Self {
        let picture = Picture::new(width, height);
        Self { picture, intra: [0, 1].map(|parity| picture.intra(parity)), duration }
    }

    /// The codec for a manifest (RFC 6381), such as `avc1.42c01e`.
    pub fn codec(&self) -> String {
        let [profile, constraints, level] = self.picture.profile();
        format!("avc1.{profile:02x}{constraints:02x}{level:02x}")
    }

    /// The initialization segment: `ftyp` and `moov`.
    pub fn init(&self) -> Vec<u8> {
        boxes::init(&self.picture, millis(self.duration))
    }

    /// The segment with this number, from 1, which starts at `start` in the track and has a length
    /// of exactly `length`. Times are rounded to milliseconds.
    ///
    /// # Errors
    /// As [`padding`].
    pub fn segment(
        &self,
        number: u32,
        start: Span,
        duration: Span,
        length: Size,
    ) -> Result<Segment, LengthError> {
        let tail = self.fragment(number, start, duration);
        let padding = padding(length, min_length(&tail))?;
        let mut head = styp();
        // Fits, because the whole segment does.
        head.extend((padding.as_bytes() as u32 + FREE_HEADER as u32).to_be_bytes());
        head.extend(b"free");
        Ok(Segment { head, padding, tail })
    }

    /// Minimum length of a segment of this duration: that of its pictures and boxes.
    pub fn min_segment(&self, duration: Span) -> Size {
        min_length(&self.fragment(1, Span::ZERO, duration))
    }

    /// `moof` and `mdat`.
    fn fragment(&self, number: u32, start: Span, duration: Span) -> Vec<u8> {
        let mut samples = Vec::new();
        let mut data = Vec::new();
        let (mut at, end) = (0, millis(duration));
        while at < end {
            let span = (end - at).min(millis(FRAME_INTERVAL));
            let index = samples.len() as u32;
            let before = data.len();
            let flags = match index {
                0 => {
                    data.extend(&self.intra[number as usize % 2]);
                    SYNC_SAMPLE
                }
                _ => {
                    data.extend(self.picture.repeated(index));
                    OTHER_SAMPLE
                }
            };
            samples.push([span as u32, (data.len() - before) as u32, flags]);
            at += span;
        }
        boxes::fragment(number, millis(start), &samples, &data)
    }
}

/// The padding of a segment of this length whose pictures and boxes need `minimum`.
///
/// # Errors
/// If that is more than `length`, or `length` is more than [`MAX_SEGMENT`].
pub fn padding(length: Size, minimum: Size) -> Result<Size, LengthError> {
    if length > MAX_SEGMENT {
        return Err(LengthError::TooLong);
    }
    let padding = length.as_bytes().checked_sub(minimum.as_bytes());
    padding.map(Size::from_bytes).ok_or(LengthError::TooShort(minimum))
}

/// The box `sidx` (ISO/IEC 14496-12, 8.16.3) of segments with these lengths and durations, which
/// follow it directly. Lengths above [`MAX_SEGMENT`] are cut.
pub fn index(segments: &[(Size, Span)]) -> Vec<u8> {
    let mut content = Vec::new();
    // Reference id, time scale, first time, distance of the first segment, reserved, their number.
    content.extend(1_u32.to_be_bytes());
    content.extend(TIMESCALE.to_be_bytes());
    content.extend([0; 16]);
    content.extend([0; 2]);
    content.extend((segments.len() as u16).to_be_bytes());
    for (length, duration) in segments {
        let length = (*length).min(MAX_SEGMENT).as_bytes() as u32;
        content.extend(length.to_be_bytes());
        content.extend((millis(*duration) as u32).to_be_bytes());
        // Starts with a picture to begin at, of type 1.
        content.extend(0x9000_0000_u32.to_be_bytes());
    }
    full_box(b"sidx", 1, 0, &[&content])
}

const FREE_HEADER: usize = 8;

fn min_length(fragment: &[u8]) -> Size {
    Size::from_bytes((styp().len() + FREE_HEADER + fragment.len()) as u64)
}

fn styp() -> Vec<u8> {
    boxed(b"styp", &[b"msdh", &[0; 4], b"msdh", b"msix"])
}

fn millis(span: Span) -> u64 {
    (span.as_nanos() + 500_000) / 1_000_000
}
