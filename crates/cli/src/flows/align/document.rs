//! Result of an alignment as JSON; docs/align.md documents the fields.

use manyways_capture::Alignment;
use manyways_flows::align::{
    Accuracy, ChainDirection, Difference, MatchEvidence, Pair, PairedStream, Part, Point, Summary,
    TrackContent,
};
use manyways_unit::{Span, Time};
use serde::Serialize;

#[derive(Serialize)]
pub struct Document {
    points: Vec<PointDocument>,
    pairs: Vec<PairDocument>,
    parts: Vec<Delay>,
}

manyways_record::document!(Document, "manyways-align/2");

#[derive(Serialize)]
struct PointDocument {
    capture: String,
    role: &'static str,
    clock: u32,
    packets: u64,
    followed: u64,
    streams: usize,
    skipped: u64,
    first: Option<f64>,
    last: Option<f64>,
    error: Option<String>,
}

#[derive(Serialize)]
struct PairDocument {
    points: [usize; 2],
    streams: Vec<Stream>,
    ambiguous: Vec<String>,
    skipped: usize,
    clock: Option<Clock>,
}

#[derive(Serialize)]
struct Stream {
    names: [String; 2],
    direction: &'static str,
    carries: &'static str,
    matched_by: &'static str,
    bytes: u64,
    agreeing: u64,
    differing: u64,
    delay: Option<Figures>,
}

#[derive(Serialize)]
struct Clock {
    at: f64,
    offset: Option<f64>,
    bound: Option<f64>,
    drift_ppm: Option<f64>,
    residual: Option<f64>,
    is_steady: bool,
    samples: [u64; 2],
}

#[derive(Serialize)]
struct Delay {
    name: &'static str,
    direction: &'static str,
    points: [usize; 2],
    accuracy: &'static str,
    bound: Option<f64>,
    all: Figures,
    sent_once: Option<Figures>,
}

#[derive(Serialize)]
struct Figures {
    count: u64,
    bytes: u64,
    min: f64,
    median: f64,
    p95: f64,
    max: f64,
}

pub fn document(alignment: &Alignment) -> Document {
    let Alignment { captures, points, report } = alignment;
    let at = captures.iter().zip(points).map(|(capture, point)| PointDocument {
        capture: capture.name.clone(),
        role: super::text::role_name(point.location),
        clock: point.clock,
        packets: capture.packets,
        followed: capture.followed,
        streams: super::text::streams(point),
        skipped: capture.skipped,
        first: capture.times.map(|times| seconds(times.0)),
        last: capture.times.map(|times| seconds(times.1)),
        error: capture.error.clone(),
    });
    Document {
        points: at.collect(),
        pairs: report.pairs.iter().map(|pair| PairDocument::of(pair, points)).collect(),
        parts: report.parts.iter().map(Delay::of).collect(),
    }
}

pub fn direction_name(direction: ChainDirection) -> &'static str {
    match direction {
        ChainDirection::Forward => "along",
        ChainDirection::Reverse => "against",
    }
}

/// Name of a stream at a point.
pub fn stream_name(points: &[Point], point: usize, track: usize) -> String {
    let track = points.get(point).and_then(|point| point.tracks.get(track));
    track.map(|track| track.name().to_owned()).unwrap_or_default()
}

pub fn matched_bytes(stream: &PairedStream) -> u64 {
    stream.matched.common.iter().map(|same| same.length).sum()
}

impl PairDocument {
    fn of(pair: &Pair, points: &[Point]) -> Self {
        let [one, other] = pair.points;
        let streams = pair.streams.iter().map(|stream| Stream {
            names: [
                stream_name(points, one, stream.matched.first),
                stream_name(points, other, stream.matched.second),
            ],
            direction: direction_name(stream.direction),
            carries: match stream.content {
                TrackContent::Bytes => "bytes",
                TrackContent::Acknowledgements => "acknowledgements",
            },
            matched_by: match stream.matched.evidence {
                MatchEvidence::TupleAndIsns => "ends",
                MatchEvidence::BothIsns => "numbers",
                MatchEvidence::Tuple => "ends-only",
                MatchEvidence::OneIsn => "number-only",
                MatchEvidence::Content => "content",
            },
            bytes: matched_bytes(stream),
            agreeing: stream.matched.agreeing,
            differing: stream.matched.differing,
            delay: stream.delays.as_ref().map(Figures::of),
        });
        let clock = pair.clock.map(|clock| Clock {
            at: seconds(clock.at),
            offset: clock.offset.map(Difference::as_secs_f64),
            bound: clock.max_error.map(Span::as_secs_f64),
            drift_ppm: clock.drift.map(|drift| drift.0),
            residual: clock.residual.map(Span::as_secs_f64),
            is_steady: clock.is_steady,
            samples: clock.samples,
        });
        Self {
            points: pair.points,
            streams: streams.collect(),
            ambiguous: pair
                .ambiguous
                .iter()
                .map(|track| stream_name(points, other, *track))
                .collect(),
            skipped: pair.skipped,
            clock,
        }
    }
}

impl Delay {
    fn of(part: &Part) -> Self {
        Self {
            name: part.name.name(),
            direction: direction_name(part.direction),
            points: part.points,
            accuracy: part.accuracy.name(),
            bound: match part.accuracy {
                Accuracy::ErrorBound(span) => Some(span.as_secs_f64()),
                _ => None,
            },
            all: Figures::of(&part.all),
            sent_once: part.sent_once.as_ref().map(Figures::of),
        }
    }
}

impl Figures {
    fn of(summary: &Summary) -> Self {
        let Summary { count, bytes, min: least, median, p95, max: most } = *summary;
        let [min, median, p95, max] = [least, median, p95, most].map(Difference::as_secs_f64);
        Self { count, bytes, min, median, p95, max }
    }
}

fn seconds(time: Time) -> f64 {
    time.as_nanos() as f64 / 1e9
}
