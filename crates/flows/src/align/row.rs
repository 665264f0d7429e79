//! Rows of delays.

use std::sync::Arc;

use manyways_unit::Time;

use super::ChainDirection;
use super::part::Accuracy;
use super::report::{Point, Report};
use super::track::TrackContent;
use crate::columns::{SCHEMA, columns};
use manyways_record::table::{Column, Row};

/// Delay of bytes from one point to the next.
#[derive(Clone, Debug, PartialEq)]
pub struct Delay {
    /// Time at the point that they passed first, by its clock.
    pub at: Time,
    /// Indices of the points in the chain.
    pub points: [usize; 2],
    /// Name of the stream at each point.
    pub names: [Arc<str>; 2],
    pub direction: ChainDirection,
    pub content: TrackContent,
    /// Offset in the first point's stream, and number of bytes.
    pub bytes: (u64, u64),
    /// In seconds, converted to one clock as far as possible.
    pub delay: f64,
    pub accuracy: Accuracy,
    /// Whether the earlier point captured the bytes again later.
    pub was_retransmitted: bool,
}

impl Report {
    /// Returns all delays, by pair and stream.
    pub fn delays<'a>(&'a self, points: &'a [Point]) -> impl Iterator<Item = Delay> + 'a {
        self.pairs.iter().flat_map(move |pair| {
            pair.streams.iter().flat_map(move |stream| {
                let (accuracy, series) = pair.series(stream);
                let name = |side: usize, track: usize| -> Arc<str> {
                    let track = points.get(pair.points[side]).and_then(|p| p.tracks.get(track));
                    track.map_or("", |track| track.name()).into()
                };
                let names = [name(0, stream.matched.first), name(1, stream.matched.second)];
                stream.samples.iter().zip(series).map(move |(sample, delay)| Delay {
                    at: match stream.direction {
                        ChainDirection::Forward => sample.first,
                        ChainDirection::Reverse => sample.second,
                    },
                    points: pair.points,
                    names: names.clone(),
                    direction: stream.direction,
                    content: stream.content,
                    bytes: (sample.offset, sample.length),
                    delay: delay.as_secs_f64(),
                    accuracy,
                    was_retransmitted: sample.was_retransmitted,
                })
            })
        })
    }
}

impl Row for Delay {
    const TABLE: &'static str = "delays";
    const SCHEMA: &'static str = SCHEMA;
    const ABOUT: &'static str = "Bytes that passed two consecutive capture points.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "time" Time "Time at the point that the bytes passed first, by its clock."
            |delay| delay.at;
        "from_point" Count "The number of that point along the path, from 0."
            |delay| delay.points[usize::from(delay.direction == ChainDirection::Reverse)] as u64;
        "to_point" Count "The number of the other point."
            |delay| delay.points[usize::from(delay.direction == ChainDirection::Forward)] as u64;
        "stream" Text "Name of the stream at the point with the lower number."
            |delay| &*delay.names[0];
        "other_stream" Text "Name of the stream at the other point." |delay| &*delay.names[1];
        "is_acknowledgement" Flag "The stream consists of acknowledged bytes, not of payload."
            |delay| delay.content == TrackContent::Acknowledgements;
        "offset" Count "Offset of the bytes in the stream of the point with the lower number."
            |delay| delay.bytes.0;
        "bytes" Count "Number of bytes." |delay| delay.bytes.1;
        "delay" Number "Delay in seconds, converted to one clock as far as possible."
            |delay| delay.delay;
        "accuracy" Text "Accuracy of the delay: one-clock, within, above-minimum or unsteady."
            |delay| delay.accuracy.name();
        "was_retransmitted" Flag "The first point captured the bytes again later." |delay| delay.was_retransmitted;
    };
}
