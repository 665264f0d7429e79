//! Files of the ISO base media format (ISO/IEC 14496-12): their boxes, and the index of segments.
//!
//! [`boxes`] lists the boxes at one level, [`segment_index`] reads the first `sidx`. The beginning of
//! a file suffices, if it contains the index. Nothing is decoded.

use std::ops::Range;

/// Boxes at one level; more are an error.
pub const MAX_BOXES: usize = 100_000;

/// A box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mp4Box<'b> {
    /// Four letters, for example `sidx`.
    pub kind: [u8; 4],
    /// Offset of the header.
    pub offset: u64,
    /// With the header; `None` if the box extends to the end of the file.
    pub length: Option<u64>,
    /// Available bytes after the header.
    pub content: &'b [u8],
}

/// The index of the segments of a file (`sidx`, 8.16.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentIndex {
    /// Ticks in a second.
    pub timescale: u32,
    /// Presentation time of the first segment, in ticks.
    pub earliest_time: u64,
    /// Offset of the first segment, from the first of the bytes that were read.
    pub first_offset: u64,
    pub segments: Vec<IndexedSegment>,
}

/// A segment in an index. It begins where the one before it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexedSegment {
    /// Bytes.
    pub length: u32,
    /// Ticks.
    pub duration: u32,
}

/// Reasons why boxes or an index cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Mp4Error {
    #[error("the box at byte {offset} states a length that is less than that of its header")]
    BoxLength { offset: u64 },
    #[error("the header of the box at byte {offset} is cut off")]
    CutOffHeader { offset: u64 },
    #[error("there are more than {MAX_BOXES} boxes")]
    TooManyBoxes,
    #[error("there is no index of segments (sidx) among the boxes")]
    NoIndex,
    #[error("the index of segments (sidx) is cut off after {available} bytes")]
    CutOffIndex { available: usize },
    #[error("the index of segments has version {0}, and only 0 and 1 are known")]
    IndexVersion(u8),
    #[error("the index of segments has no ticks in a second")]
    NoTimescale,
    /// Type 1 of a reference.
    #[error("entry {number} of the index refers to another index, which is not supported")]
    Hierarchical { number: usize },
    #[error("the index of segments refers to bytes beyond any file")]
    Overflow,
}

/// Returns the boxes at one level. The last one may be cut off in its content; after an error, nothing
/// follows. For the boxes within one, pass its content; their offsets begin at 0 again.
pub fn boxes(bytes: &[u8]) -> impl Iterator<Item = Result<Mp4Box<'_>, Mp4Error>> {
    let mut rest = Some(bytes);
    let mut count = 0;
    std::iter::from_fn(move || {
        let available = rest.take()?;
        if available.is_empty() {
            return None;
        }
        count += 1;
        if count > MAX_BOXES {
            return Some(Err(Mp4Error::TooManyBoxes));
        }
        let offset = (bytes.len() - available.len()) as u64;
        let read = read_box(available, offset);
        if let Ok(one) = &read {
            let length = one.length.and_then(|length| usize::try_from(length).ok());
            rest = length.and_then(|length| available.get(length..));
        }
        Some(read)
    })
}

fn read_box(bytes: &[u8], offset: u64) -> Result<Mp4Box<'_>, Mp4Error> {
    let mut reader = Reader(bytes);
    let cut_off = Mp4Error::CutOffHeader { offset };
    let short = reader.u32().ok_or(cut_off)?;
    let kind = reader.array().ok_or(cut_off)?;
    let length = match short {
        0 => None,
        1 => Some(reader.u64().ok_or(cut_off)?),
        short => Some(u64::from(short)),
    };
    let header = bytes.len() - reader.0.len();
    let content = match length {
        None => reader.0,
        Some(length) => {
            let length = length.checked_sub(header as u64).ok_or(Mp4Error::BoxLength { offset })?;
            let end = usize::try_from(length).unwrap_or(usize::MAX).min(reader.0.len());
            &reader.0[..end]
        }
    };
    Ok(Mp4Box { kind, offset, length, content })
}

/// Reads the first index of segments among the boxes of a file, or of a part of it.
pub fn segment_index(bytes: &[u8]) -> Result<SegmentIndex, Mp4Error> {
    for one in boxes(bytes) {
        let one = one?;
        if one.kind == *b"sidx" {
            let end = one.length.map(|length| one.offset.checked_add(length));
            let end = end.unwrap_or(Some(bytes.len() as u64)).ok_or(Mp4Error::Overflow)?;
            return read_index(one.content, end);
        }
    }
    Err(Mp4Error::NoIndex)
}

/// `end` is the offset after the box, from which the offset of the first segment counts.
fn read_index(content: &[u8], end: u64) -> Result<SegmentIndex, Mp4Error> {
    let cut_off = Mp4Error::CutOffIndex { available: content.len() };
    let mut reader = Reader(content);
    let version = reader.u32().ok_or(cut_off)?.to_be_bytes()[0];
    let _reference_id = reader.u32().ok_or(cut_off)?;
    let timescale = reader.u32().ok_or(cut_off)?;
    let mut time_or_offset = || match version {
        0 => reader.u32().map(u64::from).ok_or(cut_off),
        1 => reader.u64().ok_or(cut_off),
        other => Err(Mp4Error::IndexVersion(other)),
    };
    let (earliest_time, first_offset) = (time_or_offset()?, time_or_offset()?);
    if timescale == 0 {
        return Err(Mp4Error::NoTimescale);
    }
    // After 16 reserved bits.
    let count = reader.u32().ok_or(cut_off)? & 0xffff;
    let first_offset = end.checked_add(first_offset).ok_or(Mp4Error::Overflow)?;
    let mut segments = Vec::new();
    for number in 1..=count as usize {
        let reference = reader.u32().ok_or(cut_off)?;
        let duration = reader.u32().ok_or(cut_off)?;
        let _access_point = reader.u32().ok_or(cut_off)?;
        if reference >> 31 == 1 {
            return Err(Mp4Error::Hierarchical { number });
        }
        segments.push(IndexedSegment { length: reference, duration });
    }
    Ok(SegmentIndex { timescale, earliest_time, first_offset, segments })
}

impl SegmentIndex {
    /// Returns the bytes and the ticks, from the first segment, of each segment. Their ends do not
    /// overflow, except that offsets stop at the greatest number.
    pub fn ranges(&self) -> impl Iterator<Item = (Range<u64>, Range<u64>)> {
        let (mut byte, mut tick) = (self.first_offset, 0u64);
        self.segments.iter().map(move |segment| {
            let (first_byte, first_tick) = (byte, tick);
            byte = byte.saturating_add(u64::from(segment.length));
            // At most 65,535 durations of 32 bits.
            tick += u64::from(segment.duration);
            (first_byte..byte, first_tick..tick)
        })
    }
}

/// Reads numbers in network byte order.
struct Reader<'b>(&'b [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boxed(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
        let length = (content.len() as u32 + 8).to_be_bytes();
        [&length[..], kind, content].concat()
    }

    /// An index of two segments: 1,000 bytes in 3 ticks, 500 bytes in 2 ticks.
    fn index(version: u8, first: u32) -> Vec<u8> {
        let mut content = vec![version, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 10];
        for number in [7u32, 16] {
            content.extend([0u8; 4].repeat(usize::from(version)));
            content.extend(number.to_be_bytes());
        }
        content.extend([0, 0, 0, 2]);
        for (reference, duration) in [(first, 3u32), (500, 2)] {
            content.extend(reference.to_be_bytes());
            content.extend(duration.to_be_bytes());
            content.extend([0x90, 0, 0, 0]);
        }
        content
    }

    #[test]
    fn both_versions_of_the_index_are_read() {
        for version in [0, 1] {
            let before = boxed(b"styp", b"msdh");
            let file = [before.clone(), boxed(b"sidx", &index(version, 1000))].concat();
            let read = segment_index(&[&file[..], b"rest"].concat()).unwrap();
            assert_eq!((read.timescale, read.earliest_time), (10, 7));
            let first = file.len() as u64 + 16;
            assert_eq!(read.first_offset, first);
            assert_eq!(
                read.ranges().collect::<Vec<_>>(),
                [(first..first + 1000, 0..3), (first + 1000..first + 1500, 3..5)]
            );
        }
    }

    #[test]
    fn broken_indexes_are_refused() {
        let error = |content: &[u8]| segment_index(&boxed(b"sidx", content)).unwrap_err();
        assert_eq!(error(&index(2, 1)), Mp4Error::IndexVersion(2));
        assert_eq!(error(&index(0, 1 << 31)), Mp4Error::Hierarchical { number: 1 });
        let mut still = index(0, 1);
        still[8..12].fill(0);
        assert_eq!(error(&still), Mp4Error::NoTimescale);
        let whole = index(1, 1);
        for length in 0..whole.len() {
            assert_eq!(error(&whole[..length]), Mp4Error::CutOffIndex { available: length });
        }
        assert_eq!(segment_index(b""), Err(Mp4Error::NoIndex));
        assert_eq!(segment_index(&boxed(b"moov", b"")), Err(Mp4Error::NoIndex));
    }

    #[test]
    fn boxes_have_three_kinds_of_length() {
        let long = [&[0, 0, 0, 1][..], b"mdat", &17u64.to_be_bytes(), b"x"].concat();
        let open = [&[0; 4][..], b"free", b"yz"].concat();
        let file = [boxed(b"ftyp", b"ab"), long, open].concat();
        let read: Vec<_> = boxes(&file).map(Result::unwrap).collect();
        let seen: Vec<_> =
            read.iter().map(|one| (&one.kind, one.offset, one.length, one.content)).collect();
        assert_eq!(
            seen,
            [
                (b"ftyp", 0, Some(10), &b"ab"[..]),
                (b"mdat", 10, Some(17), b"x"),
                (b"free", 27, None, b"yz")
            ]
        );
        // A box may be longer than the available bytes, and then is the last one.
        let cut: Vec<_> = boxes(&file[..9]).collect();
        assert_eq!(cut.len(), 1);
        assert_eq!(cut[0].unwrap().content, b"a");
    }

    #[test]
    fn broken_boxes_end_the_list() {
        fn all(bytes: &[u8]) -> Vec<Result<Mp4Box<'_>, Mp4Error>> {
            boxes(bytes).collect()
        }
        for length in [2, 7] {
            let file = [&[0, 0, 0, length][..], b"free"].concat();
            assert_eq!(all(&file), [Err(Mp4Error::BoxLength { offset: 0 })]);
        }
        let short = [boxed(b"free", b""), vec![0; 7]].concat();
        assert_eq!(all(&short)[1..], [Err(Mp4Error::CutOffHeader { offset: 8 })]);
        let endless = [&[0, 0, 0, 1][..], b"mdat", &u64::MAX.to_be_bytes()].concat();
        assert_eq!(all(&endless).len(), 1);
        let many = boxed(b"free", b"").repeat(MAX_BOXES + 1);
        let last = boxes(&many).last();
        assert_eq!(last, Some(Err(Mp4Error::TooManyBoxes)));
    }
}
