//! Result of an alignment as JSON; docs/align.md documents the fields.

use manyways_capture::Alignment;
use manyways_flows::align::report::Paired;
use manyways_flows::align::{Carries, Difference, How, Pair, Part, Point, Summary, Trust, Way};
use manyways_unit::{Span, Time};
use serde::Serialize;

#[derive(Serialize)]
pub struct Document {
    schema: &'static str,
    points: Vec<At>,
    pairs: Vec<Two>,
    parts: Vec<Delay>,
}

#[derive(Serialize)]
struct At {
    capture: String,
    place: &'static str,
    clock: u32,
    packets: u64,
    followed: u64,
    streams: usize,
    left_out: u64,
    first: Option<f64>,
    last: Option<f64>,
    fault: Option<String>,
}

#[derive(Serialize)]
struct Two {
    points: [usize; 2],
    streams: Vec<Stream>,
    ambiguous: Vec<String>,
    left_out: usize,
    clock: Option<Clock>,
}

#[derive(Serialize)]
struct Stream {
    names: [String; 2],
    way: &'static str,
    carries: &'static str,
    how: &'static str,
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
    way: &'static str,
    points: [usize; 2],
    trust: &'static str,
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
    let at = captures.iter().zip(points).map(|(capture, point)| At {
        capture: capture.name.clone(),
        place: super::text::place(point.place),
        clock: point.clock,
        packets: capture.packets,
        followed: capture.followed,
        streams: super::text::streams(point),
        left_out: capture.left_out,
        first: capture.times.map(|times| secs(times.0)),
        last: capture.times.map(|times| secs(times.1)),
        fault: capture.fault.clone(),
    });
    Document {
        schema: "manyways-align/1",
        points: at.collect(),
        pairs: report.pairs.iter().map(|pair| Two::of(pair, points)).collect(),
        parts: report.parts.iter().map(Delay::of).collect(),
    }
}

pub fn way(way: Way) -> &'static str {
    match way {
        Way::Along => "along",
        Way::Against => "against",
    }
}

/// Name of a stream at a point.
pub fn name(points: &[Point], point: usize, track: usize) -> String {
    let track = points.get(point).and_then(|point| point.tracks.get(track));
    track.map(|track| track.name().to_owned()).unwrap_or_default()
}

pub fn bytes(stream: &Paired) -> u64 {
    stream.found.same.iter().map(|same| same.length).sum()
}

impl Two {
    fn of(pair: &Pair, points: &[Point]) -> Self {
        let [one, other] = pair.points;
        let streams = pair.streams.iter().map(|stream| Stream {
            names: [
                name(points, one, stream.found.first),
                name(points, other, stream.found.second),
            ],
            way: way(stream.way),
            carries: match stream.carries {
                Carries::Bytes => "bytes",
                Carries::Acknowledgements => "acknowledgements",
            },
            how: match stream.found.how {
                How::Ends => "ends",
                How::Numbers => "numbers",
                How::EndsOnly => "ends-only",
                How::NumberOnly => "number-only",
                How::Content => "content",
            },
            bytes: bytes(stream),
            agreeing: stream.found.agreeing,
            differing: stream.found.differing,
            delay: stream.delays.as_ref().map(Figures::of),
        });
        let clock = pair.clock.map(|clock| Clock {
            at: secs(clock.at),
            offset: clock.offset.map(Difference::as_secs_f64),
            bound: clock.bound.map(Span::as_secs_f64),
            drift_ppm: clock.drift.map(|drift| drift.0),
            residual: clock.residual.map(Span::as_secs_f64),
            is_steady: clock.is_steady,
            samples: clock.samples,
        });
        Self {
            points: pair.points,
            streams: streams.collect(),
            ambiguous: pair.ambiguous.iter().map(|track| name(points, other, *track)).collect(),
            left_out: pair.left_out,
            clock,
        }
    }
}

impl Delay {
    fn of(part: &Part) -> Self {
        Self {
            name: part.name.name(),
            way: way(part.way),
            points: part.points,
            trust: part.trust.name(),
            bound: match part.trust {
                Trust::Within(span) => Some(span.as_secs_f64()),
                _ => None,
            },
            all: Figures::of(&part.all),
            sent_once: part.sent_once.as_ref().map(Figures::of),
        }
    }
}

impl Figures {
    fn of(summary: &Summary) -> Self {
        let Summary { count, bytes, least, median, p95, most } = *summary;
        let [min, median, p95, max] = [least, median, p95, most].map(Difference::as_secs_f64);
        Self { count, bytes, min, median, p95, max }
    }
}

fn secs(time: Time) -> f64 {
    time.as_nanos() as f64 / 1e9
}
