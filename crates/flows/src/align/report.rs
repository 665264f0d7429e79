//! Delays between consecutive capture points of a chain.

use std::collections::BTreeMap;

use super::clock::ClockAlignment;
use super::delay::{self, Sample, Summary};
use super::log::{ProxyLog, READ_POINT, WRITE_POINT};
use super::pairing::{self, CommonRange, Match};
use super::part::{Accuracy, DelayConverter, Part, PartName};
use super::track::{Run, Track, TrackContent};
use super::{ChainDirection, Difference};

/// Location of a capture point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PointLocation {
    /// At the server.
    Server,
    /// On the phone, on the interface towards the server.
    PhoneIn,
    /// On the phone, on the interface towards the wearable.
    PhoneOut,
    /// At the wearable.
    Wearable,
    /// Any other location.
    Other,
}

/// Result for one capture point.
#[derive(Clone, Debug)]
pub struct Point {
    pub location: PointLocation,
    /// Number of the clock of its timestamps: captures on one device have the same number.
    pub clock: u32,
    pub tracks: Vec<Track>,
}

/// Result for a chain of points.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Consecutive points, in the order of the chain.
    pub pairs: Vec<Pair>,
    /// Sorted by direction and name.
    pub parts: Vec<Part>,
}

/// Two consecutive points.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Indices of the points.
    pub points: [usize; 2],
    /// Streams that both points captured.
    pub streams: Vec<PairedStream>,
    /// Tracks of the second point with an ambiguous match.
    pub ambiguous: Vec<usize>,
    /// Number of tracks that were not examined.
    pub skipped: usize,
    /// `None` if both points have the same clock, or no common stream.
    pub clock: Option<ClockAlignment>,
}

/// A stream at two points.
#[derive(Clone, Debug)]
pub struct PairedStream {
    pub matched: Match,
    pub direction: ChainDirection,
    pub content: TrackContent,
    /// Offsets are those of the first track; each time is by the clock of its point.
    pub samples: Vec<Sample>,
    /// Delays, converted to one clock as far as possible. `None` if no byte has a time at both
    /// points.
    pub delays: Option<Summary>,
}

impl Report {
    /// Creates a report of points in the order of [`ChainDirection::Forward`], with an optional log
    /// of the proxy between [`PointLocation::PhoneIn`] and [`PointLocation::PhoneOut`].
    pub fn new(points: &[Point], log: Option<&ProxyLog>) -> Self {
        let pairs = points.windows(2).enumerate().filter_map(|(number, two)| match two {
            [first, second] => Some(Pair::new(number, first, second)),
            _ => None,
        });
        let pairs: Vec<Pair> = pairs.collect();
        let parts = pairs.iter().flat_map(|pair| pair.parts(points, log)).collect();
        Self { pairs, parts }
    }

    /// Returns the clock relations that were used for parts of the delay.
    pub fn clocks(&self) -> impl Iterator<Item = &ClockAlignment> {
        self.pairs.iter().filter_map(|pair| pair.clock.as_ref())
    }

    /// Returns the part with this name and direction.
    pub fn part(&self, name: PartName, direction: ChainDirection) -> Option<&Part> {
        self.parts.iter().find(|part| part.name == name && part.direction == direction)
    }
}

impl Pair {
    fn new(number: usize, first: &Point, second: &Point) -> Self {
        let pairing = pairing::pair(&first.tracks, &second.tracks);
        let streams = pairing.matches.into_iter().filter_map(|found| {
            let (a, b) = (first.tracks.get(found.first)?, second.tracks.get(found.second)?);
            let samples = samples(&found.common, a, a.runs(), b, b.runs());
            let carries = a.source().map_or(TrackContent::Bytes, |origin| origin.content);
            Some(PairedStream {
                matched: found,
                direction: a.direction(),
                content: carries,
                samples,
                delays: None,
            })
        });
        let mut streams: Vec<PairedStream> = streams.collect();
        let times = |way: ChainDirection| -> Vec<_> {
            let streams = streams.iter().filter(|stream| stream.direction == way);
            streams.flat_map(|s| &s.samples).map(|s| (s.first, s.second)).collect()
        };
        let is_one = first.clock == second.clock;
        let clocks = [first.clock, second.clock];
        let [along, against] = ChainDirection::BOTH;
        let clock = match is_one {
            true => None,
            false => ClockAlignment::estimate(clocks, &times(along), &times(against)),
        };
        for stream in &mut streams {
            let measure = DelayConverter { direction: stream.direction, clock: clock.as_ref() };
            stream.delays = measure.summaries(&stream.samples).map(|(all, _)| all);
        }
        let points = [number, number + 1];
        let (ambiguous, left_out) = (pairing.ambiguous, pairing.skipped);
        Self { points, streams, ambiguous, skipped: left_out, clock }
    }

    /// Returns the delay of each sample of a stream of this pair, in the stream's order, and their
    /// accuracy.
    pub fn series(&self, stream: &PairedStream) -> (Accuracy, Vec<Difference>) {
        let measure = DelayConverter { direction: stream.direction, clock: self.clock.as_ref() };
        let delays: Vec<_> = stream.samples.iter().map(|sample| measure.delay(sample)).collect();
        let min = match measure.accuracy() {
            Accuracy::RelativeToMin => delays.iter().min().copied().unwrap_or_default(),
            _ => Difference::default(),
        };
        (measure.accuracy(), delays.into_iter().map(|delay| delay.less(min)).collect())
    }

    fn parts(&self, points: &[Point], log: Option<&ProxyLog>) -> Vec<Part> {
        let [Some(first), Some(second)] = self.points.map(|number| points.get(number)) else {
            return Vec::new();
        };
        let whole = match (first.location, second.location) {
            (PointLocation::Server, PointLocation::PhoneIn) => PartName::D1,
            (PointLocation::PhoneIn, PointLocation::PhoneOut) => PartName::D2AndD3,
            (PointLocation::PhoneOut, PointLocation::Wearable) => PartName::D4,
            _ => PartName::Other,
        };
        let mut found: BTreeMap<(ChainDirection, PartName), Vec<Sample>> = BTreeMap::new();
        for stream in self.streams.iter().filter(|stream| stream.content == TrackContent::Bytes) {
            let tracks = first
                .tracks
                .get(stream.matched.first)
                .zip(second.tracks.get(stream.matched.second));
            let Some((a, b)) = tracks else { continue };
            let logged =
                LoggedTimes::of(log, stream.direction, (first.location, a), (second.location, b));
            let same = &stream.matched.common;
            let mut add = |name, samples: Vec<Sample>| {
                found.entry((stream.direction, name)).or_default().extend(samples);
            };
            match logged.replaced_runs.iter().any(Option::is_some) {
                true => {
                    let [from, to] = [(&logged.replaced_runs[0], a), (&logged.replaced_runs[1], b)]
                        .map(|(logged, track)| logged.as_deref().unwrap_or(track.runs()));
                    add(whole, samples(same, a, from, b, to));
                }
                false => add(whole, stream.samples.clone()),
            }
            let Some(read) = &logged.read_runs else { continue };
            let (up, [d2_first, d2_second], [d3_first, d3_second]) = match stream.direction {
                ChainDirection::Forward => (
                    a,
                    [a.runs(), read],
                    [&read[..], logged.replaced_runs[1].as_deref().unwrap_or(b.runs())],
                ),
                ChainDirection::Reverse => (
                    b,
                    [&read[..], b.runs()],
                    [logged.replaced_runs[0].as_deref().unwrap_or(a.runs()), &read[..]],
                ),
            };
            let all = [CommonRange { first: 0, second: 0, length: up.length() }];
            add(PartName::D2, delay::samples(&all, d2_first, d2_second, &up.retransmitted(), true));
            add(PartName::D3, samples(same, a, d3_first, b, d3_second));
        }
        let part = |((way, name), samples): ((ChainDirection, PartName), Vec<Sample>)| {
            let measure = DelayConverter { direction: way, clock: self.clock.as_ref() };
            let (all, sent_once) = measure.summaries(&samples)?;
            let (points, trust) = (self.points, measure.accuracy());
            Some(Part { name, direction: way, points, accuracy: trust, all, sent_once })
        };
        found.into_iter().filter_map(part).collect()
    }
}

/// Times from a log for a stream between two points, by offsets of their tracks.
struct LoggedTimes {
    read_runs: Option<Vec<Run>>,
    /// Replacement for the times of the first and of the second track.
    replaced_runs: [Option<Vec<Run>>; 2],
}

impl LoggedTimes {
    /// A proxy reads the data of the incoming side; the part after the phone begins when the proxy
    /// writes.
    fn of(
        log: Option<&ProxyLog>,
        direction: ChainDirection,
        first: (PointLocation, &Track),
        second: (PointLocation, &Track),
    ) -> Self {
        let placed =
            |point: &str, track: &Track| to_track_offsets(log?.track(point, track.name())?, track);
        let (up, down) = match direction {
            ChainDirection::Forward => (first, second),
            ChainDirection::Reverse => (second, first),
        };
        let (comes_to, goes_from) = match direction {
            ChainDirection::Forward => (PointLocation::PhoneIn, PointLocation::PhoneOut),
            ChainDirection::Reverse => (PointLocation::PhoneOut, PointLocation::PhoneIn),
        };
        let is_phone = (up.0, down.0) == (comes_to, goes_from);
        let read = if is_phone { placed(READ_POINT, up.1) } else { None };
        let from = if up.0 == goes_from { placed(WRITE_POINT, up.1) } else { None };
        let to = if is_phone { placed(WRITE_POINT, down.1) } else { None };
        let ends = match direction {
            ChainDirection::Forward => [from, to],
            ChainDirection::Reverse => [to, from],
        };
        Self { read_runs: read, replaced_runs: ends }
    }
}

/// Converts logged offsets to those of a track. `None` if the start of the track is unknown.
fn to_track_offsets(logged: &Track, track: &Track) -> Option<Vec<Run>> {
    let start = track.start()?;
    let behind = logged.runs().iter().filter(|run| run.end > start);
    let place =
        |run: &Run| Run { begin: run.begin.saturating_sub(start), end: run.end - start, ..*run };
    Some(behind.map(place).collect())
}

/// Returns the samples of two tracks, with the times of these runs.
fn samples(same: &[CommonRange], a: &Track, from: &[Run], b: &Track, to: &[Run]) -> Vec<Sample> {
    let is_first = a.direction() == ChainDirection::Forward;
    let again = if is_first { a.retransmitted() } else { b.retransmitted() };
    delay::samples(same, from, to, &again, is_first)
}
