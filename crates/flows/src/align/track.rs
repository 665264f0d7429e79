//! One direction of a stream at one point.

use std::net::SocketAddr;

use manyways_unit::Time;

use super::ChainDirection;
use super::anchor::{ANCHOR_LEN, Anchors};
use manyways_wire::stream::Piece;
use manyways_wire::tcp::Seq;

/// Maximum number of stored pieces of a stream; above it, every second one is stored, then every
/// fourth.
pub const MAX_TRACK_PIECES: usize = 1 << 18;
/// Maximum number of stored retransmissions; further bytes count as sent once.
pub const MAX_RETRANSMISSIONS: usize = 1 << 16;
/// Maximum length of a stream in bytes; later bytes are ignored.
pub const MAX_TRACK_LEN: u64 = 1 << 48;

/// The bytes of a stream and their times.
#[derive(Clone, Debug)]
pub struct Track {
    direction: ChainDirection,
    name: String,
    source: Option<SequenceSource>,
    length: u64,
    runs: Vec<Run>,
    /// One of this many pieces is stored.
    stride: u64,
    pieces: u64,
    retransmitted: Vec<(u64, u64)>,
    anchors: Anchors,
}

/// Source of a track's sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceSource {
    /// Sender of the packets.
    pub sender: SocketAddr,
    /// Receiver of the packets.
    pub receiver: SocketAddr,
    pub content: TrackContent,
    /// Sequence number of the track's first byte.
    pub first_seq: Seq,
    /// Initial sequence number. `None` if the SYN was not captured.
    pub isn: Option<Seq>,
    /// Initial sequence number of the other direction.
    pub peer_isn: Option<Seq>,
}

/// Content of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrackContent {
    /// The payload of packets.
    Bytes,
    /// The bytes of the other direction that packets acknowledge: a piece has the bytes that an ACK
    /// acknowledges first. In a download, only ACKs go up, and the clock estimate needs both
    /// directions.
    Acknowledgements,
}

/// Contiguous bytes that passed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub begin: u64,
    pub end: u64,
    pub at: Time,
    /// Number of bytes whose content is known.
    pub known_bytes: u64,
}

impl Track {
    /// Creates an empty track. The name is that of a [`super::ProxyLog`].
    pub fn new(
        direction: ChainDirection,
        name: impl Into<String>,
        origin: Option<SequenceSource>,
    ) -> Self {
        Self {
            direction,
            name: name.into(),
            source: origin,
            length: 0,
            runs: Vec::new(),
            stride: 1,
            pieces: 0,
            retransmitted: Vec::new(),
            anchors: Anchors::default(),
        }
    }

    /// Adds the next bytes in stream order, with the time of their first copy, even if it was
    /// reordered.
    pub fn push(&mut self, piece: Piece<'_>) {
        let begin = self.length;
        let end = begin.saturating_add(piece.length).min(MAX_TRACK_LEN);
        if begin == end {
            return;
        }
        self.length = end;
        let room = usize::try_from(end - begin).unwrap_or(usize::MAX);
        let bytes = piece.bytes.get(..piece.bytes.len().min(room)).unwrap_or_default();
        self.anchors.push(begin, bytes);
        if bytes.len() < room {
            self.anchors.skip();
        }
        self.push_run(Run { begin, end, at: piece.at, known_bytes: bytes.len() as u64 });
    }

    /// Skips bytes that were not captured, so that their time is unknown.
    pub fn skip(&mut self, length: u64) {
        self.length = self.length.saturating_add(length).min(MAX_TRACK_LEN);
        self.anchors.skip();
    }

    /// Records a retransmission of bytes from `offset` on.
    pub fn on_retransmission(&mut self, offset: u64, length: u64) {
        if self.retransmitted.len() < MAX_RETRANSMISSIONS && length > 0 {
            self.retransmitted.push((offset, offset.saturating_add(length)));
        }
    }

    pub fn direction(&self) -> ChainDirection {
        self.direction
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// `None` for Bluetooth.
    pub fn source(&self) -> Option<&SequenceSource> {
        self.source.as_ref()
    }

    /// Number of bytes, including those that were not captured.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Number of bytes of the stream before the track. 0 for streams without sequence numbers;
    /// `None` with sequence numbers but without a captured SYN.
    pub fn start(&self) -> Option<u64> {
        let Some(origin) = &self.source else { return Some(0) };
        let first = origin.isn? + 1;
        u64::try_from(origin.first_seq.distance_from(first)).ok()
    }

    fn push_run(&mut self, run: Run) {
        let is_kept = self.pieces.is_multiple_of(self.stride);
        self.pieces += 1;
        if !is_kept {
            return;
        }
        if self.runs.len() == MAX_TRACK_PIECES {
            self.thin();
            if !(self.pieces - 1).is_multiple_of(self.stride) {
                return;
            }
        }
        self.runs.push(run);
    }

    /// Drops every second piece.
    pub(super) fn thin(&mut self) {
        let mut number = 0;
        self.runs.retain(|_| {
            number += 1;
            number % 2 == 1
        });
        self.stride = self.stride.saturating_mul(2);
    }

    /// Reverses the direction along the chain.
    pub(super) fn reverse(&mut self) {
        self.direction = self.direction.opposite();
    }

    pub(super) fn runs(&self) -> &[Run] {
        &self.runs
    }

    pub(super) fn anchors(&self) -> &Anchors {
        &self.anchors
    }

    /// Returns the ranges of retransmitted bytes, sorted.
    pub(super) fn retransmitted(&self) -> Vec<(u64, u64)> {
        let mut all = self.retransmitted.clone();
        all.sort_unstable();
        all
    }

    /// Whether all bytes of the window at `offset` are known.
    pub(super) fn is_known(&self, offset: u64) -> bool {
        let mut from = offset;
        let end = offset.saturating_add(ANCHOR_LEN as u64);
        let behind = self.runs.partition_point(|run| run.end <= offset);
        for run in self.runs.iter().skip(behind) {
            if from >= end || run.begin > from {
                break;
            }
            if run.begin + run.known_bytes < run.end.min(end) {
                return false;
            }
            from = run.end;
        }
        from >= end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::align::tests::noise;

    #[test]
    fn of_very_many_pieces_a_part_is_remembered() {
        let mut track = Track::new(ChainDirection::Forward, "", None);
        for number in 0..3 * MAX_TRACK_PIECES as u64 {
            track.push(Piece::uncaptured(Time::from_nanos(number), 10));
        }
        assert_eq!(track.length(), 30 * MAX_TRACK_PIECES as u64);
        assert!((MAX_TRACK_PIECES / 2..=MAX_TRACK_PIECES).contains(&track.runs.len()));
        for run in &track.runs {
            assert_eq!((run.begin, run.at.as_nanos() % 4), (run.at.as_nanos() * 10, 0));
        }
    }

    #[test]
    fn what_is_known_of_it() {
        let bytes = noise(3, 100);
        let mut track = Track::new(ChainDirection::Forward, "", None);
        track.push(Piece::captured(Time::ZERO, &bytes[..50]));
        track.push(Piece { at: Time::ZERO, bytes: &bytes[50..80], length: 50 });
        track.skip(10);
        track.push(Piece::captured(Time::ZERO, &bytes));
        let known: Vec<u64> = (0..300).filter(|offset| track.is_known(*offset)).collect();
        let expected: Vec<u64> = (0..=80 - 24).chain(110..=210 - 24).collect();
        assert_eq!(known, expected);
        assert_eq!(track.anchors.iter().count(), 100 - 24 + 1, "the beginning is there twice");
    }

    #[test]
    fn no_length_is_too_much() {
        let mut track = Track::new(ChainDirection::Forward, "", None);
        track.push(Piece::uncaptured(Time::ZERO, u64::MAX));
        track.push(Piece::captured(Time::ZERO, b"more"));
        track.skip(u64::MAX);
        assert_eq!((track.length(), track.runs.len()), (MAX_TRACK_LEN, 1));
    }
}
