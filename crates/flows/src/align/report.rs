//! Delays between consecutive capture points of a chain.

use std::collections::BTreeMap;

use super::clock::Clock;
use super::delay::{self, Sample, Summary};
use super::log::{Log, READ, WRITE};
use super::pairing::{self, Match, Same};
use super::part::{Measure, Name, Part, Trust};
use super::track::{Carries, Run, Track};
use super::{Difference, Way};

/// Location of a capture point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
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
    pub place: Place,
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
    pub streams: Vec<Paired>,
    /// Tracks of the second point with an ambiguous match.
    pub ambiguous: Vec<usize>,
    /// Number of tracks that were not examined.
    pub left_out: usize,
    /// `None` if both points have the same clock, or no common stream.
    pub clock: Option<Clock>,
}

/// A stream at two points.
#[derive(Clone, Debug)]
pub struct Paired {
    pub found: Match,
    pub way: Way,
    pub carries: Carries,
    /// Offsets are those of the first track; each time is by the clock of its point.
    pub samples: Vec<Sample>,
    /// Delays, converted to one clock as far as possible. `None` if no byte has a time at both
    /// points.
    pub delays: Option<Summary>,
}

impl Report {
    /// Creates a report of points in the order of [`Way::Along`], with an optional log of the proxy
    /// between [`Place::PhoneIn`] and [`Place::PhoneOut`].
    pub fn new(points: &[Point], log: Option<&Log>) -> Self {
        let pairs = points.windows(2).enumerate().filter_map(|(number, two)| match two {
            [first, second] => Some(Pair::new(number, first, second)),
            _ => None,
        });
        let pairs: Vec<Pair> = pairs.collect();
        let parts = pairs.iter().flat_map(|pair| pair.parts(points, log)).collect();
        Self { pairs, parts }
    }

    /// Returns the clock relations that were used for parts of the delay.
    pub fn clocks(&self) -> impl Iterator<Item = &Clock> {
        self.pairs.iter().filter_map(|pair| pair.clock.as_ref())
    }

    /// Returns the part with this name and direction.
    pub fn part(&self, name: Name, way: Way) -> Option<&Part> {
        self.parts.iter().find(|part| part.name == name && part.way == way)
    }
}

impl Pair {
    fn new(number: usize, first: &Point, second: &Point) -> Self {
        let pairing = pairing::pair(&first.tracks, &second.tracks);
        let streams = pairing.matches.into_iter().filter_map(|found| {
            let (a, b) = (first.tracks.get(found.first)?, second.tracks.get(found.second)?);
            let samples = samples(&found.same, a, a.runs(), b, b.runs());
            let carries = a.origin().map_or(Carries::Bytes, |origin| origin.carries);
            Some(Paired { found, way: a.way(), carries, samples, delays: None })
        });
        let mut streams: Vec<Paired> = streams.collect();
        let times = |way: Way| -> Vec<_> {
            let streams = streams.iter().filter(|stream| stream.way == way);
            streams.flat_map(|s| &s.samples).map(|s| (s.first, s.second)).collect()
        };
        let is_one = first.clock == second.clock;
        let clocks = [first.clock, second.clock];
        let [along, against] = Way::BOTH;
        let clock = match is_one {
            true => None,
            false => Clock::estimate(clocks, &times(along), &times(against)),
        };
        for stream in &mut streams {
            let measure = Measure { way: stream.way, clock: clock.as_ref() };
            stream.delays = measure.summaries(&stream.samples).map(|(all, _)| all);
        }
        let points = [number, number + 1];
        let (ambiguous, left_out) = (pairing.ambiguous, pairing.left_out);
        Self { points, streams, ambiguous, left_out, clock }
    }

    /// Returns the delay of each sample of a stream of this pair, in the stream's order, and their
    /// accuracy.
    pub fn series(&self, stream: &Paired) -> (Trust, Vec<Difference>) {
        let measure = Measure { way: stream.way, clock: self.clock.as_ref() };
        let delays: Vec<_> = stream.samples.iter().map(|sample| measure.delay(sample)).collect();
        let least = match measure.trust() {
            Trust::AboveLeast => delays.iter().min().copied().unwrap_or_default(),
            _ => Difference::default(),
        };
        (measure.trust(), delays.into_iter().map(|delay| delay.less(least)).collect())
    }

    fn parts(&self, points: &[Point], log: Option<&Log>) -> Vec<Part> {
        let [Some(first), Some(second)] = self.points.map(|number| points.get(number)) else {
            return Vec::new();
        };
        let whole = match (first.place, second.place) {
            (Place::Server, Place::PhoneIn) => Name::D1,
            (Place::PhoneIn, Place::PhoneOut) => Name::D2AndD3,
            (Place::PhoneOut, Place::Wearable) => Name::D4,
            _ => Name::Other,
        };
        let mut found: BTreeMap<(Way, Name), Vec<Sample>> = BTreeMap::new();
        for stream in self.streams.iter().filter(|stream| stream.carries == Carries::Bytes) {
            let tracks =
                first.tracks.get(stream.found.first).zip(second.tracks.get(stream.found.second));
            let Some((a, b)) = tracks else { continue };
            let logged = Logged::of(log, stream.way, (first.place, a), (second.place, b));
            let same = &stream.found.same;
            let mut add = |name, samples: Vec<Sample>| {
                found.entry((stream.way, name)).or_default().extend(samples);
            };
            match logged.ends.iter().any(Option::is_some) {
                true => {
                    let [from, to] = [(&logged.ends[0], a), (&logged.ends[1], b)]
                        .map(|(logged, track)| logged.as_deref().unwrap_or(track.runs()));
                    add(whole, samples(same, a, from, b, to));
                }
                false => add(whole, stream.samples.clone()),
            }
            let Some(read) = &logged.read else { continue };
            let (up, [d2_first, d2_second], [d3_first, d3_second]) = match stream.way {
                Way::Along => (
                    a,
                    [a.runs(), read],
                    [&read[..], logged.ends[1].as_deref().unwrap_or(b.runs())],
                ),
                Way::Against => (
                    b,
                    [&read[..], b.runs()],
                    [logged.ends[0].as_deref().unwrap_or(a.runs()), &read[..]],
                ),
            };
            let all = [Same { first: 0, second: 0, length: up.length() }];
            add(Name::D2, delay::samples(&all, d2_first, d2_second, &up.all_again(), true));
            add(Name::D3, samples(same, a, d3_first, b, d3_second));
        }
        let part = |((way, name), samples): ((Way, Name), Vec<Sample>)| {
            let measure = Measure { way, clock: self.clock.as_ref() };
            let (all, sent_once) = measure.summaries(&samples)?;
            let (points, trust) = (self.points, measure.trust());
            Some(Part { name, way, points, trust, all, sent_once })
        };
        found.into_iter().filter_map(part).collect()
    }
}

/// Times from a log for a stream between two points, by offsets of their tracks.
struct Logged {
    read: Option<Vec<Run>>,
    /// Replacement for the times of the first and of the second track.
    ends: [Option<Vec<Run>>; 2],
}

impl Logged {
    /// A proxy reads the data of the incoming side; the part after the phone begins when the proxy
    /// writes.
    fn of(log: Option<&Log>, way: Way, first: (Place, &Track), second: (Place, &Track)) -> Self {
        let placed = |point: &str, track: &Track| placed(log?.track(point, track.name())?, track);
        let (up, down) = match way {
            Way::Along => (first, second),
            Way::Against => (second, first),
        };
        let (comes_to, goes_from) = match way {
            Way::Along => (Place::PhoneIn, Place::PhoneOut),
            Way::Against => (Place::PhoneOut, Place::PhoneIn),
        };
        let is_phone = (up.0, down.0) == (comes_to, goes_from);
        let read = if is_phone { placed(READ, up.1) } else { None };
        let from = if up.0 == goes_from { placed(WRITE, up.1) } else { None };
        let to = if is_phone { placed(WRITE, down.1) } else { None };
        let ends = match way {
            Way::Along => [from, to],
            Way::Against => [to, from],
        };
        Self { read, ends }
    }
}

/// Converts logged offsets to those of a track. `None` if the start of the track is unknown.
fn placed(logged: &Track, track: &Track) -> Option<Vec<Run>> {
    let start = track.start()?;
    let behind = logged.runs().iter().filter(|run| run.end > start);
    let place =
        |run: &Run| Run { begin: run.begin.saturating_sub(start), end: run.end - start, ..*run };
    Some(behind.map(place).collect())
}

/// Returns the samples of two tracks, with the times of these runs.
fn samples(same: &[Same], a: &Track, from: &[Run], b: &Track, to: &[Run]) -> Vec<Sample> {
    let is_first = a.way() == Way::Along;
    let again = if is_first { a.all_again() } else { b.all_again() };
    delay::samples(same, from, to, &again, is_first)
}
