//! Files of the ISO base media format (ISO/IEC 14496-12), or MP4: reading of their boxes and indexes,
//! and writing of films of black pictures.

mod read;
mod write;

pub use self::read::{
    IndexedSegment, MAX_BOXES, Mp4Box, Mp4Error, SegmentIndex, boxes, segment_index,
};
pub use self::write::{
    FRAME_INTERVAL, LengthError, MAX_SEGMENT, Segment, TIMESCALE, Track, index, padding,
};
